"""Plans: what they say beforehand against what a run then measures, and plans on paper."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commands import Ooc
from corpora import new_run, program_spec, small_dataset
from rings import on_ring

from blocks import Dataset, RequestError
from blocks.corpus.hypothetical_corpus import HypotheticalCorpus
from blocks.corpus.synthetic import Synthetic, synthesize
from blocks.memory import parse_rate
from blocks.plurals import size_text
from blocks.shards.splitting import make_shards
from ooc.plan.disk_speed import measure_disk
from ooc.plan.forecast import MeasuredSpeeds, forecast
from ooc.plan.memory_plan import MemoryPlan, make_plan
from ooc.runs.new_run import create_run
from ooc.training import train
from ooc.workers.worker import ProgramSpec
from samplers.lda.packed_counts import random_bytes, sharpened_bytes
from samplers.lda.programs import sampler_spec
from samplers.lda.speed_trial import tokens_per_s
from samplers.lda.training import disk_needed
from samplers.training_plan import plan_lda, told

SPEEDS = MeasuredSpeeds(1e6, 1e8, 1e7)


def streamed(buffers: int) -> MemoryPlan:
    return MemoryPlan(1, buffers == 0, buffers, 0, ())


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """A synthetic dataset of 2.5 blocks."""
    request = Synthetic(26_000, 5_000, 20)
    return synthesize(request, tmp_path_factory.mktemp("drawn") / "data", workers=1)


@pytest.fixture
def intended(drawn: Dataset) -> HypotheticalCorpus:
    return HypotheticalCorpus(tokens=drawn.tokens, documents=drawn.documents, vocabulary=drawn.vocabulary_size)


@pytest.mark.few(1)
@pytest.mark.parametrize("sampler", ["TwoPhase", "LightLda"])
@pytest.mark.parametrize("buffers", [0, 3])
def test_bytes_are_those_that_a_run_then_moves(tmp_path: Path, sampler: str, buffers: int) -> None:
    dataset, spec = small_dataset(tmp_path / "data"), program_spec(sampler)
    run = new_run(tmp_path / "run", dataset, spec, 4, evaluate_every=4)
    train(run, streamed(buffers), quiet=True)
    found = forecast(dataset, spec.build(dataset), streamed(buffers), SPEEDS)
    *moved, last = (
        tuple(line[name] - before[name] for name in ("bytes_read", "bytes_written"))
        for before, line in pairwise(run.metrics())
    )
    assert moved == [(found.read_bytes, found.written_bytes)] * 2
    assert last == (moved[0] if buffers else (0, found.state_bytes))  # a checkpoint


def test_the_slowest_part_is_the_limit(tmp_path: Path) -> None:
    dataset, spec = small_dataset(tmp_path / "data"), program_spec()
    program = spec.build(dataset)
    found = forecast(dataset, program, streamed(2), MeasuredSpeeds(dataset.tokens / 4, 1e12))
    assert (found.iteration_s, found.limit) == (pytest.approx(4, rel=1e-3), "sampling")
    found = forecast(dataset, program, streamed(2), MeasuredSpeeds(1e12, found.disk_bytes / 7))
    assert (found.iteration_s, found.limit) == (pytest.approx(7), "disk")
    found = forecast(dataset, program, streamed(2), MeasuredSpeeds(1e12, 1e12, found.sent_bytes + 1.0), machines=1)
    assert found.sent_bytes == 0
    options = {"topics": 9, "alpha": 0.1, "beta": 0.05, "seed": 1}
    travels = sampler_spec("two-phase", options, {}, on_ring=True).build(dataset)
    found = forecast(dataset, travels, streamed(2), MeasuredSpeeds(1e12, 1e12, travels.sent_bytes(2) / 9), machines=2)
    assert (found.iteration_s, found.limit) == (pytest.approx(9), "network")


def test_a_dataset_is_read_from_the_disk_unless_the_kernel_can_keep_it(tmp_path: Path) -> None:
    dataset, program = small_dataset(tmp_path / "data"), program_spec().build(small_dataset(tmp_path / "other"))
    size = sum((dataset.path / folder / file.name).stat().st_size for folder in ("blocks", "slices")
               for file in (dataset.path / folder).iterdir())  # fmt: skip
    assert forecast(dataset, program, streamed(0), SPEEDS, cache=size - 1).data_bytes == size
    assert forecast(dataset, program, streamed(0), SPEEDS, cache=size).data_bytes == 0


def train_on_three(directory: Path, shards: list[Dataset], spec: ProgramSpec, iterations: int) -> list[int]:
    """Bytes that all machines sent in each iteration but the first, of which the start is a part."""
    length = {"iterations": iterations, "evaluate_every": 99, "settings": {"staleness": 1}}
    runs = [create_run(directory / f"run-{rank}", shard, spec, **length) for rank, shard in enumerate(shards)]
    on_ring(3, lambda ring: train(runs[ring.rank], streamed(0), quiet=True, ring=ring))
    sent = [line["bytes_sent"] for line in runs[0].metrics()]
    return [end - begin for begin, end in pairwise(sent)]


@pytest.mark.long
@pytest.mark.few(1)
@pytest.mark.parametrize("topics", [6, 256])
def test_a_ring_sends_rows_of_random_topics_in_the_bytes_that_were_planned(tmp_path: Path, topics: int) -> None:
    shards = make_shards(small_dataset(tmp_path / "data").path, f"{tmp_path}/shard-{{rank}}", 3, workers=1)
    spec = sampler_spec(
        "two-phase", {"topics": topics, "alpha": 1.0, "beta": 1.0, "seed": 1}, {}, on_ring=True
    )  # nothing to learn
    sent, _ = train_on_three(tmp_path, shards, spec, 3)
    assert 2 * random_bytes(shards[0].whole.frequencies, topics) == pytest.approx(sent, rel=0.05)


@pytest.mark.long
def test_rows_shrink_as_was_planned(tmp_path: Path, drawn: Dataset) -> None:
    shards = make_shards(drawn.path, f"{tmp_path}/shard-{{rank}}", 3, workers=1)
    spec = sampler_spec("two-phase", {"topics": 100, "alpha": 0.1, "beta": 0.01, "seed": 1}, {}, on_ring=True)
    program = spec.build(shards[0])
    planned = [3 * program.sent_bytes(3, iteration) for iteration in range(2, 12)]
    assert train_on_three(tmp_path, shards, spec, 11) == pytest.approx(planned, rel=0.15)


def test_a_ring_on_paper_is_like_one_of_shards(tmp_path: Path, drawn: Dataset) -> None:
    shards = make_shards(drawn.path, f"{tmp_path}/shard-{{rank}}", 3, workers=1)
    sizes = {"tokens": drawn.tokens // 3, "documents": drawn.documents // 3, "vocabulary": drawn.vocabulary_size}
    paper = HypotheticalCorpus(**sizes, shards=3)
    assert paper.slice_count == shards[0].slice_count
    spec = sampler_spec("two-phase", {"topics": 500, "alpha": 0.1, "beta": 0.05, "seed": 1}, {}, on_ring=True)
    programs = [spec.build(data) for data in (paper, shards[0])]
    whole = HypotheticalCorpus(
        **{name: 3 * size for name, size in sizes.items()} | {"vocabulary": drawn.vocabulary_size}
    )
    first = sharpened_bytes(1) * random_bytes(whole.index.frequencies, 500)
    assert programs[0].sent_bytes(3) == pytest.approx(first * 2 / 3, rel=0.01)
    assert programs[0].sent_bytes(2) == pytest.approx(programs[0].sent_bytes(3) * 3 / 4, rel=0.01)
    plans = [make_plan(data, program, 2, 1 << 40) for data, program in zip((paper, shards[0]), programs, strict=True)]
    assert plans[0].bytes == pytest.approx(plans[1].bytes, rel=0.2)


def test_an_intended_dataset_is_like_the_one_that_is_made_then(drawn: Dataset, intended: HypotheticalCorpus) -> None:
    """Grid, largest groups, bytes and memory of a plan; that one word is ten times as frequent is by the law."""
    assert (intended.block_count, intended.slice_count) == (drawn.block_count, drawn.slice_count)
    assert intended.index.frequencies.sum() == pytest.approx(drawn.tokens, rel=0.001)
    assert intended.index.cells.sum() == drawn.tokens
    assert np.ptp(intended.index.cells.sum(axis=1)) <= 1
    assert sorted(intended.index.word_ids) == list(range(5_000))
    assert intended.data_bytes == pytest.approx(drawn.data_bytes, rel=0.2)
    for sampler in ("TwoPhase", "SparseGibbs"):
        spec = program_spec(sampler, topics=500)
        plans = [make_plan(data, spec.build(data), 2, 1 << 40) for data in (intended, drawn)]
        assert plans[0].bytes == pytest.approx(plans[1].bytes, rel=0.2)


def test_the_paper_s_own_job_can_be_planned() -> None:
    """LightLDA's largest: 200 billion tokens, a million words and topics, 8 machines of 20 cores; nothing is tried."""
    share = HypotheticalCorpus(tokens=25_000_000_000, documents=150_000_000, vocabulary=1_000_000, shards=8)
    facts = plan_lda(
        share, topics=1_000_000, workers=20, memory_bytes=256 * 10**9, machines=8, speed=1e6, disk=5e8, network=1.25e8
    )
    assert facts["tokens"] == 200_000_000_000
    assert facts["sampler"] == "two-phase"
    assert 1 < facts["state_bytes"] / (4 * 4 * 25_000_000_000) < 1.01  # tiles are filled up to whole pages
    assert 1250 < facts["sampling_s"] < 1300  # a little of it to move topics and proposals
    assert facts["read_bytes"] == 2 * facts["state_bytes"]  # two phases, streamed
    assert facts["limit"] == "disk"
    assert facts["start_learning_passes"] == 4  # of 1,000 topics, and three times of ten times as many
    assert 5e3 < facts["start_s"] < 5e4
    text = "\n".join(told(facts))
    assert "200,000,000,000 tokens" in text
    assert "set by disk" in text
    assert "assumes    documents are split evenly" in text


