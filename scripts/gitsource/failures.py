"""What git's words mean: the likely cause of a failure, and the command that helps. Pure; imports nothing."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass


@dataclass(frozen=True)
class Cause:
    """In words, after "fetching … failed: "; and what to type, where one command helps everybody."""

    what: str
    hint: str | None = None


_DISK = Cause(
    "the disk is full", "df -h .   # free some space and run the same command again; nothing half-written is kept"
)
_AUTHENTICATION = Cause(
    "the server wants to know who asks, or there is no such repository (many servers answer both alike)",
    "git ls-remote {subject}   # must work without a prompt: set up a credential helper or a key",
)

# The first that is found in git's output. `{subject}` is the repository or folder, quoted for a shell.
_CAUSES: tuple[tuple[str, Cause], ...] = (
    (r"No space left on device|Disk quota exceeded", _DISK),
    (
        r"not our ref|[Cc]ouldn't find remote ref|no such remote ref|bad object|did not send all necessary objects",
        Cause(
            "the repository has no such revision",
            "git ls-remote {subject}   # a revision of a fork, or one that was forced away, is in another repository",
        ),
    ),
    (
        r"does not allow request for unadvertised object",
        Cause(
            "the server gives out only the heads of branches and tags",
            "git clone --mirror {subject} MIRROR   # then name it: --source NAME=MIRROR",
        ),
    ),
    (
        r"could not read (Username|Password)|Authentication failed|terminal prompts disabled|error: 40[13]"
        r"|Permission denied \(|[Rr]epository not found|access rights? (denied|required)",
        _AUTHENTICATION,
    ),
    (
        r"Host key verification failed",
        Cause("the server's host key is not known here", "ssh-keyscan HOST   # compare it, add it to known_hosts"),
    ),
    (
        r"SSL certificate|certificate verif|self.signed certificate|unable to get local issuer",
        Cause(
            "the server's certificate is not trusted here",
            "git config --global http.sslCAInfo FILE   # the site's certificates",
        ),
    ),
    (
        r"Could not resolve (host|proxy)|Temporary failure in name resolution|Name or service not known",
        Cause(
            "no host of that name can be found from here: no network, or a proxy is not set", "git ls-remote {subject}"
        ),
    ),
    (
        r"Failed to connect|Couldn't connect|Connection (refused|timed out|reset)|Network is unreachable|No route to"
        r" host|Operation too slow|Proxy CONNECT aborted|early EOF|unexpected disconnect",
        Cause("the server cannot be reached, or the line broke", "git ls-remote {subject}"),
    ),
    (
        r"does not appear to be a git repository|not a git repository|repository '.*' not found|error: 404",
        Cause("there is no such repository", "git ls-remote {subject}"),
    ),
    (r"transport '.*' not allowed", Cause("git is configured not to use this kind of address")),
    (
        r"promisor|lazy fetch",
        Cause(
            "the repository is a partial clone and lacks some of the objects",
            "git -C {subject} fetch --refetch --no-filter",
        ),
    ),
    (r"Permission denied", Cause("a file may not be read or written")),
)

_DUBIOUS = re.compile(r"dubious ownership in repository at '(?P<folder>[^'\n]+)'")


def likely_cause(output: str, subject: str) -> Cause | None:
    """What most likely went wrong, from what git printed (with `LC_ALL=C`); None when its words are not known."""
    dubious = _DUBIOUS.search(output)
    if dubious is not None:
        return _another_users(dubious["folder"])
    for pattern, cause in _CAUSES:
        if re.search(pattern, output):
            hint = None if cause.hint is None else cause.hint.replace("{subject}", shlex.quote(subject))
            return Cause(cause.what, hint)
    return None


def _another_users(folder: str) -> Cause:
    return Cause(
        f"{folder} belongs to another user, and git does not work in it until you say that you trust it",
        f"git config --global --add safe.directory {shlex.quote(folder)}",
    )
