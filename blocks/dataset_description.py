"""Describe the contents of a dataset and how it was made, as JSON or as lines of text."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from blocks.corpus.dataset import Dataset
from blocks.design.design import FORMS, Design
from blocks.plurals import count_of
from blocks.ratings.matrix import Matrix
from blocks.samples.samples import Samples
from blocks.stored_dataset import StoredDataset

_WHY = {
    "duplicates": "a later rating has the same user and item",
    "unknown": "the other dataset does not have their user or item",
}


def describe(dataset: Dataset | Matrix | Samples | Design) -> dict[str, Any]:
    """Return the facts about a dataset as JSON types."""
    shard = dataset.manifest.get("shard")
    return {
        "path": str(dataset.path),
        "kind": dataset.kind,
        "identity": dataset.identity,
        **_held(dataset),
        "blocks": dataset.block_count,
        "bytes": sum(entry["bytes"] for _, entry in dataset.files()),
        "generation": dataset.manifest["generation"],
        "shard": {name: told for name, told in shard.items() if name != "index"} if shard else None,
        "made": dataset.manifest["made"],
    }


def _held(dataset: Dataset | Matrix | Samples | Design) -> dict[str, Any]:
    if isinstance(dataset, Design):
        return _of_design(dataset)
    if isinstance(dataset, Samples):
        return _of_samples(dataset)
    return {
        **(_of_matrix(dataset) if isinstance(dataset, Matrix) else _of_corpus(dataset)),
        "slices": dataset.slice_count,
        "cells": dataset.block_count * dataset.slice_count,
        "empty_cells": int(np.count_nonzero(np.asarray(dataset.index.cells) == 0)),
    }


def _of_design(design: Design) -> dict[str, Any]:
    widths = np.diff(design.block_bounds)
    y = None
    if design.y is not None:
        y = {"low": float(design.y.min()), "high": float(design.y.max()), "mean": float(design.y.mean())}
    offsets = np.zeros(1) if design.offsets is None else design.offsets
    return {
        "rows": design.rows,
        "columns": design.columns,
        "entries": design.entries,
        "missing": design.missing,
        "form": design.form,
        "y": y,
        "empty_columns": int(np.count_nonzero((design.norms == 0) & (offsets == 0))),
        "constant_columns": int(np.count_nonzero(design.deviations == 0)),
        "offset_columns": int(np.count_nonzero(offsets)),
        "named_columns": "columns" in design.manifest["texts"],
        "block_columns": {"least": int(widths.min()), "most": int(widths.max())},
    }


def _of_samples(samples: Samples) -> dict[str, Any]:
    sizes = samples.index.cells
    return {
        "rows": samples.rows,
        "columns": samples.columns,
        "entries": samples.entries,
        "labels": samples.index.labels.size or None,
        "block_entries": {"least": int(sizes.min()), "most": int(sizes.max())},
    }


def _of_matrix(matrix: Matrix) -> dict[str, Any]:
    block_entries = matrix.index.cells.sum(axis=1)
    return {
        "rows": matrix.rows,
        "columns": matrix.columns,
        "entries": matrix.entries,
        "values": matrix.manifest["values"],
        "empty_columns": int(np.count_nonzero(np.asarray(matrix.index.column_entries) == 0)),
        "block_entries": {"least": int(block_entries.min()), "most": int(block_entries.max())},
    }


def _of_corpus(dataset: Dataset) -> dict[str, Any]:
    block_tokens = dataset.block_tokens()
    return {
        "documents": dataset.documents,
        "empty_documents": sum(
            int(np.count_nonzero(np.diff(dataset.block(number).offsets) == 0)) for number in range(dataset.block_count)
        ),
        "tokens": dataset.tokens,
        "vocabulary": dataset.vocabulary_size,
        "unused_words": int(np.count_nonzero(np.asarray(dataset.index.frequencies) == 0)),
        "named_documents": "documents" in dataset.manifest["texts"],
        "table": _of_table(dataset),
        "block_tokens": {"least": int(block_tokens.min()), "most": int(block_tokens.max())},
    }


def _of_table(dataset: Dataset) -> dict[str, Any] | None:
    table = dataset.table()
    return {"columns": table.kinds, "text": table.text, "bytes": table.bytes} if table else None


def size_summary(dataset: StoredDataset) -> str:
    """Return a short summary of a dataset's size, such as "1 document, 20 tokens, vocabulary of 9 words"."""
    if isinstance(dataset, Dataset):
        documents, tokens = count_of(dataset.documents, "document"), count_of(dataset.tokens, "token")
        return f"{documents}, {tokens}, vocabulary of {count_of(dataset.vocabulary_size, 'word')}"
    assert isinstance(dataset, Matrix | Design | Samples)
    if isinstance(dataset, Matrix):
        names = ("user", "item", "rating", "ratings")
    else:
        names = ("row" if isinstance(dataset, Design) else "sample", "column", "entry", "entries")
    rows, columns = count_of(dataset.rows, names[0]), count_of(dataset.columns, names[1])
    return f"{rows}, {columns}, {count_of(dataset.entries, *names[2:])}"


