"""The NVIDIA driver: that it answers, that it is new enough for the stack's CUDA, that its devices can be opened.

Made from NVIDIA's documentation; not measured on hardware.
"""

from __future__ import annotations

from scripts.doctor import versions
from scripts.doctor.gpu_smi import KERNEL_MODULE, PROGRAM, driver_version, for_gpu_stacks, see
from scripts.doctor.registry import Check, Finding, fail, ok, skip, warn
from scripts.doctor.subject import Subject

_OLDEST = {11: "450.80.02", 12: "525.60.13", 13: "580.65.06"}
"""CUDA's major release -> the first driver that runs programs of all its minor releases."""

_COMPLETE = {
    (12, 4): "550.54.14",
    (12, 6): "560.28.03",
    (12, 8): "570.26",
    (12, 9): "575.51.03",
    (13, 0): "580.65.06",
    (13, 1): "590.44.01",
    (13, 2): "595.45.04",
}
"""CUDA release -> the driver that came with it. An older one compiles none of its PTX."""

_INSTALL = "sudo apt-get install -y nvidia-driver   # then restart; or your distribution's package of the driver"
_CONTAINER = (
    "docker run --gpus all -e NVIDIA_DRIVER_CAPABILITIES=compute,utility IMAGE   # start the container again so"
)
_LOOK_IN_LOG = "sudo dmesg | grep -iE 'nvrm|xid'   # says what happened; a GPU that was lost comes back with a restart"

_SLOW = f"{_LOOK_IN_LOG}; one that is only slow: sudo nvidia-smi -pm 1"

_SAYINGS = (
    ("version mismatch", "sudo reboot   # the driver was updated while its old kernel module stayed loaded"),
    ("couldn't communicate", "sudo modprobe nvidia   # after a new kernel, `sudo dkms autoinstall` first"),
    ("No devices were found", "lspci -d 10de:   # a GPU that is listed here is refused by the driver: see sudo dmesg"),
    ("Unknown Error", "docker restart CONTAINER   # the container has lost its devices: a known fault with systemd"),
    ("not a valid field", "sudo apt-get install -y nvidia-driver   # this driver is too old to be asked"),
)


def _answers(subject: Subject) -> Finding:
    required = f"{PROGRAM} answers and lists the GPUs"
    sight = see(subject)
    if sight.kind == "seen":
        listed = ", ".join(str(gpu) for gpu in sight.gpus)
        return ok(f"driver {sight.gpus[0].driver}: {listed}", required)
    if sight.kind == "absent":
        loaded = driver_version(subject)
        if loaded is None:
            return fail("no NVIDIA driver is loaded", required, _CONTAINER if _contained(subject) else _INSTALL)
        fix = _CONTAINER if _contained(subject) else "sudo apt-get install -y nvidia-utils   # of the driver's release"
        return warn(f"driver {loaded} is loaded, but {sight.problem}: its GPUs cannot be looked at", required, fix)
    if sight.kind == "hung":
        return fail(sight.problem, required, _SLOW)
    fix = next((command for saying, command in _SAYINGS if saying in sight.problem), _LOOK_IN_LOG)
    return fail(sight.problem, required, fix)


def _new_enough(subject: Subject) -> Finding:
    cuda, found = subject.stack.torch_cuda, driver_version(subject)
    if cuda is None:
        return skip(f"the stack's torch ({subject.stack.torch_backend}) is not built for CUDA")
    shown = f"{cuda[0]}.{cuda[1]}"
    oldest = _OLDEST.get(cuda[0])
    if oldest is None:
        return skip(f"the oldest driver for CUDA {shown} is not known here", f"a driver for CUDA {shown}")
    if found is None:
        return skip("no driver version can be seen", f"driver {oldest} or newer: see gpu.driver")
    update = f"sudo apt-get install -y nvidia-driver   # {oldest} or newer, then restart"
    if _older(found, oldest):
        return fail(f"driver {found}", f"driver {oldest} or newer for CUDA {cuda[0]}", update)
    complete = _COMPLETE.get(cuda)
    if complete and _older(found, complete):
        return warn(
            f"driver {found}: runs what is compiled for its GPUs, but compiles no PTX of CUDA {shown}",
            f"driver {complete} or newer for all of CUDA {shown}",
            update.replace(oldest, complete),
        )
    return ok(f"driver {found}", f"driver {complete or oldest} or newer for CUDA {shown}")


