"""Datasets from arrays: what was written is read back, and its counts agree."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from corpora import tiny_dataset, tree
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from blocks import Dataset, RequestError, WorkFailed, ingest_documents, write_corpus
from blocks.arrays import map_arrays
from blocks.corpus.partition import DROPPED, blocks_of_buckets
from blocks.files import file_lock
from blocks.shuffle import document_bucket, partition
from blocks.verify import repair_dataset, verify_dataset

documents = st.lists(st.lists(st.sampled_from("abcdefgh"), max_size=9), min_size=1, max_size=30).filter(any)


def no_bar(*_):
    from tqdm import tqdm

    return tqdm(disable=True)


def test_what_is_mapped_cannot_be_written_to_and_neither_can_what_is_empty(tmp_path):
    """To Numba an array that can be is of another type, for which it would compile its kernels again."""
    dataset = tiny_dataset(tmp_path / "data", [[0]], 3, slices=3)
    slices = [dataset.slice(number) for number in range(dataset.slice_count)]
    assert any(slice_.blocks.size == 0 for slice_ in slices)
    assert not any(array.flags.writeable for slice_ in slices for array in slice_)


@given(documents, st.integers(1, 40), st.integers(1, 5), st.integers(0, 3))
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_documents_come_back(tmp_path, bags, lists, block_tokens, slices, seed):
    dataset = ingest_documents(
        lists, tmp_path / "data", block_tokens=block_tokens, slices=slices, seed=seed, overwrite=True
    )
    assert bags(dataset) == [Counter(tokens) for tokens in lists]
    assert dataset.block_tokens().min() > 0
    assert not verify_dataset(dataset, no_bar).problems


def test_slices_find_the_tokens_of_their_words(tmp_path):
    generator = np.random.default_rng(1)
    offsets = np.arange(0, 2001, 20)
    words = generator.zipf(1.5, 2000).clip(max=50).astype(np.uint32) - 1
    names = [f"word{number}" for number in range(50)]
    dataset = write_corpus(tmp_path / "data", offsets, words, names, block_tokens=300, slices=4)
    frequencies = np.bincount(words, minlength=50)
    assert np.array_equal(dataset.index.frequencies, frequencies[dataset.index.word_ids])
    for number, (first, last) in enumerate(pairwise(dataset.index.slice_bounds)):
        part = dataset.slice(number)
        assert np.array_equal(np.diff(part.token_offsets), dataset.index.frequencies[first:last])
        for block, start, length in zip(part.blocks, part.starts, part.lengths, strict=True):
            assert start in dataset.block(block).word_offsets
            assert start + length <= dataset.block_tokens()[block]
    expected = [len({d for d in range(100) if w in words[offsets[d] : offsets[d + 1]]}) for w in range(50)]
    assert np.array_equal(dataset.index.document_frequencies, np.array(expected)[dataset.index.word_ids])


def test_seed_decides_the_order_of_documents(tmp_path):
    lists = [[f"w{number}"] for number in range(200)]
    orders = [
        np.array(ingest_documents(lists, tmp_path / f"{run}", seed=seed).block(0).documents)
        for run, seed in enumerate((0, 0, 1))
    ]
    assert np.array_equal(orders[0], orders[1])
    assert not np.array_equal(orders[0], orders[2])
    assert not np.array_equal(orders[0], np.arange(200))


def test_vocabulary_of_another_dataset_keeps_ranks(tmp_path):
    first = ingest_documents([["a", "b", "b"], ["c"]], tmp_path / "first", slices=2)
    second = ingest_documents([["c", "c", "x"], []], tmp_path / "second", vocab_from=first.path)
    assert np.array_equal(first.index.word_ids, second.index.word_ids)
    assert np.array_equal(first.index.slice_bounds, second.index.slice_bounds)
    assert (second.documents, second.tokens) == (2, 2)


def test_words_with_odd_letters_and_names_come_back(tmp_path):
    words = ["a\rb", "\u2028", "naïve", "日本"]
    dataset = ingest_documents([words], tmp_path / "data", names=["ein\x85name"])
    assert dataset.vocabulary() == sorted(words)
    assert dataset.document_names() == ["ein name"]  # one line, as of files


@pytest.mark.parametrize(
    ("offsets", "words", "names", "complaint"),
    [
        ([0, 0], [], None, "no tokens"),
        ([0, 1], [0, 0], None, "offsets"),
        ([0, 2], [0, 3], None, "word id 3"),
        ([0, 2], [0, 0], ["a", "b"], "names has 2 elements"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(tmp_path, offsets, words, names, complaint):
    with pytest.raises(RequestError, match=complaint):
        write_corpus(tmp_path / "data", np.array(offsets), np.array(words, np.uint32), ["a", "b", "c"], names=names)
    assert list(tmp_path.iterdir()) == []


def test_overwriting_is_explicit(tmp_path):
    ingest_documents([["a"]], tmp_path / "data")
    with pytest.raises(RequestError, match="already exists"):
        ingest_documents([["b"]], tmp_path / "data")
    assert ingest_documents([["b"]], tmp_path / "data", overwrite=True).vocabulary() == ["b"]
    assert [path.name for path in tmp_path.iterdir()] == ["data"]


@given(
    st.lists(st.lists(st.integers(0, 5), max_size=6), max_size=20),
    st.integers(0, 2**40),
    st.integers(0, 9),
    st.integers(1, 7),
)
@settings(max_examples=50, deadline=None)
def test_partition_keeps_order_and_drops(lists, first, seed, buckets):
    ranks = np.array([DROPPED if rank == 0 else rank for tokens in lists for rank in tokens], np.uint32)
    lengths = np.array([len(tokens) for tokens in lists], np.uint32)
    numbers, kept_lengths, kept, document_bounds, token_bounds = partition(ranks, lengths, first, seed, buckets)
    expected = sorted(range(len(lists)), key=lambda d: document_bucket(first + d, seed, buckets))
    assert numbers.tolist() == [first + d for d in expected]
    assert kept_lengths.tolist() == [sum(rank > 0 for rank in lists[d]) for d in expected]
    assert kept.tolist() == [rank for d in expected for rank in lists[d] if rank > 0]
    assert (document_bounds[-1], token_bounds[-1]) == (len(lists), kept.size)


def test_no_block_is_without_tokens():
    assert blocks_of_buckets(np.array([0, 3, 0, 0, 2, 0])).tolist() == [0, 4, 6]
    assert blocks_of_buckets(np.array([5])).tolist() == [0, 1]


@pytest.mark.parametrize(
    ("pattern", "remedy"),
    [
        ("blocks/00000.h5", "3 of 4 blocks are undamaged"),
        ("slices/00000.h5", "damaged files can be made from them"),
        ("index.h5", "no document is lost"),
        ("vocabulary.txt", "no document is lost"),
    ],
)
def test_damage_is_named_with_what_can_be_done(tmp_path, pattern, remedy):
    lists = [["a", "b", f"c{number % 7}"] for number in range(100)]
    dataset = ingest_documents(lists, tmp_path / "data", block_tokens=75, slices=2)
    damaged = dataset.path / pattern
    content = bytearray(damaged.read_bytes())
    content[-1] ^= 1
    damaged.write_bytes(content)
    report = verify_dataset(dataset, no_bar)
    assert [str(damaged) in problem for problem in report.problems] == [True]
    assert remedy in " ".join(report.remedies)
    damaged.unlink()
    assert "missing" in verify_dataset(dataset, no_bar).problems[0]


def test_slices_are_repaired_from_whole_blocks_only(tmp_path):
    """To the byte; a block that is damaged, too, leaves everything as it is."""
    lists = [["a", "b", f"c{number % 7}"] for number in range(100)]
    dataset = ingest_documents(lists, tmp_path / "data", block_tokens=75, slices=3)
    whole = tree(dataset.path)
    assert not repair_dataset(dataset.path, verify_dataset(dataset, no_bar))
    (dataset.path / "slices/00000.h5").unlink()
    (dataset.path / "slices/00002.h5").write_bytes(b"nonsense")
    block = dataset.path / "blocks/00001.h5"
    content = block.read_bytes()
    block.write_bytes(content[:-1] + b"!")
    damaged = tree(dataset.path)
    assert not repair_dataset(dataset.path, verify_dataset(dataset, no_bar))
    assert tree(dataset.path) == damaged
    block.write_bytes(content)
    report = verify_dataset(dataset, no_bar)
    with file_lock(dataset.path), pytest.raises(RequestError, match="is appending"):
        repair_dataset(dataset.path, report)
    assert repair_dataset(dataset.path, report)
    assert tree(dataset.path) == whole


def test_a_truncated_block_is_an_error_that_names_it(tmp_path):
    dataset = ingest_documents([["a", "b"]], tmp_path / "data")
    block = dataset.path / "blocks/00000.h5"
    block.write_bytes(block.read_bytes()[:-10])
    with pytest.raises(WorkFailed, match=r"00000\.h5 is damaged"):
        Dataset(dataset.path).block(0)


def test_a_file_system_that_cannot_map_files_is_named():
    """One that the kernel makes up."""
    path = Path("/sys/kernel/mm/transparent_hugepage/enabled")
    if not path.exists():
        pytest.skip(f"there is no {path}")
    with pytest.raises(WorkFailed, match=f"{path}: the file system cannot map"):
        map_arrays(path, {"words": (0, "uint8", 1)})
