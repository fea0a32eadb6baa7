"""Worker process of `ooc shard`: write each shard's part of a block."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from blocks.compiler import compile_kernels
from blocks.corpus.block_writer import word_major, write_block
from blocks.corpus.dataset import Dataset, TokenBlock
from blocks.files import disk_errors
from blocks.kinds import open_grid
from blocks.ratings.matrix import Matrix, MatrixRowBlock
from blocks.ratings.matrix_writer import publish_rows
from blocks.ratings.transposition import WriteColumnsTask, spill_columns, write_columns
from blocks.shards.splitting import BlockShare, SplitBlockTask, SplitSettings, documents_file, require_whole


class SplitWorker:
    """Handles `SplitBlockTask` and, for matrices, `WriteColumnsTask`."""

    def __init__(self, splitting: SplitSettings) -> None:
        self._splitting = splitting
        self._whole: Dataset | Matrix = open_grid(Path(splitting.whole))
        self._places = np.memmap(splitting.places, np.uint64, "r")

    def __call__(self, message: SplitBlockTask | WriteColumnsTask) -> Any:
        """Handle a message."""
        with disk_errors(self._splitting.targets[0].root):
            return self._split(message) if isinstance(message, SplitBlockTask) else write_columns(message)

    def _split(self, message: SplitBlockTask) -> list[tuple[int, dict[str, Any]]]:
        entry = self._whole.manifest["blocks"][message.number]
        require_whole(self._whole, self._whole.path / entry["file"], entry)
        block = self._whole.block(message.number)
        if isinstance(block, MatrixRowBlock):
            return [(share.shard, self._write_rows(block, share)) for share in message.shares]
        words = self._splitting.rank_of[block.words]
        ranks = np.repeat(words, np.diff(block.word_offsets))[block.positions]
        return [(share.shard, self._write_documents(block, ranks, share)) for share in message.shares]

    def _write_documents(self, block: TokenBlock, ranks: np.ndarray, share: BlockShare) -> dict[str, Any]:
        """Write the documents of a share.

        ranks: uint32 (N,), ranks of the block's tokens in document order.
        """
        target = self._splitting.targets[share.shard]
        documents, tokens = _of_runs(share, block.documents), _of_items(share, block.offsets, ranks)
        offsets = _offsets(share, block.offsets)
        bounds = self._splitting.slice_bounds
        entry = write_block(target.root, share.number, self._places[documents], offsets, tokens, bounds)
        first = np.append(True, tokens[1:] != tokens[:-1])  # first token of its word in its document; tokens are sorted
        first[offsets[:-1][offsets[:-1] < tokens.size]] = True
        _, counts = np.unique(tokens[first], return_counts=True)
        documents_file(target, share.number).write_bytes(counts.astype(np.uint32).data)
        return entry

    def _write_rows(self, block: MatrixRowBlock, share: BlockShare) -> dict[str, Any]:
        target = self._splitting.targets[share.shard]
        offsets = _offsets(share, block.offsets)
        columns = self._splitting.rank_of[_of_items(share, block.offsets, block.columns)]
        rows = np.repeat(np.arange(offsets.size - 1, dtype=np.uint64), np.diff(offsets))
        order = np.argsort(rows << np.uint64(32) | columns, kind="stable")
        written = MatrixRowBlock(
            self._places[_of_runs(share, block.rows)].astype(np.uint32),
            offsets,
            columns[order],
            _of_items(share, block.offsets, block.values)[order],
        )
        entry = publish_rows(target.root, share.number, written, self._splitting.slice_bounds)
        spill_columns(target.spill, entry["file"], written)
        return entry


def _of_runs(share: BlockShare, array: np.ndarray) -> np.ndarray:
    """Return the elements of an array that belong to the documents of a share."""
    return np.concatenate([array[first:last] for first, last in share.runs])


def _of_items(share: BlockShare, offsets: np.ndarray, array: np.ndarray) -> np.ndarray:
    """Return the elements of an array that belong to the tokens of a share's documents.

    offsets: start of each document in the array.
    """
    return np.concatenate([array[offsets[first] : offsets[last]] for first, last in share.runs])


def _offsets(share: BlockShare, offsets: np.ndarray) -> np.ndarray:
    """Return the start of each document of a share among the share's tokens, int64."""
    return np.concatenate(([0], np.cumsum(_of_runs(share, np.diff(offsets))))).astype(np.int64)


def _warm_up() -> None:
    word_major(np.empty(0, np.uint32), np.zeros(1, np.int64), 1)


def start(splitting: SplitSettings) -> SplitWorker:
    """Return the message handler for `blocks.workers.WorkerPool`."""
    compile_kernels(_warm_up)
    return SplitWorker(splitting)
