"""Carrying a plan out: fresh folder, step after step, products kept by their key, and failures explained."""

from __future__ import annotations

import concurrent.futures
import dataclasses
import errno
import io
import os
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import recipes_example as example

from scripts import gitsource, recipes
from scripts.console import Console
from scripts.errors import BuildError, PinError
from scripts.exclusion import exclusive
from scripts.gitsource import Checkout
from scripts.layout import Layout
from scripts.recipes import Product, RecipePlan, Step, execution, store

PROGRAM = "printf '\\177ELF and more' > target/program; chmod 755 target/program"


class Bench:
    """A project's caches, a source, and plans whose steps are small shell scripts."""

    def __init__(self, root: Path) -> None:
        self.layout = Layout(root, "prime-rl")
        self.work = recipes.work_folder(self.layout, "sidecar")
        source = root / "source"
        source.mkdir(parents=True)
        (source / "Cargo.lock").write_text("locked\n")
        facts = example.fetched(example.STACK)["dynamo"]
        assert facts.tree is not None
        assert facts.epoch is not None
        self.checkout = Checkout(
            name="dynamo",
            repository=facts.repository,
            revision=facts.revision,
            tree=facts.tree,
            epoch=facts.epoch,
            version=None,
            dirty=False,
            submodules=(),
            path=source,
        )
        self.console = Console(io.StringIO())

    def plan(self, *scripts: str, outputs: tuple[str, ...] = (), **changes: object) -> RecipePlan:
        made = example.plan("sidecar", work=self.work.parent)
        lock = self.work / "src/Cargo.lock"
        steps = tuple(
            Step(
                f"step {number}",
                ("/bin/sh", "-ec", script),
                {"NUMBER": str(number)},
                self.work,
                (lock,),
                tuple(self.work / name for name in outputs),
            )
            for number, script in enumerate(scripts, 1)
        )
        product = Product("dynamo-vllm-sidecar", "binary", self.work / "target/program")
        environment = {**made.environment, "PATH": os.environ["PATH"]}
        return dataclasses.replace(
            made, **{"steps": steps, "products": (product,), "environment": environment, **changes}
        )

    def run(self, plan: RecipePlan, *, force: bool = False) -> recipes.Made:
        return recipes.run(plan, {"dynamo": self.checkout}, self.layout, self.console, force=force)

    def fails(self, plan: RecipePlan) -> BuildError:
        with pytest.raises(BuildError) as caught:
            self.run(plan)
        return caught.value

    @property
    def said(self) -> str:
        assert isinstance(self.console.stream, io.StringIO)
        return self.console.stream.getvalue()


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    monkeypatch.setattr(gitsource, "place", lambda checkout, target: shutil.copytree(checkout.path, target))
    return Bench(tmp_path)


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline, "it did not come about in time"
        time.sleep(0.01)


def only(made: recipes.Made) -> Path:
    (path,) = made.files
    return path


