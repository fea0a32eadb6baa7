"""Regress the prevalence of topics on columns of the documents; see `samplers.topics.effects`.

Terms are written like an R formula without interactions: 'category + year(date)'. A numeric term is one column of X. A
text term, or factor(term), has an indicator column for each of its values in ascending order except the first: its
coefficient is the difference from the first value.
"""

from __future__ import annotations

import ast
import csv
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np

from blocks.arrow_tables import pyarrow_module
from blocks.documents.document_table import DocumentTable
from blocks.documents.expressions import DocumentExpression, selected
from blocks.errors import RequestError
from blocks.given_tables import column_values
from blocks.plurals import count_of
from samplers.topics.effects import EffectSums, TopicEffects
from samplers.topics.group_comparison import listed_topics
from samplers.topics.model import SavedTopicModel, TopicModel
from samplers.topics.training_documents import training_table

METHOD = "method of composition in closed form, over documents and the posterior of their mixtures"
COLUMNS = ("estimate", "error", "low", "high", "t", "p", "q")  # of a term
_NUMBERS = ("integer", "number", "boolean")
_MOST_VALUES = 200  # of a term of text
_BATCH = 1 << 13  # documents
_EXAMPLE = "Write for example: --regress 'category + year(date)'"

Batches = Iterator[tuple[int, np.ndarray, list[np.ndarray]]]  # first document, bool (n,) chosen, values of each term


class RegressionTerm(NamedTuple):
    """A term of the regression.

    text: the term as written.
    levels: values of a categorical term, None for numbers.
    mean, spread: location and scale by which numbers are standardized.
    """

    text: str
    levels: list[Any] | None
    mean: float = 0.0
    spread: float = 1.0


def regress_by(
    model: TopicModel, table: DocumentTable, formula: str, *, where: str | None = None, level: float = 0.95
) -> TopicEffects:
    """Regress the topic shares of the training documents on terms, whose columns are read twice.

    formula: terms joined by +.
    where: condition that documents must satisfy.
    level: confidence level of the intervals.
    Raises RequestError if an expression is invalid, or the terms do not determine the coefficients.
    """
    values, factors = _parsed(formula, table.kinds)
    condition = DocumentExpression(where, "--where", table.kinds, is_condition=True) if where else None
    columns = list(dict.fromkeys(name for value in values for name in value.columns))
    kinds = [each.kind in _NUMBERS and not factor for each, factor in zip(values, factors, strict=True)]

    def read() -> Batches:
        for first, chosen, arrays in selected(table, condition, columns, table.rows):
            found = [_array(value.compute(arrays), numeric) for value, numeric in zip(values, kinds, strict=True)]
            yield first, chosen, found

    return _regressed(model, [value.text for value in values], kinds, read, level)


def regress_on(model: TopicModel, columns: Mapping[str, Any], *, level: float = 0.95) -> TopicEffects:
    """Regress the topic shares of the training documents on the columns of a data frame or a dictionary.

    columns: values for each training document, by column name: numbers, or strings for categories; documents with None
        or NaN are left out.
    Raises RequestError if a column does not have a value for each document.
    """
    names = [str(name) for name in getattr(columns, "columns", columns)]
    documents = model.documents.offsets.size - 1
    arrays = [np.array(list(column_values(columns[name])), object) for name in names]
    if not names or any(array.size != documents for array in arrays):
        raise RequestError(
            f"each of columns must have a value for each of the {documents:,} training documents",
            "Use None for missing values.",
        )
    kinds = [all(isinstance(each, int | float | np.number | np.bool_) or each is None for each in a) for a in arrays]

    def read() -> Batches:
        for first in range(0, documents, _BATCH):
            some = [array[first : first + _BATCH] for array in arrays]
            found = [each.astype(np.float64) if numeric else each for each, numeric in zip(some, kinds, strict=True)]
            yield first, np.ones(some[0].size, bool), found

    return _regressed(model, names, kinds, read, level)


