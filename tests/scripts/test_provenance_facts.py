"""What the documents of a build are read from, what makes them stale, and the documents of the real stacks."""

from __future__ import annotations

import json
import shutil
import zipfile
from pathlib import Path

import pytest
from provenance_example import digest, manifest_of, revision
from sbom_schema import fault
from synthetic import Project

from scripts import build, pins, provenance, requirements_file
from scripts.build_inputs import Inputs, read_inputs
from scripts.console import Console
from scripts.digests import file_sha256
from scripts.errors import BuildError
from scripts.layout import PROJECT_ROOT, Layout
from scripts.manifest import Artifact, LockFile, Manifest, NestedRevision, SourceFile, SourceRevision
from scripts.provenance import artifacts, facts, lockgraph, statement, wheel_requirements
from scripts.provenance.facts import Facts
from scripts.recipes import RECIPES, sidecar
from scripts.stackfile import Stack

STACKS = sorted(path.parent.name for path in (PROJECT_ROOT / "stacks").glob("*/stack.toml"))


def built(project: Project, console: Console) -> tuple[Inputs, Manifest]:
    inputs = read_inputs(project.layout)
    return inputs, build.build(project.layout, inputs, console).whole()


def test_the_documents_of_a_build_are_about_its_files(project: Project, console: Console) -> None:
    inputs, manifest = built(project, console)
    read = facts.read(project.layout, manifest, inputs.stack, inputs.locked)
    documents = provenance.documents(read)
    statement.check(documents["provenance.json"])
    assert fault(documents["sbom.cdx.json"]) is None
    subjects = {each["name"]: each["digest"]["sha256"] for each in json.loads(documents["provenance.json"])["subject"]}
    dist = project.layout.dist
    for name in ("vllm-1.0.0+cpu-py3-none-any.whl", "smokestack_payload-0.1.0-py3-none-any.whl", "manifest.json"):
        assert subjects[name] == file_sha256(dist / name)
    assert {lock.path for lock in read.locks} == {"stacks/mini/requirements.lock", "scripts/requirements/tool.lock"}
    assert read.stack_file == LockFile(path="stacks/mini/stack.toml", sha256=file_sha256(project.layout.stack_file))


def test_a_lock_that_changed_meanwhile_is_refused(project: Project, console: Console) -> None:
    inputs, manifest = built(project, console)
    project.edit(project.layout.lock, "torch==1.0.0", "# hello\ntorch==1.0.0")
    with pytest.raises(BuildError, match="changed while the build went on") as caught:
        facts.read(project.layout, manifest, inputs.stack, inputs.locked)
    assert caught.value.expected == manifest.lock.sha256 and caught.value.found == file_sha256(project.layout.lock)


def test_a_stack_file_that_changed_meanwhile_is_refused_unless_it_says_the_same(
    project: Project, console: Console
) -> None:
    inputs, manifest = built(project, console)
    project.edit(project.layout.stack_file, "schema = 1", "# hello\nschema = 1")
    read = facts.read(project.layout, manifest, inputs.stack, inputs.locked)
    assert read.stack_file.sha256 == file_sha256(project.layout.stack_file)
    project.edit(project.layout.stack_file, "a stack in miniature", "another stack")
    with pytest.raises(BuildError, match=r"stacks/mini/stack\.toml changed while the build went on"):
        facts.read(project.layout, manifest, inputs.stack, inputs.locked)


def test_a_change_of_a_comment_makes_the_documents_stale_and_nothing_else_does(project: Project) -> None:
    before = facts.inputs_sha256(project.layout)
    (project.layout.stack_dir / "notes.txt").write_text("not read")
    assert facts.inputs_sha256(project.layout) == before
    project.edit(project.layout.stack_file, "schema = 1", "# hello\nschema = 1")
    edited = facts.inputs_sha256(project.layout)
    assert edited != before
    (project.layout.stack_dir / "build.lock").write_text("maturin==1.0 --hash=sha256:00\n")
    assert facts.inputs_sha256(project.layout) not in {before, edited}