def test_the_disk_holds_the_counts_of_the_start(tmp_path: Path) -> None:
    """A shard of few tokens, many words and topics: the counts of the start take more than three generations."""
    shard = synthesize(Synthetic(100, 5_000, 20), tmp_path / "shard", workers=1)
    rows = 4 * 1000 * shard.vocabulary_size
    assert rows < disk_needed(shard.path, 1000, "two-phase") < 1.1 * rows
    means = 3 * rows  # in each generation; whichever sampler `auto` chooses has room
    assert means < disk_needed(shard.path, 1000) < 1.1 * means


def test_a_trial_finds_a_speed_that_a_sampler_can_have(drawn: Dataset, intended: HypotheticalCorpus) -> None:
    """Over the first block, or over documents drawn for the occasion; both far from nonsense."""
    for data in (drawn, intended):
        assert 1e4 < tokens_per_s(data, program_spec(topics=20)) < 1e9


def test_the_disk_is_measured_and_left_as_it_was(tmp_path: Path) -> None:
    found = measure_disk(tmp_path, 16 << 20)
    assert found.both == found.reading + found.writing > 0
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("text", "bytes_"), [("1Gbps", 1.25e8), ("500MB/s", 5e8), ("1.5 GiB/s", 1.5 * 2**30), ("10 gbit/s", 1.25e9)]
)
def test_speeds_are_read(text: str, bytes_: float) -> None:
    assert parse_rate(text, "--disk") == pytest.approx(bytes_)


