"""Apply a trained topic model to new documents, in parallel and streaming: `infer` and `evaluate`."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from blocks.bounds import require
from blocks.compiler import prepare
from blocks.corpus.batches import Batches, all_batches
from blocks.corpus.dataset import Block, Dataset
from blocks.errors import RequestError
from ooc.rng import stream_key
from samplers.topics import fold_in
from samplers.topics.document_parts import DocumentRange, Documents, deal, read_documents, squared_parts, token_parts
from samplers.topics.left_to_right import left_to_right_likelihood
from samplers.topics.mixtures import Output, allocate_mixtures, mapped
from samplers.topics.model import Model, TopicCountRows, TopicModel, read_only

ATTACH = "samplers.topics.inference:attach"
_PART_DRAWS = 10_000_000  # topics drawn by left-to-right in a part: takes about a second
_MOST_DRAWS = 1_000_000_000  # topics drawn for one document: a few minutes, less than the timeout of a worker's answer


class InferenceTask(NamedTuple):
    """Task of the workers: "evaluate", "left-to-right", or "infer" into the files of `outputs`.

    outputs: files for the mixtures of documents from index `first` on. particles: number of particles for
    "left-to-right".
    """

    model: str
    dataset: str
    kind: str
    seed: int = 0
    outputs: tuple[Output, ...] = ()
    first: int = 0
    documents: int = 0
    particles: int = 0


def model_topics(model: TopicModel) -> fold_in.FoldInModel:
    """Return a model in the form that the kernels of `samplers.topics.fold_in` read."""
    words = TopicCountRows(*map(read_only, model.words))
    scale = 1.0 / (model.topic_counts + model.vocabulary_size * model.beta)
    alpha = model.alpha / model.states
    prior = fold_in.prior_of_words(words.offsets, words.topics, words.counts, scale, alpha, model.beta)
    return fold_in.FoldInModel(words.offsets, words.topics, words.counts, scale, alpha, model.beta, prior)


def check_vocabulary(model: Model, dataset: Dataset) -> None:
    """Raise RequestError unless the model and the dataset have the same vocabulary."""
    ours = model.manifest["files"]["vocabulary.txt"]["checksum"]
    if dataset.manifest["texts"]["vocabulary"]["checksum"] != ours:
        raise RequestError(
            f"{dataset.path} and the model {model.path} have different vocabularies",
            "Ingest the documents again, with --vocab-from and the training dataset.",
        )


def check_predictable(dataset: Dataset) -> None:
    """Raise RequestError if no document has two distinct words."""
    if not any(_different_words(dataset.block(number)) for number in range(dataset.block_count)):
        raise RequestError(
            f"{dataset.path} has no document with two distinct words of the vocabulary, so there is nothing to predict",
            "Choose a dataset with longer documents.",
        )


def _different_words(block: Block) -> bool:
    """Return, for each document, whether it has two distinct words; word positions ascend within a document."""
    filled = np.flatnonzero(np.diff(block.offsets))
    ends = block.positions[block.offsets[filled]], block.positions[block.offsets[filled + 1] - 1]
    first, last = (np.searchsorted(block.word_offsets, positions, side="right") for positions in ends)
    return bool((first != last).any())


def attach(task: InferenceTask) -> Callable[[DocumentRange], Any]:
    """Load the model and return the handler that processes parts; see `blocks.workers`."""
    dataset = Dataset(task.dataset)
    topics = model_topics(Model(Path(task.model)))
    outputs = mapped(task.outputs, task.documents)
    prepare(lambda: _warm_up(task, topics))
    word_ids = dataset.index.word_ids

    def handle(part: DocumentRange) -> Any:
        documents = read_documents(dataset, part)
        if outputs:
            documents = documents._replace(numbers=_rows(dataset, task, documents.numbers))
        return _apply(task, topics, word_ids, outputs, documents)

    return handle


def _rows(dataset: Dataset, task: InferenceTask, numbers: np.ndarray) -> np.ndarray:
    """Return the rows of documents in the outputs. Raises WorkFailed if a block has documents of another batch."""
    rows = numbers - np.uint64(task.first)  # indices below `first` wrap around to large numbers
    require((rows < task.documents).all(), dataset.path, "a block has documents of another batch")
    return read_only(rows)  # like mapped files; for writable arrays the kernels would be compiled again


def _apply(
    task: InferenceTask,
    topics: fold_in.FoldInModel,
    word_ids: np.ndarray,
    outputs: list[np.ndarray],
    documents: Documents,
) -> Any:
    """Run the kernel of a task on the documents of a part and return the kernel's result."""
    arguments = (documents.offsets, documents.ranks, word_ids, topics)
    if task.kind == "evaluate":
        return fold_in.completion_likelihood(*arguments, documents.numbers, stream_key(task.seed))
    if task.kind == "left-to-right":
        likelihoods = left_to_right_likelihood(*arguments, documents.numbers, task.particles, stream_key(task.seed))
        return math.fsum(likelihoods)
    if len(outputs) == 1:
        return fold_in.document_mixtures(*arguments, outputs[0], documents.numbers)
    return fold_in.document_top_topics(*arguments, *outputs, documents.numbers)


