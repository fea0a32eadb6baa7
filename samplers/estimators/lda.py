"""Topic models with the interface of scikit-learn: data in memory, or a dataset, in; topics and mixtures out."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import KW_ONLY, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Self

import numpy as np
import xxhash

from blocks.corpus.dataset import Dataset
from blocks.corpus.from_memory import write_corpus
from blocks.errors import RequestError
from ooc.rng import stream_key
from samplers.estimators.base import byte_count, job_count, told_as
from samplers.estimators.by_run import RunEstimator, options_of, parameters_of
from samplers.estimators.documents import DOCUMENTS
from samplers.estimators.parameters import checked_parameters
from samplers.estimators.tables import dataset_path, is_path
from samplers.estimators.token_memory import budget_of, folding_threads, require_memory_to_fit
from samplers.estimators.word_counts import WordCounts, read_documents, rules_of
from samplers.lda.options import LdaOptions
from samplers.lda.training import train
from samplers.models import open_model
from samplers.topics import fold_in
from samplers.topics.document_parts import Documents
from samplers.topics.document_sources import DocumentsInMemory, DocumentsOfDataset
from samplers.topics.inference import model_topics
from samplers.topics.mixtures import publish_trained
from samplers.topics.model import Model, TopicModel


@dataclass(eq=False, repr=False)
class LatentDirichletAllocation(RunEstimator):
    """Topics of documents.

    n_components: topics, K. doc_topic_prior: alpha, of all topics or of each; topic_word_prior: beta; None for those of
    `ooc train lda`. sampler, mh_steps, proposal, update, start, parallelism, sync_per_pass: as the options of
    `ooc train lda`. optimize_every: iterations between estimations of the priors (docs/training.md has their bounds), 0
    for none; burn_in: iterations before the first. evaluate_every: iterations between values of the likelihood.
    How texts become tokens: stop_words: languages, as "english" or "german,french", a file, a list of words, or None.
    lowercase: whether text is lowercased. token_pattern: regular expression of a token; None for words of two letters
    or more. ngram_range: (1, n) adds n-grams, joined by underscores, that cross no stop word and no end of a sentence.
    segment: "chinese", "japanese" or "thai" to find words in text without spaces. Which words of texts and of lists of
    tokens are kept: min_df, max_df: least and largest number of documents with the word, or a fraction of all
    documents. max_features: the number of most frequent words. min_npmi: the least normalised pointwise mutual
    information of an n-gram. The other parameters are those of
    `samplers.estimators.by_run.RunEstimator`.

    Learnt by `fit`: model_ (`samplers.topics.model.TopicModel`); components_ float64 (K, V), counts and prior of each
    word; topic_word_, the same as probabilities; doc_topic_ float64 (D, K), the trained mixtures of the documents of
    the training, which are not those that `transform` finds; vocabulary_ (V,); n_iter_; history_, the lines of the
    metrics; n_features_in_, V; feature_names_in_, the words, where they have names.

    X: counts of words as a sparse matrix, an array or a data frame, (D, V); or D texts, or lists of tokens, in an
    iterable or a column of a data frame; or the path of a dataset that `ooc ingest` made.
    """

    _options = LdaOptions
    n_components: int = 10
    _: KW_ONLY
    doc_topic_prior: float | Sequence[float] | None = None
    topic_word_prior: float | None = None
    max_iter: int = 100
    sampler: str = "auto"
    mh_steps: int | None = None
    proposal: str | None = None
    update: str | None = None
    start: str | None = None
    parallelism: int | None = None
    sync_per_pass: int | None = None
    optimize_every: int = 0
    burn_in: int | None = None
    evaluate_every: int = 10
    stop_words: str | Sequence[str] | None = "english"
    lowercase: bool = True
    token_pattern: str | None = None
    ngram_range: tuple[int, int] = (1, 1)
    segment: str | None = None
    min_df: int | float = 1
    max_df: int | float = 1.0
    max_features: int | None = None
    min_npmi: float | None = None
    model_: TopicModel = field(init=False)

    def _describe(self, tags: Any) -> None:
        super()._describe(tags)
        tags.input_tags.positive_only = True
        tags.input_tags.categorical = True  # whole numbers

    @classmethod
    def from_run(cls, path: str | Path) -> Self:
        """The estimator of a model that `ooc train lda` or `ooc import` has made."""
        model = open_model(Path(path)).in_memory()
        return cls(model.topics)._take(model, model.vocabulary())

    def fit(self, X: Any, y: Any = None) -> Self:
        """Train on documents. y: not used. Raises RequestError."""
        parameters = checked_parameters(self)
        data = Dataset(dataset_path(X, DOCUMENTS)) if is_path(X) else _read(X, parameters)
        begin = partial(self._train, data, parameters)
        with told_as(parameters_of(LdaOptions)), self._trained_run(begin, _identity(data)) as run:
            names = data.vocabulary() if isinstance(data, Dataset) else data.names
            return self._take(Model(run.path / "model").in_memory(), names)

    def _train(
        self,
        data: Dataset | WordCounts,
        parameters: dict[str, Any],
        directory: Path,
        seed: int,
        iterations: int,
        **how: Any,
    ) -> None:
        if not isinstance(data, Dataset):
            words = data.tokens(0, data.offsets.size - 1)
            data = write_corpus(directory / "data", data.offsets, words, data.vocabulary, seed=seed)
            del words
        options = options_of(LdaOptions, parameters, iterations=iterations, seed=seed)
        train(data.path, directory / "run", options, **how)

    def _take(self, model: TopicModel, names: Sequence[str] | None) -> Self:
        self.model_ = model
        self._note_features(model.vocabulary_size, names)
        return self

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "model_")

    @property
    def components_(self) -> np.ndarray:
        """float64 (K, V)."""
        self._require_fitted()
        totals = self.model_.topic_counts + self.model_.vocabulary_size * self.model_.beta
        return self.model_.word_shares() * (totals / self.model_.states)[:, None]

    @property
    def topic_word_(self) -> np.ndarray:
        """float64 (K, V); rows sum to 1."""
        self._require_fitted()
        return self.model_.word_shares()

    @property
    def doc_topic_(self) -> np.ndarray:
        """Trained mixtures of the documents of the training, float64 (D, K); rows sum to 1.

        They count each token by the topic that training ended with. `transform` of the same documents returns others,
        folded-in ones: expectations under the trained topics of words.
        """
        self._require_fitted()
        return self.model_.document_shares()

    def write_doc_topic(self, path: str | Path, *, top: int | None = None) -> None:
        """Write `doc_topic_` with the names of the documents and their numbers of tokens, row by row.

        path: .npz, .csv, .jsonl or .parquet, replaced if it is there. top: only the largest topics of each document.
        `ooc export --format mixtures` does the same.
        """
        self._require_fitted()
        with told_as({}):
            publish_trained(self.model_, Path(path), top)

    @property
    def vocabulary_(self) -> np.ndarray:
        """(V,), of str."""
        self._require_fitted()
        return np.array(self.model_.vocabulary(), object)

    def _outputs(self) -> int:
        return self.model_.topics

    def transform(self, X: Any) -> np.ndarray:
        """Folded-in topic mixtures of documents, float32 (D, K); the prior for one without a word that is known.

        For documents of the training they differ from the trained ones, `doc_topic_`.
        """
        documents, topics = self._documents(X), model_topics(self.model_)
        mixtures = np.empty((documents.count, self.model_.topics), np.float32)

        def mix(some: Documents) -> None:
            fold_in.document_mixtures(some.offsets, some.ranks, documents.word_ids, topics, mixtures, some.numbers)

        self._deal(mix, documents)
        return mixtures

    def score(self, X: Any, y: Any = None) -> float:
        """Predictive log-likelihood per token by document completion: half of each document's different words, chosen
        by its number, are predicted from the others."""
        documents, topics = self._documents(X), model_topics(self.model_)

        def predict(some: Documents) -> tuple[float, int]:
            of_part = some.offsets, some.ranks, documents.word_ids, topics, some.numbers
            return fold_in.completion_likelihood(*of_part, stream_key(0))

        likelihoods, predicted = zip(*self._deal(predict, documents), strict=True)
        if not sum(predicted):
            raise RequestError(
                "X has no document with two different words of the vocabulary, so there is nothing to predict"
            )
        return math.fsum(likelihoods) / sum(predicted)

    def perplexity(self, X: Any) -> float:
        """exp(-score)."""
        return math.exp(-self.score(X))

    def _documents(self, X: Any) -> DocumentsOfDataset | DocumentsInMemory:
        self._require_fitted()
        if is_path(X):
            dataset = Dataset(dataset_path(X, DOCUMENTS))
            if dataset.vocabulary() != self.model_.vocabulary():
                raise RequestError(
                    f"{dataset.path} has another vocabulary than the model",
                    "Ingest it again with --vocab-from and the dataset of fit.",
                )
            return DocumentsOfDataset(dataset)
        names = getattr(self, "feature_names_in_", None)
        rules, _ = rules_of(checked_parameters(self))
        given = read_documents(X, rules, vocabulary=() if names is None else names.tolist())
        words = "Give texts, lists of tokens, or counts with a column for each word of vocabulary_, in its order."
        self._check_features(given.size, given.names, "" if names is None else words)
        return DocumentsInMemory(given)

    def _deal(self, work: Callable[[Documents], Any], documents: DocumentsOfDataset | DocumentsInMemory) -> list[Any]:
        """What `work` says of all parts of the documents, in their order."""
        threads = folding_threads(documents.largest, job_count(self.n_jobs), budget_of(byte_count(self.memory)))
        with ThreadPoolExecutor(threads) as pool:
            return list(pool.map(lambda part: work(documents.read(part)), documents.parts))


def _read(X: Any, parameters: dict[str, Any]) -> WordCounts:
    """Documents to fit, whose tokens fit into memory."""
    budget = budget_of(parameters["memory"])
    room = partial(require_memory_to_fit, longest=0, budget=budget)
    read = read_documents(X, *rules_of(parameters), room=room)
    if not read.offsets[-1]:
        raise RequestError("X has no tokens: all counts are 0", "Give documents with words.")
    require_memory_to_fit(int(read.offsets[-1]), read.longest, budget)
    return read


def _identity(data: Dataset | WordCounts) -> str:
    if isinstance(data, Dataset):
        return data.identity
    content = xxhash.xxh3_128()
    for array in (data.offsets, data.words, data.counts):
        content.update(b"" if array is None else np.ascontiguousarray(array).data)
    content.update("\n".join(data.names or ()).encode())
    return content.hexdigest()
