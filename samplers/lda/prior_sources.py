"""Read the prior of each topic and word from files: a table of weights, and seed words."""

from __future__ import annotations

import csv
import json
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from blocks import stderr
from blocks.corpus.dataset import Dataset
from blocks.errors import RequestError
from ooc.ring.message_relay import from_rank_0
from ooc.ring.ring import Ring
from samplers.lda.options import LdaOptions
from samplers.lda.program import LEAST_PRIOR, MOST_PRIOR
from samplers.lda.word_prior import MOST_PAIRS, check_pairs, pack_pairs
from samplers.topics.labels import LONGEST

DEFAULT_SEED_WEIGHT = 1.0
_SHOWN = 10  # unknown words that a message names


class ChosenWordPrior(NamedTuple):
    """Prior of words in topics.

    beta: weight of all pairs that are not listed.
    pairs: text of `pack_pairs`, or None for no pairs.
    labels: labels of topics by number.
    """

    beta: float
    pairs: str | None
    labels: dict[int, str]


def choose_prior(options: LdaOptions, beta: float, dataset: Dataset, ring: Ring | None) -> ChosenWordPrior:
    """Return the prior that the options ask for; on several machines, rank 0 has the files.

    Raises RequestError, on all ranks, if a file or an option is invalid.
    """
    if options.seed_weight is not None and options.seed_words is None:
        raise RequestError("--seed-weight can only be used with --seed-words", "Add --seed-words FILE.")
    if options.seed_weight is not None and not 0.0 < options.seed_weight <= MOST_PRIOR:
        raise RequestError(f"--seed-weight must be above 0 and at most {MOST_PRIOR:g}, got {options.seed_weight:g}")
    if options.topic_word_prior is None and options.seed_words is None:
        return ChosenWordPrior(beta, None, {})
    beta, pairs, labels = from_rank_0(ring, lambda: _read(options, beta, dataset))
    return ChosenWordPrior(beta, pairs, {int(topic): label for topic, label in labels.items()})


def _read(options: LdaOptions, beta: float, dataset: Dataset) -> ChosenWordPrior:
    weights: dict[tuple[int, int], float] = {}
    table, labels = None, {}
    if options.topic_word_prior is not None:
        table = read_table(options.topic_word_prior, options, beta, dataset)
        beta = table.beta
    words, topics, values = table[1:] if table else (np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0))
    if options.seed_words is not None:
        weight = DEFAULT_SEED_WEIGHT if options.seed_weight is None else options.seed_weight
        seeds = read_seeds(options.seed_words, options.topics)
        labels = dict(enumerate(seeds))
        weights = _seeded(options.seed_words, seeds, weight, dataset)
        more = np.array([*weights]).T
        words, topics, values = _added(words, topics, values, more[0], more[1], np.array([*weights.values()]), beta)
    if words.size > MOST_PAIRS:
        raise RequestError(
            f"the prior differs from beta for {words.size:,} pairs of word and topic; the maximum is {MOST_PAIRS:,}",
            "Omit rare words from the prior, so that they get beta.",
        )
    check_pairs(words, topics, values, size=options.topics, vocabulary=dataset.vocabulary())
    return ChosenWordPrior(beta, pack_pairs(words, topics, values), labels)


class WordPriorTable(NamedTuple):
    """Weights of listed pairs: words and topics, int64 (n,), and weights, float64 (n,); beta of all others."""

    beta: float
    words: np.ndarray
    topics: np.ndarray
    weights: np.ndarray


def read_table(path: Path, options: LdaOptions, beta: float, dataset: Dataset) -> WordPriorTable:
    """Return the weights in a file: an .npz file with an array (K, V) or a CSR matrix, or a CSV file of topic, word and
    weight.

    Raises RequestError.
    """
    if path.suffix == ".npz":
        table = _read_npz(path, options, beta, dataset.vocabulary_size)
    else:
        table = _read_csv(path, beta, dataset)
    if table.topics.size and not 0 <= table.topics.min() <= table.topics.max() < options.topics:
        raise RequestError(
            f"{path} has weights for topic {table.topics.max() if table.topics.min() >= 0 else table.topics.min()}",
            f"Topics have numbers from 0 to {options.topics - 1}.",
        )
    right = (table.weights == 0) | ((table.weights >= LEAST_PRIOR) & (table.weights <= MOST_PRIOR))
    if not right.all():
        raise RequestError(
            f"{path} has the weight {table.weights[int((~right).argmax())]:g}",
            f"Weights must be 0, or from {LEAST_PRIOR:g} to {MOST_PRIOR:g}.",
        )
    keep = table.weights != table.beta
    return WordPriorTable(table.beta, *(array[keep] for array in table[1:]))


