"""Latent Dirichlet allocation with the scikit-learn interface."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
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
from samplers.estimators.base import byte_count, job_count, reword_errors
from samplers.estimators.document_inputs import DOCUMENTS
from samplers.estimators.feature_tables import dataset_path, is_path
from samplers.estimators.parameters import checked_parameters
from samplers.estimators.run_estimator import estimator_parameters, training_options
from samplers.estimators.token_memory import budget_of, folding_threads, require_memory_to_fit
from samplers.estimators.topic_outputs import TopicOutputs
from samplers.estimators.word_counts import WordCounts, read_documents, vectorizer_rules
from samplers.lda.options import LdaOptions
from samplers.lda.training import train
from samplers.models import open_model
from samplers.topics import fold_in
from samplers.topics.document_parts import DocumentPart
from samplers.topics.document_sources import DatasetDocuments, InMemoryDocuments
from samplers.topics.infer_kernels import infer_documents
from samplers.topics.inference import inferred_arrays, model_topics
from samplers.topics.model import SavedTopicModel, TopicModel


@dataclass(eq=False, repr=False)
class LatentDirichletAllocation(TopicOutputs):
    """Latent Dirichlet allocation (topic model) trained by Gibbs sampling.

    X can be word counts (D, V) as a sparse matrix, an array or a data frame; D texts, or lists of tokens, in an
    iterable or a data frame column; or the path of a dataset made by `ooc ingest`.

    Parameters
    ----------
    n_components : int
        Number of topics K.
    doc_topic_prior : float or list of K floats, optional
        Dirichlet prior alpha of topics in documents; default 5 / K, at most 0.1.
    topic_word_prior : float or array (K, V), optional
        Dirichlet prior beta of words in topics; default 0.05. An array has a weight for each topic and word, in the
        order of `vocabulary_`; 0 keeps a word out of a topic.
    seed_words : dict of str and list of str, optional
        Words that topics 0, 1, ... are to be about, by the name of the topic.
    seed_weight : float, optional
        Prior counts of a seed word in its topic, for each of its tokens; default 1.
    max_iter : int
        Number of passes over the data.
    sampler, mh_steps, proposal, update, start, parallelism, sync_per_pass
        Sampling algorithm and its options, as in `ooc train lda` (docs/sampling.md).
    start_from : str, optional
        Path of a run or model from whose topics training continues; X may have other documents and words.
    optimize_every : int
        Number of iterations between estimates of the priors (docs/training.md); 0 keeps them fixed.
    burn_in : int, optional
        Iterations before the first estimate of the priors; default 20.
    evaluate_every : int
        Number of iterations between evaluations of the log-likelihood.
    stop_words : str, list of str or None
        Languages such as "english" or "german,french", the path of a file, or a list of words; for texts.
    lowercase : bool
        Convert texts to lower case.
    token_pattern : str, optional
        Regular expression of a token; default: words of two letters or more.
    ngram_range : tuple
        (1, n) adds n-grams, joined by underscores, within sentences and without stop words.
    segment : str, optional
        "chinese", "japanese" or "thai" to find words in text without spaces.
    min_df, max_df : int or float
        Minimum and maximum document frequency of a word, as a count or as a fraction; for texts and tokens.
    max_features : int, optional
        Keep only the most frequent words.
    min_npmi : float, optional
        Minimum normalised pointwise mutual information of an n-gram.
    n_jobs, memory, random_state, verbose, warm_start, callbacks
        See `samplers.estimators.run_estimator.RunEstimator`.

    Attributes
    ----------
    model_ : samplers.topics.model.TopicModel
        The trained model.
    components_ : ndarray of float64 (K, V)
        Counts plus prior of each word in each topic.
    topic_word_ : ndarray of float64 (K, V)
        Word distribution of each topic; rows sum to 1.
    doc_topic_ : ndarray of float64 (D, K)
        Topic mixtures of the training documents at the end of training; `transform` infers mixtures instead.
    live_components_ : ndarray of bool (K,)
        Whether each topic has at least a tenth of the mean number of tokens per topic (docs/choosing-topics.md).
    vocabulary_ : ndarray of str (V,)
        The words.
    n_iter_ : int
        Number of iterations.
    history_ : list of dict
        Lines of the metrics (docs/files.md).
    n_features_in_ : int
        V.
    feature_names_in_ : ndarray of str (V,)
        The words, if X has column names.
    """

    _options = LdaOptions
    n_components: int = 10
    _: KW_ONLY
    doc_topic_prior: float | Sequence[float] | None = None
    topic_word_prior: Any = None
    seed_words: Mapping[str, Sequence[str]] | None = None
    seed_weight: float | None = None
    max_iter: int = 100
    sampler: str = "auto"
    mh_steps: int | None = None
    proposal: str | None = None
    update: str | None = None
    start: str | None = None
    start_from: str | Path | None = None
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
        """Return an estimator with a model trained by `ooc train lda` or read by `ooc import`."""
        model = open_model(Path(path)).in_memory()
        return cls(model.topics)._take(model, model.vocabulary())

    def fit(self, X: Any, y: Any = None) -> Self:
        """Fit the model to documents.

        y: ignored.
        Raises RequestError if an argument is invalid.
        """
        parameters = checked_parameters(self)
        data = Dataset(dataset_path(X, DOCUMENTS)) if is_path(X) else _read(X, parameters)
        begin = partial(self._train, data, parameters)
        with reword_errors(estimator_parameters(LdaOptions)), self._trained_run(begin, _identity(data)) as run:
            names = data.vocabulary() if isinstance(data, Dataset) else data.names
            return self._take(SavedTopicModel(run.path / "model").in_memory(), names)

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
        files = _prior_files(parameters, directory)
        options = training_options(LdaOptions, parameters, iterations=iterations, seed=seed, **files)
        train(data.path, directory / "run", options, **how)

    def _take(self, model: TopicModel, names: Sequence[str] | None) -> Self:
        self.model_ = model
        self._note_features(model.vocabulary_size, names)
        return self

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "model_")

    @property
    def components_(self) -> np.ndarray:
        """Return counts plus prior of each word in each topic, float64 (K, V)."""
        self._require_fitted()
        totals = self.model_.topic_counts + self.model_.vocabulary_size * self.model_.beta
        return self.model_.word_shares() * (totals / self.model_.states)[:, None]

    @property
    def topic_word_(self) -> np.ndarray:
        """Return the word distribution of each topic, float64 (K, V); rows sum to 1."""
        self._require_fitted()
        return self.model_.word_shares()

    @property
    def doc_topic_(self) -> np.ndarray:
        """Return the topic mixtures of the training documents, float64 (D, K); rows sum to 1.

        The mixtures count tokens by their topics at the end of training. `transform` of the same documents returns
        different, inferred mixtures: expectations under the trained topics.
        """
        self._require_fitted()
        return self.model_.document_shares()

    @property
    def live_components_(self) -> np.ndarray:
        """Return which topics are live, bool (K,): a dead topic has less than a tenth of the mean number of tokens per
        topic.
        """
        self._require_fitted()
        return self.model_.live

    @property
    def vocabulary_(self) -> np.ndarray:
        """Return the words, str (V,)."""
        self._require_fitted()
        return np.array(self.model_.vocabulary(), object)

    def _outputs(self) -> int:
        return self.model_.topics

    def transform(self, X: Any, return_std: bool = False) -> Any:
        """Return the inferred topic mixtures of documents, float32 (D, K); documents without known words have the
        prior.

        For training documents they differ from the trained mixtures, `doc_topic_`.

        return_std: return a tuple of the mixtures and the posterior standard deviations of the shares, float32 (D, K),
            as `ooc infer --spread` computes them.
        """
        documents, topics = self._documents(X), model_topics(self.model_)
        shape = (documents.count, self.model_.topics)
        arrays = {name: np.empty(shape, np.float32) for name in ("mixtures", "deviations")[: 1 + return_std]}
        self._infer(documents, topics, arrays)
        return tuple(arrays.values()) if return_std else arrays["mixtures"]

    def score_samples(self, X: Any) -> np.ndarray:
        """Return the log-likelihood of the known tokens of each document under its inferred mixture, float64 (D,), as
        `ooc infer --log-likelihood` does; 0 for documents without known words."""
        documents, topics = self._documents(X), model_topics(self.model_)
        likelihoods = np.empty(documents.count)
        self._infer(documents, topics, {"likelihoods": likelihoods})
        return likelihoods

    def _infer(
        self,
        documents: DatasetDocuments | InMemoryDocuments,
        topics: fold_in.FoldInModel,
        arrays: dict[str, np.ndarray],
    ) -> None:
        found = inferred_arrays(arrays, topics)

        def infer(some: DocumentPart) -> None:
            infer_documents(some.offsets, some.ranks, documents.word_ids, topics, found, some.numbers)

        self._deal(infer, documents)

    def score(self, X: Any, y: Any = None) -> float:
        """Return the predictive log-likelihood per token by document completion: half of each document's distinct
        words, chosen by its index, are predicted from the other half.
        """
        documents, topics = self._documents(X), model_topics(self.model_)

        def predict(some: DocumentPart) -> tuple[float, int]:
            of_part = some.offsets, some.ranks, documents.word_ids, topics, some.numbers
            likelihoods, predicted = fold_in.completion_likelihood(*of_part, stream_key(0))
            return math.fsum(likelihoods), int(predicted.sum())

        likelihoods, predicted = zip(*self._deal(predict, documents), strict=True)
        if not sum(predicted):
            raise RequestError(
                "X has no document with two distinct words of the vocabulary, so there is nothing to predict"
            )
        return math.fsum(likelihoods) / sum(predicted)

    def perplexity(self, X: Any) -> float:
        """Return exp(-score)."""
        return math.exp(-self.score(X))

    def _documents(self, X: Any) -> DatasetDocuments | InMemoryDocuments:
        self._require_fitted()
        if is_path(X):
            dataset = Dataset(dataset_path(X, DOCUMENTS))
            if dataset.vocabulary() != self.model_.vocabulary():
                raise RequestError(
                    f"{dataset.path} and the model have different vocabularies",
                    "Ingest the documents again with --vocab-from and the dataset passed to fit.",
                )
            return DatasetDocuments(dataset)
        names = getattr(self, "feature_names_in_", None)
        rules, _ = vectorizer_rules(checked_parameters(self))
        given = read_documents(X, rules, vocabulary=() if names is None else names.tolist())
        words = "Pass texts, lists of tokens, or counts with a column for each word of vocabulary_, in its order."
        self._check_features(given.size, given.names, "" if names is None else words)
        return InMemoryDocuments(given)

    def _deal(self, work: Callable[[DocumentPart], Any], documents: DatasetDocuments | InMemoryDocuments) -> list[Any]:
        """Return the results of `work` for all parts of the documents, in order."""
        threads = folding_threads(documents.largest, job_count(self.n_jobs), budget_of(byte_count(self.memory)))
        with ThreadPoolExecutor(threads) as pool:
            return list(pool.map(lambda part: work(documents.read(part)), documents.parts))


def _read(X: Any, parameters: dict[str, Any]) -> WordCounts:
    """Return the documents to fit, whose tokens must fit in memory."""
    budget = budget_of(parameters["memory"])
    room = partial(require_memory_to_fit, longest=0, budget=budget)
    read = read_documents(X, *vectorizer_rules(parameters), room=room)
    if not read.offsets[-1]:
        raise RequestError("X has no tokens: all counts are 0", "Pass documents with words.")
    require_memory_to_fit(int(read.offsets[-1]), read.longest, budget)
    return read


def _prior_files(parameters: dict[str, Any], directory: Path) -> dict[str, Any]:
    """Write an array of priors and the seed words to files; returns the training options for them."""
    prior, seeds = parameters["topic_word_prior"], parameters["seed_words"]
    found: dict[str, Any] = {"beta": prior, "topic_word_prior": None}
    if isinstance(prior, np.ndarray):
        found = {"beta": None, "topic_word_prior": directory / "topic_word_prior.npz"}
        np.savez(found["topic_word_prior"], prior)
    if seeds is not None:
        found["seed_words"] = directory / "seed_words.json"
        found["seed_words"].write_text(json.dumps(seeds), "utf-8")
    return found


def _identity(data: Dataset | WordCounts) -> str:
    if isinstance(data, Dataset):
        return data.identity
    content = xxhash.xxh3_128()
    for array in (data.offsets, data.words, data.counts):
        content.update(b"" if array is None else np.ascontiguousarray(array).data)
    content.update("\n".join(data.names or ()).encode())
    return content.hexdigest()
