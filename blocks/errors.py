"""What can go wrong, told in the user's terms: what was wrong, where, and what to do next."""

from __future__ import annotations

import errno
import resource
from typing import Any


class OocError(Exception):
    """A failure that is explained rather than traced.

    Attributes: `what` says what was wrong and where, `remedy` says what to do about it (may be empty).
    """

    exit_code = 1

    def __init__(self, what: str, remedy: str = "") -> None:
        super().__init__(what, remedy)
        self.what = what
        self.remedy = remedy

    def __str__(self) -> str:
        return f"{self.what}\n{self.remedy}" if self.remedy else self.what


class WorkFailed(OocError):
    """The work could not be done: damaged data, a full disk, a worker that died (exit code 1)."""


class Diverged(WorkFailed):
    """Numbers of a model are infinite or NaN: the training ends, and no model is written."""


class RequestError(OocError, ValueError):
    """The request itself was wrong: an option, a path, an input file (exit code 2)."""

    exit_code = 2


class Interrupted(OocError):
    """Stopped on request, with everything committed (exit code 130).

    Attribute: `facts`, what `--json` tells of the run as it stands, if anything.
    """

    exit_code = 130

    def __init__(self, what: str, remedy: str = "", facts: dict[str, Any] | None = None) -> None:
        super().__init__(what, remedy)
        self.facts = facts


class TimeOver(Interrupted):
    """Stopped by --max-time, with everything committed (exit code 75: try again)."""

    exit_code = 75


RAISE_LIMIT = "Raise the limit, for example with: ulimit -v unlimited"

# Exit codes of a run that `ooc resume` goes on with.
STOPPED = (Interrupted.exit_code, TimeOver.exit_code)


def out_of_memory(error: BaseException) -> WorkFailed | None:
    """What to tell of an error if it is that memory ran out, with the limit of a process if it has one."""
    if not isinstance(error, MemoryError) and getattr(error, "errno", None) != errno.ENOMEM:
        return None
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    if limit == resource.RLIM_INFINITY:
        remedy = "Give a smaller --memory or fewer --workers, or use a machine with more free memory."
        return WorkFailed(f"memory ran out{f': {error}' if str(error) else ''}", remedy)
    what = f"memory ran out: the address space of a process is limited to {limit / 1e6:,.0f} MB (ulimit -v)"
    return WorkFailed(what, RAISE_LIMIT)


def quoted(line: bytes) -> str:
    """A line as messages show it."""
    return repr(line[:60].decode("utf-8", "replace").strip())
