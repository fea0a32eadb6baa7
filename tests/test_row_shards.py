"""Shards of a design matrix: its rows, each once, in their order, and what they know of the whole."""

from __future__ import annotations

import json

import numpy as np
import pytest
from designs import ingested, read_back, write

from blocks import Design, RequestError
from blocks.design.design import DenseDesignBlock
from blocks.design.row_shards import DesignRowShard, block_rows
from blocks.shards.splitting import make_shards
from blocks.verify import verify_dataset, verify_shards
from ooc.cli.console import progress_bar

FORMS = ("sparse", "ones", "float32", "int8")


@pytest.fixture(params=FORMS)
def whole(request, tmp_path) -> Design:
    random = np.random.default_rng(1)
    x = random.integers(-9, 9, (40, 23)) + 0.5
    if request.param in ("sparse", "ones"):
        x[random.random(x.shape) < 0.8] = 0
        x[x != 0] = 1 if request.param == "ones" else x[x != 0]
    if request.param == "int8":
        x = np.rint(x)
    x[:15, 4] = 0  # nothing is left of it for the first shard
    source, options = write("npz-C", x, random.normal(size=40), tmp_path)
    design = ingested("npz", source, tmp_path / "whole", block_bytes=400, **options)
    assert (design.form, design.block_count > 2) == (request.param, True)
    return design


def test_values_that_are_missing_stay_so():
    rows, at = np.array([1, 5, 9, 0, 5], np.uint32), np.array([0, 3, 3, 5])
    part = block_rows(DenseDesignBlock(np.arange(30).reshape(3, 10), at, rows), 5, 10)
    assert np.array_equal(part.values, np.arange(30).reshape(3, 10)[:, 5:])
    assert (part.missing_offsets.tolist(), part.missing_rows.tolist()) == ([0, 2, 2, 3], [0, 4, 0])


@pytest.mark.few(2)
@pytest.mark.parametrize("shards", [1, 3])
def test_shards_have_all_rows_and_know_the_whole(whole, tmp_path, shards):
    out = tmp_path / "shards"
    made = make_shards(whole.path, str(out), shards)
    parts = [DesignRowShard(shard.path) for shard in made]
    rows = [read_back(Design(shard.path)) for shard in made]
    assert [part.own.stop - part.own.start for part in parts] == [len(some) for some in rows]
    filled = read_back(whole)
    for part, own in zip(parts, rows, strict=True):
        assert part.rows == whole.rows
        assert np.array_equal(part.y, whole.y)
        for name in ("means", "norms", "deviations"):
            assert np.array_equal(getattr(part, name), getattr(whole, name))
        assert np.array_equal(own, filled[part.own])
    assert sum(shard.entries for shard in made) == whole.entries
    assert verify_shards(out, progress_bar).problems == []


@pytest.mark.few(2)
def test_a_shard_that_knows_other_labels_is_damaged(whole, tmp_path):
    shard = make_shards(whole.path, str(tmp_path / "shards"), 2)[1]
    manifest = json.loads((shard.path / "manifest.json").read_text())
    manifest["shard"]["number"] = 0
    del manifest["checksum"]
    (shard.path / "manifest.json").write_text(json.dumps(manifest))
    assert (
        "its labels differ from the labels of the same rows in the whole dataset"
        in verify_dataset(Design(shard.path), progress_bar).problems[0]
    )


@pytest.mark.few(2)
def test_what_cannot_be_split_is_told(whole, tmp_path):
    with pytest.raises(RequestError, match="40 rows cannot be split into 41 shards"):
        make_shards(whole.path, str(tmp_path / "shards"), 41)
    assert not (tmp_path / "shards").exists()
    with pytest.raises(RequestError, match="is a whole dataset; expected a shard"):
        DesignRowShard(whole.path)
    (shard,) = make_shards(whole.path, str(tmp_path / "shards"), 1)
    with pytest.raises(RequestError, match="is already a shard"):
        make_shards(shard.path, str(tmp_path / "others"), 2)
