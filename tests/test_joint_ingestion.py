"""Ingestion by several machines: shards of what one machine would have made of all their files, or nothing at all."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from rings import in_all, tcp_rings
from text_files import files_of

from blocks import Dataset, RequestError, WorkFailed
from blocks.corpus.ingestion import ingest
from blocks.corpus.request import CorpusRequest
from blocks.corpus.vocabulary import WordFilters
from blocks.progress_bar import no_bar
from blocks.shards.splitting import make_shards
from blocks.shards.whole_dataset import check_shards_complete
from blocks.verify import verify_dataset
from ooc.ring.message_relay import MessageRelay


def ingest_all(requests: Sequence[CorpusRequest]) -> list[Dataset]:
    """What threads come to that ingest together."""

    def work(ring, request: CorpusRequest) -> Dataset:
        try:
            return ingest(request, workers=1, others=MessageRelay(ring))
        except Exception as error:
            ring.fail(str(error))
            raise

    with tcp_rings(len(requests), insecure=True) as rings:
        pairs = zip(rings, requests, strict=True)
        return in_all([lambda ring=ring, request=request: work(ring, request) for ring, request in pairs])


@pytest.mark.few(1)
@pytest.mark.parametrize("kind", ["jsonl", "text", "uci"])
def test_shards_are_those_of_what_one_machine_makes_of_all(tmp_path, bags, kind):
    """The same words, frequencies and slices, in total and in each shard; documents in the order of machines."""
    paths = files_of(tmp_path, kind)
    common = {"kind": kind, "lines": True, "block_tokens": 500, "filters": WordFilters(min_df=2, max_df=0.9), "seed": 3}
    whole = ingest(CorpusRequest(inputs=paths, out=str(tmp_path / "whole"), **common), workers=1)
    split = make_shards(whole.path, str(tmp_path / "split"), len(paths), workers=1)[0]
    shards = ingest_all(
        [CorpusRequest(inputs=[path], out=str(tmp_path / f"out-{rank}"), **common) for rank, path in enumerate(paths)]
    )
    check_shards_complete({str(one.path): one.manifest["shard"] for one in shards})
    numbers = np.concatenate([one.originals() for one in shards])
    assert numbers.tolist() == list(range(whole.documents))
    assert [bag for one in shards for bag in bags(one)] == bags(whole)
    for one in shards:
        told, expected = one.manifest["shard"]["whole"], split.manifest["shard"]["whole"]
        assert {name: told[name] for name in ("documents", "tokens", "hash")} == {
            name: expected[name] for name in ("documents", "tokens", "hash")
        }
        assert one.vocabulary() == whole.vocabulary()
        assert np.array_equal(one.index.word_ids, split.index.word_ids)
        assert np.array_equal(one.index.slice_bounds, split.index.slice_bounds)
        assert np.array_equal(one.whole.frequencies, split.whole.frequencies)
        assert one.manifest["made"]["dropped"] == whole.manifest["made"]["dropped"]
        assert verify_dataset(one, no_bar).problems == []
        if kind == "jsonl":
            assert one.document_names() == [whole.document_names()[number] for number in one.originals()]
    assert sum(one.tokens for one in shards) == whole.tokens
    assert sum(one.index.frequencies for one in shards).tolist() == split.whole.frequencies.tolist()


@pytest.mark.parametrize("bad", ["input", "place", "words"])
def test_nothing_is_left_of_any_if_one_fails(tmp_path, bad):
    paths = files_of(tmp_path, "jsonl")
    requests = [CorpusRequest("jsonl", [path], str(tmp_path / f"out-{rank}")) for rank, path in enumerate(paths)]
    if bad == "input":
        Path(paths[1]).write_text(json.dumps({"text": 1}) + "\n")
    elif bad == "words":
        Path(paths[1]).write_text(json.dumps({"text": "the"}) + "\n")
    else:
        (tmp_path / "out-2").write_text("")
    before = sorted(tmp_path.iterdir())
    with pytest.raises((RequestError, WorkFailed)):
        ingest_all(requests)
    assert sorted(tmp_path.iterdir()) == before


def test_a_vocabulary_is_not_shared_and_given(tmp_path):
    path = files_of(tmp_path, "jsonl")[0]
    with pytest.raises(RequestError, match="build a new vocabulary together"):
        ingest_all([CorpusRequest("jsonl", [path], str(tmp_path / "out"), vocab_from="x")])


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_long_messages_reach_all(ranks):
    long = [bytes([65 + rank]) * (2_500_000 * rank) for rank in range(ranks)]

    def work(ring) -> tuple[list[bytes], bytes]:
        talk = MessageRelay(ring)
        heard = list(talk.gather(long[ring.rank]))
        return heard, talk.spread(long[-1] if ring.rank == 0 else b"nothing")

    with tcp_rings(ranks, insecure=True) as rings:
        answers = in_all([lambda ring=ring: work(ring) for ring in rings])
    assert [heard for heard, _ in answers] == [long, *[[]] * (ranks - 1)]
    assert {said for _, said in answers} == {long[-1]}
