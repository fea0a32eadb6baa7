"""Store the packets of slices between two trips, in an anonymous file that stays in the page cache if it fits."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from blocks.files import disk_errors


class PacketStore:
    """File of packets, each of which is written once. One thread may write while another reads."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        with disk_errors(directory):
            self._file = tempfile.TemporaryFile(dir=directory, buffering=0)  # noqa: SIM115, closed by `close`
        self._places: dict[int, tuple[int, int]] = {}
        self._end = 0

    def put(self, number: int, packet: memoryview) -> None:
        """Store a packet."""
        self._places[number] = self._end, len(packet)
        with disk_errors(self._directory):
            while packet:
                done = os.pwrite(self._file.fileno(), packet, self._end)
                packet, self._end = packet[done:], self._end + done

    def get(self, number: int, into: memoryview) -> int:
        """Read a packet into memory; returns its size in bytes, 0 if it was never stored."""
        begin, size = self._places.get(number, (0, 0))
        into = into[:size]
        with disk_errors(self._directory):
            while into:
                done = os.preadv(self._file.fileno(), [into], begin)
                into, begin = into[done:], begin + done
        return size

    def sizes(self, numbers: Sequence[int]) -> np.ndarray:
        """Return the sizes of packets in bytes, int64."""
        return np.array([self._places[number][1] for number in numbers], np.int64)

    def packets(self, numbers: Sequence[int]) -> Iterator[np.ndarray]:
        """Yield packets one at a time, uint8."""
        for number, size in zip(numbers, self.sizes(numbers).tolist(), strict=True):
            packet = np.empty(size, np.uint8)
            self.get(number, memoryview(packet.data))
            yield packet

    def close(self) -> None:
        self._file.close()