def _read_npz(path: Path, options: LdaOptions, beta: float, size: int) -> WordPriorTable:
    try:
        with np.load(path, allow_pickle=False) as content:
            arrays = {name: content[name] for name in content.files}
    except (OSError, ValueError, zipfile.BadZipFile) as error:
        raise RequestError(
            f"{path} cannot be read: {error}", "Save it with numpy.savez or scipy.sparse.save_npz."
        ) from None
    expected = options.topics, size
    if {"indices", "indptr", "data", "shape", "format"} <= arrays.keys():
        if arrays["format"].item() not in (b"csr", "csr"):
            raise RequestError(
                f"{path} is a sparse matrix in another format", "Convert it with .tocsr() before saving."
            )
        _require_shape(path, tuple(arrays["shape"].tolist()), expected)
        sizes = np.diff(arrays["indptr"])
        if sizes.size != options.topics or (sizes < 0).any() or sizes.sum() != arrays["indices"].size:
            raise RequestError(f"{path} is not a valid CSR matrix", "Save it with scipy.sparse.save_npz.")
        topics = np.repeat(np.arange(options.topics), sizes)
        return WordPriorTable(beta, arrays["indices"].astype(np.int64), topics, arrays["data"].astype(np.float64))
    if len(arrays) != 1:
        raise RequestError(f"{path} has {len(arrays)} arrays; expected one", "Save the prior as the only array.")
    (prior,) = arrays.values()
    _require_shape(path, prior.shape, expected)
    if prior.dtype.kind not in "fiu":
        raise RequestError(f"{path} has an array of dtype {prior.dtype}; expected numbers", "Save an array of numbers.")
    if options.beta is None and (prior > 0).any():  # the most frequent weight needs no pairs
        found, times = np.unique(prior[prior > 0], return_counts=True)
        beta = float(found[times.argmax()])
    topics, words = np.nonzero(prior != beta)
    return WordPriorTable(beta, words, topics, prior[topics, words].astype(np.float64))


def _require_shape(path: Path, shape: tuple[int, ...], expected: tuple[int, int]) -> None:
    if shape != expected:
        raise RequestError(
            f"{path} has an array of shape {shape}; expected {expected}: topics, words of the vocabulary",
            "Provide a row for each topic and a column for each word, in the order of vocabulary.txt.",
        )


def _read_csv(path: Path, beta: float, dataset: Dataset) -> WordPriorTable:
    rows = [(number, row) for number, row in _csv_rows(path)]
    if rows and not rows[0][1][0].isdecimal():
        rows = rows[1:]  # header
    weights: dict[tuple[str, int], float] = {}
    for number, row in rows:
        try:
            topic, word, weight = row
            pair, value = (word, int(topic)), float(weight)
        except ValueError:
            raise RequestError(
                f"{path}, row {number}: {','.join(row)[:200]!r} is not a topic number, a word and a weight",
                "Write rows such as 7,climate,2.5; the weight 0 keeps the word out of the topic.",
            ) from None
        if pair in weights:
            raise RequestError(
                f"{path}, row {number}: the word {word!r} is listed twice for topic {topic}", "Keep one of them."
            )
        weights[pair] = value
    known = _known(path, [word for word, _ in weights], dataset)
    kept = [(known[word], topic, value) for (word, topic), value in weights.items() if word in known]
    if not kept:
        raise RequestError(f"{path} contains no word of the vocabulary", "Spell words as in vocabulary.txt.")
    words, topics, values = zip(*kept, strict=True)
    return WordPriorTable(beta, np.array(words), np.array(topics), np.array(values))