def _devices(subject: Subject) -> Finding:
    required = "/dev/nvidiactl, /dev/nvidia-uvm and one /dev/nvidiaN per GPU, all of which this user may open"
    machine = subject.machine
    if machine.exists("/dev/dxg"):
        return ok("/dev/dxg: the GPU is the Windows host's", required)
    names = machine.entries("/dev") or ()
    present = [name for name in names if name in {"nvidiactl", "nvidia-uvm"} or _is_gpu_device(name)]
    if not present:
        return fail("no /dev/nvidia*", required, _CONTAINER if _contained(subject) else "sudo nvidia-modprobe -u -c=0")
    missing = [name for name in ("nvidiactl", "nvidia-uvm") if name not in present]
    if not any(map(_is_gpu_device, present)):
        missing.append("nvidia0")
    if missing:
        listed = ", ".join(f"/dev/{name}" for name in missing)
        return fail(f"missing: {listed}", required, "sudo nvidia-modprobe -u -c=0")
    closed = [f"/dev/{name}" for name in present if not machine.may_write(f"/dev/{name}")]
    if closed:
        command = "sudo usermod -aG video,render $USER   # then log in again"
        return fail(f"this user may not open {', '.join(closed)}", required, command)
    return ok(f"{sum(map(_is_gpu_device, present))} GPU devices and the control devices", required)


def _is_gpu_device(name: str) -> bool:
    return name.startswith("nvidia") and name[6:].isdecimal()


def _contained(subject: Subject) -> bool:
    return any(subject.machine.exists(mark) for mark in ("/.dockerenv", "/run/.containerenv"))


def _older(version: str, than: str) -> bool:
    return (versions.parse(version) or ()) < (versions.parse(than) or ())


CHECKS = (
    Check(
        id="gpu.driver",
        title="NVIDIA driver",
        group="gpu",
        why="without a driver that answers no program reaches a GPU",
        symptom="`RuntimeError: No CUDA GPUs are available`, or a start that hangs",
        cause="no driver, a kernel module of another version than its libraries, a container without the GPUs, or a "
        "GPU that has hung",
        looks_at="nvidia-smi, with a limit of its own",
        fix="sudo apt-get install -y nvidia-driver   # then restart; in a container: docker run --gpus all",
        reference="https://docs.nvidia.com/deploy/nvidia-smi/index.html",
        needed_for=("run",),
        look=for_gpu_stacks(_answers),
    ),
    Check(
        id="gpu.driver-version",
        title="driver for the stack's CUDA",
        group="gpu",
        why="torch's CUDA libraries do not start on a driver that is older than their major release",
        symptom="`CUDA driver version is insufficient for CUDA runtime version`, or `provided PTX was compiled with an "
        "unsupported toolchain`",
        cause="the driver is older than the CUDA release of the stack's torch",
        looks_at=f"{KERNEL_MODULE} or nvidia-smi, against `torch_backend` of the stack file",
        fix="sudo apt-get install -y nvidia-driver   # of a release that knows the stack's CUDA",
        reference="https://docs.nvidia.com/deploy/cuda-compatibility/minor-version-compatibility.html",
        needed_for=("run",),
        look=for_gpu_stacks(_new_enough),
        rows=(4,),
    ),
    Check(
        id="gpu.device-files",
        title="GPU device files",
        group="gpu",
        why="CUDA opens these files itself; nvidia-smi can work without some of them",
        symptom="nvidia-smi shows the GPUs, and CUDA finds none (`unknown error`, code 999)",
        cause="the unified-memory module is not loaded, or the user is not in the devices' group",
        looks_at="/dev/nvidia*",
        fix="sudo nvidia-modprobe -u -c=0",
        reference="https://docs.nvidia.com/cuda/cuda-installation-guide-linux/",
        needed_for=("run",),
        look=for_gpu_stacks(_devices),
    ),
)
