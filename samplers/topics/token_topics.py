"""Read the topic of each token from the final state of a run: to export it to other samplers, or as a table."""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import numpy as np

from blocks.corpus.dataset import Dataset, TokenBlock
from blocks.errors import RequestError
from blocks.number_spool import NumberSpool
from ooc.runs.run import Run
from ooc.state.cell_file import CellFile
from ooc.state.cell_layout import CellLayout
from ooc.state.generations import StateGenerations, committed_local_state
from samplers.external_sort import ReorderedRows
from samplers.topics.model import inverse_order, row_starts


class TokenTopics(NamedTuple):
    """The N tokens of D documents in original order, sorted by word within a document, and the state's priors."""

    offsets: np.ndarray  # int64 (D+1,), start of each document's tokens
    words: np.ndarray  # uint32 (N,), positions in the vocabulary
    topics: np.ndarray  # topic type (N,)
    alpha: np.ndarray  # float64 (K,)
    beta: float


class _FinalState(NamedTuple):
    """The final state of a run."""

    dataset: Dataset
    layout: CellLayout
    cells: CellFile
    alpha: np.ndarray  # float64 (K,)
    beta: float


@contextmanager
def _final_state(path: Path) -> Iterator[_FinalState]:
    """Open the final state of a run.

    Raises RequestError if the run has none.
    """
    run = Run(path)
    dataset = run.dataset(Dataset)
    state = run.scratch / "state"
    local = committed_local_state(state)
    if local is None:
        raise RequestError(f"{path} has no saved state yet", f"Train it with: ooc resume {path}")
    layout = CellLayout(dataset.index.cells, local)
    with run.locked():
        generations = StateGenerations(state, dataset, layout)
        alpha, beta = (np.array(generations.arrays()[name]) for name in ("alpha", "beta"))
        cells = generations.open()
        try:
            yield _FinalState(
                dataset, layout, cells, np.broadcast_to(alpha, run.spec.options["topics"]), float(beta[0])
            )
        finally:
            cells.close()


def read_assignments(path: Path) -> TokenTopics:
    """Return the tokens and topics of a topic model's run (8 bytes per token).

    Raises RequestError if the run has no state.
    """
    with _final_state(path) as state:
        return TokenTopics(*_read_tokens(state.dataset, state.layout, state.cells), state.alpha, state.beta)


def trained_topics(path: Path, directory: Path) -> Iterator[tuple[int, np.ndarray, np.ndarray, np.ndarray]]:
    """Yield the tokens of a topic model's run, some documents at a time, in original order.

    directory: where to create anonymous files.
    Yields the index of the first document, the number of tokens of each document, int64 (D,), and the words, uint32
    (N,), and topics, uint32 (N,), of these tokens.
    Raises RequestError if the run has no state.
    """
    with (
        _final_state(path) as state,
        NumberSpool(directory, "uint64") as spool,
        NumberSpool(directory, "uint32") as all_sizes,
    ):
        for block, words, topics in _blocks(state.dataset, state.layout, state.cells):
            all_sizes.add(np.diff(block.offsets))
            spool.add(topics.astype(np.uint64) << np.uint64(32) | words)
        order = (state.dataset.block(number).documents for number in range(state.dataset.block_count))
        source = inverse_order(order, state.dataset.documents)
        with ReorderedRows(directory, spool.mapped(-1), row_starts(all_sizes.mapped(-1)), source) as ordered:
            for first, last, numbers in ordered.runs():
                sizes = np.diff(ordered.offsets[first : last + 1])
                yield first, sizes, numbers.astype(np.uint32), (numbers >> np.uint64(32)).astype(np.uint32)


def _blocks(
    dataset: Dataset, layout: CellLayout, cells: CellFile
) -> Iterator[tuple[TokenBlock, np.ndarray, np.ndarray]]:
    """Yield each block with the words, uint32, and topics of its tokens in the order of its documents."""
    for stripe in range(layout.stripes):
        state, first = _read_stripe(layout, cells, stripe), layout.block_rows[layout.stripe_bounds[stripe]]
        for number in layout.section_units("block", stripe):
            block, span = dataset.block(number), slice(*layout.block_rows[number : number + 2] - first)
            ranks = np.repeat(block.words, np.diff(block.word_offsets))[block.positions]
            yield block, dataset.index.word_ids[ranks], state[span][block.positions]


def _read_tokens(dataset: Dataset, layout: CellLayout, cells: CellFile) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    lengths = np.zeros(dataset.documents, np.int64)
    for number in range(dataset.block_count):
        block = dataset.block(number)
        lengths[block.documents.astype(np.int64)] = np.diff(block.offsets)
    offsets = np.concatenate(([0], np.cumsum(lengths)))
    words, topics = np.empty(offsets[-1], np.uint32), np.empty(offsets[-1], layout.local.dtype)
    for block, of_words, of_topics in _blocks(dataset, layout, cells):
        places = _places(offsets, block.documents.astype(np.int64), block.offsets)
        words[places], topics[places] = of_words, of_topics
    return offsets, words, topics


def _places(offsets: np.ndarray, documents: np.ndarray, own: np.ndarray) -> np.ndarray:
    """Return the positions of the tokens of n documents among all tokens, int64.

    offsets: int64 (D+1,).
    documents: (n,), indices.
    own: (n+1,), start of each document among these documents' tokens.
    """
    return np.repeat(offsets[documents] - own[:-1], np.diff(own)) + np.arange(own[-1])


def _read_stripe(layout: CellLayout, cells: CellFile, stripe: int) -> np.ndarray:
    """Return the topics of the tokens in a stripe of blocks, in memory order."""
    first, last = layout.block_rows[layout.stripe_bounds[stripe : stripe + 2]]
    topics = np.empty(last - first, layout.local.dtype)
    for slice_ in range(layout.slices):
        rows = int(layout.tile_rows[stripe, slice_])
        if not rows:
            continue
        page = mmap.mmap(-1, rows * layout.row_bytes)
        tile = np.frombuffer(page, layout.local.dtype).reshape(rows, layout.local.width)
        cells.read(stripe, slice_, tile)
        for there, here in layout.tile_cells(stripe, slice_):
            topics[here] = tile[there, 0]
    return topics
