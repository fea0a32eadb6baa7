"""Compare storage settings for blocks in HDF5 files: contiguous and mapped (as `blocks.arrays` does), contiguous,
chunked, and compressed.

    python -m benchmarks.hdf5_settings DATASET --scratch DIR

The positions of tokens of a dataset's first blocks, which are nearly all that a block has, are written a file each in
every setting and read into one array again, once when the disk has to be read and twice when the system has the file;
seconds of the clock and of this process on a processor, a gigabyte of the array. Filters are those of the HDF5 library
and of hdf5plugin.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import h5py
import hdf5plugin
import numpy as np

from benchmarks.report import describe_machine, machine, table
from blocks import Dataset
from blocks.arrays import map_arrays, write_arrays
from ooc.plan.disk_speed import drop_page_cache

CHUNK = 1 << 18  # bytes, about what fits a processor's second-level cache several times
SETTINGS: dict[str, dict[str, Any]] = {
    "contiguous": {},
    "chunks of 64 KiB": {"chunk": CHUNK // 4},
    "chunks of 1 MiB": {"chunk": CHUNK * 4},
    "chunks, shuffle, gzip 1": {"chunk": CHUNK, "shuffle": True, "compression": "gzip", "compression_opts": 1},
    "chunks, shuffle, lzf": {"chunk": CHUNK, "shuffle": True, "compression": "lzf"},
    "chunks, bitshuffle, lz4": {"chunk": CHUNK, **hdf5plugin.Bitshuffle(cname="lz4")},
    "chunks, bitshuffle, zstd 1": {"chunk": CHUNK, **hdf5plugin.Bitshuffle(cname="zstd", clevel=1)},
    "chunks, blosc2, shuffle, lz4": {"chunk": CHUNK, **hdf5plugin.Blosc2(cname="lz4", clevel=1, filters=1)},
}

Seconds = tuple[float, float]  # of the clock, of a processor


def options() -> argparse.Namespace:
    told = (__doc__ or "").partition("\n")[0]
    parser = argparse.ArgumentParser("python -m benchmarks.hdf5_settings", description=told)
    parser.add_argument("dataset", help="made by ooc ingest")
    parser.add_argument("--gigabytes", type=float, default=1.0, help="at most, of the array")
    parser.add_argument("--scratch", type=Path, help="for temporary files: on the disk to be measured")
    return parser.parse_args()


def sample(dataset: Dataset, most: float) -> list[np.ndarray]:
    """Return the token positions of each of the first blocks, uint32 (N,), in memory."""
    found: list[np.ndarray] = []
    for number in range(dataset.block_count):
        found.append(dataset.block(number).positions.copy())
        if sum(array.nbytes for array in found) > most:
            break
    return found


def timed(work: Callable[[], None]) -> Seconds:
    wall, processor = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - wall, time.process_time() - processor


class MappedFiles:
    """Files written and mapped as in every dataset."""

    name = "contiguous, mapped (ooc)"

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._where: dict[Path, Mapping[str, Any]] = {}

    def write(self, path: Path, array: np.ndarray) -> None:
        self._where[path] = write_arrays(self._directory, path.name, {"positions": array})["arrays"]

    def read(self, path: Path, into: np.ndarray) -> None:
        into[:] = map_arrays(path, self._where[path])["positions"]


class LibraryFiles:
    """Files written and read by the HDF5 library."""

    def __init__(self, name: str, setting: Mapping[str, Any]) -> None:
        self.name = name
        self._setting = {key: value for key, value in setting.items() if key != "chunk"}
        self._chunk = setting.get("chunk")

    def write(self, path: Path, array: np.ndarray) -> None:
        chunks = (min(self._chunk // array.itemsize, array.size),) if self._chunk else None
        with h5py.File(path, "w") as file:
            file.create_dataset("positions", data=array, chunks=chunks, **self._setting)

    def read(self, path: Path, into: np.ndarray) -> None:
        with h5py.File(path, "r") as file:
            file["positions"].read_direct(into)


def measure(store: MappedFiles | LibraryFiles, arrays: list[np.ndarray], directory: Path) -> list[str]:
    """Return one line of the table."""
    paths = [directory / f"{number:05}.h5" for number in range(len(arrays))]
    into = [np.zeros_like(array) for array in arrays]

    def write() -> None:
        for path, array in zip(paths, arrays, strict=True):
            store.write(path, array)
            drop_page_cache(path)

    def read() -> None:
        for path, array in zip(paths, into, strict=True):
            store.read(path, array)

    seconds = [timed(write), timed(read), min(timed(read), timed(read))]
    assert all(np.array_equal(*pair) for pair in zip(arrays, into, strict=True))
    gigabytes = sum(array.nbytes for array in arrays) / 1e9
    share = sum(path.stat().st_size for path in paths) / 1e9 / gigabytes
    for path in paths:
        path.unlink()
    return [store.name, f"{share:.2f}", *(f"{value / gigabytes:.2f}" for pair in seconds for value in pair)]


def lines(arrays: list[np.ndarray], scratch: Path | None) -> Iterator[list[str]]:
    with TemporaryDirectory(dir=scratch, prefix="ooc-benchmark-") as scratch_directory:
        directory = Path(scratch_directory)
        stores: list[MappedFiles | LibraryFiles] = [MappedFiles(directory)]
        stores += [LibraryFiles(name, setting) for name, setting in SETTINGS.items()]
        for store in stores:
            yield measure(store, arrays, directory)


def main() -> None:
    args = options()
    arrays = sample(Dataset(args.dataset), args.gigabytes * 1e9)
    heading = ["seconds per GB", "size", "write", "CPU", "read", "CPU", "read again", "CPU"]
    print("\n".join(describe_machine(machine())))
    print(f"{len(arrays)} blocks, {sum(array.nbytes for array in arrays) / 1e9:.2f} GB")
    print("\n".join(table([heading, *lines(arrays, args.scratch)])))


if __name__ == "__main__":
    main()
