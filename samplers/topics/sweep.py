"""Compare topic models with different numbers of topics and seeds: `ooc sweep`.

exclusivity   mean over topics of the mean share phi_kw / sum_j phi_jw of their top words (Bischof and Airoldi 2012)
stability     mean share of common top words of topics that are matched one to one between two seeds (without ranks,
              Greene, O'Callaghan and Cunningham 2014), over all pairs of seeds

Other metrics are those of `ooc evaluate`: perplexity on held-out documents, NPMI and C_v on the training documents.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Sequence
from contextlib import suppress
from itertools import combinations
from pathlib import Path
from statistics import fmean, stdev
from typing import IO, Any, TypedDict

import numpy as np

from blocks.corpus.dataset import Dataset
from blocks.errors import OocError
from blocks.files import checksum
from blocks.json_files import read_json, write_json
from samplers.model_files import MANIFEST
from samplers.models import open_model
from samplers.topics.metrics import TopicMetricsRequest, evaluate_metrics
from samplers.topics.model import SavedTopicModel, row_numbers
from samplers.topics.results import top_entries
from samplers.topics.topic_matching import best_matching, shared_words

COLUMNS = (
    "topics",
    "seeds",
    "perplexity",
    "perplexity_sd",
    "npmi",
    "c_v",
    "diversity",
    "exclusivity",
    "stability",
    "elapsed_s",
)
_TOP = 10  # words of a topic
_SCHEMA = 1  # schema of stored evaluations


class SweepEvaluation(TypedDict):
    """Contents of OUT/evaluations/RUN.json: metrics of a model, identified by the contents of its model.json, on these
    datasets.
    """

    of: list[str | None]
    metrics: dict[str, float | None]
    words: list[list[int]]


def evaluated_once(
    run: Path, folder: Path, data: Dataset, held_out: Dataset | None, workers: int, *, quiet: bool
) -> dict[str, Any]:
    """Return the metrics of a finished run; they are cached in a folder, so that a model is evaluated only once."""
    model, path = open_model(run), folder / f"{run.name}.json"
    of = [checksum(model.path / MANIFEST), data.identity, held_out.identity if held_out else None]
    with suppress(OocError):
        known = read_json(path, what="an evaluation", schema=_SCHEMA, holds=SweepEvaluation)
        if known["of"] == of:
            return known["metrics"] | {"words": np.array(known["words"], np.int64)}
    found = evaluated(model, data, held_out, workers, quiet=quiet)
    folder.mkdir(exist_ok=True)
    metrics = {name: value for name, value in found.items() if name != "words"}
    write_json(path, {"schema": _SCHEMA, "of": of, "metrics": metrics, "words": found["words"].tolist()})
    return found


def evaluated(
    model: SavedTopicModel, data: Dataset, held_out: Dataset | None, workers: int, *, quiet: bool
) -> dict[str, Any]:
    """Return the metrics of a trained model and the top words of its topics, int64 (K, T)."""
    top = min(_TOP, model.vocabulary_size)
    how: dict[str, Any] = {"top": top, "quiet": quiet}
    found = evaluate_metrics(model, data, TopicMetricsRequest(("npmi", "c_v", "diversity"), **how), workers=workers)
    if held_out is not None:
        found |= evaluate_metrics(model, held_out, TopicMetricsRequest(("completion",), **how), workers=workers)
    words = top_entries(model.words, model.alpha, top, per_row=False)[0]
    names = ("perplexity", "npmi", "c_v", "diversity")
    return {name: found[name] for name in names if name in found} | {
        "exclusivity": exclusivity(model, words),
        "words": words,
    }


def exclusivity(model: SavedTopicModel, words: np.ndarray) -> float:
    """Return the exclusivity of topics.

    words: int64 (K, T), top words of each topic, -1 where there are fewer.
    """
    masses = model.topic_counts + model.vocabulary_size * model.beta
    rows, topics, counts = row_numbers(model.words), model.words.topics, model.words.counts
    rest = model.beta / masses
    totals = np.bincount(rows, counts / masses[topics], model.vocabulary_size) + rest.sum()
    of_topics = []
    for k, listed in enumerate(words):
        wanted = listed[listed >= 0]
        if wanted.size:
            own = np.zeros(wanted.size)
            for place, word in enumerate(wanted.tolist()):
                some = slice(model.words.offsets[word], model.words.offsets[word + 1])
                own[place] = counts[some][topics[some] == k].sum() / masses[k] + rest[k]
            of_topics.append(float((own / totals[wanted]).mean()))
    return fmean(of_topics)


def stability(words: Sequence[np.ndarray]) -> float | None:
    """Return the stability of topics over seeds, None for a single seed.

    words: an int64 (K, T) array of top words for each seed.
    """
    found = []
    for first, second in combinations(words, 2):
        similarities = shared_words(first, second)
        found.append(float(similarities[np.arange(len(first)), best_matching(similarities)].mean()))
    return fmean(found) if found else None


def summary(topics: int, runs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the table row for a number of topics: means over its seeds.

    runs: metrics of each run, see `evaluated`.
    """
    row: dict[str, Any] = {"topics": topics, "seeds": len(runs)}
    for name in ("perplexity", "npmi", "c_v", "diversity", "exclusivity", "elapsed_s"):
        values = [run[name] for run in runs if run.get(name) is not None]
        row[name] = fmean(values) if values else None
        if name == "perplexity":
            row["perplexity_sd"] = stdev(values) if len(values) > 1 else None
    return row | {"stability": stability([run["words"] for run in runs])}