def _warm_up(task: InferenceTask, topics: fold_in.FoldInModel) -> None:
    """Compile the kernel of a task by running it on an empty document, with arrays of the actual types."""
    numbers, word_ids = np.zeros(1, np.uint64), np.zeros(1, np.uint32)
    for array in (numbers, word_ids):
        array.setflags(write=False)  # mapped files are read-only
    columns = topics.scale.size if len(task.outputs) == 1 else 1
    outputs = [np.empty((1, columns), dtype) for _, dtype, _ in task.outputs]
    _apply(task, topics, word_ids, outputs, Documents(np.zeros(2, np.int64), np.empty(0, np.uint32), numbers))


def evaluate(model: Model, dataset: Dataset, *, workers: int, seed: int = 0, quiet: bool = False) -> dict[str, Any]:
    """Return the held-out log-likelihood per token by document completion, and the perplexity exp(-likelihood).

    Half of the distinct words of each document, chosen by `seed`, are observed; the other half are predicted.
    """
    check_vocabulary(model, dataset)
    check_predictable(dataset)
    task = InferenceTask(str(model.path), str(dataset.opened_at), "evaluate", seed)
    answers = list(deal(ATTACH, task, token_parts(dataset), workers, title="evaluate", quiet=quiet))
    likelihood = math.fsum(answer[0] for _, answer in answers)
    predicted = sum(answer[1] for _, answer in answers)
    return {
        "predictive_log_likelihood_per_token": likelihood / predicted,
        "perplexity": math.exp(-likelihood / predicted),
        "predicted_tokens": predicted,
        "documents": dataset.documents,
    }


def left_to_right(
    model: Model, dataset: Dataset, *, workers: int, seed: int = 0, particles: int = 20, quiet: bool = False
) -> dict[str, Any]:
    """Return the held-out log-likelihood per token (log p(w) summed over documents), and its perplexity.

    Estimated by the left-to-right particle algorithm (`samplers.topics.left_to_right`). particles: number of particles,
    at least 1.
    """
    check_vocabulary(model, dataset)
    if not dataset.tokens:
        raise RequestError(
            f"{dataset.path} has no document with a word of the vocabulary, so there is nothing to predict"
        )
    longest = dataset.longest_document
    if particles * longest * (longest + 1) // 2 > _MOST_DRAWS:
        raise RequestError(
            f"left-to-right: a document of {longest:,} tokens takes too long with {particles} particles",
            "Give fewer --particles, or leave out long documents: the time grows with the square of the length.",
        )
    task = InferenceTask(str(model.path), str(dataset.opened_at), "left-to-right", seed, particles=particles)
    work = squared_parts(dataset, max(2 * _PART_DRAWS // particles, 1))
    answers = deal(ATTACH, task, work, workers, title="left to right", quiet=quiet)
    likelihood = math.fsum(answer for _, answer in answers)
    return {
        "left_to_right_log_likelihood_per_token": likelihood / dataset.tokens,
        "left_to_right_perplexity": math.exp(-likelihood / dataset.tokens),
        "left_to_right_tokens": dataset.tokens,
        "particles": particles,
        "documents": dataset.documents,
    }


def infer(
    model: Model,
    dataset: Dataset,
    directory: Path,
    *,
    workers: int,
    batches: Batches | None = None,
    top: int | None = None,
    quiet: bool = False,
) -> list[np.ndarray]:
    """Return inferred topic mixtures of the documents of a dataset, or of some batches, in original order.

    The model's topics are fixed, and a document's mixture is inferred from its words (`samplers.topics.fold_in`). For
    training documents it differs from the trained mixture (`samplers.topics.mixtures.trained`); for documents without
    words it is the prior. directory: existing directory for the result files. Returns [mixtures], float32 (D, K),
    mapped; or, if `top` is given, [topics, weights], uint32 and float32 (D, top), largest first.
    """
    check_vocabulary(model, dataset)
    documents, blocks = (batches or all_batches(dataset))[1:]
    outputs = allocate_mixtures(directory, len(documents), model.topics, top)
    place = {"first": documents.start, "documents": len(documents)}
    task = InferenceTask(str(model.path), str(dataset.opened_at), "infer", outputs=outputs, **place)
    for _ in deal(ATTACH, task, token_parts(dataset, blocks), workers, title="infer", quiet=quiet):
        pass
    return mapped(outputs, len(documents))


def facts(batches: Batches, tokens: np.ndarray) -> dict[str, int]:
    """Return the numbers of documents, empty documents, tokens, and tokens dropped by ingestion. tokens: int64 (D,),
    number of tokens of each document."""
    dropped = [batch.get("dropped", {}) for batch in batches.made]
    left_out = {why: sum(each.get(why, {}).get("tokens", 0) for each in dropped) for why in ("unknown", "stop_words")}
    return {
        "documents": tokens.size,
        "empty_documents": int(np.count_nonzero(tokens == 0)),
        "tokens": int(tokens.sum()),
        "unknown_tokens": left_out["unknown"],
        "stop_words": left_out["stop_words"],
    }
