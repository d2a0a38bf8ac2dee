"""The git program: started here only, with settings under which the same revision gives the same files everywhere.

What the caller's environment says of repositories (`GIT_DIR` and the like) is dropped; how a server is reached and the
site's own configuration (proxy, credentials, url.insteadOf) stay. No hook, file system monitor or clean-up in the
background is run. Works with git 2.25 and newer.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from scripts import commands
from scripts.environ import child_environment
from scripts.errors import LOG_TAIL_LINES, BuildError
from scripts.gitsource.failures import likely_cause

# How a server is reached, and where the site keeps its configuration. Every other GIT_* of the caller is dropped.
_KEPT = frozenset(
    {
        "GIT_ASKPASS",
        "GIT_CONFIG_GLOBAL",
        "GIT_CONFIG_NOSYSTEM",
        "GIT_CONFIG_SYSTEM",
        "GIT_HTTP_PROXY_AUTHMETHOD",
        "GIT_PROXY_SSL_CAINFO",
        "GIT_PROXY_SSL_CERT",
        "GIT_PROXY_SSL_KEY",
        "GIT_SSH",
        "GIT_SSH_COMMAND",
        "GIT_SSH_VARIANT",
        "GIT_SSL_CAINFO",
        "GIT_SSL_CAPATH",
        "GIT_SSL_CERT",
        "GIT_SSL_KEY",
        "GIT_SSL_NO_VERIFY",
    }
)

_FIXED = {
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_OPTIONAL_LOCKS": "0",  # `git status` must not write the index of somebody's checkout
    "GIT_NO_REPLACE_OBJECTS": "1",
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_LFS_SKIP_SMUDGE": "1",
    "LC_ALL": "C",
    "LANGUAGE": "",
}

_SETTINGS = (
    ("core.hooksPath", "/dev/null"),
    ("core.fsmonitor", "false"),
    ("core.untrackedCache", "false"),
    ("core.splitIndex", "false"),
    ("core.sparseCheckout", "false"),
    ("submodule.recurse", "false"),
    ("fetch.recurseSubmodules", "false"),
    ("fetch.unpackLimit", "1"),
    ("gc.auto", "0"),
    ("maintenance.auto", "false"),
    ("safe.bareRepository", "all"),
    ("protocol.version", "2"),  # with it a server gives out any commit by its id
    ("advice.detachedHead", "false"),
    ("http.lowSpeedLimit", "1"),
    ("http.lowSpeedTime", "300"),
)

# Of a repository that is made here: written into it, so that a build's own git sees the files as they are, too. A
# fixed core.abbrev keeps the version that setuptools-scm makes independent of how many objects a clone has.
_CONFIGURATION = """\
[core]
\trepositoryformatversion = 0
\tbare = false
\tautocrlf = false
\tfileMode = true
\tsymlinks = true
\tattributesFile = /dev/null
\texcludesFile = /dev/null
\thooksPath = /dev/null
\tfsmonitor = false
\tabbrev = 12
[submodule]
\tactive = .
[gc]
\tauto = 0
[maintenance]
\tauto = false
"""

# Takes precedence over every .gitattributes: the working files are the committed bytes, with no line end changed, no
# keyword expanded and no filter (LFS, git-crypt) in between.
_ATTRIBUTES = "* -text !eol -ident -filter !working-tree-encoding\n"


@dataclass(frozen=True)
class Repository:
    """Where a git command works: `own` made here, `foreign` somebody's."""

    folder: Path
    options: tuple[str, ...]
    environ: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def own(cls, folder: Path) -> Repository:
        """Named outright: git looks for no other, such as that of the project above."""
        return cls(folder, (f"--git-dir={folder / '.git'}", f"--work-tree={folder}"))

    @classmethod
    def foreign(cls, folder: Path) -> Repository:
        """Found by git itself, so that it checks whose it is; but only in this very folder."""
        return cls(folder, (), {"GIT_CEILING_DIRECTORIES": str(folder.parent)})


@dataclass(frozen=True)
class Answer:
    """How a git command ended. `output` is its stdout, `messages` its stderr, which `log` has too."""

    returncode: int
    output: bytes
    messages: str
    log: Path

    @property
    def text(self) -> str:
        return os.fsdecode(self.output).removesuffix("\n")

    def records(self) -> list[str]:
        """The output of a command that ends each record with a NUL."""
        return [os.fsdecode(record) for record in self.output.split(b"\0") if record]


@dataclass(frozen=True)
class Git:
    """Git for the work on one source; each kind of command keeps its last output in a log of its own."""

    logs: Path
    label: str

    def attempt(
        self,
        at: Repository,
        *arguments: str,
        settings: tuple[tuple[str, str], ...] = (),
        environ: Mapping[str, str] | None = None,
        limit_s: float = commands.LIMIT_S,
    ) -> Answer:
        """Run a git command; the caller looks at how it ended. Raises `BuildError` only when it does not end."""
        log = self.logs / f"git-{self.label}-{arguments[0]}.log"
        output = log.with_suffix(".out")
        configured = [word for name, value in (*_SETTINGS, *settings) for word in ("-c", f"{name}={value}")]
        try:
            finished = commands.run(
                ["git", *configured, *at.options, *arguments],
                cwd=at.folder,
                env={**environment(os.environ), **at.environ, **(environ or {})},
                log=log,
                limit_s=limit_s,
                answer=output,
            )
            if finished.expired:
                raise BuildError(
                    f"git {arguments[0]} did not end", expected=f"its end within {limit_s:g} s", found="it ran", log=log
                )
            return Answer(finished.returncode, output.read_bytes(), finished.output, log)
        finally:
            output.unlink(missing_ok=True)

    def ask(
        self,
        at: Repository,
        *arguments: str,
        what: str,
        settings: tuple[tuple[str, str], ...] = (),
        environ: Mapping[str, str] | None = None,
    ) -> Answer:
        """`attempt`, and raise `BuildError` when it ended with another status than 0."""
        answer = self.attempt(at, *arguments, settings=settings, environ=environ)
        if answer.returncode != 0:
            raise failed(what, answer, subject=str(at.folder))
        return answer


def environment(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment of a git command, made from the caller's."""
    kept = {name: value for name, value in environ.items() if not name.startswith("GIT_") or name in _KEPT}
    return child_environment(kept, _FIXED)


def failed(what: str, answer: Answer, *, subject: str, hint: str | None = None) -> BuildError:
    """The error of a git command: the likely cause where git's words show it, and in any case what git said."""
    cause = likely_cause(answer.messages, subject)
    return BuildError(
        what if cause is None else f"{what}: {cause.what}",
        expected="exit status 0 of git",
        found="\n    ".join([str(answer.returncode), *answer.messages.splitlines()[-LOG_TAIL_LINES:]]),
        where=subject,
        hint=hint if cause is None else cause.hint or hint,
        log=answer.log,
    )


def create(folder: Path) -> Repository:
    """A new, empty repository in `folder`, with nothing of the machine's templates and defaults in it."""
    made = folder / ".git"
    for name in ("objects", "refs/heads", "info"):
        (made / name).mkdir(parents=True)
    (made / "HEAD").write_text("ref: refs/heads/none\n", encoding="utf-8")
    (made / "config").write_text(_CONFIGURATION, encoding="utf-8")
    (made / "info" / "attributes").write_text(_ATTRIBUTES, encoding="utf-8")
    return Repository.own(folder)