def advice(rows: Sequence[dict[str, Any]]) -> str:
    """Return what the metrics of a sweep say about the number of topics."""
    predicted = [row for row in rows if row["perplexity"] is not None]
    if not predicted:
        return "Without held-out documents nothing says how well the models predict: use --held-out."
    best = min(predicted, key=lambda row: row["perplexity"])
    limit = best["perplexity"] + (best["perplexity_sd"] or 0.0)
    enough = min((row for row in predicted if row["perplexity"] <= limit), key=lambda row: row["topics"])
    said = f"The smallest perplexity, {best['perplexity']:.1f}, is that of {best['topics']} topics"
    if enough is not best:
        said += f"; {enough['topics']} topics are within a standard deviation between seeds of it"
    if best is predicted[-1] and len(predicted) > 1:
        said += ", the most that were tried: more may predict better still"
    unsure = best["perplexity_sd"] is None
    return f"{said}. {'Use --seeds 3 to see how much of a difference is chance.' if unsure else ''}".rstrip()


def sweep_table(rows: Sequence[dict[str, Any]]) -> str:
    """Return the rows of a sweep as text."""
    forms = {"perplexity": ".1f", "perplexity_sd": ".1f", "elapsed_s": ".1f", "topics": "d", "seeds": "d"}
    titles = {"perplexity_sd": "sd", "elapsed_s": "seconds"}
    lines = ["  ".join(f"{titles.get(name, name):>11}" for name in COLUMNS)]
    for row in rows:
        cells = ("-" if row[name] is None else format(row[name], forms.get(name, ".4f")) for name in COLUMNS)
        lines.append("  ".join(f"{cell:>11}" for cell in cells))
    return "\n".join(lines)


def write_sweep(rows: Sequence[dict[str, Any]], file: IO[str]) -> None:
    """Write the rows of a sweep as CSV."""
    writer = csv.DictWriter(file, COLUMNS, extrasaction="ignore")
    writer.writeheader()
    writer.writerows(rows)


def plot_sweep(rows: Sequence[dict[str, Any]], path: Path, suffix: str) -> None:
    """Draw the metrics of a sweep against the number of topics."""
    from matplotlib.figure import Figure

    names = [name for name in COLUMNS[2:] if name != "perplexity_sd" and any(row[name] is not None for row in rows)]
    figure = Figure(figsize=(9, 2.6 * math.ceil(len(names) / 3)), layout="constrained")
    for place, name in enumerate(names, 1):
        axes = figure.add_subplot(math.ceil(len(names) / 3), 3, place)
        there = [row for row in rows if row[name] is not None]
        errors = [row["perplexity_sd"] or 0.0 for row in there] if name == "perplexity" else None
        axes.errorbar([row["topics"] for row in there], [row[name] for row in there], errors, marker="o", capsize=3)
        axes.set(
            title={"elapsed_s": "seconds of training", "c_v": "C_v", "npmi": "NPMI"}.get(name, name), xlabel="topics"
        )
    figure.savefig(path, format=suffix.lstrip("."), dpi=120)