@pytest.mark.parametrize("text", ["1", "500MB", "0Gbps", "fast", "-1GB/s", "1Gbps/s", "0MB/s"])
def test_what_is_no_speed_is_refused_by_its_option(text: str) -> None:
    with pytest.raises(RequestError, match="--network"):
        parse_rate(text, "--network")


def test_sizes_have_a_unit_in_which_they_are_below_a_thousand() -> None:
    sizes = [(0, "0 bytes"), (1, "1 byte"), (999_949, "999.9 kB"), (999_950, "1.0 MB"), (999_960_000, "1.0 GB")]
    assert [size_text(size) for size, _ in sizes] == [text for _, text in sizes]


def test_plan_at_the_command_line(tmp_path: Path, ooc: Ooc) -> None:
    small_dataset(tmp_path / "data")
    known = ["--speed", "1e6", "--disk", "100MB/s", "--workers", 1]
    done = ooc("plan", "data", "--topics", 10, *known, "--memory", "1GB")
    assert done.returncode == 0, done.stderr
    assert "): in memory" in done.stdout
    facts: dict[str, Any] = json.loads(ooc("plan", "data", "--topics", 10, *known, "--json").stdout)
    assert facts["tokens"] == Dataset(tmp_path / "data").tokens
    assert facts["sampler"] == "sparse-gibbs"
    example = ["--tokens", "200e9", "--vocabulary", "1e6", "--topics", 1_000_000, "--machines", 8, "--cores", 20]
    done = ooc("plan", *example, "--memory", "256GB", "--network", "1Gbps", "--speed", "1e6", "--disk", "500MB/s")
    assert done.returncode == 0, done.stderr
    assert "8 machines" in done.stdout


def test_a_saved_state_has_the_size_that_was_planned(tmp_path: Path, ooc: Ooc) -> None:
    """The running mean of sparse-gibbs is part of it: here more than the topics of all tokens."""
    data = small_dataset(tmp_path / "data")
    planned = json.loads(ooc("plan", "data", "--topics", 100, "--speed", "1e6", "--disk", "1GB/s", "--json").stdout)
    assert planned["sampler"] == "sparse-gibbs"
    ooc("train", "lda", "data", "run", "--topics", 100, "--iterations", 2, "--workers", 1)
    newest = json.loads((tmp_path / "run/state/manifest.json").read_text())["newest"]["generation"]
    taken = sum((tmp_path / f"run/state/{newest:06}.{kind}").stat().st_size for kind in ("cells", "h5"))
    assert planned["saved_bytes"] == pytest.approx(taken, rel=0.05)
    assert planned["saved_bytes"] > 2 * planned["state_bytes"] > 4 * 100 * data.vocabulary_size


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "expected either DATA or --tokens"),
        (["data", "--tokens", "1e6"], "expected either DATA or --tokens"),
        (["data", "--machines", "2"], "--machines 2 can only be used with --tokens"),
        (["--tokens", "0"], "--tokens must be"),
        (["data", "--memory", "2GBB"], "--memory: '2GBB' is not a size"),
        (["data", "--memory", "1MB"], "--memory 1 MB is too small"),
        (["data", "--disk", "2GB"], "--disk: '2GB' is not a rate"),
        (["data", "--sampler", "magic"], "--sampler: unknown sampler 'magic'"),
        (["data", "--topics", "0"], "--topics"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_cannot_be_planned_is_refused(tmp_path: Path, ooc: Ooc, arguments: list[str], said: str) -> None:
    small_dataset(tmp_path / "data")
    done = ooc("plan", *arguments)
    assert done.returncode == 2, done.stderr
    assert said in done.stderr
    assert "Traceback" not in done.stderr
