"""Write and read deterministic .npz files: equal arrays give equal bytes, and no array needs to fit in memory."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.lib import format as npy

from blocks.errors import WorkFailed
from blocks.files import REMEDY, disk_errors

_CHUNK = 16 << 20  # bytes copied at a time


def write_npz(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Write numeric or string arrays, which may be memory-mapped, for `np.load` without pickle.

    path: a temporary path, which the caller publishes.
    """
    with disk_errors(path), zipfile.ZipFile(path, "w", zipfile.ZIP_STORED, allowZip64=True) as archive:
        for name, array in arrays.items():
            # A ZipInfo created from a name alone has a fixed date.
            with archive.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True) as member:
                header = npy.header_data_from_array_1_0(array)
                npy.write_array_header_2_0(member, {**header, "fortran_order": False})
                flat = array.reshape(-1)
                step = max(1, _CHUNK // max(array.itemsize, 1))
                for first in range(0, flat.size, step):
                    member.write(np.ascontiguousarray(flat[first : first + step]).tobytes())


def read_npz(path: Path, dtypes: Mapping[str, str]) -> dict[str, np.ndarray]:
    """Read arrays with given names and dtypes from `write_npz`.

    Raises WorkFailed if names or dtypes differ, or if an array claims to be larger than the file.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            return {name: _read_member(archive, name, dtype) for name, dtype in dtypes.items()}
    except FileNotFoundError:
        raise WorkFailed(f"{path} is missing", REMEDY) from None
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, KeyError, ValueError, EOFError) as error:
        raise WorkFailed(f"{path} is damaged: {error}", REMEDY) from error


def _read_member(archive: zipfile.ZipFile, name: str, dtype: str) -> np.ndarray:
    told = archive.getinfo(f"{name}.npy")
    if told.compress_type != zipfile.ZIP_STORED:
        raise ValueError(f"the array {name} is compressed, and its size cannot be checked")
    with archive.open(told) as member:
        npy.read_magic(member)
        shape, by_column, found = npy.read_array_header_2_0(member)
        if found != np.dtype(dtype) or by_column:
            raise ValueError(f"the array {name} has dtype {found}; expected {dtype}")
        return np.frombuffer(member.read(), found).reshape(shape)