def _csv_rows(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Yield the number and the cells of each row that is not empty, without surrounding blanks."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            for number, row in enumerate(csv.reader(file), 1):
                if any(cells := [cell.strip() for cell in row]):
                    yield number, cells
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise RequestError(f"{path} cannot be read: {error}", "Use a CSV file in UTF-8.") from None


def _known(path: Path, words: Sequence[str], dataset: Dataset) -> dict[str, int]:
    """Return the indices of words in the vocabulary, and warn of unknown words by name."""
    wanted = dict.fromkeys(words)
    known = {word: number for number, word in enumerate(dataset.vocabulary()) if word in wanted}
    if unknown := [word for word in wanted if word not in known]:
        more = f" and {len(unknown) - _SHOWN:,} more" if len(unknown) > _SHOWN else ""
        stderr.print_warning(
            f"{path}: these words are not in the vocabulary and are left out: {', '.join(unknown[:_SHOWN])}{more}"
        )
    return known


def read_seeds(path: Path, topics: int) -> dict[str, list[str]]:
    """Return the seed words of topics by name, in the order of the file.

    topics: K.

    path: a JSON file, an object of names and lists of words, or a CSV file with a topic in each row, its name first.
    Raises RequestError.
    """
    read = _seeds_of_json(path) if path.suffix == ".json" else _seeds_of_csv(path)
    seeds = {" ".join(name.split()): words for name, words in read.items()}
    for name, words in seeds.items():
        if not 0 < len(name) <= LONGEST:
            raise RequestError(f"{path}: a topic has the name {name!r}", f"Use names of 1 to {LONGEST} letters.")
        if not words:
            raise RequestError(f"{path}: the topic {name!r} has no seed words", "Add at least one word after the name.")
    if not seeds:
        raise RequestError(f"{path} has no topics", "Write a topic in each row: its name, then its seed words.")
    if len(seeds) > topics:
        raise RequestError(
            f"{path} has {len(seeds)} topics, but --topics is {topics}", f"Use --topics {len(seeds)} or more."
        )
    return seeds


def _seeds_of_csv(path: Path) -> dict[str, list[str]]:
    seeds: dict[str, list[str]] = {}
    for number, (name, *words) in _csv_rows(path):
        if name in seeds:
            raise RequestError(f"{path}, row {number}: the topic {name!r} occurs twice", "Put its words in one row.")
        seeds[name] = [word for word in words if word]
    return seeds


def _seeds_of_json(path: Path) -> dict[str, list[str]]:
    try:
        content = json.loads(path.read_text("utf-8-sig"))
    except (OSError, ValueError) as error:
        raise RequestError(
            f"{path} cannot be read: {error}", 'Write it as {"climate": ["carbon", "warming"], ...}.'
        ) from None
    if not isinstance(content, dict) or not all(
        isinstance(words, list) and all(isinstance(word, str) for word in words) for words in content.values()
    ):
        raise RequestError(
            f"{path} is not an object of topic names and lists of words",
            'Write it as {"climate": ["carbon", "warming"], ...}.',
        )
    return content


def _seeded(path: Path, seeds: dict[str, list[str]], weight: float, dataset: Dataset) -> dict[tuple[int, int], float]:
    """Return the pseudo-counts of seed words by word and topic: `weight` for each token of the word."""
    known = _known(path, [word for words in seeds.values() for word in words], dataset)
    tokens = np.zeros(dataset.vocabulary_size, np.int64)
    tokens[dataset.index.word_ids] = dataset.whole.frequencies
    found: dict[tuple[int, int], float] = {}
    for topic, (name, words) in enumerate(seeds.items()):
        known_words = [known[word] for word in words if word in known]
        if not known_words:
            raise RequestError(
                f"{path}: no seed word of the topic {name!r} is in the vocabulary",
                "Spell words as in vocabulary.txt, or remove the topic.",
            )
        found |= {(word, topic): weight * max(int(tokens[word]), 1) for word in known_words}
    return found


def _added(
    words: np.ndarray,
    topics: np.ndarray,
    weights: np.ndarray,
    more_words: np.ndarray,
    more_topics: np.ndarray,
    counts: np.ndarray,
    beta: float,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return listed pairs to which the pseudo-counts of seed words were added."""
    listed = {pair: place for place, pair in enumerate(zip(words.tolist(), topics.tolist(), strict=True))}
    places = np.array([listed.get(pair, -1) for pair in zip(more_words.tolist(), more_topics.tolist(), strict=True)])
    weights, is_new = weights.copy(), places < 0
    weights[places[~is_new]] += counts[~is_new]
    return (
        np.concatenate((words, more_words[is_new])),
        np.concatenate((topics, more_topics[is_new])),
        np.concatenate((weights, beta + counts[is_new])),
    )
