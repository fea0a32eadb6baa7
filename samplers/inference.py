"""Applying a trained topic model to new documents, in parallel and streaming: `infer` and `evaluate`."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from tqdm import tqdm

from blocks.compiled import prepare
from blocks.dataset import Dataset
from blocks.errors import RequestError
from blocks.files import allocate
from blocks.workers import Workers
from ooc.worker import unit_parts
from samplers import fold_in
from samplers.model import Model
from samplers.streams import stream_key


class Task(NamedTuple):
    """What the workers do with each part of each block: "evaluate", or "infer" into the files of `outputs`.

    outputs: (path, dtype, columns) of the flat files that hold the mixtures, a row for each document.
    """

    model: str
    dataset: str
    kind: str
    seed: int = 0
    outputs: tuple[tuple[str, str, int], ...] = ()


def model_topics(model: Model) -> fold_in.Topics:
    """A model as the kernels of `samplers.fold_in` read it."""
    words = model.words
    scale = 1.0 / (model.topic_counts + model.vocabulary_size * model.beta)
    alpha = model.alpha / model.states
    prior = fold_in.prior_of_words(words.offsets, words.topics, words.counts, scale, alpha, model.beta)
    return fold_in.Topics(words.offsets, words.topics, words.counts, scale, alpha, model.beta, prior)


def check_vocabulary(model: Model, dataset: Dataset) -> None:
    """Raise RequestError unless model and dataset have the same vocabulary."""
    ours = model.manifest["files"]["vocabulary.txt"]["checksum"]
    if dataset.manifest["texts"]["vocabulary"]["checksum"] != ours:
        raise RequestError(
            f"{dataset.path} has another vocabulary than the model {model.path}",
            "Ingest the new documents with --vocab-from the dataset that the model was trained on.",
        )


def attach(task: Task) -> Callable[[tuple[int, int]], Any]:
    """Load the model and return what handles one (block, part); see `blocks.workers`."""
    dataset = Dataset(task.dataset)
    topics = model_topics(Model(Path(task.model)))
    outputs = [
        np.asarray(np.memmap(path, dtype, "r+", shape=(dataset.documents, columns)))
        for path, dtype, columns in task.outputs
    ]
    key = stream_key(task.seed)
    prepare(f"{task.kind}-{len(outputs)}-{topics.topics.dtype}", lambda: _warm_up(task.kind, topics, len(outputs)))

    def handle(message: tuple[int, int]) -> Any:
        block = dataset.block(message[0])
        bounds = unit_parts(block, dataset.part_tokens)
        first, last = bounds[message[1]], bounds[message[1] + 1]
        tokens = slice(block.offsets[first], block.offsets[last])
        ranks = block.words[np.searchsorted(block.word_offsets, block.positions[tokens], side="right") - 1]
        offsets = block.offsets[first : last + 1] - block.offsets[first]
        documents = (offsets, ranks, dataset.index.word_ids, topics)
        numbers = block.documents[first:last]
        if task.kind == "evaluate":
            return fold_in.completion_likelihood(*documents, numbers, key)
        return _infer(documents, outputs, numbers)

    return handle


def _infer(documents: tuple[Any, ...], outputs: list[np.ndarray], numbers: np.ndarray) -> None:
    if len(outputs) == 1:
        fold_in.document_mixtures(*documents, outputs[0], numbers)
    else:
        fold_in.document_top_topics(*documents, *outputs, numbers)


def _warm_up(kind: str, topics: fold_in.Topics, outputs: int) -> None:
    """Run the kernel of a task on one empty document, with arrays of the types that the real ones have."""
    numbers, word_ids = np.zeros(1, np.uint64), np.zeros(1, np.uint32)
    for array in (numbers, word_ids):
        array.setflags(write=False)  # as mapped files are
    documents = (np.zeros(2, np.int64), np.empty(0, np.uint32), word_ids, topics)
    if kind == "evaluate":
        fold_in.completion_likelihood(*documents, numbers, np.uint64(0))
    elif outputs == 1:
        _infer(documents, [np.empty((1, topics.scale.size), np.float32)], numbers)
    else:
        _infer(documents, [np.empty((1, 1), np.uint32), np.empty((1, 1), np.float32)], numbers)


def run(task: Task, workers: int, *, quiet: bool = False) -> Iterator[tuple[tuple[int, int], Any]]:
    """Have the workers do a task; yields ((block, part), answer) as they come, with a progress bar unless quiet."""
    dataset = Dataset(task.dataset)
    parts = [
        (block, part)
        for block in range(dataset.block_count)
        for part in range(unit_parts(dataset.block(block), dataset.part_tokens).size - 1)
    ]
    with Workers("samplers.inference:attach", task, min(workers, max(len(parts), 1))) as pool:
        disable = True if quiet else None
        yield from tqdm(pool.map_unordered(parts), total=len(parts), unit="part", desc=task.kind, disable=disable)


def evaluate(model: Model, dataset: Dataset, *, workers: int, seed: int = 0, quiet: bool = False) -> dict[str, Any]:
    """Held-out predictive log-likelihood per token by document completion, and the perplexity exp(-that).

    Half of the different words of each document (at random, by seed) are observed, the other half are predicted.
    """
    check_vocabulary(model, dataset)
    answers = sorted(run(Task(str(model.path), str(dataset.path), "evaluate", seed), workers, quiet=quiet))
    likelihood = math.fsum(answer[0] for _, answer in answers)
    predicted = sum(answer[1] for _, answer in answers)
    if not predicted:
        raise RequestError(f"{dataset.path}: no document has two different words of the vocabulary: nothing to predict")
    return {
        "predictive_log_likelihood_per_token": likelihood / predicted,
        "perplexity": math.exp(-likelihood / predicted),
        "predicted_tokens": predicted,
        "documents": dataset.documents,
    }


def infer(model: Model, dataset: Dataset, directory: Path, *, workers: int, top: int | None = None) -> list[np.ndarray]:
    """Topic mixtures of all documents of a dataset, in their original order.

    directory: an existing one for the flat files that hold the result. Returns [mixtures], float32 (D, K), mapped; or,
    given `top`, [topics, weights], uint32 and float32 (D, top), largest first.
    """
    check_vocabulary(model, dataset)
    if top is not None and not 1 <= top <= model.topics:
        raise RequestError(f"--top {top}: the model has {model.topics} topics")
    kinds = (
        [("mixtures", "float32", model.topics)]
        if top is None
        else [("topics", "uint32", top), ("weights", "float32", top)]
    )
    outputs = tuple((str(directory / name), dtype, columns) for name, dtype, columns in kinds)
    for path, dtype, columns in outputs:
        allocate(Path(path), dataset.documents * columns * np.dtype(dtype).itemsize)
    arrays = [np.memmap(path, dtype, "r+", shape=(dataset.documents, columns)) for path, dtype, columns in outputs]
    for _ in run(Task(str(model.path), str(dataset.path), "infer", outputs=outputs), workers):
        pass
    return list(arrays)
