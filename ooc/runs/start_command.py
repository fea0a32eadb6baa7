"""Record the command that started a run, and all its options, in a file that `--config` of another command accepts."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import xxhash

from blocks.files import publish_file

OPTIONS = "options.toml"
_SEAL = "# checksum of the lines below: "
_UNSEALED = b"# ooc "  # start of files of earlier versions, which have no checksum

_begun_by: ContextVar[str] = ContextVar("begun_by", default="")  # contents of the file OPTIONS in new runs
_resumes: ContextVar[bool] = ContextVar("resumes", default=False)


@contextmanager
def record_command(command: str, options: Mapping[str, Any], *, resumes: bool) -> Iterator[None]:
    """Make new runs in this context record the command that starts them and all options that have a value.

    resumes: whether to continue an existing run that was started in the same way.
    """
    lines = [f"{name} = {toml(value)}\n" for name, value in options.items() if value not in (None, [])]
    tokens = _begun_by.set(f"# ooc {command} ... --config {OPTIONS}\n{''.join(lines)}"), _resumes.set(resumes)
    try:
        yield
    finally:
        _begun_by.reset(tokens[0])
        _resumes.reset(tokens[1])


def run_identity(run: Path) -> tuple[int, int] | None:
    """Return an identity that tells a run, or several chains, from another run at the same path; None if there is no
    run."""
    with suppress(OSError):
        file = next(filter(Path.exists, (run / "config.json", run / "chain-1" / "config.json")), run / "config.json")
        status = file.stat()
        return status.st_ino, status.st_mtime_ns
    return None


def may_resume() -> bool:
    """Return whether an existing run may be continued instead of starting a new one."""
    return _resumes.get()


def toml(value: Any) -> str:
    """Return a flag, a number, a string, a path, or a list of these as a TOML value."""
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(toml, value))}]"
    if isinstance(value, (bool, str)):
        return json.dumps(value, ensure_ascii=False)
    return str(value) if isinstance(value, (int, float)) else json.dumps(str(value.absolute()), ensure_ascii=False)


def write_start_command(directory: Path) -> None:
    """Write the command that starts a run, if known, to the run directory."""
    if text := _begun_by.get():
        with publish_file(directory / OPTIONS) as beside:
            beside.write_text(f"{_SEAL}{xxhash.xxh3_64_hexdigest(text.encode())}\n{text}", encoding="utf-8")


def start_command_problem(directory: Path) -> str | None:
    """Return a description of the damage to a run's recorded options, or None. Files of earlier versions have no
    checksum."""
    path = directory / OPTIONS
    first, _, text = path.read_bytes().partition(b"\n") if path.exists() else (b"", b"", b"")
    if first.startswith(_UNSEALED) or not path.exists():
        return None
    sealed = first == f"{_SEAL}{xxhash.xxh3_64_hexdigest(text)}".encode()
    return None if sealed else f"{path}: its checksum does not match"
