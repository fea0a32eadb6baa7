"""Pack the return values of a program's parts for other ranks: numbers, strings, arrays, lists, tuples and dicts."""

from __future__ import annotations

from typing import Any

import numpy as np
from msgspec import DecodeError, msgpack

from blocks.errors import RequestError, WorkFailed

_ARRAY, _TUPLE = 1, 2  # kinds that msgpack does not have
_NUMBERS = "biufc"  # kinds of dtypes


def pack_value(value: Any) -> bytes:
    """Return a value packed as bytes.

    Raises RequestError if its type cannot be sent to other ranks.
    """
    return msgpack.encode(_told(value), enc_hook=_refuse)


def unpack_value(data: bytes) -> Any:
    """Return the value packed by `pack_value`.

    Raises WorkFailed if the bytes are invalid.
    """
    try:
        return msgpack.decode(data, ext_hook=_made)
    except (DecodeError, TypeError, ValueError) as error:
        raise WorkFailed(f"cannot decode a value from another rank: {error}") from error


def _told(value: Any) -> Any:
    """Replace arrays, NumPy numbers and tuples in a value with msgpack extensions."""
    if isinstance(value, np.ndarray | np.generic):
        if value.dtype.kind not in _NUMBERS:
            raise RequestError(
                f"`update` of a program on a ring returned a {value.dtype} array, which ranks cannot exchange",
                "Return arrays of numbers.",
            )
        is_number = isinstance(value, np.generic)
        told = (value.dtype.str, list(value.shape), is_number, np.ascontiguousarray(value).tobytes())
        return msgpack.Ext(_ARRAY, msgpack.encode(told))
    if isinstance(value, tuple):
        return msgpack.Ext(_TUPLE, pack_value(list(value)))
    if isinstance(value, list):
        return [_told(each) for each in value]
    if isinstance(value, dict):
        return {name: _told(each) for name, each in value.items()}
    return value


def _made(kind: int, data: memoryview) -> Any:
    if kind == _TUPLE:
        return tuple(unpack_value(bytes(data)))
    dtype, shape, is_number, content = msgpack.decode(data, type=tuple[str, list[int], bool, bytes])
    if np.dtype(dtype).kind not in _NUMBERS:
        raise ValueError(f"an array of {dtype}")
    array = np.frombuffer(content, dtype).reshape(shape)
    return array[()] if is_number else array.copy()


def _refuse(value: Any) -> Any:
    raise RequestError(
        f"`update` of a program on a ring returned a value of type {type(value).__name__}, which ranks cannot exchange",
        "Return numbers, strings, arrays of numbers, or lists, tuples and dicts of these.",
    )
