"""The check on what the run listens on: the admin routes carry no authentication, so that the address is the guard."""

from __future__ import annotations

import ipaddress

from harness import events
from harness.evidence.check import Expectation, Findings, counted
from harness.evidence.stack import TRAINER
from harness.evidence.timeline import Timeline


def loopback_only(run: Timeline, want: Expectation) -> Findings:
    """`stack.loopback-only`: all listening sockets are on loopback or the stated address, from start to end."""
    findings = Findings(
        expected=f"every listening socket of the run's processes on {_allowed(want.host)}, from start to end",
        proves="no other machine can reach the engine's admin routes, or anything else of this run",
        means="another machine may reach a service of this run; the admin routes ask nobody for a key",
    )
    lists = run.require(events.Listening, findings)
    for when in ("start", "end"):
        if not any(item.when == when for item in lists):
            findings.missing.append(f"no list of listening sockets at the {when}")
    for item in lists:
        findings.wrong += [text for text in exposed(item, want.host) if text not in findings.wrong]
        findings.missing += [f"the sockets of pid {pid} could not be read at the {item.when}" for pid in item.unread]
        _require_services(run, item, findings)
    sockets = {one for item in lists for one in item.sockets}
    findings.seen = f"{counted(len(sockets), 'listening socket')} on {_allowed(want.host)}"
    return findings


def exposed(listing: events.Listening, host: str) -> list[str]:
    """Each socket that another machine could reach, in words."""
    return [
        f"{one.service} (pid {one.pid}) listens on {_place(one)}, {one.protocol}"
        for one in listing.sockets
        if one.address != host and not _is_loopback(one.address)
    ]


def _require_services(run: Timeline, listing: events.Listening, findings: Findings) -> None:
    """Each service of a stack listens on something: a list without it was not made by looking at it."""
    seen = {one.service for one in listing.sockets}
    place = run.position(listing)
    started = {
        event.service: event.pid
        for event in run.of(events.ServiceStarted)
        if event.service != TRAINER and run.position(event) < place
    }
    if not listing.sockets:
        findings.missing.append(f"the list at the {listing.when} is empty")
    findings.missing += [
        f"{name} (pid {pid}) has no socket in the list at the {listing.when}"
        for name, pid in started.items()
        if name not in seen
    ]


def _is_loopback(text: str) -> bool:
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return False
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return (mapped or address).is_loopback


def _allowed(host: str) -> str:
    return "loopback" if _is_loopback(host) else f"loopback or {host}"


def _place(one: events.ListeningSocket) -> str:
    return f"[{one.address}]:{one.port}" if ":" in one.address else f"{one.address}:{one.port}"
