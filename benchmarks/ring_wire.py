"""Compare encodings of word rows for the network: 8-byte entries, base-128 bytes, the encoding in use, and zstd
compression.

    python -m benchmarks.ring_wire early/model late/model --rate 1Gbps

Rows are those of trained models, in packets of some megabytes. For each form: its bytes, the seconds of one core that
it takes to make and to read it, the least of the rounds, and the seconds that a link takes to carry it. Where the core
would have to wait for the link the shortest is the form whose slower side is the fastest; where it would not, that with
the least work.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import zstandard

from benchmarks.report import describe_machine, machine, table
from blocks.compiled import kernel
from blocks.memory import parse_rate
from samplers.lda.packed_counts import SIZE_BYTES, max_packed_bytes, read_entry, read_size, write_entry
from samplers.topics.model import SavedTopicModel, TopicCountRows

LEVELS = (-5, 1, 3)
PACKET = 1 << 19  # entries of a packet


class PacketForm(NamedTuple):
    """Cost of one encoding over all packets: bytes, and processor seconds to encode and to decode."""

    name: str
    bytes: int
    make_s: float
    read_s: float


@kernel
def write_rows(offsets, topics, counts, data):
    """Encode rows as they are sent, see `samplers.lda.rotating_rows`; returns the number of bytes written."""
    at = 0
    for word in range(offsets.size - 1):
        first, before = at + SIZE_BYTES, np.int64(-1)
        end = first
        for entry in range(offsets[word], offsets[word + 1]):
            end = write_entry(data, end, np.int64(topics[entry]) - before, np.int64(counts[entry]))
            before = np.int64(topics[entry])
        for byte in range(SIZE_BYTES):
            data[at + byte] = (end - first) >> (8 * byte) & 255
        at = end
    return at


@kernel
def read_rows(data, size, entries):
    """Decode rows to entries, uint32 (n, 2), topics and counts; returns the number of entries."""
    at, filled = 0, 0
    while at < size:
        end, topic = at + SIZE_BYTES + read_size(data, at), np.int64(-1)
        at += SIZE_BYTES
        while at < end:
            step, count, at = read_entry(data, at)
            topic += step
            entries[filled, 0], entries[filled, 1] = topic, count
            filled += 1
    return filled


def timed(work: Callable[[], Any], rounds: int) -> tuple[Any, float]:
    """Return the result of a function, and the minimum processor seconds over some rounds."""
    least = float("inf")
    for _ in range(rounds):
        began = time.process_time()
        found = work()
        least = min(least, time.process_time() - began)
    return found, least


def packets(rows: TopicCountRows) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Yield offsets, topics and counts of consecutive groups of words."""
    starts = np.searchsorted(rows.offsets, np.arange(0, rows.offsets[-1], PACKET))
    for first, last in zip(starts, [*starts[1:], rows.offsets.size - 1], strict=True):
        mine = slice(int(rows.offsets[first]), int(rows.offsets[last]))
        yield rows.offsets[first : last + 1] - mine.start, rows.topics[mine], rows.counts[mine]


def forms_of(offsets: np.ndarray, topics: np.ndarray, counts: np.ndarray, rounds: int) -> Iterator[PacketForm]:
    """Yield the cost of each encoding of one packet.

    Raises RuntimeError if a packet is not restored exactly.
    """
    entries = np.stack((topics, counts), axis=1).astype(np.uint32)
    frequencies = np.diff(np.append(0, np.cumsum(counts, dtype=np.int64))[offsets])
    data, again = np.zeros(max_packed_bytes(frequencies, int(topics.max()) + 1), np.uint8), np.zeros_like(entries)
    size, make_s = timed(lambda: write_rows(offsets, topics, counts, data), rounds)
    filled, read_s = timed(lambda: read_rows(data, size, again), rounds)
    if filled != len(entries) or not np.array_equal(again, entries):
        raise RuntimeError("rows do not come out as they went in")
    raw, packed = entries.tobytes(), data[:size].tobytes()
    yield PacketForm("entries", len(raw), 0.0, 0.0)
    yield PacketForm("packed", size, make_s, read_s)
    for level in LEVELS:
        yield compressed("entries", raw, level, rounds)
    for level in LEVELS:
        form = compressed("packed", packed, level, rounds)
        yield form._replace(make_s=form.make_s + make_s, read_s=form.read_s + read_s)


def compressed(name: str, data: bytes, level: int, rounds: int) -> PacketForm:
    """Return the cost of zstd compression.

    Raises RuntimeError if the data are not restored exactly.
    """
    press, free = zstandard.ZstdCompressor(level=level), zstandard.ZstdDecompressor()
    small, make_s = timed(lambda: press.compress(data), rounds)
    whole, read_s = timed(lambda: free.decompress(small), rounds)
    if whole != data:
        raise RuntimeError("zstd does not give back what it got")
    return PacketForm(f"{name}, zstd {level}", len(small), make_s, read_s)


def compare(model: SavedTopicModel, rounds: int) -> list[PacketForm]:
    """Return the cost of each encoding over all rows of a model."""
    each = [list(forms_of(*packet, rounds)) for packet in packets(model.words)]
    return [
        PacketForm(same[0].name, sum(f.bytes for f in same), sum(f.make_s for f in same), sum(f.read_s for f in same))
        for same in zip(*each, strict=True)
    ]


def described(forms: Sequence[PacketForm], rate: float) -> Iterator[list[str]]:
    yield ["", "MB", "share of entries", "CPU s/GB", "CPU s", "network s", "slower of both", "sum of both"]
    for form in forms:
        core, wire = form.make_s + form.read_s, form.bytes / rate
        yield [
            form.name,
            f"{form.bytes / 1e6:,.1f}",
            f"{form.bytes / forms[0].bytes:.1%}",
            f"{core / forms[0].bytes * 1e9:.2f}",
            *(f"{seconds:.3f}" for seconds in (core, wire, max(core, wire), core + wire)),
        ]


def main() -> None:
    summary, _, details = (__doc__ or "").partition("\n")
    parser = argparse.ArgumentParser(
        "python -m benchmarks.ring_wire",
        description=summary,
        epilog=details,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("models", type=Path, nargs="+", help="of runs, as run/model")
    parser.add_argument("--rate", default="1Gbps", help="of a link")
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    rate = parse_rate(args.rate, "--rate")
    print("\n".join(describe_machine(machine())))
    for path in args.models:
        model = SavedTopicModel(path)
        mean = model.words.offsets[-1] / model.vocabulary_size
        print(f"\n{path}: K = {model.topics}, {model.vocabulary_size:,} words of {mean:,.0f} topics, {args.rate}")
        print("\n".join(table(list(described(compare(model, args.rounds), rate)))))


if __name__ == "__main__":
    main()
