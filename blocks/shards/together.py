"""Ingestion of the files that several machines have: each makes a shard of its own, all with the same words.

Each machine reads its files; the first adds up the words that all have found, and chooses the vocabulary as if all had
been read on one machine; then each writes its documents. In the whole these are numbered machine by machine. Shards are
as `ooc shard` makes them, see `blocks.shards.whole`, but of a whole that is nowhere.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
import xxhash

from blocks.arrays import write_arrays
from blocks.corpus.division import least_slices, rank_words, slice_count
from blocks.corpus.vocabulary import Chosen, keep
from blocks.ingestion.names import Merged, Tally
from blocks.shards.whole import Columns, hash_of


class Others(Protocol):
    """The machines that ingest together, of which this is one; all make the same calls in the same order."""

    rank: int
    ranks: int

    def gather(self, message: bytes) -> Iterable[bytes]:
        """At rank 0 what all give, in the order of ranks; at others nothing, but they go through that, too."""

    def spread(self, message: bytes) -> bytes:
        """What rank 0 gives."""

    def wait(self) -> None:
        """Until all have come here."""


class Found(NamedTuple):
    """What reading has found, on one machine or on all. stopped: tokens that were dropped as stop words."""

    merged: Merged
    documents: int
    stopped: int


class Counted(NamedTuple):
    """Words, and how often they occur, as machines tell each other. facts: besides, of JSON types."""

    words: list[str]
    tokens: np.ndarray  # int64 (V,), of each word
    documents: np.ndarray  # int64 (V,), in which it occurs
    facts: dict[str, Any]

    def packed(self) -> bytes:
        facts = json.dumps(self.facts).encode()
        head = np.array([len(facts), len(self.words)])
        arrays = [array.astype("<i8").tobytes() for array in (head, self.tokens, self.documents)]
        return b"".join([*arrays, facts, "\n".join(self.words).encode()])

    @classmethod
    def unpacked(cls, message: bytes) -> Counted:
        length, words = np.frombuffer(message, "<i8", 2).tolist()
        tokens, documents = np.frombuffer(message, "<i8", 2 * words, 16).reshape(2, words)
        facts = 16 * (1 + words)
        text = message[facts + length :].decode()
        return cls(text.split("\n") if words else [], tokens, documents, json.loads(message[facts : facts + length]))


Select = Callable[[Found], tuple[np.ndarray, dict[str, Any]]]  # see `vocabulary.select`


class Together:
    """What a machine does with the others while it ingests: `choose`, `shard` and `wait`, in this order."""

    def __init__(self, others: Others) -> None:
        self._others = others

    def choose(self, mine: Found, select: Select, seed: int) -> Chosen:
        """The vocabulary of all, with the frequencies of this machine. select: says which words of all to keep."""
        merged, facts = mine.merged, {"documents": mine.documents, "stopped": mine.stopped}
        told = Counted(merged.terms, merged.tokens, merged.documents, facts).packed()
        kept = _kept(map(Counted.unpacked, self._others.gather(told)), select)
        common = Counted.unpacked(self._others.spread(kept))
        slices = max(slice_count(int(common.tokens.sum())), least_slices(self._others.ranks))
        ids, bounds = rank_words(common.tokens, slices, seed)
        self._columns = Columns(ids, bounds, common.tokens[ids])
        self._documents: list[int] = common.facts["documents"]  # of each machine
        return keep(merged, common.words, ids, bounds)._replace(dropped=common.facts["dropped"])

    def shard(self, root: Path, blocks: list[dict[str, Any]], texts: dict[str, dict[str, Any]]) -> dict[str, Any]:
        """Write what this machine's dataset knows of the whole; returns what its manifest says under "shard".

        blocks, texts: the entries of its files.
        """
        rank, columns = self._others.rank, self._columns
        first = sum(self._documents[:rank])
        numbers = np.arange(first, first + self._documents[rank], dtype=np.uint64)
        content = [entry["checksum"] for entry in (*texts.values(), *blocks)]
        contents = b"".join(self._others.gather(_hash(content)))
        whole = {
            "identity": self._others.spread(_hash([contents.decode()])).decode(),
            "documents": sum(self._documents),
            "tokens": int(columns.frequencies.sum()),
            "hash": hash_of(texts["vocabulary"], columns),
            "dealt": _hash(self._documents).decode(),
        }
        index = write_arrays(root, "whole.h5", {"numbers": numbers, "frequencies": columns.frequencies})
        return {"number": rank, "shards": self._others.ranks, "whole": whole, "index": index}

    def wait(self) -> None:
        """Until all have written their shards, which none publishes before."""
        self._others.wait()


def _kept(parts: Iterable[Counted], select: Select) -> bytes:
    """The words that all machines keep, of those that each has found, packed; nothing where others choose."""
    tally, documents, stopped = Tally(), [], 0
    for part in parts:
        tally.add(part.words, np.array([part.tokens, part.documents]))
        documents.append(part.facts["documents"])
        stopped += part.facts["stopped"]
    if not documents:
        return b""
    merged = tally.merged({})
    places, dropped = select(Found(merged, sum(documents), stopped))
    facts = {"documents": documents, "dropped": dropped}
    words = [merged.terms[place] for place in places]
    return Counted(words, merged.tokens[places], merged.documents[places], facts).packed()


def _hash(content: list[Any]) -> bytes:
    return xxhash.xxh3_128_hexdigest(json.dumps(content).encode()).encode()
