"""What cargo calls for rustc: the source's own flags stay, and nothing of the machine's folders is left."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from scripts.recipes import rustc

CALL = [
    *("rustc", "--crate-name", "outer", "--edition=2024", "../../lib/src/lib.rs", "--crate-type", "lib"),
    *("--emit=dep-info,metadata,link", "-C", "opt-level=3", "--cfg", 'feature="a"', "--cfg", "tokio_unstable"),
    *("-C", "metadata=1111111111111111", "-C", "extra-filename=-2222222222222222"),
]


def metadata(call: list[str]) -> str:
    return next(part for part in call if part.startswith("metadata=")).removeprefix("metadata=")


def rewritten(call: list[str], out: Path, remaps: list[str] | None = None, package: str = "1.0.0") -> list[str]:
    return rustc.rewritten([*call, "--out-dir", str(out)], remaps or [], package)


def test_paths_are_remapped_by_appended_flags(tmp_path: Path) -> None:
    call = rewritten(CALL, tmp_path, ["/home/me/.cargo=/build/cargo", "/home/me/here=/build"])
    assert call[-2:] == ["--remap-path-prefix=/home/me/.cargo=/build/cargo", "--remap-path-prefix=/home/me/here=/build"]


def test_everything_else_that_cargo_says_stays(tmp_path: Path) -> None:
    before, after = [*CALL, "--out-dir", str(tmp_path)], rewritten(CALL, tmp_path)
    assert [part for part in before if "metadata=" not in part] == [part for part in after if "metadata=" not in part]


def test_a_question_of_cargo_is_passed_on(tmp_path: Path) -> None:
    assert rustc.rewritten(["rustc", "-vV"], ["/a=/b"], "") == ["rustc", "-vV", "--remap-path-prefix=/a=/b"]


def test_what_cargo_derives_from_an_absolute_path_counts_no_more(tmp_path: Path) -> None:
    """The same crate in two folders: cargo says other metadata, other names of files, other places to look in."""
    here, there = tmp_path / "here", tmp_path / "there"
    values = set()
    for folder, digit in ((here, "1"), (there, "7")):
        (folder / "deps").mkdir(parents=True)
        call = [part.replace("1" * 16, digit * 16).replace("../../lib", f"{folder}/lib") for part in CALL]
        call += ["-L", f"dependency={folder}/deps", "-C", f"incremental={folder}", "-C", "linker=/usr/bin/cc"]
        values.add(metadata(rewritten(call, folder / "deps", [f"{folder}=/build"])))
    assert len(values) == 1


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("outer", "other"),
        ("opt-level=3", "opt-level=0"),
        ('feature="a"', 'feature="b"'),
        ("tokio_unstable", "other_flag"),
        ("--edition=2024", "--edition=2021"),
        ("../../lib/src/lib.rs", "../../lib-2/src/lib.rs"),
    ],
)
def test_what_makes_another_crate_makes_other_metadata(tmp_path: Path, old: str, new: str) -> None:
    other = [part.replace(old, new) for part in CALL]
    assert metadata(rewritten(CALL, tmp_path)) != metadata(rewritten(other, tmp_path))


def test_two_versions_of_a_package_are_told_apart(tmp_path: Path) -> None:
    first, second = (metadata(rewritten(CALL, tmp_path, package=version)) for version in ("1.0.0", "2.0.0"))
    assert first != second


def test_a_crate_compiled_against_another_build_of_its_dependency_is_another(tmp_path: Path) -> None:
    user = ["rustc", "--crate-name", "app", "app/src/main.rs", "-C", "metadata=9", "-C", "extra-filename=-9"]
    seen = set()
    for number, feature in enumerate(("a", "b")):
        deps = tmp_path / str(number)
        deps.mkdir()
        rewritten([part.replace('"a"', f'"{feature}"') for part in CALL], deps)
        extern = ["--extern", f"outer={deps}/libouter-2222222222222222.rmeta"]
        seen.add(metadata(rewritten([*user, *extern], deps)))
    assert len(seen) == 2


def test_both_ways_of_writing_an_option_are_read(tmp_path: Path) -> None:
    joined = [part for part in CALL if part != "-C"]
    joined = [
        "-C" + part if "=" in part and part.split("=")[0] in {"metadata", "opt-level"} else part for part in joined
    ]
    joined = ["-Cextra-filename=-2222222222222222" if part.startswith("extra-filename") else part for part in joined]
    assert metadata(rewritten(joined, tmp_path)) == metadata(rewritten(CALL, tmp_path))


LIBRARY = """\
#[cfg(not(needed_flag))]
compile_error!("the flags of the source's own configuration are gone");
pub fn first<T>(found: Option<T>) -> T { found.expect(file!()) }
"""


def project(root: Path) -> Path:
    """A workspace whose one dependency lies outside of it, as Dynamo's bindings, and which needs a flag of its own."""
    files = {
        "lib/Cargo.toml": '[package]\nname = "outer"\nversion = "1.0.0"\nedition = "2021"\n',
        "lib/src/lib.rs": LIBRARY,
        "app/.cargo/config.toml": '[build]\nrustflags = ["--cfg", "needed_flag"]\n',
        "app/Cargo.toml": '[package]\nname = "app"\nversion = "0.1.0"\nedition = "2021"\n'
        '[dependencies]\nouter = { path = "../lib" }\n[workspace]\n',
        "app/src/main.rs": 'fn main() { println!("{}", outer::first(Some(file!()))); outer::first(None::<u8>); }\n',
    }
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def test_the_real_cargo_makes_the_same_program_in_another_folder(tmp_path: Path) -> None:
    programs = []
    for folder in (tmp_path / "one", tmp_path / "a longer, other one"):
        root = project(folder)
        made = rustc.main([str(root / "bin" / "rustc"), "--remap", f"{root}=/build"])
        assert made == 0
        subprocess.run(
            ["cargo", "build", "--release", "--quiet", "--offline"],
            cwd=root / "app",
            env={**os.environ, "RUSTC_WRAPPER": str(root / "bin" / "rustc"), "CARGO_INCREMENTAL": "0"},
            check=True,
            stderr=subprocess.PIPE,
            timeout=120,
        )
        program = root / "app/target/release/app"
        ended = subprocess.run([program], capture_output=True, text=True, check=False)
        assert ended.stdout == "src/main.rs\n"
        assert "/build/lib/src/lib.rs" in ended.stderr
        programs.append(program.read_bytes())
    assert programs[0] == programs[1]
    assert str(tmp_path).encode() not in programs[0]


def test_a_compiler_cache_is_put_before_rustc(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    cache.write_text('#!/bin/sh\necho "cached: $*"\n')
    cache.chmod(0o755)
    rustc.main([str(tmp_path / "rustc"), "--remap", "/a=/b"])
    environ = {**os.environ, rustc.CACHE_VARIABLE: str(cache)}
    said = subprocess.run([tmp_path / "rustc", "rustc", "-vV"], capture_output=True, text=True, check=True, env=environ)
    assert said.stdout == "cached: rustc -vV --remap-path-prefix=/a=/b\n"


def test_it_starts_without_the_project(tmp_path: Path) -> None:
    """cargo starts it in the source's folder, once for each crate."""
    text = rustc.script(sys.executable, ["/a b=/c"])
    assert "-I -S" in text
    assert "'/a b=/c'" in text
