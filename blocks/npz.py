"""Streaming .npz files: the same bytes for the same arrays, and no array need fit in memory."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.lib import format as npy

from blocks.files import publish

_CHUNK = 16 << 20  # bytes copied at a time


def write_npz(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Publish arrays, numeric or of strings, which may be memory maps; readable by `np.load` without pickle."""
    with publish(path) as beside, zipfile.ZipFile(beside, "w", zipfile.ZIP_STORED, allowZip64=True) as archive:
        for name, array in arrays.items():
            # A ZipInfo made from a name alone has a fixed date.
            with archive.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True) as member:
                header = npy.header_data_from_array_1_0(array)
                npy.write_array_header_2_0(member, {**header, "fortran_order": False})
                flat = array.reshape(-1)
                step = max(1, _CHUNK // max(array.itemsize, 1))
                for first in range(0, flat.size, step):
                    member.write(np.ascontiguousarray(flat[first : first + step]).tobytes())
