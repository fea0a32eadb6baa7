"""What a dataset holds and how it was made, as facts and as lines to read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from blocks.dataset import Dataset


def describe(dataset: Dataset) -> dict[str, Any]:
    """The facts of a dataset; JSON types only."""
    block_tokens = dataset.block_tokens()
    return {
        "path": str(dataset.path),
        "kind": dataset.manifest["kind"],
        "identity": dataset.identity,
        "documents": dataset.documents,
        "empty_documents": sum(
            int(np.count_nonzero(np.diff(dataset.block(number).offsets) == 0)) for number in range(dataset.block_count)
        ),
        "tokens": dataset.tokens,
        "vocabulary": dataset.vocabulary_size,
        "unused_words": int(np.count_nonzero(np.asarray(dataset.index.frequencies) == 0)),
        "named_documents": "documents" in dataset.manifest["texts"],
        "blocks": dataset.block_count,
        "block_tokens": {"least": int(block_tokens.min()), "most": int(block_tokens.max())},
        "slices": dataset.slice_count,
        "cells": dataset.block_count * dataset.slice_count,
        "empty_cells": int(np.count_nonzero(np.asarray(dataset.index.cells) == 0)),
        "bytes": sum(entry["bytes"] for _, entry in dataset.files()),
        "generation": dataset.manifest["generation"],
        "made": dataset.manifest["made"],
    }


def told(facts: dict[str, Any]) -> Iterator[str]:
    """Lines for a reader."""
    tokens = facts["block_tokens"]
    yield f"dataset     {facts['path']}"
    yield f"identity    {facts['identity']}"
    yield f"documents   {facts['documents']:,} ({facts['empty_documents']:,} empty)"
    yield f"tokens      {facts['tokens']:,}"
    yield f"vocabulary  {facts['vocabulary']:,} ({facts['unused_words']:,} of them never occur)"
    yield f"blocks      {facts['blocks']:,} of {tokens['least']:,} to {tokens['most']:,} tokens"
    yield f"slices      {facts['slices']:,}"
    yield f"cells       {facts['cells']:,} ({facts['empty_cells']:,} empty)"
    yield f"bytes       {facts['bytes']:,}"
    made = facts["made"]
    yield from _how(made, "made")
    for appended in made.get("appended", []):
        yield from _how(appended, "appended")


def _how(made: dict[str, Any], verb: str) -> Iterator[str]:
    inputs = ", ".join(entry["name"] for entry in made.get("inputs", []))
    version = f" by ooc {made['ooc']}" if "ooc" in made else ""
    yield f"{verb:<10}  from {made.get('kind', '?')} {inputs}{version}".rstrip()
    options = ", ".join(f"{name} {value}" for name, value in made.get("options", {}).items() if value is not None)
    if options:
        yield f"            {options}"
    for why, what in made.get("dropped", {}).items():
        words = f"{what['words']:,} words, " if "words" in what else ""
        yield f"            {why} dropped {words}{what['tokens']:,} tokens"
    if made.get("skipped"):
        yield f"            {made['skipped']:,} bad records skipped, the first: {made['first_skipped']}"
