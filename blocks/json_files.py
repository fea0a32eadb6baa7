"""Small JSON files with a checksum of their contents: the commit points of datasets, runs and models."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any

import xxhash

from blocks.errors import RequestError, WorkFailed
from blocks.files import REMEDY, no_such_file, publish_file, read_small


def write_json(path: Path, content: dict[str, Any]) -> None:
    """Publish a small JSON file with a checksum of its contents; it is the commit point of what it describes."""
    with publish_file(path) as beside:
        whole = {**content, "checksum": _content_checksum(content)}
        beside.write_text(json.dumps(whole, indent=1) + "\n", encoding="utf-8")


def json_text(content: Any, **how: Any) -> str:
    """Return content as JSON text.

    NaN and infinity become null, NumPy numbers become Python numbers.
    how: keyword arguments of `json.dumps`.
    """
    return json.dumps(_with_nulls(content), allow_nan=False, **how)


def _with_nulls(content: Any) -> Any:
    if isinstance(content, dict):
        return {name: _with_nulls(value) for name, value in content.items()}
    if isinstance(content, list | tuple):
        return [_with_nulls(value) for value in content]
    value = content.item() if hasattr(content, "item") else content
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _require_inside(directory: Path, content: Any) -> None:
    """Raise WorkFailed if a "file" entry, at any depth, is not a plain relative path inside a directory.

    The content may be untrusted: the files that it names are read, memory-mapped and, by `verify --repair`,
    overwritten.
    """
    rest = [content]
    while rest:
        each = rest.pop()
        if isinstance(each, list):
            rest += each
        elif isinstance(each, dict):
            rest += each.values()
            if each.get("file") is not None:
                _require_name_inside(directory, each["file"])


def _require_name_inside(directory: Path, name: Any) -> None:
    plain = isinstance(name, str) and name and "\0" not in name and not Path(name).is_absolute()
    if not plain or ".." in Path(name).parts or leads_out(directory, name):
        raise WorkFailed(
            f"{directory} lists the file {name!r}, which is outside it",
            "Copy the directory again from its source.",
        )


def leads_out(directory: Path, name: str) -> bool:
    """Return whether a path inside a directory leads out of it through symbolic links."""
    whole = os.path.realpath(directory)
    return os.path.commonpath([whole, os.path.realpath(directory / name)]) != whole


def _content_checksum(content: dict[str, Any]) -> str:
    """Return the XXH3-128 of the canonical JSON text in hexadecimal; arrays may be tuples."""
    return xxhash.xxh3_128_hexdigest(json.dumps(content, sort_keys=True).encode())


def read_json(path: Path, *, what: str, schema: int, holds: Any, sealed: bool = False) -> dict[str, Any]:
    """Read a JSON file from `write_json`; its "schema" is a version from 1 to `schema`.

    holds: TypedDict that the content must match.
    sealed: every version wrote a checksum; otherwise a file without one is accepted.
    Raises RequestError if the file does not exist or has another schema, WorkFailed if it is damaged, does not match,
    or names files outside its directory.
    """
    content, intact = _parsed(path, what, sealed=sealed)
    found = content.get("schema")
    if type(found) is not int or not 1 <= found <= schema:
        raise RequestError(
            f"{path} has schema version {found}; this version of ooc reads {'1' if schema == 1 else f'1 to {schema}'}",
            "Use the version of ooc that wrote the file, or create the file again with this one.",
        )
    if not intact:
        raise WorkFailed(f"{path} is damaged: its checksum does not match", REMEDY)
    require_fit(path, content, holds)
    _require_inside(path.parent, content)
    return content


def require_fit(path: Path, content: Any, holds: Any) -> None:
    """Raise WorkFailed if a file's content does not match a type, such as a TypedDict."""
    from msgspec import ValidationError, convert

    try:
        convert(content, holds)
    except ValidationError as error:
        raise WorkFailed(f"{path} has unexpected content: {error}", REMEDY) from error


def _parsed(path: Path, what: str, *, sealed: bool) -> tuple[dict[str, Any], bool]:
    """Return the JSON object in a file, and whether its checksum is correct.

    Raises the same errors as `read_json`.
    """
    try:
        content = json.loads(read_small(path))
        if not isinstance(content, dict):
            raise ValueError("the content is not a JSON object")
        noted = content.pop("checksum", None)
        return content, noted == _content_checksum(content) or not (noted or sealed or _is_under_another_key(content))
    except (FileNotFoundError, NotADirectoryError):
        if not path.parent.exists():
            raise no_such_file(path.parent) from None
        raise RequestError(f"{path.parent} is not {what}: it has no {path.name}") from None
    except OSError as error:
        raise WorkFailed(f"{path} cannot be read: {os.strerror(error.errno or 0)}") from error
    except (ValueError, RecursionError) as error:
        raise WorkFailed(f"{path} is damaged: {error}", REMEDY) from error


def _is_under_another_key(content: dict[str, Any]) -> bool:
    """Return whether the checksum, which is written last, is stored under a damaged key."""
    *rest, last = content.items() or [("", None)]
    return last[1] == _content_checksum(dict(rest))
