"""The metrics of `ooc evaluate`: their computation, JSON keys and output lines."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from blocks.corpus.dataset import Dataset
from blocks.errors import RequestError
from blocks.outputs import publish_output, require_free, scratch_for
from samplers.topics import coherence, inference
from samplers.topics.document_files import check_format, columns_beside, suffix_of, write_documents
from samplers.topics.mixtures import OutputArrayFile, allocate_outputs, mapped
from samplers.topics.model import SavedTopicModel
from samplers.topics.results import top_entries

METRICS = ("completion", "left-to-right", "npmi", "c_v", "diversity")
DOCUMENT_METRICS = {  # names and dtypes of the columns of each metric that has a value for each document
    "completion": {"predictive_log_likelihood": "float64", "predicted_tokens": "int64"},
    "left-to-right": {"left_to_right_log_likelihood": "float64"},
}
MOST_WORDS = 100  # maximum number of top words per topic, as memory grows with the number of word pairs


class TopicMetricsRequest(NamedTuple):
    """Requested metrics.

    names: names from METRICS.

    particles: number of particles for left-to-right.
    top: number of top words per topic for the last three metrics.
    quiet: whether to hide progress bars.
    """

    metrics: tuple[str, ...]
    seed: int = 0
    particles: int = 20
    top: int = 10
    quiet: bool = False

    def check(self) -> None:
        """Raise RequestError if a value is invalid."""
        unknown = [name for name in self.metrics if name not in METRICS]
        if unknown or not self.metrics:
            names = ", ".join(repr(name) for name in unknown)
            raise RequestError(f"--metrics: unknown metric {names or 'none'}", f"Choose from: {', '.join(METRICS)}.")
        if self.particles < 1:
            raise RequestError(f"--particles must be at least 1, got {self.particles}")
        if not 2 <= self.top <= MOST_WORDS:
            raise RequestError(f"--top must be from 2 to {MOST_WORDS}, got {self.top}")


def parse_metrics(names: str) -> tuple[str, ...]:
    """Return the names in a comma-separated list, without duplicates."""
    return tuple(dict.fromkeys(name.strip() for name in names.split(",")))


def evaluate_metrics(
    model: SavedTopicModel,
    dataset: Dataset,
    request: TopicMetricsRequest,
    *,
    workers: int,
    outputs: tuple[OutputArrayFile, ...] = (),
) -> dict[str, Any]:
    """Compute all requested metrics, keyed as in docs/evaluation.md; the whole request is checked first.

    outputs: files for the columns of DOCUMENT_METRICS, or none.
    """
    request.check()
    of = {name: tuple(each for each in outputs if each.name in DOCUMENT_METRICS[name]) for name in DOCUMENT_METRICS}
    inference.check_vocabulary(model, dataset)
    found: dict[str, Any] = {}
    if "completion" in request.metrics:
        how: dict[str, Any] = {"seed": request.seed, "quiet": request.quiet, "outputs": of["completion"]}
        found |= inference.evaluate(model, dataset, workers=workers, **how)
    if "left-to-right" in request.metrics:
        how = {"seed": request.seed, "particles": request.particles, "quiet": request.quiet}
        how["outputs"] = of["left-to-right"]
        found |= inference.left_to_right(model, dataset, workers=workers, **how)
    if {"npmi", "c_v", "diversity"} & set(request.metrics):
        found |= _of_top_words(model, dataset, request, workers)
    return found | {"documents": dataset.documents}


def evaluate_documents(
    model: SavedTopicModel,
    dataset: Dataset,
    request: TopicMetricsRequest,
    out: Path,
    *,
    workers: int,
    overwrite: bool = False,
) -> dict[str, Any]:
    """Compute all requested metrics, and write a row for each document: name, tokens, kept columns, and the columns
    of DOCUMENT_METRICS.

    out: a .npz, .csv, .jsonl or .parquet file.
    """
    request.check()
    if not set(DOCUMENT_METRICS) & set(request.metrics):
        raise RequestError(
            f"--documents: {', '.join(request.metrics)} cannot be computed for a single document",
            f"Add to --metrics one of: {', '.join(DOCUMENT_METRICS)}.",
        )
    check_format(out)
    require_free(out, overwrite=overwrite)
    with scratch_for(out) as scratch, publish_output(out) as beside:
        arrays = {name: DOCUMENT_METRICS[name] for name in DOCUMENT_METRICS if name in request.metrics}
        wanted = {name: (dtype, (dataset.documents,)) for each in arrays.values() for name, dtype in each.items()}
        outputs = allocate_outputs(scratch, wanted)
        found = evaluate_metrics(model, dataset, request, workers=workers, outputs=outputs)
        columns = {"tokens": dataset.document_lengths(), **mapped(outputs)}
        kept = columns_beside(dataset.table(), range(dataset.documents))
        write_documents(beside, suffix_of(out), columns, dataset.document_names(), kept)
    return found


def _of_top_words(
    model: SavedTopicModel, dataset: Dataset, request: TopicMetricsRequest, workers: int
) -> dict[str, Any]:
    if request.top > model.vocabulary_size:
        raise RequestError(
            f"--top must be at most {model.vocabulary_size}, the size of the vocabulary; got {request.top}"
        )
    words, _ = top_entries(model.words, model.alpha, request.top, per_row=False)
    if (words < 0).all():
        raise RequestError(f"{model.path}: all topics are empty")
    found: dict[str, Any] = {"top": request.top, "topics": model.topics}
    if {"npmi", "c_v"} & set(request.metrics):
        found |= coherence.coherence(words, dataset, workers=workers, quiet=request.quiet)
        for name in {"npmi", "c_v"} - set(request.metrics):
            del found[name], found[f"{name}_of_topics"]
    if "diversity" in request.metrics:
        found["diversity"] = coherence.diversity(words)
    return found


def lines(found: dict[str, Any]) -> Iterator[str]:
    """Yield a line of text for each metric."""
    if "perplexity" in found:
        yield (
            f"predictive log-likelihood per token {found['predictive_log_likelihood_per_token']:.4f}, "
            f"perplexity {found['perplexity']:.1f} ({found['predicted_tokens']:,} tokens predicted, "
            f"{found['documents']:,} documents)"
        )
    if "left_to_right_perplexity" in found:
        yield (
            f"left-to-right log-likelihood per token {found['left_to_right_log_likelihood_per_token']:.4f}, "
            f"perplexity {found['left_to_right_perplexity']:.1f} ({found['left_to_right_tokens']:,} tokens, "
            f"{found['documents']:,} documents, {found['particles']} particles)"
        )
    for name, title in (("npmi", "NPMI"), ("c_v", "C_v")):
        if name in found:
            value = "none, as no topic has two top words" if found[name] is None else f"{found[name]:.4f}"
            yield (
                f"{title} coherence {value} (top {found['top']} words of {found['topics']:,} topics, boolean "
                f"co-occurrence in {found['documents']:,} documents{_unseen(found)})"
            )
    if "diversity" in found:
        yield f"diversity {found['diversity']:.4f} (top {found['top']} words of {found['topics']:,} topics)"


def _unseen(found: dict[str, Any]) -> str:
    unseen = found["unseen_top_words"]
    return f"; {unseen:,} top words occur in no document" if unseen else ""