def _parsed(formula: str, kinds: Mapping[str, str]) -> tuple[list[DocumentExpression], list[bool]]:
    """Return the terms of a formula, and whether each is a factor()."""
    try:
        node = ast.parse(formula.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise RequestError(f"--regress {formula!r} is not a formula", _EXAMPLE) from None
    nodes: list[ast.expr] = []
    while isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        nodes.insert(0, node.right)
        node = node.left
    values, factors = [], []
    for each in [node, *nodes]:
        if isinstance(each, ast.BinOp):
            raise RequestError(
                f"--regress {formula!r}: {ast.unparse(each)} is not a term; terms are joined by + only", _EXAMPLE
            )
        factor = isinstance(each, ast.Call) and ast.unparse(each.func) == "factor" and len(each.args) == 1
        inner = each.args[0] if factor and isinstance(each, ast.Call) else each
        value = DocumentExpression(ast.unparse(inner), "--regress", kinds, is_condition=False)
        if value.kind in ("date", "time") and not factor:
            raise RequestError(
                f"--regress: {value.text} has the type {value.kind}", f"Use year({value.text}) or month({value.text})."
            )
        values.append(value)
        factors.append(factor)
    texts = [value.text for value in values]
    if twice := [text for text in texts if texts.count(text) > 1]:
        raise RequestError(f"--regress {formula!r}: the term {twice[0]} appears twice", "Remove one of the two.")
    return values, factors


def _array(values: Any, numeric: bool) -> np.ndarray:
    """Return the values of a pyarrow column as float64 with NaN for missing values, or as objects with None."""
    if numeric:
        return np.asarray(values.cast(pyarrow_module().float64()).fill_null(float("nan")))
    return np.array(values.to_pylist(), object)


def _regressed(model: TopicModel, texts: list[str], kinds: list[bool], read: Any, level: float) -> TopicEffects:
    if not 0.0 < level < 1.0:
        raise RequestError(f"--level must be above 0 and below 1, got {level}")
    terms, missing = _terms(texts, kinds, read())
    names = ["(intercept)", *(name for term in terms for name in _names(term))]
    sums = EffectSums(model, len(names))
    for first, chosen, values in read():
        for begin in range(0, chosen.size, _BATCH):
            some = slice(begin, begin + _BATCH)
            sums.add(first + begin, _rows(terms, chosen[some], [each[some] for each in values]))
    sums.without_value = missing
    return sums.effects(names, _scale(terms, len(names)), level)


def _terms(texts: list[str], kinds: list[bool], batches: Batches) -> tuple[list[RegressionTerm], int]:
    """Return the terms, with the levels, means and standard deviations over the complete documents; and the number of
    documents that lack a value.
    """
    levels: list[dict[Any, None]] = [{} for _ in texts]
    counts, sums, squares, missing = 0, np.zeros(len(texts)), np.zeros(len(texts)), 0
    shifts: np.ndarray | None = None
    for _, chosen, values in batches:
        complete = chosen & ~np.logical_or.reduce([_missing(each) for each in values])
        missing += int(np.count_nonzero(chosen & ~complete))
        if not complete.any():
            continue
        some = [each[complete] for each in values]
        numbers = np.array([each.mean() if numeric else 0.0 for each, numeric in zip(some, kinds, strict=True)])
        shifts = numbers if shifts is None else shifts
        counts += int(complete.sum())
        for place, (each, numeric) in enumerate(zip(some, kinds, strict=True)):
            if numeric:
                sums[place] += (each - shifts[place]).sum()
                squares[place] += ((each - shifts[place]) ** 2).sum()
            else:
                levels[place].update(dict.fromkeys(each.tolist()))
                if len(levels[place]) > _MOST_VALUES:
                    raise RequestError(
                        f"--regress: {texts[place]} has more than {_MOST_VALUES} different values",
                        "Use a term with fewer values, such as year(date).",
                    )
    if shifts is None:
        raise RequestError("--regress: no document has values for all terms", "Choose other terms, or loosen --where.")
    spreads = np.sqrt(np.maximum(squares / counts - (sums / counts) ** 2, 0.0))
    return [
        RegressionTerm(text, None, float(shifts[place] + sums[place] / counts), float(spreads[place]) or 1.0)
        if numeric
        else RegressionTerm(text, _ordered(levels[place]))
        for place, (text, numeric) in enumerate(zip(texts, kinds, strict=True))
    ], missing


def _ordered(values: Mapping[Any, None]) -> list[Any]:
    try:
        return sorted(values)
    except TypeError:  # of different types
        return sorted(values, key=str)


def _missing(values: np.ndarray) -> np.ndarray:
    if values.dtype.kind == "f":
        return ~np.isfinite(values)
    return np.array([each is None or each != each for each in values], bool)  # noqa: PLR0124, NaN


def _names(term: RegressionTerm) -> list[str]:
    return [term.text] if term.levels is None else [f"{term.text}: {value}" for value in term.levels[1:]]


def _rows(terms: Sequence[RegressionTerm], chosen: np.ndarray, values: Sequence[np.ndarray]) -> np.ndarray:
    """Return the rows of X, float64 (n, p): a 1, then the columns of the terms. Rows of documents to leave out start
    with NaN.
    """
    complete = chosen & ~np.logical_or.reduce([_missing(each) for each in values])
    columns = [np.where(complete, 1.0, np.nan)]
    for term, each in zip(terms, values, strict=True):
        if term.levels is None:
            columns.append(np.where(complete, (each - term.mean) / term.spread, 0.0))
            continue
        places = {value: place for place, value in enumerate(term.levels)}
        found = np.array([places.get(value, -1) if told else -1 for value, told in zip(each, complete, strict=True)])
        columns += [(found == place).astype(np.float64) for place in range(1, len(term.levels))]
    return np.ascontiguousarray(np.stack(columns, axis=1))


def _scale(terms: Sequence[RegressionTerm], size: int) -> np.ndarray:
    """Return the matrix that maps coefficients of standardized numbers to coefficients of the original numbers."""
    scale, place = np.eye(size), 1
    for term in terms:
        if term.levels is None:
            scale[place, place] = 1.0 / term.spread
            scale[0, place] = -term.mean / term.spread
        place += len(_names(term))
    return scale


def training_regression(
    model: SavedTopicModel, formula: str, where: str | None, level: float, data: Path | None
) -> TopicEffects:
    """Return the regression over the training documents of a model."""
    return regress_by(model, training_table(model, data), formula, where=where, level=level)


def described_effects(
    model: TopicModel, found: TopicEffects, topics: Sequence[int] | None = None, largest: int | None = None
) -> dict[str, Any]:
    """Return a regression as JSON types.

    topics, largest: see `listed_topics`.
    """
    return {
        "method": METHOD,
        "level": found.level,
        "documents": found.documents,
        "without_value": found.without_value,
        "without_tokens": found.without_tokens,
        "topics": [
            topic | {"terms": _of_topic(found, topic["topic"])} for topic in listed_topics(model, topics, largest)
        ],
    }


def _of_topic(found: TopicEffects, topic: int) -> list[dict[str, Any]]:
    columns = [getattr(found, name)[:, topic].tolist() for name in COLUMNS]
    return [
        {"term": term} | {name: None if value != value else value for name, value in zip(COLUMNS, row, strict=True)}  # noqa: PLR0124, NaN
        for term, *row in zip(found.terms, *columns, strict=True)
    ]


def effects_table(told: dict[str, Any]) -> str:
    """Return a regression as text."""
    width = max(len(term["term"]) for topic in told["topics"] for term in topic["terms"])
    lines = []
    for topic in told["topics"]:
        lines.append(f"topic {topic['topic']}: {topic['label'] or ' '.join(topic['words'])}")
        for term in topic["terms"]:
            stars = "" if term["q"] is None else "**" if term["q"] < 0.01 else "*" if term["q"] < 0.05 else ""
            interval = f"[{100 * term['low']:+.3f}, {100 * term['high']:+.3f}]"
            lines.append(f"  {term['term']:<{width}}  {100 * term['estimate']:+9.3f}  {interval:<22} {stars}".rstrip())
    lines += [
        "Coefficients of a linear regression of the share of the topic, in percentage points, with "
        f"{told['level']:.0%} intervals: {count_of(told['documents'], 'document')}.",
        f"Intervals: {told['method']}.",
        "* q < 0.05, ** q < 0.01: p-values adjusted by Benjamini and Hochberg over all topics and terms.",
    ]
    left_out = {"without a value": told["without_value"], "without tokens": told["without_tokens"]}
    lines += [f"Left out: {count_of(count, 'document')} {why}." for why, count in left_out.items() if count]
    return "\n".join(lines)


def write_effects(model: TopicModel, found: TopicEffects, file: IO[str]) -> None:
    """Write a regression of all topics as CSV, one row per topic and term."""
    writer = csv.writer(file)
    writer.writerow(["topic", "label", "words", "term", *COLUMNS])
    for topic in listed_topics(model):
        first = [topic["topic"], topic["label"] or "", " ".join(topic["words"])]
        for term in _of_topic(found, topic["topic"]):
            numbers = ["" if term[name] is None else f"{term[name]:.6g}" for name in COLUMNS]
            writer.writerow([*first, term["term"], *numbers])