class TestARun:
    def test_leaves_its_products_under_their_key(self, bench: Bench) -> None:
        plan = bench.plan("mkdir target", PROGRAM)
        made = bench.run(plan)
        assert not made.cached
        assert only(made) == bench.layout.cache / "built" / recipes.key(plan) / "program"
        file = made.files[only(made)]
        assert (file.name, file.kind, file.version) == ("dynamo-vllm-sidecar", "binary", example.DYNAMO)
        assert os.access(only(made), os.X_OK)

    def test_a_second_one_does_nothing(self, bench: Bench) -> None:
        plan = bench.plan("mkdir target; echo again >> ../../../count", PROGRAM)
        bench.run(plan)
        assert bench.run(plan).cached
        assert (bench.layout.cache / "count").read_text() == "again\n"
        assert "build sidecar: cached" in bench.said

    def test_force_makes_it_again(self, bench: Bench) -> None:
        plan = bench.plan("mkdir target; echo again >> ../../../count", PROGRAM)
        bench.run(plan)
        assert not bench.run(plan, force=True).cached
        assert (bench.layout.cache / "count").read_text() == "again\nagain\n"

    @pytest.mark.parametrize("harm", ["changed", "gone", "record"])
    def test_a_kept_product_that_is_not_what_was_recorded_is_made_again(self, bench: Bench, harm: str) -> None:
        plan = bench.plan("mkdir target", PROGRAM)
        path = only(bench.run(plan))
        whole = path.read_bytes()
        if harm == "changed":
            path.write_bytes(whole[:-1] + b"x")
        elif harm == "gone":
            path.unlink()
        else:
            path.with_name(store.RECORD).write_text("{}")
        again = bench.run(plan)
        assert not again.cached
        assert only(again).read_bytes() == whole
        assert "build sidecar: what was kept is not what its record says, and is made again" in bench.said

    def test_what_a_killed_build_has_left_at_work_is_named_and_nothing_is_touched(self, bench: Bench) -> None:
        """Its compilers write into the very folder in which the next build would work."""
        plan = bench.plan("mkdir target", PROGRAM)
        bench.work.mkdir(parents=True)
        variables = {"VIRTUAL_ENV": plan.environment["VIRTUAL_ENV"]}
        with subprocess.Popen(["/bin/sleep", "60"], env=variables, cwd=bench.work) as left:
            try:
                error = bench.fails(plan)
                assert f"pid {left.pid}: /bin/sleep 60" in (error.found or "")
                assert (error.hint or "").startswith(f"kill {left.pid} ")
                assert bench.work.exists()
            finally:
                left.kill()
        assert not bench.run(plan).cached

    def test_while_another_stack_makes_the_same_it_waits_and_takes_that(self, bench: Bench, tmp_path: Path) -> None:
        plan = bench.plan("mkdir target", PROGRAM)
        folder = only(bench.run(plan)).parent
        aside = folder.rename(tmp_path / "aside")
        mutex = bench.layout.cache / "locks" / f"built-{recipes.key(plan)}.lock"
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            with exclusive(mutex, Console(io.StringIO())):
                waiting = pool.submit(bench.run, plan)
                until(lambda: "waiting for another build of the same sidecar" in bench.said)
                aside.rename(folder)
            assert waiting.result().cached

    def test_starts_in_an_empty_folder(self, bench: Bench) -> None:
        bench.work.mkdir(parents=True)
        (bench.work / "left").write_text("of a former build\n")
        bench.run(bench.plan("test ! -e left", "mkdir target", PROGRAM))

    def test_leaves_no_work_behind_but_its_logs(self, bench: Bench) -> None:
        bench.run(bench.plan("mkdir target; echo how it went", PROGRAM))
        assert not bench.work.exists()
        log = bench.layout.logs / "prime-rl-sidecar-01-step-1.log"
        assert "how it went" in log.read_text()

    def test_a_step_gets_the_plans_variables_and_its_own_and_the_umask(
        self, bench: Bench, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("MAKEFLAGS", "-j99")
        monkeypatch.setenv("VLLM_X", "1")
        before = os.umask(0o077)
        try:
            made = bench.run(
                bench.plan(
                    "mkdir target; umask > target/umask; stat -c %a target > target/mode",
                    'test "$(cat target/umask) $(cat target/mode)" = "0022 755"',
                    'test "$NUMBER $TZ $LC_ALL $SOURCE_DATE_EPOCH" = "3 UTC C.UTF-8 1785859200"',
                    'test -z "$MAKEFLAGS$VLLM_X"; ' + PROGRAM,
                )
            )
        finally:
            os.umask(before)
        assert only(made).stat().st_mode & 0o777 == 0o755

    def test_an_argument_with_a_star_is_the_one_file_that_it_matches(self, bench: Bench) -> None:
        plan = bench.plan("mkdir target wheel; touch wheel/vllm-1.2-py3-none-any.whl", PROGRAM)
        last = dataclasses.replace(plan.steps[1], argv=("/bin/cp", str(bench.work / "wheel/vllm-*.whl"), "copy"))
        bench.run(dataclasses.replace(plan, steps=(plan.steps[0], last, plan.steps[1])))

    def test_says_how_many_compilers_and_which_cache(self, bench: Bench) -> None:
        bench.run(bench.plan("mkdir target", PROGRAM))
        assert "64 compilers side by side (cores: 64)" in bench.said
        assert "compiler cache: none" in bench.said

    def test_of_another_source_than_was_planned_with_is_refused(self, bench: Bench) -> None:
        bench.checkout = dataclasses.replace(bench.checkout, tree="f" * 40)
        assert "not the one that was planned with" in bench.fails(bench.plan(PROGRAM)).what

    def test_asks_the_sources_own_toolchain_file_first(self, bench: Bench) -> None:
        (bench.checkout.path / "rust-toolchain.toml").write_text('[toolchain]\nchannel = "1.2.3"\n')
        with pytest.raises(PinError):
            bench.run(bench.plan("touch ../../../started"))
        assert not (bench.layout.cache / "started").exists()


class TestAFailure:
    def test_names_the_step_and_shows_the_end_of_its_log(self, bench: Bench) -> None:
        error = bench.fails(bench.plan("mkdir target", "echo what went wrong; exit 3"))
        assert error.what == "building sidecar failed in the step 'step 2'"
        assert (error.found or "").splitlines()[0] == "3"
        assert "what went wrong" in (error.found or "")
        assert error.log is not None
        assert "what went wrong" in error.log.read_text()
        assert error.hint is None

    def test_keeps_nothing_and_leaves_its_folder_for_a_look(self, bench: Bench) -> None:
        bench.fails(bench.plan("mkdir target; touch target/half", "exit 1"))
        assert not (bench.layout.cache / "built").exists()
        assert (bench.work / "target/half").exists()

    @pytest.mark.parametrize("how", ["kill -KILL $$", "exit 137", "echo Killed; exit 2"])
    def test_for_lack_of_memory_says_the_jobs_used_and_those_to_use(self, bench: Bench, how: str) -> None:
        error = bench.fails(bench.plan(how))
        assert "the memory ran out with 64 compilers side by side" in error.what
        assert (error.hint or "").startswith("./noxw -s build -- --stack prime-rl --jobs 32")

    def test_on_a_full_disk_says_so(self, bench: Bench) -> None:
        error = bench.fails(bench.plan("echo 'as: No space left on device' >&2; exit 1"))
        assert "the disk is full" in error.what
        assert "free some space" in (error.hint or "")

    def test_on_a_disk_that_is_full_when_the_product_is_kept_leaves_nothing_half(
        self, bench: Bench, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def full(source: Path, target: Path) -> None:
            target.write_bytes(Path(source).read_bytes()[:4])
            raise OSError(errno.ENOSPC, "No space left on device", str(target))

        plan = bench.plan("mkdir target", PROGRAM)
        with monkeypatch.context() as patch:
            patch.setattr(store, "_copy", full)
            with pytest.raises(OSError, match="No space left"):
                bench.run(plan)
        assert list((bench.layout.cache / "built").iterdir()) == []
        assert not bench.run(plan).cached

    def test_a_step_that_hangs_is_ended(self, bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(execution, "STEP_LIMIT_S", 0.2)
        began = time.monotonic()
        error = bench.fails(bench.plan("sleep 60"))
        assert "within 0.2 s" in (error.expected or "")
        assert time.monotonic() - began < 10

    def test_an_output_that_is_missing(self, bench: Bench) -> None:
        assert "left 0 files wheel" in bench.fails(bench.plan("true", outputs=("wheel",))).what

    def test_an_output_that_is_empty(self, bench: Bench) -> None:
        """A zero-byte library is what a second run over a first one's leavings makes."""
        assert "left wheel empty" in bench.fails(bench.plan("touch wheel", outputs=("wheel",))).what

    def test_two_files_where_one_is_meant(self, bench: Bench) -> None:
        error = bench.fails(bench.plan("echo 1 > a-1.whl; echo 2 > a-2.whl", outputs=("a-*.whl",)))
        assert "left 2 files a-*.whl, not one" in error.what
        assert "a-1.whl, a-2.whl" in (error.found or "")

    def test_a_lock_file_that_a_step_changes(self, bench: Bench) -> None:
        error = bench.fails(bench.plan("echo 'newer = 1' >> src/Cargo.lock"))
        assert "changed Cargo.lock, which it may only read" in error.what

    def test_a_product_that_is_no_program(self, bench: Bench) -> None:
        assert "is no program" in bench.fails(bench.plan("mkdir target; echo text > target/program")).what
