"""Where everything of one stack lies under the project's root. Knows names only; touches no file."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from scripts.errors import UsageError

PROJECT_ROOT = Path(__file__).resolve().parent.parent
STACK_NAME = re.compile(r"[a-z0-9][a-z0-9-]*")


@dataclass(frozen=True)
class Layout:
    """The paths of one stack."""

    root: Path
    stack: str

    @classmethod
    def of(cls, stack: str, root: Path = PROJECT_ROOT) -> Layout:
        """The layout of a stack that exists. Raises `UsageError` naming the stacks that there are."""
        layout = cls(root, stack)
        if STACK_NAME.fullmatch(stack) and layout.stack_file.is_file():
            return layout
        known = sorted(path.parent.name for path in (root / "stacks").glob("*/stack.toml"))
        raise UsageError(
            f"there is no stack named {stack!r}",
            expected=" or ".join(known),
            found=stack,
            hint="name one of these with --stack; a stack is a folder stacks/NAME with a stack.toml",
        )

    @property
    def stack_dir(self) -> Path:
        return self.root / "stacks" / self.stack

    @property
    def stack_file(self) -> Path:
        return self.stack_dir / "stack.toml"

    @property
    def lock(self) -> Path:
        return self.stack_dir / "requirements.lock"

    @property
    def payload(self) -> Path:
        """The source folder of the wheel that runs inside the environment."""
        return self.root / "harness" / "payload"

    @property
    def dist(self) -> Path:
        return self.root / "dist" / self.stack

    @property
    def manifest(self) -> Path:
        return self.dist / "manifest.json"

    @property
    def sums(self) -> Path:
        return self.dist / "SHA256SUMS"

    @property
    def environment(self) -> Path:
        return self.root / f".venv-{self.stack}"

    @property
    def stamp(self) -> Path:
        """Written last: an environment without it was never finished."""
        return self.environment / "smokestack-install.json"

    @property
    def cache(self) -> Path:
        return self.root / ".cache"

    @property
    def sources(self) -> Path:
        return self.cache / "sources"

    @property
    def build_state(self) -> Path:
        """What was built into `dist/<stack>`, from what; no part of what is shipped."""
        return self.cache / "state" / f"{self.stack}.json"

    @property
    def logs(self) -> Path:
        return self.cache / "logs"

    @property
    def mutex(self) -> Path:
        """Locked by whoever changes `dist/<stack>` or `.venv-<stack>`."""
        return self.cache / "locks" / f"{self.stack}.lock"

    @property
    def in_use(self) -> Path:
        """Locked, together, by all who run the environment; `harness.inuse` has the same path."""
        return self.cache / "locks" / f"{self.stack}.in-use"

    def relative(self, path: Path) -> str:
        """`path` as it is written into manifests and messages: relative to the root."""
        return path.relative_to(self.root).as_posix()
