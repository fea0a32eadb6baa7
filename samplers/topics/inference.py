"""Apply a trained topic model to new documents, in parallel and streaming: `infer` and `evaluate`."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from blocks.bounds_checks import require_valid
from blocks.compiler import compile_kernels
from blocks.corpus.batches import DocumentBatches, all_batches
from blocks.corpus.dataset import Dataset, TokenBlock
from blocks.errors import RequestError
from ooc.rng import stream_key
from samplers.topics import fold_in
from samplers.topics.document_parts import (
    DocumentPart,
    DocumentRange,
    process_parts,
    read_documents,
    squared_parts,
    token_parts,
)
from samplers.topics.infer_kernels import InferredArrays, infer_documents
from samplers.topics.left_to_right import left_to_right_likelihood
from samplers.topics.mixtures import OutputArrayFile, allocate_outputs, mapped, mixture_arrays
from samplers.topics.model import SavedTopicModel, TopicCountRows, TopicModel, read_only, row_numbers

ATTACH = "samplers.topics.inference:attach"
_PART_DRAWS = 10_000_000  # topics drawn by left-to-right in a part: takes about a second
_MOST_DRAWS = 1_000_000_000  # topics drawn for one document: a few minutes, less than the timeout of a worker's answer


class InferenceTask(NamedTuple):
    """Task of the workers: "evaluate", "left-to-right", or "infer"; results are written to the files of `outputs`.

    outputs: files with the results for the documents from index `first` on: for each document, its log-likelihood and,
        for "evaluate", the number of predicted tokens; or, for "infer", the arrays of `InferredArrays`.
    documents: number of these documents.
    particles: number of particles for "left-to-right".
    """

    model: str
    dataset: str
    kind: str
    seed: int = 0
    outputs: tuple[OutputArrayFile, ...] = ()
    first: int = 0
    documents: int = 0
    particles: int = 0


class DocumentResultChoice(NamedTuple):
    """Results to infer for each document besides its mixture.

    spread: standard deviations of the shares.
    likelihood: log-likelihood.
    words: topics of the words.
    """

    spread: bool = False
    likelihood: bool = False
    words: bool = False


def model_topics(model: TopicModel) -> fold_in.FoldInModel:
    """Return a model in the form that the kernels of `samplers.topics.fold_in` use."""
    words = TopicCountRows(*map(read_only, model.words))
    scale = 1.0 / (model.topic_counts + model.vocabulary_size * model.beta)
    alpha = model.alpha / model.states
    prior = fold_in.prior_of_words(words.offsets, words.topics, words.counts, scale, alpha, model.beta)
    found = fold_in.FoldInModel(words.offsets, words.topics, words.counts, scale, alpha, model.beta, prior)
    if (words.counts < 0).any():
        restricted = np.zeros(model.vocabulary_size, bool)
        restricted[row_numbers(words)[words.counts < 0]] = True
        found = found._replace(restricted=restricted)
    return found


def check_vocabulary(model: SavedTopicModel, dataset: Dataset) -> None:
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


def _different_words(block: TokenBlock) -> bool:
    """Return the mask of documents with two distinct words; word positions must ascend within a document."""
    filled = np.flatnonzero(np.diff(block.offsets))
    ends = block.positions[block.offsets[filled]], block.positions[block.offsets[filled + 1] - 1]
    first, last = (np.searchsorted(block.word_offsets, positions, side="right") for positions in ends)
    return bool((first != last).any())


def attach(task: InferenceTask) -> Callable[[DocumentRange], Any]:
    """Load the model and return the handler that processes parts; see `blocks.workers`."""
    dataset = Dataset(task.dataset)
    topics = model_topics(SavedTopicModel(Path(task.model)))
    outputs = mapped(task.outputs)
    compile_kernels(lambda: _warm_up(task, topics))
    word_ids = dataset.index.word_ids

    def handle(part: DocumentRange) -> Any:
        documents = read_documents(dataset, part)
        if outputs:
            documents = documents._replace(numbers=_rows(dataset, task, documents.numbers))
        return _apply(task, topics, word_ids, outputs, documents)

    return handle


def _rows(dataset: Dataset, task: InferenceTask, numbers: np.ndarray) -> np.ndarray:
    """Return the output row of each document.

    Raises WorkFailed if a block has documents of another batch.
    """
    rows = numbers - np.uint64(task.first)  # indices below `first` wrap around to large numbers
    require_valid((rows < task.documents).all(), dataset.path, "a block has documents of another batch")
    return read_only(rows)  # read-only like mapped files; for writable arrays the kernels would be compiled again


def _apply(
    task: InferenceTask,
    topics: fold_in.FoldInModel,
    word_ids: np.ndarray,
    outputs: dict[str, np.ndarray],
    documents: DocumentPart,
) -> Any:
    """Run the kernel of a task on the documents of a part, and return the sums of its results."""
    arguments, rows = (documents.offsets, documents.ranks, word_ids, topics), documents.numbers
    if task.kind == "infer":
        infer_documents(*arguments, inferred_arrays(outputs, topics), rows)
        return None
    if task.kind == "evaluate":
        found = fold_in.completion_likelihood(*arguments, rows, stream_key(task.seed))
    else:
        found = (left_to_right_likelihood(*arguments, rows, task.particles, stream_key(task.seed)),)
    for array, values in zip(outputs.values(), found, strict=False):
        array[rows.astype(np.int64)] = values
    return tuple(math.fsum(values) for values in found)


def inferred_arrays(arrays: dict[str, np.ndarray], topics: fold_in.FoldInModel) -> InferredArrays:
    """Return all arrays for `infer_documents`; those that are not given have no rows."""
    table = dict.fromkeys(("mixtures", "topics", "weights", "deviations"), (0, topics.scale.size))
    dtypes = {"topics": "uint32", "likelihoods": "float64", "starts": "int64", "words": "uint32", "counts": "uint32"}
    dtypes |= {"word_topics": "uint32"}
    return InferredArrays(
        **{
            name: arrays[name] if name in arrays else np.empty(table.get(name, 0), dtypes.get(name, "float32"))
            for name in InferredArrays._fields
        }
    )


def _warm_up(task: InferenceTask, topics: fold_in.FoldInModel) -> None:
    """Compile the kernel of a task by running it on an empty document, with arrays of the actual types."""
    numbers, word_ids = np.zeros(1, np.uint64), np.zeros(1, np.uint32)
    for array in (numbers, word_ids):
        array.setflags(write=False)  # mapped files are read-only
    outputs = {name: np.zeros((2, *shape[1:]), dtype) for name, _, dtype, shape in task.outputs}
    _apply(task, topics, word_ids, outputs, DocumentPart(np.zeros(2, np.int64), np.empty(0, np.uint32), numbers))


def evaluate(
    model: SavedTopicModel,
    dataset: Dataset,
    *,
    workers: int,
    seed: int = 0,
    quiet: bool = False,
    outputs: tuple[OutputArrayFile, ...] = (),
) -> dict[str, Any]:
    """Return the held-out log-likelihood per token by document completion, and the perplexity exp(-likelihood).

    Half of the distinct words of each document, chosen by `seed`, are observed; the other half are predicted.

    outputs: two files to fill, or none: log-likelihood, float64 (D,), and number of the predicted tokens of each
        document, int64 (D,).
    """
    check_vocabulary(model, dataset)
    check_predictable(dataset)
    task = InferenceTask(
        str(model.path), str(dataset.opened_at), "evaluate", seed, outputs, documents=dataset.documents
    )
    answers = list(process_parts(ATTACH, task, token_parts(dataset), workers, title="evaluate", quiet=quiet))
    likelihood = math.fsum(answer[0] for _, answer in answers)
    predicted = int(sum(answer[1] for _, answer in answers))
    return {
        "predictive_log_likelihood_per_token": likelihood / predicted,
        "perplexity": math.exp(-likelihood / predicted),
        "predicted_tokens": predicted,
        "documents": dataset.documents,
    }


def left_to_right(
    model: SavedTopicModel,
    dataset: Dataset,
    *,
    workers: int,
    seed: int = 0,
    particles: int = 20,
    quiet: bool = False,
    outputs: tuple[OutputArrayFile, ...] = (),
) -> dict[str, Any]:
    """Return the held-out log-likelihood per token (log p(w) summed over documents), and its perplexity.

    Estimated by the left-to-right particle algorithm (`samplers.topics.left_to_right`).

    particles: number of particles, at least 1.
    outputs: a file to fill, or none: log-likelihood of each document, float64 (D,).
    """
    check_vocabulary(model, dataset)
    if not dataset.tokens:
        raise RequestError(
            f"{dataset.path} has no document with a word of the vocabulary, so there is nothing to predict"
        )
    if model.prior is not None and (model.prior.counts < 0).any():
        raise RequestError(
            f"left-to-right: the prior of {model.path} has weights below beta",
            "Use the metric completion instead.",
        )
    longest = dataset.longest_document
    if particles * longest * (longest + 1) // 2 > _MOST_DRAWS:
        raise RequestError(
            f"left-to-right: a document of {longest:,} tokens is too long for {particles} particles",
            "Reduce --particles, or remove long documents: the time grows with the square of the length.",
        )
    place: dict[str, Any] = {"outputs": outputs, "documents": dataset.documents, "particles": particles}
    task = InferenceTask(str(model.path), str(dataset.opened_at), "left-to-right", seed, **place)
    work = squared_parts(dataset, max(2 * _PART_DRAWS // particles, 1))
    answers = process_parts(ATTACH, task, work, workers, title="left to right", quiet=quiet)
    likelihood = math.fsum(answer[0] for _, answer in answers)
    return {
        "left_to_right_log_likelihood_per_token": likelihood / dataset.tokens,
        "left_to_right_perplexity": math.exp(-likelihood / dataset.tokens),
        "left_to_right_tokens": dataset.tokens,
        "particles": particles,
        "documents": dataset.documents,
    }


def infer(
    model: SavedTopicModel,
    dataset: Dataset,
    directory: Path,
    *,
    workers: int,
    batches: DocumentBatches | None = None,
    top: int | None = None,
    wanted: DocumentResultChoice | None = None,
    quiet: bool = False,
) -> dict[str, np.ndarray]:
    """Return inferred topic mixtures of the documents of a dataset, or of some batches, in original order.

    The model's topics are fixed, and a document's mixture is inferred from its words (`samplers.topics.fold_in`). For
    training documents it differs from the trained mixture (`samplers.topics.mixtures.trained`); for documents without
    words it is the prior.

    directory: existing directory for the result files.
    Returns mapped arrays by name, as described at `InferredArrays`: mixtures; or, if `top` is given, topics and
    weights; and what else is `wanted`.
    """
    check_vocabulary(model, dataset)
    chosen, wanted = batches or all_batches(dataset), wanted or DocumentResultChoice()
    documents, blocks = chosen[1:]
    arrays = mixture_arrays(len(documents), model.topics, top, spread=wanted.spread)
    if wanted.likelihood:
        arrays["likelihoods"] = "float64", (len(documents),)
    starts = np.concatenate(([0], np.cumsum(chosen.lengths(dataset)))) if wanted.words else None
    if starts is not None:
        arrays["starts"] = "int64", starts.shape
        tokens = {"words": "uint32", "counts": "uint32", "word_topics": "uint32", "probabilities": "float32"}
        arrays |= {name: (dtype, (int(starts[-1]),)) for name, dtype in tokens.items()}
    outputs = allocate_outputs(directory, arrays)
    if starts is not None:
        mapped(outputs)["starts"][:] = starts
    place = {"first": documents.start, "documents": len(documents)}
    task = InferenceTask(str(model.path), str(dataset.opened_at), "infer", outputs=outputs, **place)
    for _ in process_parts(ATTACH, task, token_parts(dataset, blocks), workers, title="infer", quiet=quiet):
        pass
    return mapped(outputs)


def facts(batches: DocumentBatches, tokens: np.ndarray) -> dict[str, int]:
    """Return the numbers of documents, empty documents, tokens, and tokens dropped by ingestion.

    tokens: int64 (D,), number of tokens in each document.
    """
    dropped = [batch.get("dropped", {}) for batch in batches.made]
    left_out = {why: sum(each.get(why, {}).get("tokens", 0) for each in dropped) for why in ("unknown", "stop_words")}
    return {
        "documents": tokens.size,
        "empty_documents": int(np.count_nonzero(tokens == 0)),
        "tokens": int(tokens.sum()),
        "unknown_tokens": left_out["unknown"],
        "stop_words": left_out["stop_words"],
    }
