"""Topic mixtures of training documents, and file formats for mixtures.

A training document has two mixtures theta_k = (n_k + alpha_k) / (N + abar). In the trained mixture, n_k counts the
document's tokens by their topics at the end of training (for an averaged model, the mean over states); in the folded-in
mixture of `samplers.topics.inference`, n_k is the expected count given the trained topics. For a document without
tokens both are the prior, alpha_k / abar.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from blocks.errors import RequestError
from blocks.files import allocate, disk_errors, scratch_directory
from blocks.outputs import publish_output
from samplers.topics import fold_in
from samplers.topics.document_files import (
    Fields,
    KeptColumnsBeside,
    check_format,
    columns_beside,
    suffix_of,
    write_documents,
)
from samplers.topics.infer_kernels import set_trained_deviations
from samplers.topics.labels import label_list
from samplers.topics.model import SavedTopicModel, TopicModel, read_only
from samplers.topics.training_documents import table_if_kept

_PLURAL = {"mixture": "mixtures"}  # names of arrays in .npz


class OutputArrayFile(NamedTuple):
    """A flat file with an array.

    name: name of the array in `samplers.topics.infer_kernels.InferredArrays`.
    """

    name: str
    path: str
    dtype: str
    shape: tuple[int, ...]


def allocate_outputs(directory: Path, wanted: Mapping[str, tuple[str, tuple[int, ...]]]) -> tuple[OutputArrayFile, ...]:
    """Create files for arrays.

    wanted: dtype and shape of each array.
    """
    outputs = tuple(OutputArrayFile(name, str(directory / name), *of_array) for name, of_array in wanted.items())
    for _, path, dtype, shape in outputs:
        allocate(Path(path), int(np.prod(shape)) * np.dtype(dtype).itemsize)
    return outputs


def mixture_arrays(
    documents: int, topics: int, top: int | None, *, spread: bool
) -> dict[str, tuple[str, tuple[int, ...]]]:
    """Return dtype and shape of the arrays for mixtures, or for the largest topics and their weights.

    spread: whether there are standard deviations of the shares, too.
    Raises RequestError if the model has fewer than `top` topics.
    """
    if top is not None and not 1 <= top <= topics:
        raise RequestError(f"--top must be from 1 to {topics}, the number of topics; got {top}")
    shape = (documents, top or topics)
    arrays = {"mixtures": "float32"} if top is None else {"topics": "uint32", "weights": "float32"}
    return {name: (dtype, shape) for name, dtype in (arrays | ({"deviations": "float32"} if spread else {})).items()}


def mapped(outputs: Sequence[OutputArrayFile]) -> dict[str, np.ndarray]:
    """Map files as writable arrays, by name."""
    return {
        name: np.asarray(np.memmap(path, dtype, "r+", shape=shape)) if all(shape) else np.empty(shape, dtype)
        for name, path, dtype, shape in outputs  # an empty file cannot be mapped
    }


def trained(
    model: TopicModel, directory: Path, top: int | None = None, *, spread: bool = False
) -> dict[str, np.ndarray]:
    """Return the trained topic mixtures of the training documents, in the form of `samplers.topics.inference.infer`."""
    documents = model.documents.offsets.size - 1
    if not documents:
        raise RequestError(
            "the model has no topic mixtures of documents", "Import the model again, together with its documents."
        )
    found = mapped(allocate_outputs(directory, mixture_arrays(documents, model.topics, top, spread=spread)))
    rows, alpha = list(map(read_only, model.documents)), read_only(model.alpha)
    if top is None:
        fold_in.trained_mixtures(*rows, alpha, found["mixtures"])
    else:
        fold_in.trained_top_topics(*rows, alpha, found["topics"], found["weights"])
    if spread:
        shares = found["mixtures" if top is None else "weights"]
        set_trained_deviations(rows[0], rows[2], float(alpha.sum()), float(model.states), shares, found["deviations"])
    return found


def write_trained(
    model: TopicModel,
    path: Path,
    suffix: str,
    top: int | None = None,
    data: Path | None = None,
    *,
    spread: bool = False,
) -> None:
    """Write the trained mixtures of a model; see `write_mixtures`.

    data: see `training_dataset`.
    """
    with scratch_directory(path) as scratch:
        columns = (
            columns_beside(table_if_kept(model, data), range(model.documents.offsets.size - 1))
            if isinstance(model, SavedTopicModel)
            else None
        )
        found = trained(model, scratch, top, spread=spread), model.document_lengths(), model.document_names()
        write_mixtures(path, suffix, *found, columns, label_list(model))


def publish_trained(model: TopicModel, path: Path, top: int | None = None, *, spread: bool = False) -> None:
    """Publish a file with the trained mixtures of a model, in the format of its extension."""
    check_format(path)
    with disk_errors(path), publish_output(path) as beside:
        write_trained(model, beside, suffix_of(path), top, spread=spread)


def write_mixtures(
    path: Path,
    suffix: str,
    found: dict[str, np.ndarray],
    tokens: np.ndarray,
    names: Sequence[str] | None,
    beside: KeptColumnsBeside | None = None,
    labels: Sequence[str] = (),
) -> None:
    """Write mixtures in the format of a file extension, `suffix`.

    found: result of `trained` or `infer`.
    tokens: int64 (D,), number of tokens in each document.
    names: names of documents, or None to number them from 1.
    beside: kept columns, written after `tokens`.
    labels: labels of topics. log_likelihood and deviations are written only if they were computed.

    .npz: tokens int64 (D,); log_likelihood float64 (D,); mixtures float32 (D, K), or topics uint32 (D, T), weights
    float32 (D, T) and rest float32 (D,), 1 minus the sum of the weights; deviations float32 (D, K) or (D, T); names
    (D,) if there are any.
    .csv: a header, then a line per document with name, tokens, log_likelihood and K weights and K standard deviations,
    or T topics with weight and standard deviation, and rest.
    .jsonl: {"name": ..., "tokens": ..., "mixture": [...]} or {..., "topics": [...], "weights": [...], "rest": ...},
    with "log_likelihood" and "deviations".
    .parquet: the same columns as .jsonl.
    """
    columns: dict[str, np.ndarray] = {"tokens": tokens}
    if "likelihoods" in found:
        columns["log_likelihood"] = found["likelihoods"]
    if "mixtures" in found:
        columns["mixture"] = found["mixtures"]
    else:
        rest = 1.0 - found["weights"].sum(axis=1, dtype=np.float64)
        columns |= {"topics": found["topics"], "weights": found["weights"]}
        columns["rest"] = np.maximum(rest, 0.0).astype(np.float32)
    if "deviations" in found:
        columns["deviations"] = found["deviations"]
    more = {"labels": np.array(labels, str)} if labels else {}
    fields = _fields(columns, labels)
    write_documents(path, suffix, columns, names, beside, fields=fields, plural=_PLURAL, more=more)


def _fields(columns: dict[str, np.ndarray], labels: Sequence[str]) -> Fields:
    """Return the columns of a CSV file after the number of tokens."""
    fields: list[tuple[str, str, int | None]] = [(name, name, None) for name in ("log_likelihood",) if name in columns]
    if "mixture" in columns:
        size, told = columns["mixture"].shape[1], "deviations" in columns
        for k in range(size):
            fields.append((f"topic_{k} ({labels[k]})" if labels and labels[k] else f"topic_{k}", "mixture", k))
        return [*fields, *((f"sd_{k}", "deviations", k) for k in range(size * told))]
    pairs = {"topic": "topics", "weight": "weights", "sd": "deviations"}
    for t in range(columns["topics"].shape[1]):
        fields += [(f"{told}_{t + 1}", name, t) for told, name in pairs.items() if name in columns]
    return [*fields, ("rest", "rest", None)]
