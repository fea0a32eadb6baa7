"""Shards of a dataset: together they are the whole, each is a dataset of its own, and a slice means the same in all."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from corpora import corpora, kill_once_there, names_of_words, small_dataset, tiny_dataset, tree, written
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from long_mark import long_but
from rating_files import read_back

from blocks import Dataset, RequestError, WorkFailed, write_corpus
from blocks.kinds import open_any
from blocks.progress_bar import no_bar
from blocks.ratings.ingestion import ingest_ratings
from blocks.ratings.matrix import Matrix
from blocks.ratings.request import RatingsRequest
from blocks.shards import splitting as shards_module
from blocks.shards.document_distribution import FINE, deal_documents
from blocks.shards.splitting import make_shards
from blocks.shards.whole_dataset import check_shards_complete, ranked_columns, shard_paths
from blocks.shards.worker import SplitWorker
from blocks.verify import repair_dataset, verify_dataset, verify_shards


class InlineSplitWorkers:
    """Instead of worker processes, which take half a second to start: the messages are answered in this one."""

    def __init__(self, _: str, argument: Any, __: int) -> None:
        self._handler = SplitWorker(argument)

    def __enter__(self) -> InlineSplitWorkers:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def map_numbered(self, messages: Any, done: Any) -> list[Any]:
        return [(self._handler(message), done())[0] for message in messages]


@pytest.fixture(scope="module")
def here() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shards_module, "WorkerPool", InlineSplitWorkers)
        yield


@contextmanager
def split(whole: Dataset | Matrix, shards: int) -> Iterator[list[Any]]:
    with tempfile.TemporaryDirectory() as directory:
        yield make_shards(whole.path, f"{directory}/out", shards)
        assert [path.name for path in Path(directory).iterdir()] == ["out"]


def told(shards: list[Any]) -> dict[str, Any]:
    return {str(one.path): one.manifest.get("shard") for one in shards}


def check_shards(whole: Dataset | Matrix, shards: list[Any]) -> None:
    """What holds for corpora and matrices."""
    check_shards_complete(told(shards))
    assert [(one.shard, one.shards) for one in shards] == [(number, len(shards)) for number in range(len(shards))]
    assert (whole.shard, whole.shards) == (0, 1)
    expected = ranked_columns(shards[0])
    assert expected.slice_bounds.size - 1 >= 2 * len(shards) + 2
    in_order = {}
    for dataset in (whole, *shards):
        columns = ranked_columns(dataset)
        counts = dataset.whole.column_entries if isinstance(dataset, Matrix) else dataset.whole.frequencies
        in_order[str(dataset.path)] = counts[np.argsort(columns.ids)].tolist()
        if dataset is not whole:
            assert np.array_equal(columns.ids, expected.ids)
            assert np.array_equal(columns.slice_bounds, expected.slice_bounds)
            assert dataset.whole[:2] == whole.whole[:2]
            assert verify_dataset(dataset, no_bar).problems == []
    assert len(set(map(tuple, in_order.values()))) == 1
    samples = [one.samples for one in shards]
    assert sum(samples) == whole.samples
    assert min(samples) > 0
    longest = max(entry["longest"] for entry in whole.manifest["blocks"])
    assert max(samples) - min(samples) <= whole.samples // (FINE * len(shards)) + longest
    assert sorted(number for one in shards for number in one.originals().tolist()) == whole.originals().tolist()


@given(corpora(), st.integers(1, 5), st.booleans())
@hypothesis_settings(max_examples=25)
def test_the_shards_of_a_corpus_are_its_documents(bags, here, corpus, count, named):
    names = [f"document {number}" for number in range(corpus["offsets"].size - 1)] if named else None
    with written({**corpus, "names": names}) as whole:
        expected = bags(whole)
        if (found := sum(map(bool, expected))) < count:
            with pytest.raises(RequestError, match=f"has {found} nonempty documents, too few for {count} shards"):
                make_shards(whole.path, str(whole.path.with_name("out")), count)
            assert list(whole.path.parent.iterdir()) == [whole.path]
            return
        with split(whole, count) as shards:
            check_shards(whole, shards)
            for one in shards:
                originals = one.originals().tolist()
                assert originals == sorted(originals)
                mine = bags(one)
                assert mine == [expected[number] for number in originals]
                assert one.vocabulary() == whole.vocabulary()
                assert one.document_names() == (names and [names[number] for number in originals])
                words = [one.vocabulary()[word] for word in one.index.word_ids]
                own, documents = sum(mine, Counter()), sum((Counter(set(bag)) for bag in mine), Counter())
                assert one.index.frequencies.tolist() == [own[word] for word in words]
                assert one.index.document_frequencies.tolist() == [documents[word] for word in words]
                assert one.part_size == whole.part_size


def ratings(path: Path, lines: list[tuple[int, int, float]], **options: Any) -> Matrix:
    path.mkdir(exist_ok=True)
    (path / "ratings.txt").write_text("".join(f"u{user}\ti{item}\t{value}\n" for user, item, value in lines))
    request = RatingsRequest([str(path / "ratings.txt")], str(path / "matrix"), **options)
    return ingest_ratings(request, workers=1)


def random_ratings(seed: int, size: int, users: int = 90, items: int = 40) -> list[tuple[int, int, float]]:
    random = np.random.default_rng(seed)
    pairs = zip(random.integers(0, users, size).tolist(), (random.zipf(1.3, size) % items).tolist(), strict=True)
    return [(user, item, float(value)) for (user, item), value in zip(pairs, random.integers(1, 11, size), strict=True)]


@pytest.mark.few(4)
@pytest.mark.parametrize(("count", "size", "grid"), [(1, 1, 1), (2, 30, 1), (3, 200, 3), (5, 2000, 16), (2, 900, 8)])
def test_the_shards_of_a_matrix_are_its_rows(tmp_path, here, count, size, grid):
    whole = ratings(tmp_path, random_ratings(size, size), grid=grid)
    expected, names = read_back(whole), whole.row_names()
    with split(whole, count) as shards:
        check_shards(whole, shards)
        found: dict[tuple[str, str], float] = {}
        for one in shards:
            mine = read_back(one)
            assert mine == read_back(one, by_column=True)
            assert not mine.keys() & found.keys()
            found |= mine
            assert one.row_names() == [names[number] for number in one.originals().tolist()]
            assert one.column_names() == whole.column_names()
            assert (one.whole.mean, one.whole.deviation) == (whole.mean, whole.deviation)
            for first, last in pairwise(one.index.block_bounds.tolist()):
                assert first < last
        assert found == expected


def test_names_without_ratings_are_kept_once(tmp_path, here):
    base = ratings(tmp_path / "base", random_ratings(1, 300))
    whole = ratings(tmp_path / "new", random_ratings(2, 40), names_from=str(base.path))
    assert whole.rows < len(whole.row_names())
    with split(whole, 3) as shards:
        check_shards(whole, shards)
        assert sorted(name for one in shards for name in one.row_names()) == sorted(base.row_names())


def test_documents_of_very_different_lengths(tmp_path, bags, here):
    whole = tiny_dataset(tmp_path / "whole", [[0] * 100_000, *([n] for n in range(1, 9)), []], 12)
    with split(whole, 9) as shards:
        check_shards(whole, shards)
        assert [one.tokens for one in shards] == [100_000, *[1] * 8]
    with pytest.raises(RequestError, match="9 nonempty documents, too few for 10 shards"):
        make_shards(whole.path, str(tmp_path / "out"), 10)


@pytest.mark.long
def test_many_blocks_stay_whole_and_enough_slices_as_they_are(tmp_path, here):
    documents = [[n % 7, (n * n) % 7, n % 5] for n in range(3000)]
    whole = tiny_dataset(tmp_path / "whole", documents, 7, block_tokens=50, slices=7)
    assert whole.block_count >= FINE * 2
    assert all(len(of_block) == 1 for of_block in deal_documents(whole, 2))
    with split(whole, 2) as shards:
        check_shards(whole, shards)
        assert sum(one.block_count for one in shards) == whole.block_count
        assert np.array_equal(shards[0].index.word_ids, whole.index.word_ids)
        assert np.array_equal(shards[0].index.slice_bounds, whole.index.slice_bounds)


def test_a_shard_gets_about_as_much_of_every_block(tmp_path, here):
    whole = small_dataset(tmp_path / "whole", documents=600)
    with split(whole, 3) as shards:
        for one in shards:
            assert one.block_count == whole.block_count
            assert one.block_tokens().max() < 1.5 * whole.block_tokens().max() / 3


@pytest.fixture(scope="module")
def corpus(tmp_path_factory) -> Dataset:
    return small_dataset(tmp_path_factory.mktemp("shards") / "corpus")


def test_workers_do_not_change_the_shards(tmp_path, corpus):
    trees = []
    for workers in (1, 3):
        make_shards(corpus.path, str(tmp_path / "out"), 3, workers=workers, overwrite=workers > 1)
        trees.append(tree(tmp_path / "out"))
    assert trees[0] == trees[1]
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    assert len(shard_paths(tmp_path / "out")) == 3


@pytest.mark.parametrize("kind", ["corpus", "matrix"])
def test_damaged_slices_of_a_shard_are_written_anew(tmp_path, here, corpus, kind):
    whole = corpus if kind == "corpus" else ratings(tmp_path / "ratings", random_ratings(3, 500), grid=4)
    for one in make_shards(whole.path, str(tmp_path / "out"), 2):
        before = tree(one.path)
        for entry in one.manifest["slices"][1:3]:
            (one.path / entry["file"]).write_bytes(b"nonsense")
        report = verify_dataset(one, no_bar)
        assert len(report.problems) == 2
        assert repair_dataset(one.path, report)
        assert tree(one.path) == before
        (one.path / "whole.h5").unlink()
        assert "whole.h5: missing" in verify_dataset(one, no_bar).problems[0]


def test_a_damaged_whole_is_not_split(tmp_path, corpus):
    shutil.copytree(corpus.path, tmp_path / "whole")
    for name in ("blocks/00003.h5", "index.h5", "vocabulary.txt"):
        content = (tmp_path / "whole" / name).read_bytes()
        (tmp_path / "whole" / name).write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
        with pytest.raises(WorkFailed, match=rf"{name}(: its checksum does not match| is damaged)"):
            make_shards(tmp_path / "whole", str(tmp_path / "out"), 2, workers=1)
        (tmp_path / "whole" / name).write_bytes(content)
    assert [path.name for path in tmp_path.iterdir()] == ["whole"]


def test_shards_that_do_not_belong_together_are_told(tmp_path, here, corpus):
    a, b, c = make_shards(corpus.path, str(tmp_path / "three"), 3)
    other = write_corpus(
        tmp_path / "other", np.array([0, 2, 3, 4]), np.array([0, 1, 2, 0], np.uint32), names_of_words(200)
    )
    x, _ = make_shards(corpus.path, str(tmp_path / "two"), 2)
    y, _ = make_shards(other.path, str(tmp_path / "others"), 2)
    check_shards_complete(told([c, a, b]))
    for mixed, complaint in (
        ([a, b], "shard 2 of 3 is missing"),
        ([a, b, c, corpus], "corpus is a whole dataset; expected a shard"),
        ([a, y], "are not shards of the same dataset"),
        ([x, b], "not shards of the same dataset and the same split"),
    ):
        with pytest.raises(RequestError, match=complaint):
            check_shards_complete(told(mixed))
    shutil.copytree(a.path, tmp_path / "again")
    with pytest.raises(RequestError, match="are both shard 0"):
        check_shards_complete(told([a, b, c, Dataset(tmp_path / "again")]))
    assert verify_shards(tmp_path / "three", no_bar).problems == []
    shutil.rmtree(c.path)
    shutil.copytree(y.path, c.path)
    assert "not shards of the same dataset" in verify_shards(tmp_path / "three", no_bar).problems[0]


@pytest.mark.parametrize(
    ("field", "value", "complaint"),
    [("tokens", 5, "do not sum to the"), ("hash", "0", "are not those of the whole dataset")],
)
def test_a_shard_that_says_something_else_of_its_whole_is_told(tmp_path, here, corpus, field, value, complaint):
    one = make_shards(corpus.path, str(tmp_path / "out"), 2)[1]
    one.manifest["shard"]["whole"][field] = value
    (one.path / "manifest.json").write_text(json.dumps(one.manifest))
    assert complaint in verify_dataset(Dataset(one.path), no_bar).problems[0]


def test_from_the_command_line_to_a_model(tmp_path, ooc, corpus):
    made = ooc("shard", corpus.path, "out", "--shards", 2, "--workers", 1)
    assert made.returncode == 0, made.stderr
    assert made.stdout.startswith(
        "out/shard-0: 147 documents, 4,619 tokens, vocabulary of 200 words, 10 blocks x 6 slices\n"
    )
    assert f"shard       1 of 2 of {corpus.identity}, which has 300 documents" in ooc("info", "out/shard-1").stdout
    assert len(json.loads(ooc("info", "out", "--json").stdout)["shards"]) == 2
    assert "no damage found" in ooc("verify", "out").stdout
    options = ["--topics", 4, "--iterations", 3, "--workers", 1]
    trained = ooc("train", "lda", "out/shard-1", "run", *options)
    assert trained.returncode == 0, trained.stderr

    refused = ooc("shard", corpus.path, "out", "--shards", 3)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert refused.stderr.startswith("ooc: out already exists\n")
    again = ooc("shard", corpus.path, "out", "--shards", 1, "--overwrite", "--json")
    assert json.loads(again.stdout)["shards"][0]["shard"]["shards"] == 1
    assert [path.name for path in shard_paths(tmp_path / "out")] == ["shard-0"]
    for arguments, complaint in (
        (["shard", corpus.path, "more", "--shards", 0], "Invalid value for '--shards'"),
        (["ingest", "text", "--lines", "-", "out/shard-0", "--append"], "out/shard-0 is a shard"),
        (["ingest", "text", "--lines", "-", "out", "--append", "--shards", 2], "--append and --shards"),
    ):
        ended = ooc(*arguments, input="a line of words\n")
        assert ended.returncode == 2
        assert complaint in ended.stderr.splitlines()[0], ended.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "run"]


def test_requests_that_make_no_sense_are_refused(tmp_path, here, corpus):
    (one,) = make_shards(corpus.path, str(tmp_path / "out"), 1)
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.json").touch()
    before = tree(corpus.path)
    for data, out, count, complaint in (
        (corpus.path, tmp_path / "more", 0, "--shards must be at least 1, got 0"),
        (corpus.path, tmp_path / "more", 301, "too few for 301 shards"),
        (corpus.path, corpus.path, 2, "is the dataset itself"),
        (corpus.path, tmp_path / "run", 2, "run exists and is not a dataset, so it is not replaced"),
        (one.path, tmp_path / "more", 2, "shard-0 is already a shard"),
        (tmp_path / "nowhere", tmp_path / "more", 2, "nowhere: there is no such file or directory"),
    ):
        with pytest.raises(RequestError, match=complaint):
            make_shards(data, str(out), count, overwrite=True)
    with pytest.raises(RequestError, match="out already exists"):
        make_shards(corpus.path, str(tmp_path / "out"), 2)
    with pytest.raises(RequestError, match="--memory 20MiB is too small for 3 workers"):
        make_shards(corpus.path, str(tmp_path / "more"), 2, workers=3, memory=20 << 20)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "run"]
    assert tree(corpus.path) == before


def test_a_path_for_each_shard(tmp_path, ooc, corpus):
    made = ooc("shard", corpus.path, "disk{rank}/mine", "--shards", 2)
    assert made.returncode == 0, made.stderr
    ooc("shard", corpus.path, "out", "--shards", 2)
    for number in range(2):
        assert tree(tmp_path / f"disk{number}/mine") == tree(tmp_path / f"out/shard-{number}")
    shutil.rmtree(tmp_path / "disk0")
    refused = ooc("shard", corpus.path, "disk{rank}/mine", "--shards", 2)
    assert "disk1/mine already exists" in refused.stderr
    assert not (tmp_path / "disk0").exists()


def text_lines(count: int) -> str:
    return "".join(f"word{n % 7} word{n % 11} word{n % 13} other{n % 3}\n" for n in range(count))


INPUTS = {
    "text": (["--lines", "in.txt"], text_lines(90)),
    "uci": (["in.txt"], "4\n3\n5\n1 1 2\n2 3 1\n3 1 1\n3 2 4\n4 1 1\n"),
    "jsonl": (["in.txt"], "".join(json.dumps({"id": n, "text": text_lines(n)}) + "\n" for n in range(9))),
    "csv": (["in.txt"], "text\n" + text_lines(40)),
    "ratings": (["in.txt"], "".join(f"{user},{user * item % 17},{item}\n" for user in range(40) for item in range(5))),
    "synthetic": ([], ""),
}


@pytest.mark.few(1)
@pytest.mark.parametrize("kind", INPUTS)
def test_shards_are_ingested_at_once(tmp_path, ooc, kind):
    """As the dataset, ingested and split."""
    arguments, content = INPUTS[kind]
    (tmp_path / "in.txt").write_text(content)
    options = ["--documents", 50, "--vocabulary", 30, "--topics", 2] if kind == "synthetic" else []
    options += [] if kind == "ratings" else ["--block-tokens", 100]
    assert ooc("ingest", kind, *arguments, "whole", *options).returncode == 0
    assert ooc("shard", "whole", "split", "--shards", 2).returncode == 0
    at_once = ooc("ingest", kind, *arguments, "out", "--shards", 2, *options)
    assert at_once.returncode == 0, at_once.stderr
    assert "2 shards in" in at_once.stdout
    assert tree(tmp_path / "out") == tree(tmp_path / "split")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.txt", "out", "split", "whole"]
    if kind == "synthetic":
        planted = [open_any(tmp_path / path).planted_topics() for path in ("whole", "out/shard-1")]
        assert np.array_equal(planted[0]["words"], planted[1]["words"])
    if kind == "ratings":
        trained = ooc("train", "mf", "out/shard-0", "run", "--rank", 2, "--iterations", 2)
        assert trained.returncode == 0, trained.stderr


def test_bad_input_leaves_nothing(tmp_path, ooc):
    (tmp_path / "in.txt").write_text('{"text": 1}\n')
    assert ooc("ingest", "jsonl", "in.txt", "out", "--shards", 2).returncode == 2
    assert [path.name for path in tmp_path.iterdir()] == ["in.txt"]


@pytest.mark.long
@pytest.mark.parametrize("out", long_but(["out-{rank}"], ["out", "out-{rank}"]))
def test_a_kill_leaves_nothing_half_written(tmp_path, ooc, corpus, out):
    """At three moments; what was being written is removed by `ooc clean`, or by the same command."""
    command = [sys.executable, "-m", "ooc", "shard", str(corpus.path), out, "--shards", "2", "--workers", "1"]
    for moment in ("owners", "blocks/*.h5", "whole.h5"):
        with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.DEVNULL) as process:
            kill_once_there(process, tmp_path, f".out*.partial-*/**/{moment}")
        for path in (*shard_paths(tmp_path / "out"), *tmp_path.glob("out-*")):
            assert verify_dataset(open_any(path), no_bar).problems == []
        if moment == "owners":
            assert ooc("clean", ".").returncode == 0
            assert list(tmp_path.glob(".*")) == []
    done = ooc("shard", corpus.path, out, "--shards", 2, "--overwrite")
    assert done.returncode == 0, done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) in (["out"], ["out-0", "out-1"])
