"""What is said on standard error: notes, warnings, progress, and why a command failed; as text, or as lines of JSON."""

from __future__ import annotations

import json
import sys
from datetime import datetime
from typing import Any

from blocks.errors import RequestError

FORMATS = ("text", "json")
_format = "text"


def use_format(name: str) -> None:
    """Say everything in one of `FORMATS` from now on; raises RequestError for another."""
    global _format  # noqa: PLW0603  (standard error belongs to the process)
    if name not in FORMATS:
        raise RequestError(f"--log-format must be {' or '.join(FORMATS)}, got {name!r}")
    _format = name


def chosen_format() -> str:
    """The one that is in use."""
    return _format


def is_json() -> bool:
    """Whether every line is to be a JSON object."""
    return _format == "json"


def note(message: str, **fields: Any) -> None:
    """Say what a user may want to know. fields: more of the JSON object."""
    _say("info", message, message, fields)


def warn(message: str) -> None:
    """Say what a user should look at, though the work goes on."""
    _say("warning", f"warning: {message}", message, {})


def fail(message: str, remedy: str = "", *, traceback: str = "", **fields: Any) -> None:
    """Say why the work failed, and on a second line what helps; before both the traceback, if there is one."""
    text = "\n".join(filter(None, [traceback.rstrip(), f"ooc: {message}", remedy]))
    more = {"traceback": traceback} if traceback else {}
    _say("error", text, message, {"remedy": remedy, **fields, **more})


def relay(line: str, rank: int) -> None:
    """Say what a rank of a ring has said: a JSON object is given the number of the rank, text begins with it."""
    said = _json_object(line) if is_json() else None
    if said is None:
        _say("info", f"[{rank}] {line}", line, {"rank": rank})
    else:
        _write(json.dumps({**said, "rank": rank}))


def _json_object(line: str) -> dict[str, Any] | None:
    try:
        said = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return said if isinstance(said, dict) else None


def _say(level: str, text: str, message: str, fields: dict[str, Any]) -> None:
    if is_json():
        time = datetime.now().astimezone().isoformat(timespec="milliseconds")
        text = json.dumps({"time": time, "level": level, "message": message, **fields})
    _write(text)


def _write(text: str) -> None:
    """In one call, so that lines of several threads stay apart."""
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()
