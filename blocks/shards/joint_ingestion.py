"""Ingest the files of several machines: each machine writes its own shard, all with the same vocabulary.

Each machine reads its files; the first machine merges all words and chooses the vocabulary as if all files were on one
machine; then each writes its documents, which are numbered machine by machine. Shards are like those of `ooc shard`
(see `blocks.shards.whole_dataset`), but the whole dataset exists nowhere.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
import xxhash

from blocks.arrays import write_arrays
from blocks.corpus.partition import least_slices, rank_words, slice_count
from blocks.corpus.vocabulary import ChosenVocabulary, use_given_vocabulary
from blocks.ingestion.name_merging import MergedNames, NameCounts
from blocks.shards.whole_dataset import RankedColumns, names_hash


class IngestionPeers(Protocol):
    """Communication between machines that ingest together; all of them make the same calls in the same order."""

    rank: int
    ranks: int

    def gather(self, message: bytes) -> Iterable[bytes]:
        """Yield the messages of all ranks, in order, on rank 0, and nothing on other ranks, which must also iterate."""

    def spread(self, message: bytes) -> bytes:
        """Return the message of rank 0 on all ranks."""

    def wait(self) -> None:
        """Wait until all ranks have reached this call."""


class WordsOfInputs(NamedTuple):
    """Words found by reading the inputs, on one machine or on all.

    stopped: number of tokens dropped as stop words.
    """

    merged: MergedNames
    documents: int
    stopped: int


class CountedNames(NamedTuple):
    """Words with their counts, as sent between machines.

    facts: additional JSON values.
    """

    words: list[str]
    tokens: np.ndarray  # int64 (V,), number of tokens of each word
    documents: np.ndarray  # int64 (V,), number of documents that contain each word
    facts: dict[str, Any]

    def packed(self) -> bytes:
        facts = json.dumps(self.facts).encode()
        head = np.array([len(facts), len(self.words)])
        arrays = [array.astype("<i8").tobytes() for array in (head, self.tokens, self.documents)]
        return b"".join([*arrays, facts, "\n".join(self.words).encode()])

    @classmethod
    def unpacked(cls, message: bytes) -> CountedNames:
        length, words = np.frombuffer(message, "<i8", 2).tolist()
        tokens, documents = np.frombuffer(message, "<i8", 2 * words, 16).reshape(2, words)
        facts = 16 * (1 + words)
        text = message[facts + length :].decode()
        return cls(text.split("\n") if words else [], tokens, documents, json.loads(message[facts : facts + length]))


Select = Callable[[WordsOfInputs], tuple[np.ndarray, dict[str, Any]]]  # see `vocabulary.select_words`


class JointIngestion:
    """The joint steps of a machine's ingestion: `choose`, `shard` and `wait`, in this order."""

    def __init__(self, others: IngestionPeers) -> None:
        self._others = others

    def choose(self, own_words: WordsOfInputs, select: Select, seed: int) -> ChosenVocabulary:
        """Return the common vocabulary, with the frequencies on this machine.

        select: function that chooses the words to keep.
        """
        merged, facts = own_words.merged, {"documents": own_words.documents, "stopped": own_words.stopped}
        told = CountedNames(merged.terms, merged.tokens, merged.documents, facts).packed()
        kept = _kept(map(CountedNames.unpacked, self._others.gather(told)), select)
        common = CountedNames.unpacked(self._others.spread(kept))
        slices = max(slice_count(int(common.tokens.sum())), least_slices(self._others.ranks))
        ids, bounds = rank_words(common.tokens, slices, seed)
        self._columns = RankedColumns(ids, bounds, common.tokens[ids])
        self._documents: list[int] = common.facts["documents"]  # number of documents on each machine
        return use_given_vocabulary(merged, common.words, ids, bounds)._replace(dropped=common.facts["dropped"])

    def shard(self, root: Path, blocks: list[dict[str, Any]], texts: dict[str, dict[str, Any]]) -> dict[str, Any]:
        """Write this shard's data about the whole dataset.

        Returns its "shard" manifest entry.

        blocks, texts: manifest entries of the shard's files.
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
            "hash": names_hash(texts["vocabulary"], columns),
            "dealt": _hash(self._documents).decode(),
        }
        index = write_arrays(root, "whole.h5", {"numbers": numbers, "frequencies": columns.frequencies})
        return {"number": rank, "shards": self._others.ranks, "whole": whole, "index": index}

    def wait(self) -> None:
        """Wait until all machines have written their shards; no shard is published before."""
        self._others.wait()


def _kept(parts: Iterable[CountedNames], select: Select) -> bytes:
    """Return the packed words that all machines keep, from the words of each machine; empty on ranks other than 0."""
    tally, documents, stopped = NameCounts(), [], 0
    for part in parts:
        tally.add(part.words, np.array([part.tokens, part.documents]))
        documents.append(part.facts["documents"])
        stopped += part.facts["stopped"]
    if not documents:
        return b""
    merged = tally.merged({})
    places, dropped = select(WordsOfInputs(merged, sum(documents), stopped))
    facts = {"documents": documents, "dropped": dropped}
    words = [merged.terms[place] for place in places]
    return CountedNames(words, merged.tokens[places], merged.documents[places], facts).packed()


def _hash(content: list[Any]) -> bytes:
    return xxhash.xxh3_128_hexdigest(json.dumps(content).encode()).encode()
