"""Errors for the user: what is wrong, where, and what to do next."""

from __future__ import annotations

import errno
import re
import resource
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any


class OocError(Exception):
    """An error that is shown as a message without a traceback.

    Attributes: `what`, what is wrong and where; `remedy`, what to do about it (may be empty).
    """

    exit_code = 1

    def __init__(self, what: str, remedy: str = "") -> None:
        super().__init__(what, remedy)
        self.what = what
        self.remedy = remedy

    def __str__(self) -> str:
        return f"{self.what}\n{self.remedy}" if self.remedy else self.what


class WorkFailed(OocError):
    """The work failed, for example because of damaged data, a full disk or a dead worker (exit code 1)."""


class ModelDiverged(WorkFailed):
    """The model diverged: it contains infinities or NaNs. Training ends, and no model is written."""


class RequestError(OocError, ValueError):
    """The request is invalid: a wrong option, path or input file (exit code 2)."""

    exit_code = 2


class Interrupted(OocError):
    """The command was stopped on request, after committing all work (exit code 130).

    Attribute: `facts` for `--json`, if any.
    """

    exit_code = 130

    def __init__(self, what: str, remedy: str = "", facts: dict[str, Any] | None = None) -> None:
        super().__init__(what, remedy)
        self.facts = facts


class TimeLimitReached(Interrupted):
    """The command was stopped by --max-time, after committing all work (exit code 75: try again)."""

    exit_code = 75


RAISE_LIMIT = "Raise the limit, for example with: ulimit -v unlimited"

# Exit codes of a run that `ooc resume` can continue.
STOPPED = (Interrupted.exit_code, TimeLimitReached.exit_code)


def error_class(exit_code: int) -> type[OocError]:
    """Return the class of errors that end a command with this exit code."""
    return {kind.exit_code: kind for kind in (RequestError, Interrupted, TimeLimitReached)}.get(exit_code, WorkFailed)


def out_of_memory(error: BaseException) -> WorkFailed | None:
    """Return an error that explains a lack of memory, with the memory limit of the process, if any; None for other
    errors."""
    if not isinstance(error, MemoryError) and getattr(error, "errno", None) != errno.ENOMEM:
        return None
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    if limit == resource.RLIM_INFINITY:
        remedy = "Reduce --memory or --workers, or use a machine with more free memory."
        return WorkFailed(f"memory ran out{f': {error}' if str(error) else ''}", remedy)
    what = f"memory ran out: the address space of a process is limited to {limit / 1e6:,.0f} MB (ulimit -v)"
    return WorkFailed(what, RAISE_LIMIT)


def reword_error(error: OocError, change: Callable[[str], str]) -> OocError:
    """Return the error with its text changed by a function."""
    return type(error)(change(error.what), change(error.remedy))


def in_parameters(text: str, names: Mapping[str, str] = MappingProxyType({})) -> str:
    """Replace command-line options in a text by parameter names.

    names: parameters whose name differs, by option.
    """

    def parameter(option: re.Match[str]) -> str:
        name = option[2].replace("-", "_")
        return f"{name}=False" if option[1] else {"workers": "n_jobs", **names}.get(option[2], name)

    return re.sub(r"--(no-)?([a-z][a-z0-9-]*)", parameter, text)


def quoted(line: bytes) -> str:
    """Return a line, shortened and quoted, for messages."""
    return repr(line[:60].decode("utf-8", "replace").strip())
