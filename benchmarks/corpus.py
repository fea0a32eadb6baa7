"""Training and held-out documents of a benchmark as arrays, read from a UCI file or a dataset."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np

from blocks import Dataset
from blocks.corpus import uci, uci_bags
from blocks.text_inputs import TextInput


class Corpus(NamedTuple):
    """Documents as arrays.

    numbers: index of each document in the file, from 0.
    """

    offsets: np.ndarray  # int64 (D+1,), where each document begins in `words`
    words: np.ndarray  # uint32 (N,), word of each token, from 0; ascending in each document
    numbers: np.ndarray  # uint64 (D,)

    @property
    def documents(self) -> int:
        return self.offsets.size - 1

    @property
    def tokens(self) -> int:
        return int(self.offsets[-1])

    def document(self, place: int) -> np.ndarray:
        """Return the tokens of one document."""
        return self.words[self.offsets[place] : self.offsets[place + 1]]

    def head(self, documents: int) -> Corpus:
        """Return the first documents."""
        offsets = self.offsets[: documents + 1]
        return Corpus(offsets, self.words[: offsets[-1]], self.numbers[:documents])

    def tail(self, documents: int) -> Corpus:
        """Return the last documents."""
        offsets = self.offsets[-documents - 1 :]
        return Corpus(offsets - offsets[0], self.words[offsets[0] :], self.numbers[-documents:])

    def bags(self) -> list[list[tuple[int, int]]]:
        """Yield each document as pairs of word and count, the input format of gensim."""
        pairs = []
        for place in range(self.documents):
            words, counts = np.unique(self.document(place), return_counts=True)
            pairs.append(list(zip(words.tolist(), counts.tolist(), strict=True)))
        return pairs


def load_any(path: Path, vocabulary: Path | None) -> tuple[Corpus, list[str]]:
    """Read a dataset, or a UCI file with its vocabulary, by default vocab.X.txt next to docword.X.txt[.gz]."""
    if path.is_dir():
        return load_dataset(path)
    beside = path.with_name(path.name.partition(".txt")[0].replace("docword", "vocab") + ".txt")
    return load_uci(path, vocabulary or (beside if beside.exists() else None))


def load_uci(path: Path, vocabulary: Path | None) -> tuple[Corpus, list[str]]:
    """Read a UCI bag-of-words file; without a vocabulary file, words are named w1, w2, ..."""
    source = TextInput(str(path))
    header = uci.read_header(source)
    lengths = np.zeros(header.documents, np.int64)
    pieces = []
    for line, data in source.chunks(uci.whole_documents):
        for bags in uci_bags.parse_documents(data, source.name, line, header):
            lengths[bags.first_document : bags.first_document + bags.lengths.size] = bags.lengths
            pieces.append(bags.words)
    terms = uci.read_vocabulary(str(vocabulary)) if vocabulary else [f"w{word + 1}" for word in range(header.words)]
    if len(terms) != header.words:
        raise SystemExit(f"{vocabulary} has {len(terms)} words, but {path} says {header.words}")
    offsets = np.concatenate(([0], np.cumsum(lengths)))
    words = np.concatenate(pieces)
    order = np.lexsort((words, np.repeat(np.arange(lengths.size), lengths)))
    return Corpus(offsets, words[order], np.arange(lengths.size, dtype=np.uint64)), terms


def load_dataset(path: Path) -> tuple[Corpus, list[str]]:
    """Read a dataset created by `ooc ingest`, with documents in their original order."""
    dataset = Dataset(path)
    found = [np.empty(0, np.uint32)] * dataset.documents
    for number in range(dataset.block_count):
        block = dataset.block(number)
        words = dataset.index.word_ids[np.repeat(block.words, np.diff(block.word_offsets))][block.positions]
        for place, document in enumerate(block.documents):
            found[document] = np.sort(words[block.offsets[place] : block.offsets[place + 1]])
    offsets = np.cumsum([0, *(words.size for words in found)])
    return Corpus(offsets, np.concatenate(found), np.arange(len(found), dtype=np.uint64)), dataset.vocabulary()


def shuffled(corpus: Corpus, seed: int) -> Corpus:
    """Return the documents in random order."""
    order = np.random.default_rng(seed).permutation(corpus.documents)
    words = np.concatenate([corpus.document(place) for place in order])
    lengths = np.diff(corpus.offsets)[order]
    return Corpus(np.concatenate(([0], np.cumsum(lengths))), words, corpus.numbers[order])


def save(corpus: Corpus, vocabulary: list[str], directory: Path) -> None:
    """Write a corpus that `load` can read."""
    directory.mkdir()
    for name, array in corpus._asdict().items():
        np.save(directory / f"{name}.npy", array)
    (directory / "vocabulary.txt").write_text("\n".join(vocabulary), encoding="utf-8")


def load(directory: Path) -> Corpus:
    """Map a saved corpus; the pages of mapped files do not count as a contestant's memory."""
    return Corpus(*(np.load(directory / f"{name}.npy", mmap_mode="r") for name in Corpus._fields))


def load_vocabulary(directory: Path) -> list[str]:
    return (directory / "vocabulary.txt").read_text(encoding="utf-8").split("\n")
