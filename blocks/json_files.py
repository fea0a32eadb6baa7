"""Small JSON files: the commit points of datasets, runs and models, with a checksum of their content."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any

import xxhash

from blocks.errors import RequestError, WorkFailed
from blocks.files import REMEDY, no_such_file, publish, read_small


def write_json(path: Path, content: dict[str, Any]) -> None:
    """Publish a small JSON file (the commit point of whatever it describes), with a checksum of its content."""
    with publish(path) as beside:
        whole = {**content, "checksum": _content_checksum(content)}
        beside.write_text(json.dumps(whole, indent=1) + "\n", encoding="utf-8")


def json_text(content: Any, **how: Any) -> str:
    """Return content as JSON. NaN and infinities become null, numbers of NumPy those of Python. how: keyword arguments
    of `json.dumps`."""
    return json.dumps(_with_nulls(content), allow_nan=False, **how)


def _with_nulls(content: Any) -> Any:
    if isinstance(content, dict):
        return {name: _with_nulls(value) for name, value in content.items()}
    if isinstance(content, list | tuple):
        return [_with_nulls(value) for value in content]
    value = content.item() if hasattr(content, "item") else content
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _require_inside(directory: Path, content: Any) -> None:
    """Raise WorkFailed if a "file" that JSON content names, however deep, is not a plain relative path in a directory.

    Content may come from a stranger: what it names is read, mapped and, by `verify --repair`, written over.
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
            f"{directory} lists the file {name!r}, which is outside of it",
            "Copy the directory again from its source.",
        )


def leads_out(directory: Path, name: str) -> bool:
    """Whether a path inside a directory leads out of it by symbolic links."""
    whole = os.path.realpath(directory)
    return os.path.commonpath([whole, os.path.realpath(directory / name)]) != whole


def _content_checksum(content: dict[str, Any]) -> str:
    """XXH3-128 of the canonical JSON text, as hex; arrays may be tuples."""
    return xxhash.xxh3_128_hexdigest(json.dumps(content, sort_keys=True).encode())


def read_json(path: Path, *, what: str, schema: int, holds: Any, sealed: bool = False) -> dict[str, Any]:
    """Read the content of a JSON file that `write_json` wrote: its "schema" is the version, from 1 up to `schema`.

    holds: the TypedDict that the content has to fit. sealed: whether every version wrote a checksum; otherwise a file
    without one is read, too. Raises RequestError if the file is not there or of another schema, WorkFailed if it is
    damaged, does not hold what it should, or names files outside its directory.
    """
    content, intact = _parsed(path, what, sealed=sealed)
    found = content.get("schema")
    if type(found) is not int or not 1 <= found <= schema:
        raise RequestError(
            f"{path} has schema version {found}; this version of ooc reads {'1' if schema == 1 else f'1 to {schema}'}",
            "Use the version of ooc that wrote the file, or make it again.",
        )
    if not intact:
        raise WorkFailed(f"{path} is damaged: its checksum does not match", REMEDY)
    require_fit(path, content, holds)
    _require_inside(path.parent, content)
    return content


def require_fit(path: Path, content: Any, holds: Any) -> None:
    """Raise WorkFailed if what was read from a file does not fit a type, such as a TypedDict."""
    from msgspec import ValidationError, convert

    try:
        convert(content, holds)
    except ValidationError as error:
        raise WorkFailed(f"{path} has unexpected content: {error}", REMEDY) from error


def _parsed(path: Path, what: str, *, sealed: bool) -> tuple[dict[str, Any], bool]:
    """The JSON object in a file, and whether its checksum fits; raises as `read_json` does."""
    try:
        content = json.loads(read_small(path))
        if not isinstance(content, dict):
            raise ValueError("it is not a JSON object")
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
    """Whether a checksum, which is written last, is in its place, but under a key that is damaged."""
    *rest, last = content.items() or [("", None)]
    return last[1] == _content_checksum(dict(rest))
