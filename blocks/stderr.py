"""Standard error: notes, warnings, progress and errors, as text or JSON lines."""

from __future__ import annotations

import json
import sys
from datetime import datetime
from typing import Any

from blocks.errors import RequestError

FORMATS = ("text", "json")
_format = "text"


def set_log_format(name: str) -> None:
    """Set the format, one of `FORMATS`, of all later output.

    Raises RequestError for other names.
    """
    global _format  # noqa: PLW0603  (standard error belongs to the process)
    if name not in FORMATS:
        raise RequestError(f"--log-format must be {' or '.join(FORMATS)}, got {name!r}")
    _format = name


def current_log_format() -> str:
    """Return the current format."""
    return _format


def is_json() -> bool:
    """Return whether every line is a JSON object."""
    return _format == "json"


def print_note(message: str, **fields: Any) -> None:
    """Print a note.

    fields: additional fields of the JSON object.
    """
    _say("info", message, message, fields)


def print_warning(message: str) -> None:
    """Print a warning about something that does not stop the work."""
    _say("warning", f"warning: {message}", message, {})


def print_error(message: str, remedy: str = "", *, traceback: str = "", **fields: Any) -> None:
    """Print an error, preceded by the traceback, if any, and with its remedy on a second line."""
    text = "\n".join(filter(None, [traceback.rstrip(), f"ooc: {message}", remedy]))
    more = {"traceback": traceback} if traceback else {}
    _say("error", text, message, {"remedy": remedy, **fields, **more})


def relay_line(line: str, rank: int) -> None:
    """Print a line of another rank: a JSON object gets a field "rank", text gets the rank as a prefix."""
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
    """Write in a single call, so that lines of different threads do not mix."""
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()
