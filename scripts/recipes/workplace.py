"""A recipe's folder and the steps that all recipes share: the build environment, cargo's sources, the last re-zip.

    work/src/            the source, a fresh copy       work/nested/NAME/    sources that the build would fetch
    work/env/            the build environment          work/bin/rustc       what cargo calls in the place of rustc
    work/target/         what cargo compiles            work/wheel/, out/    wheels as built, and in their fixed form

Pure: names paths, looks at none.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from scripts.jobs import Jobs
from scripts.recipes import cargo_jobs, rustc, variables
from scripts.recipes.steps import NestedState, Placement, Product, RecipePlan, SourceFacts, Step
from scripts.recipes.toolchain import Toolchain, rust_of
from scripts.stackfile import Stack

# What stands in products and in the key for folders of this machine.
CARGO_SHOWN, RUST_SHOWN = "/build/cargo", "/build/rust"
HEADERS_SHOWN, CUDA_SHOWN = "/build/python", "/build/cuda"
WORK_SHOWN = "/build"


@dataclass(frozen=True)
class Workplace:
    """Where one recipe works, with what."""

    recipe: str
    stack: Stack
    source: SourceFacts
    work: Path
    toolchain: Toolchain
    jobs: Jobs

    @property
    def src(self) -> Path:
        return self.work / "src"

    @property
    def env(self) -> Path:
        return self.work / "env"

    @property
    def python(self) -> Path:
        return self.env / "bin" / "python"

    @property
    def target(self) -> Path:
        return self.work / "target"

    @property
    def wheels(self) -> Path:
        return self.work / "wheel"

    @property
    def out(self) -> Path:
        return self.work / "out"

    @property
    def wrapper(self) -> Path:
        return self.work / "bin" / "rustc"

    @property
    def epoch(self) -> str:
        """SOURCE_DATE_EPOCH; before the source is fetched only what it will be."""
        known = self.source.epoch
        return f"<commit time of {self.source.revision}>" if known is None else str(known)

    def nested(self, name: str) -> Path:
        return self.work / "nested" / name

    def prefixes(self) -> list[tuple[Path, str]]:
        """Folders of this machine that compilers must not write down. Later ones win where one is in another."""
        rust = self.toolchain.rust[rust_of(self.stack, self.recipe)]
        return [
            (Path(rust.sysroot), RUST_SHOWN),
            (Path(self.toolchain.cargo_home), CARGO_SHOWN),
            (Path(self.toolchain.python_headers), HEADERS_SHOWN),
            *(
                [(Path(self.toolchain.cuda_home), CUDA_SHOWN)]
                if self.recipe == "vllm" and self.toolchain.cuda_home
                else []
            ),
            (self.work, WORK_SHOWN),
        ]

    def environment_steps(self) -> list[Step]:
        """The build environment: one Python, and build.lock with every hash checked. No build gets anything else."""
        tools = self.toolchain
        make = (tools.uv, "venv", "--no-project", "--python", tools.python, str(self.env))
        fill = (
            *(tools.uv, "pip", "sync", "--python", str(self.python), "--require-hashes", "--only-binary", ":all:"),
            *(*tools.torch_arguments, str(tools.build_lock)),
        )
        return [
            self.step("make the build environment", make, outputs=(self.python,)),
            self.step("fill the build environment from build.lock", fill, inputs=(tools.build_lock,)),
        ]

    def cargo_jobs_step(self) -> Step:
        """A number of jobs in the source's own cargo configuration may be none that every tool can read."""
        argv = (self.toolchain.tool_python, "-m", cargo_jobs.__name__, str(self.src / ".cargo" / "config.toml"))
        return self.step("leave the number of jobs to CARGO_BUILD_JOBS", argv, cwd=self.toolchain.root)

    def cargo_steps(self, manifest: Path, lock: Path) -> list[Step]:
        """cargo's wrapper of rustc, and all that the lock file names, fetched while the network may be used."""
        remaps = [part for prefix, shown in self.prefixes() for part in ("--remap", f"{prefix}={shown}")]
        write = (self.toolchain.tool_python, "-m", rustc.__name__, str(self.wrapper), *remaps)
        fetch = ("cargo", "fetch", "--locked", "--manifest-path", str(manifest))
        return [
            self.step("write what cargo calls for rustc", write, cwd=self.toolchain.root, outputs=(self.wrapper,)),
            self.step("fetch the crates of Cargo.lock", fetch, env=self.rust_variables(offline=False), inputs=(lock,)),
        ]

    def rust_variables(self, *, offline: bool = True) -> dict[str, str]:
        """What every step that may call cargo gets. Offline, so that nothing is compiled that was not locked."""
        selector = self.toolchain.rust[rust_of(self.stack, self.recipe)].selector
        cache = self.toolchain.compiler_cache
        return {
            **({"RUSTUP_TOOLCHAIN": selector} if selector else {}),
            **({rustc.CACHE_VARIABLE: cache} if cache is not None and Path(cache).name == "sccache" else {}),
            **({"CARGO_NET_OFFLINE": "true"} if offline else {}),
            "CARGO_BUILD_JOBS": str(self.jobs.rust),
            "CARGO_TARGET_DIR": str(self.target),
            "RUSTC_WRAPPER": str(self.wrapper),
        }

    def wheel_step(self, name: str, env: Mapping[str, str], inputs: tuple[Path, ...], pattern: str) -> Step:
        """The source's own build backend makes a wheel, in the build environment."""
        argv = (
            *(self.toolchain.uv, "build", "--wheel", "--no-build-isolation", "--python", str(self.python)),
            *("--out-dir", str(self.wheels), str(self.src)),
        )
        return self.step(name, argv, env=env, inputs=inputs, outputs=(self.wheels / pattern,))

    def normalise_step(self, pattern: str) -> Step:
        """The wheel again, in the form that depends on nothing but its contents."""
        argv = (
            *(self.toolchain.tool_python, "-m", "scripts.normalise", str(self.wheels / pattern), str(self.out)),
            *("--epoch", self.epoch),
            *(part for prefix, _ in self.prefixes() for part in ("--prefix", str(prefix))),
        )
        distribution = pattern.split("-", 1)[0]
        return self.step(
            f"put {distribution} into its fixed form",
            argv,
            cwd=self.toolchain.root,
            inputs=(self.wheels / pattern,),
            outputs=(self.out / pattern,),
        )

    def step(
        self,
        name: str,
        argv: tuple[str, ...],
        *,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        inputs: tuple[Path, ...] = (),
        outputs: tuple[Path, ...] = (),
    ) -> Step:
        return Step(name, argv, dict(sorted((env or {}).items())), cwd or self.src, inputs, outputs)

    def plan(
        self, steps: list[Step], products: tuple[Product, ...], nested: tuple[NestedState, ...] = ()
    ) -> RecipePlan:
        """The steps with everything around them."""
        rust = self.toolchain.rust[rust_of(self.stack, self.recipe)]
        return RecipePlan(
            recipe=self.recipe,
            stack=self.stack.name,
            work=self.work,
            source=self.source,
            toolchain_file=self.src / "rust-toolchain.toml",
            rust=rust.name,
            placements=self._placements(),
            environment=self._environment(),
            steps=tuple(steps),
            products=products,
            tools=self._tools(),
            platform=self.toolchain.platform,
            locks={"build.lock": self.toolchain.build_lock_sha256},
            nested=nested,
            jobs=self.jobs,
            compiler_cache=None if self.toolchain.compiler_cache is None else Path(self.toolchain.compiler_cache).name,
            tokens=self._tokens(),
        )

    def _environment(self) -> dict[str, str]:
        """The variables of every step, all of them: the caller's that are kept, and those that are always the same."""
        path = self.toolchain.inherited.get("PATH", "")
        return {
            **self.toolchain.inherited,
            **variables.FIXED,
            **variables.prefix_flags(self.prefixes()),
            "PATH": f"{self.env / 'bin'}:{path}",
            "SOURCE_DATE_EPOCH": self.epoch,
            "VIRTUAL_ENV": str(self.env),
        }

    def _placements(self) -> tuple[Placement, ...]:
        name = self.source.name
        nested = sorted(self.source.nested.items())
        own = Placement(name, None, self.source.revision, self.src)
        return (own, *(Placement(name, each, facts.revision, self.nested(each)) for each, facts in nested))

    def _tools(self) -> dict[str, str]:
        """Name -> version of all that has a part in the outcome; `missing` for what is not on this machine."""
        rust = self.toolchain.rust[rust_of(self.stack, self.recipe)]
        wanted = self.stack.tools
        # A manifest has one list for all recipes: where one has a Rust of its own, its name says so.
        suffix = "" if wanted is None or rust.name == wanted.rust else f"-{rust.name}"
        found = {**self.toolchain.versions, f"cargo{suffix}": rust.cargo, f"rustc{suffix}": rust.rustc}
        if wanted is None or wanted.protoc is None:
            del found["protoc"]
        if wanted is None or wanted.cuda is None or self.recipe != "vllm":
            del found["nvcc"]
        # git copies sources; what it copies is verified.
        del found["git"]
        named = {name: version or "missing" for name, version in found.items()}
        return dict(sorted({**named, **self.toolchain.locked_tools}.items()))

    def _tokens(self) -> dict[str, str]:
        tools = self.toolchain
        return {
            str(self.work): "<work>",
            tools.cargo_home: "<cargo>",
            tools.rust[rust_of(self.stack, self.recipe)].sysroot: "<rust>",
            tools.cuda_home: "<cuda>",
            tools.python: "<python>",
            tools.python_headers: "<python-headers>",
            tools.tool_python: "<tool-python>",
            tools.uv: "<uv>",
            str(tools.build_lock): "<build.lock>",
            str(tools.root): "<root>",
        }
