"""Loopback, names and proxies: a run's services talk to each other over 127.0.0.1 only."""

from __future__ import annotations

import ipaddress

from scripts.doctor.registry import Check, Finding, fail, ok, skip, warn
from scripts.doctor.subject import Subject

_PROXIES = ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")
_LOOPBACK_NAMES = ("127.0.0.1", "localhost")


def _loopback(subject: Subject) -> Finding:
    required = "a service can listen on 127.0.0.1, and `localhost` is this machine"
    refusal = subject.machine.bind_refusal("127.0.0.1", 0)
    if refusal is not None:
        return fail(f"127.0.0.1: {refusal}", required, "sudo ip link set lo up")
    addresses = subject.machine.addresses("localhost")
    if not addresses:
        return fail("localhost resolves to nothing", required, "echo '127.0.0.1 localhost' | sudo tee -a /etc/hosts")
    elsewhere = [address for address in addresses if not ipaddress.ip_address(address).is_loopback]
    if elsewhere:
        listed = ", ".join(elsewhere)
        return fail(
            f"localhost resolves to {listed}",
            required,
            "sudo sed -i 's/\\blocalhost\\b//' /etc/hosts && echo '127.0.0.1 localhost' | sudo tee -a /etc/hosts",
        )
    return ok(f"127.0.0.1 can be bound, localhost is {', '.join(addresses)}", required)


def _ipv6(subject: Subject) -> Finding:
    """Half of IPv6 is worse than none: a client that tries `::1` first then meets nobody, or waits."""
    required = "`localhost` means ::1 only where IPv6 works"
    interfaces = (subject.machine.read_text("/proc/net/if_inet6") or "").split()
    has_loopback = "0" * 31 + "1" in interfaces
    named = "::1" in subject.machine.addresses("localhost")
    usable = has_loopback and subject.machine.bind_refusal("::1", 0) is None
    if usable:
        return ok(f"IPv6 works{'' if named else ', localhost is IPv4 only'}", required)
    if not named:
        return ok("there is no IPv6, and localhost does not name it; a run uses 127.0.0.1", required)
    off = (subject.machine.read_text("/proc/sys/net/ipv6/conf/lo/disable_ipv6") or "").strip() == "1"
    fix = (
        "sudo sysctl -w net.ipv6.conf.lo.disable_ipv6=0"
        if off
        else "sudo sed -i '/^::1/s/\\blocalhost\\b//' /etc/hosts"
    )
    return warn("localhost resolves to ::1, on which nothing can listen", required, fix)


def _proxy(subject: Subject) -> Finding:
    """The values are never shown: they may hold a password."""
    required = "no proxy between a client and 127.0.0.1"
    given = [name for name in _PROXIES if subject.environ.get(name)]
    if not given:
        return ok("no proxy variable is set", required)
    exempt = {
        part.strip() for name in ("no_proxy", "NO_PROXY") for part in subject.environ.get(name, "").split(",") if part
    }
    if "*" in exempt or all(name in exempt for name in _LOOPBACK_NAMES):
        return ok(f"{', '.join(given)} set, loopback exempt", required)
    return warn(
        f"{', '.join(given)} set, and no_proxy lacks 127.0.0.1 or localhost. A run drops them; your own curl does not",
        required,
        'export no_proxy="127.0.0.1,localhost,::1${no_proxy:+,$no_proxy}"; export NO_PROXY="$no_proxy"',
    )


def _scratch(subject: Subject) -> Finding:
    """A run's Unix sockets, etcd's data and the services' home lie in a folder below TMPDIR, or else below /tmp."""
    required = "a /tmp that this user may write to: its short path is the last resort for Unix sockets"
    machine = subject.machine
    if not machine.is_dir("/tmp"):
        return fail("no /tmp", required, "sudo mkdir -m 1777 /tmp")
    if not machine.may_write("/tmp"):
        return fail("/tmp cannot be written to", required, "sudo chmod 1777 /tmp")
    folder = f"/tmp/smokestack-{machine.user_id()}"
    owner = machine.owner(folder)
    if owner is not None and owner != machine.user_id():
        return fail(f"{folder} belongs to uid {owner}", f"{required}; {folder} is this user's", f"sudo rm -r {folder}")
    space = machine.space("/tmp")
    if space is None:
        return skip("its free space cannot be read", required)
    if space.read_only:
        return fail("/tmp is mounted read-only", required, "sudo mount -o remount,rw /tmp")
    return ok(f"/tmp, {space.free >> 20} MiB free", required)


CHECKS = (
    Check(
        id="runtime.loopback",
        title="loopback",
        group="runtime",
        why="every service of a run listens on 127.0.0.1",
        symptom="services start and cannot be reached; `Name or service not known` for localhost",
        cause="a network namespace whose lo is down, or an /etc/hosts without localhost",
        looks_at="a socket that is bound to 127.0.0.1 and closed, and what localhost resolves to",
        fix="sudo ip link set lo up",
        reference="https://man7.org/linux/man-pages/man5/hosts.5.html",
        needed_for=("run",),
        look=_loopback,
        rows=(29,),
    ),
    Check(
        id="runtime.ipv6",
        title="IPv6",
        group="runtime",
        why="programs that are told `localhost` may try ::1 first",
        symptom="`Connection refused` or `Cannot assign requested address` for a service that is up",
        cause="IPv6 is switched off, but /etc/hosts still names ::1",
        looks_at="/proc/net/if_inet6, the kernel's switch for lo, a bind to ::1, and what localhost resolves to",
        fix="sudo sysctl -w net.ipv6.conf.lo.disable_ipv6=0",
        reference="https://docs.kernel.org/networking/ip-sysctl.html",
        needed_for=("run",),
        look=_ipv6,
    ),
    Check(
        id="runtime.proxy",
        title="proxy variables",
        group="runtime",
        why="a client that honours a proxy sends even requests to 127.0.0.1 there",
        symptom="a 403 or 502 in the proxy's words from a service on this machine",
        cause="http_proxy and the like, without loopback in no_proxy",
        looks_at="the names of the variables, and no_proxy",
        fix="export no_proxy=127.0.0.1,localhost,::1 NO_PROXY=127.0.0.1,localhost,::1",
        reference="https://docs.python.org/3/library/urllib.request.html#urllib.request.getproxies",
        needed_for=("run",),
        look=_proxy,
    ),
    Check(
        id="runtime.scratch",
        title="/tmp",
        group="runtime",
        why="the path of a Unix socket has room for 107 bytes; /tmp always fits",
        symptom="`AF_UNIX path too long`, or a run that cannot make its scratch folder",
        cause="a /tmp that is missing, closed or full, or a folder there of another user",
        looks_at="/tmp and the folder of this project in it",
        fix="sudo mkdir -m 1777 /tmp",
        reference="https://man7.org/linux/man-pages/man7/unix.7.html",
        needed_for=("run",),
        look=_scratch,
    ),
)
