"""Write the files of a whole corpus: slices, texts, index, and the manifest last."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from blocks.arrays import map_arrays, write_arrays
from blocks.corpus.dataset import CorpusIndex, Dataset, TokenBlock
from blocks.corpus.partition import PART_TOKENS
from blocks.ingestion.manifest import WrittenFileEntries, write_manifest


class RankedWords(NamedTuple):
    """The words of a corpus. For word_ids and slice_bounds see `CorpusIndex`; counts are in vocabulary order."""

    word_ids: np.ndarray
    slice_bounds: np.ndarray
    frequencies: np.ndarray  # int64 (V,), number of tokens of each word
    document_frequencies: np.ndarray  # int64 (V,), number of documents that contain each word


def write_slice(root: Path, file_name: str, blocks: Sequence[TokenBlock], first: int, last: int) -> dict[str, Any]:
    """Publish the runs of the words with ranks `first` to `last` (exclusive), collected from all blocks."""
    found = [np.searchsorted(block.words, (first, last)) for block in blocks]
    ranks = np.concatenate([block.words[low:high] for block, (low, high) in zip(blocks, found, strict=True)])
    starts = np.concatenate([block.word_offsets[low:high] for block, (low, high) in zip(blocks, found, strict=True)])
    ends = np.concatenate(
        [block.word_offsets[low + 1 : high + 1] for block, (low, high) in zip(blocks, found, strict=True)]
    )
    numbers = np.repeat(np.arange(len(blocks)), [high - low for low, high in found])
    order = np.argsort(ranks, kind="stable")
    lengths = (ends - starts)[order]
    words = ranks[order].astype(np.int64) - first
    arrays = {
        "run_offsets": _cumulated(np.bincount(words, minlength=last - first)),
        "blocks": numbers[order].astype(np.uint32),
        "starts": starts[order].astype(np.uint32),
        "lengths": lengths.astype(np.uint32),
        "token_offsets": _cumulated(np.bincount(words, weights=lengths, minlength=last - first)),
    }
    return write_arrays(root, file_name, arrays)


def _cumulated(counts: np.ndarray) -> np.ndarray:
    return np.concatenate(([0], np.cumsum(counts))).astype(np.int64)


def finish_corpus_files(
    root: Path,
    *,
    blocks: list[dict[str, Any]],
    words: RankedWords,
    texts: dict[str, dict[str, Any]],
    made: dict[str, Any],
    part_tokens: int = PART_TOKENS,
    generation: int = 0,
    planted: dict[str, Any] | None = None,
    shard: dict[str, Any] | None = None,
    table: dict[str, Any] | None = None,
) -> None:
    """Write the slices, the index and, last, the manifest for existing blocks.

    blocks: entries from `write_block`, in order.
    texts: entries of the "vocabulary" file and, if documents have names, the "documents" file.
    made: record of how the dataset was made.
    generation: number of appends so far; files of the previous generation are kept, so that the dataset stays valid
        until its manifest is replaced.
    planted: entry of the known topics of synthetic data.
    shard: "shard" entry of the manifest, see `blocks.shards.whole_dataset`.
    table: "table" entry of a document table.
    """
    suffix = f"-{generation}" if generation else ""
    slice_folder = f"slices{suffix}"
    (root / slice_folder).mkdir(exist_ok=True)
    mapped = [TokenBlock(**map_arrays(root / entry["file"], entry["arrays"])) for entry in blocks]
    slices = [
        write_slice(root, f"{slice_folder}/{number:05}.h5", mapped, int(first), int(last))
        for number, (first, last) in enumerate(pairwise(words.slice_bounds))
    ]
    cells = np.array([entry["cells"] for entry in blocks], np.int64).reshape(len(blocks), words.slice_bounds.size - 1)
    ids = words.word_ids
    counted = words.frequencies[ids], words.document_frequencies[ids]
    index = CorpusIndex(ids, *counted, words.slice_bounds, cells.reshape(-1))
    index_entry = write_arrays(root, f"index{suffix}.h5", index._asdict())
    counts = {
        "documents": sum(entry["documents"] for entry in blocks),
        "tokens": int(cells.sum()),
        "vocabulary_size": int(ids.size),
        "part_tokens": part_tokens,
    }
    files = WrittenFileEntries(index_entry, texts, blocks, slices)
    more: dict[str, Any] = {"planted": planted, "shard": shard, "table": table}
    write_manifest(root, Dataset, files, counts, made, generation=generation, **more)