def test_documents_written_by_other_code_are_stale(
    project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = facts.inputs_sha256(project.layout)
    copy = shutil.copytree(Path(facts.__file__).parent, tmp_path / "copy")
    monkeypatch.setattr(facts, "__file__", str(copy / "facts.py"))
    assert facts.inputs_sha256(project.layout) == before
    with (copy / "sbom.py").open("a") as code:
        code.write("# changed\n")
    assert facts.inputs_sha256(project.layout) != before


def wheel(folder: Path, requirements: str) -> Artifact:
    file = "some_thing-1.0-py3-none-any.whl"
    with zipfile.ZipFile(folder / file, "w") as archive:
        text = f"Metadata-Version: 2.1\nName: some-thing\nVersion: 1.0\n{requirements}\nRequires-Dist: not a header\n"
        archive.writestr("some_thing-1.0.dist-info/METADATA", text)
    return Artifact(name="some-thing", version="1.0", file=file, sha256=digest(file), size=1, made_from=[])


def test_a_wheel_requires_what_its_metadata_says_where_the_stack_runs(tmp_path: Path) -> None:
    artifact = wheel(
        tmp_path,
        "Requires-Dist: Torch_X==1.0\n"
        "Requires-Dist: old ; python_version < '3.12'\n"
        "Requires-Dist: new ; python_version >= '3.12'\n"
        "Requires-Dist: linux ; sys_platform == 'linux' and platform_machine == 'x86_64'\n"
        "Requires-Dist: windows ; sys_platform == 'win32'\n"
        "Requires-Dist: extra ; extra == 'more'\n",
    )
    assert wheel_requirements.required(tmp_path, artifact, "3.11") == {"torch-x", "old", "linux"}
    assert wheel_requirements.required(tmp_path, artifact, "3.12") == {"torch-x", "new", "linux"}


@pytest.mark.parametrize("name", STACKS)
def test_the_documents_of_a_real_stack_file_and_lock_are_valid_and_complete(name: str) -> None:
    layout = Layout.of(name)
    stack, locked = pins.load(layout.stack_file), requirements_file.read(layout.lock)
    manifest = _manifest(layout, stack, {package: pin.version for package, pin in locked.items()})
    lock = LockFile(path=manifest.lock.path, sha256=manifest.lock.sha256)
    stack_file = LockFile(path=layout.relative(layout.stack_file), sha256=file_sha256(layout.stack_file))
    requirers = lockgraph.requirers(layout.lock.read_text())
    documents = provenance.documents(Facts(manifest, stack, locked, stack_file, (lock,), requirers, {}))
    statement.check(documents["provenance.json"])
    assert fault(documents["sbom.cdx.json"]) is None
    sbom = json.loads(documents["sbom.cdx.json"])
    assert {each["name"] for each in sbom["components"]} >= locked.keys() | {each.name for each in manifest.artifacts}
    told = documents["provenance.json"].decode()
    for source in stack.sources.values():
        assert f"git+{source.repository}@{source.revision}" in told
        assert all(nested.revision in told for nested in source.nested.values())


def test_every_product_of_a_recipe_is_known_to_come_from_its_source() -> None:
    stack = pins.load(Layout.of("prime-rl").stack_file)
    assert artifacts.RECIPES.keys() == stack.built | {sidecar.BINARY}
    assert set(artifacts.RECIPES.values()) == set(RECIPES)


def _manifest(layout: Layout, stack: Stack, packages: dict[str, str]) -> Manifest:
    """What a build of a real stack would lead to, with invented digests."""
    if stack.engine is not None:
        wheels = (stack.engine.base, stack.engine.donor)
        engine = [SourceFile(file=f"{each.distribution}=={each.version}", sha256=each.sha256) for each in wheels]
        made = [_artifact(stack.engine.distribution, engine)]
    else:
        made = [_artifact(name, []) for name in sorted(stack.built | {sidecar.BINARY})]
    return manifest_of(
        stack,
        inputs=digest("inputs"),
        environment=layout.relative(layout.environment),
        lock=LockFile(path=layout.relative(layout.lock), sha256=file_sha256(layout.lock)),
        artifacts=made,
        binaries={},
        packages=packages,
        sources=[
            SourceRevision(
                name=name,
                repository=source.repository,
                revision=source.revision,
                tree=revision(name),
                nested=[
                    NestedRevision(name=nested, repository=it.repository, revision=it.revision, floating=False)
                    for nested, it in source.nested.items()
                ],
            )
            for name, source in stack.sources.items()
        ],
    )


def _artifact(name: str, made_from: list[SourceFile]) -> Artifact:
    return Artifact(name=name, version="1.0", file=f"{name}.whl", sha256=digest(name), size=1, made_from=made_from)
