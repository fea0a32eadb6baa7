"""A trained topic model on disk: counts, in the original order of the vocabulary and of the documents.

model.json      schema, K, beta, dataset identity, averaged states, and the table of the files: the commit point
topics.h5       alpha float64 (K,), topic_counts int64 (K,)
words.h5        topics of each word: offsets int64 (V+1,), topics (n,), counts uint32 (n,); topics ascending
documents.h5    topics of each document, in the same form with D in place of V
prior.h5        with a word prior: additions to beta, in the same form with float32 (n,) in place of counts
vocabulary.txt  word i on line i
documents.txt   name of document i on line i, if documents have names

Word counts may be a running mean over the states of a chain (`samplers.lda.running_mean`); then they are float32, and
topic_counts is float64.

With a word prior, the prior of word w in topic k is beta_kw instead of beta. Word counts and topic_counts then include
the additions beta_kw - beta, which may be negative, so that phi has the same formula; they are floats. Tokens are
counted without the additions: `TopicModel.topic_tokens`, `samplers.topics.relevance.word_totals`.

A model that averages several states of a chain holds the sums of their counts, of alpha and of beta. So phi and theta
are ratios of sums, with the same formulas; only the prior of new documents is alpha divided by the number of states.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, NamedTuple, NotRequired, TypedDict

import numpy as np
from msgspec import Meta

from blocks.arrays import ArrayPieces, Float64, Int64, write_arrays
from blocks.bounds_checks import require_below, require_offsets, require_valid
from blocks.compiled import kernel
from blocks.corpus.dataset import Dataset
from blocks.files import publish_file
from blocks.number_spool import NumberSpool
from blocks.schemas import ArrayFileEntry, Count, FileEntry
from blocks.stored_dataset import write_lines
from samplers.external_sort import ReorderedRows
from samplers.model_files import ModelManifest, SavedModel, file_entry, write_manifest

KIND = "topic model"
LIVE_SHARE = 0.1  # topics with less than this fraction of the mean number of tokens per topic are dead


class TopicCountRows(NamedTuple):
    """Sparse rows of topic counts."""

    offsets: Int64  # (n+1,), start of each row
    topics: Annotated[np.ndarray, "uint8", "uint16", "uint32"]  # ascending within a row
    counts: Annotated[np.ndarray, "uint32", "float32"]


class TopicArrays(NamedTuple):
    """Prior and total count of each topic."""

    alpha: Float64  # (K,)
    topic_counts: Annotated[np.ndarray, "int64", "float64"]  # (K,)


def live_topics(topic_counts: np.ndarray) -> np.ndarray:
    """Return the mask of live topics, bool (K,). A dead topic has fewer than LIVE_SHARE times the mean number of tokens
    per topic.

    topic_counts: integers or floats (K,). The limit is relative to the mean, tokens / K, so that numbers of live topics
        can be compared between corpora and between values of K.
    """
    return (topic_counts > 0) & (topic_counts >= LIVE_SHARE * topic_counts.mean())


class TopicModel:
    """A topic model, in memory or mapped.

    Attributes: `alpha` float64 (K,), `beta`, `topic_counts` int64 or float64 (K,), `words` and `documents`
    (`TopicCountRows`), `states`, number of summed states of the chain, `averaged`, the iterations of these states,
    empty for a single state, and `prior`, additions of the word prior, which `words` and `topic_counts` include, or
    None.
    """

    def __init__(
        self,
        *,
        alpha: np.ndarray,
        beta: float,
        topic_counts: np.ndarray,
        words: TopicCountRows,
        documents: TopicCountRows,
        vocabulary: list[str],
        document_names: list[str] | None = None,
        states: int = 1,
        averaged: Sequence[int] = (),
        prior: TopicCountRows | None = None,
    ) -> None:
        self.alpha, self.beta, self.topic_counts = alpha, beta, topic_counts
        self.words, self.documents, self.states, self.prior = words, documents, states, prior
        self.averaged: Sequence[int] = averaged
        self._vocabulary, self._document_names = vocabulary, document_names

    @property
    def topics(self) -> int:
        """Return the number of topics K."""
        return self.alpha.size

    @property
    def live(self) -> np.ndarray:
        """Return the mask of live topics, bool (K,); see `live_topics`."""
        return live_topics(self.topic_tokens)

    @property
    def topic_tokens(self) -> np.ndarray:
        """Return the number of tokens of each topic, int64 or float64 (K,), summed over states."""
        if self.prior is None:
            return self.topic_counts
        return np.maximum(self.topic_counts - np.bincount(self.prior.topics, self.prior.counts, self.topics), 0.0)

    @property
    def vocabulary_size(self) -> int:
        return self.words.offsets.size - 1

    def vocabulary(self) -> list[str]:
        return self._vocabulary

    def document_names(self) -> list[str] | None:
        """Return the names of the documents, or None if they have no names."""
        return self._document_names

    def word_shares(self) -> np.ndarray:
        """Return phi, the probability of each word in each topic, float64 (K, V)."""
        shares = np.full((self.topics, self.vocabulary_size), self.beta)
        shares[self.words.topics, row_numbers(self.words)] += self.words.counts
        return shares / shares.sum(axis=1, keepdims=True)

    def document_lengths(self) -> np.ndarray:
        """Return the number of tokens in each training document, int64 (D,)."""
        return _row_sums(*map(read_only, (self.documents.offsets, self.documents.counts))) // self.states

    def document_shares(self) -> np.ndarray:
        """Return theta, the trained mixtures of the training documents, float64 (D, K)."""
        shares = np.tile(self.alpha, (self.documents.offsets.size - 1, 1))
        shares[row_numbers(self.documents), self.documents.topics] += self.documents.counts
        return shares / shares.sum(axis=1, keepdims=True)

    def in_memory(self) -> TopicModel:
        """Return a copy in memory."""
        return TopicModel(
            alpha=np.array(self.alpha),
            beta=self.beta,
            topic_counts=np.array(self.topic_counts),
            words=TopicCountRows(*map(np.array, self.words)),
            documents=TopicCountRows(*map(np.array, self.documents)),
            vocabulary=self.vocabulary(),
            document_names=self.document_names(),
            states=self.states,
            averaged=self.averaged,
            prior=self.prior and TopicCountRows(*map(np.array, self.prior)),
        )


@kernel
def _row_sums(offsets, counts):
    """Return the sums of counts, uint32, of sparse rows with offsets int64 (n+1,): int64 (n,)."""
    sums = np.zeros(offsets.size - 1, np.int64)
    for row in range(sums.size):
        for entry in range(offsets[row], offsets[row + 1]):
            sums[row] += counts[entry]
    return sums


def row_numbers(rows: TopicCountRows) -> np.ndarray:
    """Return the index of the row of each entry, int64 (n,)."""
    return np.repeat(np.arange(rows.offsets.size - 1), np.diff(rows.offsets))


def additions_at(prior: TopicCountRows | None, rows: np.ndarray, topics: np.ndarray) -> np.ndarray:
    """Return the additions of a word prior for words in topics, float64 (n,), 0 for pairs that it does not list.

    rows: int64 (n,), words.
    topics: (n,).
    """
    found = np.zeros(rows.size)
    if prior is None or not prior.topics.size:
        return found
    listed, wanted = (
        np.asarray(words, np.int64) << 32 | np.asarray(of, np.int64)
        for words, of in ((row_numbers(prior), prior.topics), (rows, topics))
    )
    places = np.minimum(np.searchsorted(listed, wanted), listed.size - 1)
    is_listed = listed[places] == wanted
    found[is_listed] = prior.counts[places[is_listed]]
    return found


def read_only(array: np.ndarray) -> np.ndarray:
    """Return a read-only view of an array, like an array in a mapped file: kernels are compiled for such arrays."""
    view = array.view()
    view.setflags(write=False)
    return view


TopicFiles = TypedDict(
    "TopicFiles",
    {
        "topics": ArrayFileEntry,
        "words": ArrayFileEntry,
        "documents": ArrayFileEntry,
        "vocabulary.txt": FileEntry,
        "prior": NotRequired[ArrayFileEntry],
    },
)


class TopicManifest(ModelManifest):
    """Manifest of a topic model."""

    topics: Annotated[int, Meta(ge=1, lt=1 << 32)]
    beta: Annotated[float, Meta(gt=0)]
    averaged: list[Count]
    files: TopicFiles


class SavedTopicModel(SavedModel, TopicModel):
    """A trained model opened for reading, with mapped arrays. averaged: iterations whose states were averaged, empty
    for a single state."""

    kind = KIND
    holds = TopicManifest

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.beta: float = self.manifest["beta"]
        self.dataset: str = self.manifest["dataset"]
        self.averaged = self.manifest["averaged"]
        self.states = max(len(self.averaged), 1)
        topics = TopicArrays(**self.map("topics", TopicArrays))
        sizes = {array.size for array in topics}
        require_valid(
            sizes == {self.manifest["topics"]}, path / "topics.h5", f"{sizes} topics, and {self.manifest['topics']}"
        )
        self.alpha, self.topic_counts = topics
        self.words = self._checked("words", TopicCountRows(**self.map("words", TopicCountRows)))
        self.prior = None
        if "prior" in self.manifest["files"]:
            self.prior = self._checked("prior", TopicCountRows(**self.map("prior", TopicCountRows)))
            require_valid(self.prior.offsets.size == self.words.offsets.size, path / "prior.h5", "it has other words")
        self._mapped_documents = TopicCountRows(**self.map("documents", TopicCountRows))

    @cached_property
    def documents(self) -> TopicCountRows:  # type: ignore[override]  # checked on use, as there may be many documents
        return self._checked("documents", self._mapped_documents)

    def _checked(self, name: str, rows: TopicCountRows) -> TopicCountRows:
        path = self.path / self.manifest["files"][name]["file"]
        require_offsets(path, "offsets", rows.offsets, rows.offsets.size - 1, rows.topics.size)
        require_valid(
            rows.counts.size == rows.topics.size, path, f"{rows.counts.size} counts of {rows.topics.size} topics"
        )
        require_below(path, "topics", rows.topics, self.topics)
        return rows

    def vocabulary(self) -> list[str]:
        words = self.lines("vocabulary.txt", self.vocabulary_size)
        assert words is not None  # required by the schema
        return words

    def document_names(self) -> list[str] | None:
        return self.lines("documents.txt", self.documents.offsets.size - 1)


def write_model(
    directory: Path,
    dataset: Dataset,
    *,
    alpha: np.ndarray,
    beta: float,
    topic_counts: np.ndarray,
    topic_type: str,
    word_rows: Iterator[Any],
    document_rows: Iterator[Any],
    averaged: Sequence[int] = (),
    document_order: Iterable[np.ndarray] | None = None,
    document_names: Iterable[bytes] | None = None,
    prior: TopicCountRows | None = None,
) -> None:
    """Write a model to an empty directory.

    word_rows, document_rows: (sizes uint32, rows uint64 as topic << 32 | count), by rank and by block, as the phases
        yield them; if states were `averaged`, in the original order. They are sorted externally, so memory grows only
        by 36 bytes per row.
    document_order: given only if `dataset` is a shard and document_rows cover the whole dataset: the original index of
        each document of document_rows, in pieces, read after all document_rows.
    document_names: likewise, the lines with the names of all documents, if they have names. If topic_counts is float64,
        the counts in word_rows are float32, stored as their bits.
    prior: additions of the word prior in the original order, which word_rows and topic_counts include.
    """
    files: dict[str, Any] = {
        "topics": write_arrays(directory, "topics.h5", {"alpha": alpha, "topic_counts": topic_counts})
    }
    words = None if averaged else [dataset.index.word_ids]
    documents = None if averaged else document_order or (dataset.block(b).documents for b in range(dataset.block_count))
    word_counts = "float32" if topic_counts.dtype.kind == "f" else "uint32"
    files["words"] = _write_rows(directory, "words", word_rows, words, topic_type, word_counts)
    files["documents"] = _write_rows(directory, "documents", document_rows, documents, topic_type, "uint32")
    if prior is not None:
        files["prior"] = write_arrays(directory, "prior.h5", prior._asdict())
    texts = {text: dataset.path / entry["file"] for text, entry in dataset.manifest["texts"].items()}
    if document_order is not None:
        texts.pop("documents", None)
    for text, source in texts.items():
        with publish_file(directory / f"{text}.txt") as beside:
            shutil.copyfile(source, beside)
    if document_names is not None:
        with publish_file(directory / "documents.txt") as beside, beside.open("wb") as file:
            file.writelines(document_names)
    identity = dataset.identity if document_order is None else dataset.whole_identity
    _write_manifest(directory, files, identity, int(alpha.size), beta, averaged)


def write_topic_model(directory: Path, model: TopicModel) -> None:
    """Write a model of an unknown dataset to an empty directory."""
    files: dict[str, Any] = {
        "topics": write_arrays(directory, "topics.h5", {"alpha": model.alpha, "topic_counts": model.topic_counts}),
        "words": write_arrays(directory, "words.h5", model.words._asdict()),
        "documents": write_arrays(directory, "documents.h5", model.documents._asdict()),
    }
    if model.prior is not None:
        files["prior"] = write_arrays(directory, "prior.h5", model.prior._asdict())
    write_lines(directory, "vocabulary.txt", model.vocabulary())
    if names := model.document_names():
        write_lines(directory, "documents.txt", names)
    _write_manifest(directory, files, "", model.topics, model.beta, model.averaged)


def write_derived_model(directory: Path, model: SavedTopicModel, files: dict[str, Any], topics: int) -> None:
    """Complete a directory with the rows of a model derived from another: texts and manifest.

    files: entries of topics.h5, words.h5 and documents.h5.
    topics: number of topics.
    """
    for path in model.path.glob("*.txt"):
        with publish_file(directory / path.name) as beside:
            shutil.copyfile(path, beside)
    _write_manifest(directory, files, model.dataset, topics, model.beta, model.averaged)


def _write_manifest(
    directory: Path, files: dict[str, Any], dataset: str, topics: int, beta: float, averaged: Sequence[int]
) -> None:
    """Write the manifest for existing files, and the text files."""
    files |= {path.name: file_entry(path) for path in sorted(directory.glob("*.txt"))}
    write_manifest(directory, KIND, dataset, files, topics=topics, beta=beta, averaged=list(averaged))


def _write_rows(
    directory: Path,
    name: str,
    rows: Iterator[Any],
    order: Iterable[np.ndarray] | None,
    topic_type: str,
    count_type: str,
) -> dict[str, Any]:
    """Sort rows externally and publish them, so that row i becomes row order[i]; None keeps the order."""
    with NumberSpool(directory, "uint32") as all_sizes, NumberSpool(directory, "uint64") as spool:
        for sizes, packed in rows:
            all_sizes.add(sizes)
            spool.add(packed)
        starts = row_starts(all_sizes.mapped(-1))
        source = np.arange(starts.size - 1) if order is None else inverse_order(order, starts.size - 1)
        with ReorderedRows(directory, spool.mapped(-1), starts, source) as ordered:
            topics = ((run >> np.uint64(32)).astype(topic_type) for _, _, run in ordered.runs())
            counts = (run.astype(np.uint32).view(count_type) for _, _, run in ordered.runs())
            arrays: dict[str, np.ndarray | ArrayPieces] = {
                "offsets": ordered.offsets,
                "topics": ArrayPieces(topic_type, int(starts[-1]), topics),
                "counts": ArrayPieces(count_type, int(starts[-1]), counts),
            }
            return write_arrays(directory, f"{name}.h5", arrays)


def row_starts(sizes: np.ndarray) -> np.ndarray:
    """Return the start of each row, and the end of the last row, int64 (n+1,), from row sizes."""
    starts = np.zeros(sizes.size + 1, np.int64)
    np.cumsum(sizes, out=starts[1:])
    return starts


def inverse_order(order: Iterable[np.ndarray], size: int) -> np.ndarray:
    """Return the position of each index in an order given in pieces, int64 (size,)."""
    places, first = np.empty(size, np.int64), 0
    for numbers in order:
        places[numbers.astype(np.int64)] = np.arange(first, first + numbers.size)
        first += numbers.size
    return places