def description_lines(facts: dict[str, Any]) -> Iterator[str]:
    """Yield the facts about a dataset as lines of text."""
    yield f"dataset     {facts['path']}"
    yield f"identity    {facts['identity']}"
    if shard := facts["shard"]:
        whole, names = shard["whole"], ("documents", "tokens") if facts["kind"] == Dataset.kind else ("rows", "entries")
        sizes = ", ".join(f"{whole[name]:,} {name}" for name in names)
        yield f"shard       {shard['number']} of {shard['shards']} of {whole['identity']}, which has {sizes}"
    if facts["kind"] == Design.kind:
        sizes, unit = facts["block_columns"], "columns"
        yield from _told_of_design(facts)
    elif facts["kind"] == Samples.kind:
        sizes, unit = facts["block_entries"], "entries"
        labels = count_of(facts["labels"], "label") if facts["labels"] else "numeric labels"
        yield f"samples     {facts['rows']:,}, {labels}"
        yield f"columns     {facts['columns']:,}"
        yield f"entries     {facts['entries']:,}"
    elif facts["kind"] == Matrix.kind:
        values, sizes, unit = facts["values"], facts["block_entries"], "ratings"
        yield f"users       {facts['rows']:,}"
        yield f"items       {facts['columns']:,} ({facts['empty_columns']:,} without ratings)"
        yield f"ratings     {facts['entries']:,}, {values['low']:g} to {values['high']:g}, mean {values['mean']:.4f}"
    else:
        sizes, unit = facts["block_tokens"], "tokens"
        yield f"documents   {facts['documents']:,} ({facts['empty_documents']:,} empty)"
        yield f"tokens      {facts['tokens']:,}"
        yield f"vocabulary  {count_of(facts['vocabulary'], 'word')} ({facts['unused_words']:,} in no document)"
        if table := facts["table"]:
            columns = ", ".join(f"{name} ({kind})" for name, kind in table["columns"].items())
            yield f"columns     {columns}: {table['bytes']:,} bytes"
    least, most = sizes["least"], sizes["most"]
    yield f"blocks      {facts['blocks']:,} of {least:,}{f' to {most:,}' if most > least else ''} {unit}"
    if "slices" in facts:
        yield f"slices      {facts['slices']:,}"
        yield f"cells       {facts['cells']:,} ({facts['empty_cells']:,} empty)"
    yield f"bytes       {facts['bytes']:,}"
    made = facts["made"]
    yield from _how(made, "made")
    for number, batch in enumerate(made.get("appended", []), 2):
        yield from _how(
            batch,
            f"batch {number}",
            f": {count_of(batch['documents'], 'document')}, {count_of(batch['tokens'], 'token')}",
        )


def _told_of_design(facts: dict[str, Any]) -> Iterator[str]:
    share = facts["entries"] / (facts["rows"] * facts["columns"])
    constant = f"{facts['constant_columns']:,} constant, {facts['empty_columns']:,} all 0"
    yield f"rows        {facts['rows']:,}"
    offsets = f"; {facts['offset_columns']:,} stored as differences from an offset" if facts["offset_columns"] else ""
    yield f"columns     {facts['columns']:,} ({constant}{offsets})"
    missing = f"; {facts['missing']:,} missing values" if facts["missing"] else ""
    yield f"entries     {facts['entries']:,}, density {share:.3%}; {FORMS[facts['form']]}{missing}"
    y = facts["y"]
    yield f"y           {y['low']:g} to {y['high']:g}, mean {y['mean']:g}" if y else "y           none, features only"


def missing_values_text(made: dict[str, Any]) -> str:
    """Return which values were missing in the rows left out of a design matrix."""
    return "y or covariates" if "covariates" in made.get("options", {}) else "y"


def _how(made: dict[str, Any], title: str, held: str = "") -> Iterator[str]:
    inputs = ", ".join(entry["name"] for entry in made.get("inputs", []))
    version = f" by ooc {made['ooc']}" if "ooc" in made else ""
    yield f"{title:<10}  from {made.get('kind', '?')} {inputs}{version}".rstrip() + held
    options = ", ".join(
        f"{name} {value}" for name, value in made.get("options", {}).items() if value is not None and value is not False
    )
    if options:
        yield f"            {options}"
    for why, what in made.get("dropped", {}).items():
        words = f"{count_of(what['words'], 'word')}, " if "words" in what else ""
        yield f"            {why} dropped {words}{count_of(what['tokens'], 'token')}"
    for why in ("duplicates", "unknown"):
        if made.get(why):
            yield f"            {count_of(made[why], 'rating')} left out: {_WHY[why]}"
    for kind, why in (("exact", "the same tokens as"), ("near", "nearly the same tokens as")):
        if made.get(f"{kind}_duplicates"):
            yield f"            {count_of(made[f'{kind}_duplicates'], 'document')} left out, with {why} an earlier one"
    if made.get("known"):
        yield f"            {count_of(made['known'], 'document')} left out, which the dataset already had"
    if made.get("without_y"):
        yield f"            {count_of(made['without_y'], 'row')} without {missing_values_text(made)} left out"
    if made.get("without_genotypes"):
        yield f"            {count_of(made['without_genotypes'], 'individual')} with covariates, but no genotypes"
    if made.get("queries"):
        yield "            qid, the query id of a row, was ignored"
    if made.get("skipped"):
        yield f"            {count_of(made['skipped'], 'bad record')} skipped, the first: {made['first_skipped']}"
