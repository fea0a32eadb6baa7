"""Small corpora for tests, and programs run over them in this process, without workers."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import strategies as st

from blocks import Dataset, write_corpus
from blocks.alias_table import alias_table
from ooc.engine import StaticEngine
from ooc.plan.memory_plan import MemoryPlan
from ooc.program import Phase
from ooc.ring.packet_slots import SLOTS, PacketSlots
from ooc.runs.new_run import create_run
from ooc.runs.run import Run
from ooc.state.cell_layout import CellLayout
from ooc.state.generations import StateGenerations
from ooc.state.unit_passes import RESIDENT, ResidentState
from ooc.workers.engine_options import EngineOptions
from ooc.workers.shared_arrays import SharedArrays
from ooc.workers.work_queue import CLAIMED, WorkQueue, claims_spec
from ooc.workers.worker import (
    JobHandler,
    ProgramSpec,
    StageMessage,
    all_phases,
    delta_name,
    own_arrays,
    packet_sizes,
    slices_rotate,
    unit_parts,
)
from samplers.lda.token_kernels import GroupPrior, symmetric_prior, weighted_prior
from samplers.lda.two_phase import COUNT, TOTAL, TopicTotals
from samplers.topics.model import SavedTopicModel


def program_spec(sampler: str = "TwoPhase", **options: Any) -> ProgramSpec:
    """Return the program of a sampler, by class name, with small options by default."""
    return ProgramSpec(
        f"samplers.lda.programs:{sampler}", {"topics": 5, "alpha": 0.3, "beta": 0.05, "seed": 7} | options
    )


def make_totals(summary: np.ndarray) -> TopicTotals:
    """Return a worker's TopicTotals at the start of a phase: `summary`, (K,), with no changes and no group counted."""
    totals = TopicTotals(*(np.zeros(summary.size, dtype) for dtype in (TOTAL, np.int64, COUNT)))
    totals.topics["summary"] = summary
    return totals


def make_prior(topics: int, weights: np.ndarray) -> GroupPrior:
    """Return a GroupPrior for tests of kernels, from weights float64 (K,), or (1,) for a symmetric one."""
    if weights.size == 1:
        return symmetric_prior(topics, float(weights[0]))
    return weighted_prior(weights, *alias_table(weights))


def random_documents(
    rng: np.random.Generator, documents: int, vocabulary: int, longest: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return offsets int64 (D+1,) and words uint32 (N,): lengths uniform from 0, a few words very frequent."""
    lengths = rng.integers(0, longest + 1, documents)
    lengths[0] = max(lengths[0], 1)
    offsets = np.concatenate(([0], np.cumsum(lengths))).astype(np.int64)
    return offsets, (rng.random(offsets[-1]) ** 3 * vocabulary).astype(np.uint32)


def names_of_words(vocabulary: int) -> list[str]:
    return [f"word{word}" for word in range(vocabulary)]


def small_dataset(path: Path, *, documents: int = 300, vocabulary: int = 200, longest: int = 60) -> Dataset:
    """Write a corpus of about 9,000 tokens in 9 blocks, 4 slices and many parts."""
    offsets, words = random_documents(np.random.default_rng(1), documents, vocabulary, longest)
    return write_corpus(path, offsets, words, names_of_words(vocabulary), block_tokens=1000, part_tokens=300, slices=4)


def tiny_dataset(path: Path, documents: list[list[int]], vocabulary: int, **options: Any) -> Dataset:
    """Write a dataset of documents given as lists of words."""
    offsets = np.cumsum([0, *map(len, documents)]).astype(np.int64)
    words = np.array([word for document in documents for word in document], np.uint32)
    return write_corpus(path, offsets, words, names_of_words(vocabulary), **options)


def planted_documents(
    rng: np.random.Generator, topics: int, words_each: int, documents: int, length: int
) -> np.ndarray:
    """Return documents, uint32 (documents, length), that each mix two of the topics, which have no words in common."""
    pairs = np.array([rng.choice(topics, 2, replace=False) for _ in range(documents)])
    chosen = np.where(rng.random((documents, length)) < 0.7, pairs[:, :1], pairs[:, 1:])
    return (chosen * words_each + rng.integers(0, words_each, (documents, length))).astype(np.uint32)


@st.composite
def corpora(draw: st.DrawFn) -> dict[str, Any]:
    """Draw arguments of `write_corpus`: a few documents (some empty), words (some unused), and a grid."""
    vocabulary = draw(st.integers(1, 12))
    lists = draw(st.lists(st.lists(st.integers(0, vocabulary - 1), max_size=12), min_size=1, max_size=12))
    lists.append([draw(st.integers(0, vocabulary - 1))])
    return {
        "offsets": np.cumsum([0, *map(len, lists)]).astype(np.int64),
        "words": np.array([word for document in lists for word in document], np.uint32),
        "vocabulary": names_of_words(vocabulary),
        "seed": draw(st.integers(0, 3)),
        "block_tokens": draw(st.sampled_from([3, 10, 1000])),
        "part_tokens": draw(st.sampled_from([1, 4, 1000])),
        "slices": draw(st.integers(1, 4)),
    }


@contextmanager
def written(corpus: dict[str, Any]) -> Iterator[Dataset]:
    """Write the dataset of a drawn corpus to a temporary directory, and yield it."""
    with tempfile.TemporaryDirectory() as directory:
        yield write_corpus(Path(directory) / "dataset", **corpus)


class InProcessProgram:
    """A program over a dataset whose phases run one part after the other in this process.

    A program for a ring runs on a ring of one machine, whose slices come back unchanged. Attributes: `program`;
    `shared`, its shared arrays; `state`, the rows of all tokens.
    """

    def __init__(self, dataset: Dataset, spec: ProgramSpec) -> None:
        self.dataset, self.program = dataset, spec.build(dataset)
        self._layout = CellLayout(dataset.index.cells, self.program.local_state())
        specs = ResidentState.specs(self._layout) | self.program.shared_arrays()
        specs |= {CLAIMED: claims_spec(1)}
        specs |= own_arrays(self.program, 0)
        rooms = packet_sizes(dataset, self.program) if slices_rotate(self.program) else []
        self._arrays = SharedArrays(specs | PacketSlots.specs(rooms, SLOTS))
        self._slots = PacketSlots(rooms, SLOTS, self._arrays) if rooms else None
        self._packets: dict[int, bytes] = {}  # packets of the slices that travel
        self._handler = JobHandler(dataset, self.program, self._arrays, WorkQueue(self._arrays))
        self._handler(0)
        self.state = self._arrays[RESIDENT]
        self.shared = {name: self._arrays[name] for name in self.program.shared_arrays()}
        self._delta = {name: self._arrays[delta_name(0, name)] for name in self.program.delta_arrays()}
        self.iteration = 0
        for phase in self.program.initial:
            self._run(phase)
        self.program.restore(self.sweep, self.shared)

    def __enter__(self) -> InProcessProgram:
        return self

    def __exit__(self, *_: object) -> None:
        self._arrays.close()

    def sweep(self, phase: Phase) -> Iterator[Any]:
        """Run a phase; yields the answers of its parts."""
        for answers in self._stages(phase):
            yield from answers

    def _stages(self, phase: Phase) -> Iterator[list[Any]]:
        """Run a phase; yields the answers of each stage of each unit."""
        self.program.begin(phase, self.shared)
        self._clear_delta()
        number = all_phases(self.program).index(phase)
        for unit in range(self._layout.units(phase.order)):
            parts = unit_parts(self.dataset, phase.order, unit)[1].size - 1
            with self._passing(phase, unit) as slot:
                for stage, chosen in enumerate(self.program.schedule(phase, unit, parts)):
                    message = StageMessage(number, self.iteration, unit, stage, chosen, 1, RESIDENT, slot)
                    yield [self._handler.do(message, part) for part in chosen]

    @contextmanager
    def _passing(self, phase: Phase, slice_: int) -> Iterator[int]:
        """Yield the slot of a slice while it is processed, if it travels, else -1."""
        if not phase.travels:
            yield -1
            return
        assert self._slots
        packet = b"" if phase.travels == "made" else self._packets[slice_]
        self._slots.arrived(0)[: len(packet)] = packet
        self._slots.check(0, slice_, len(packet))
        yield 0
        if phase.travels != "looked at":
            self._packets[slice_] = bytes(self._slots.close(0, slice_))

    def _clear_delta(self) -> None:
        for array in self._delta.values():
            array[:] = 0

    def _run(self, phase: Phase) -> None:
        for answers in self._stages(phase) if phase.staged else [list(self.sweep(phase))]:
            self.program.aggregate(phase, self.shared, [self._delta], answers)
            self._clear_delta()

    def iterate(self, iterations: int = 1, after_phase: Callable[[Phase], object] = lambda phase: None) -> None:
        for _ in range(iterations):
            self.adapt(self.iteration)
            for phase in self.program.phases:
                self._run(phase)
                after_phase(phase)
            self.iteration += 1

    def adapt(self, iteration: int) -> None:
        if found := self.program.census(iteration, self.sweep, self.shared):
            self.program.adapt([found], self.shared)

    def objective(self) -> dict[str, float]:
        return self.program.objective(self.program.measure(self.sweep, self.shared), self.shared)

    def export(self, directory: Path) -> None:
        directory.mkdir()
        self.program.export(self.sweep, self.shared, directory)

    def counts(self) -> tuple[np.ndarray, np.ndarray]:
        """Count topics densely, of documents int64 (D, K) and words int64 (V, K), in the order of the input."""
        return recount(self.dataset, self.state[:, 0], self.program.topics)  # type: ignore[attr-defined]


def trained_model(root: Path, **options: Any) -> SavedTopicModel:
    """Train a model of `small_dataset` for 20 iterations; the dataset is root/data."""
    with InProcessProgram(small_dataset(root / "data"), program_spec(**options)) as program:
        program.iterate(20)
        program.export(root / "model")
    return SavedTopicModel(root / "model")


def new_documents(path: Path, model: SavedTopicModel) -> Dataset:
    """Write new documents for a `trained_model`, in several blocks; some are empty."""
    size = model.vocabulary_size
    words = random_documents(np.random.default_rng(5), 120, size, 30)
    grid = {"block_tokens": 500, "part_tokens": 200}
    return write_corpus(path, *words, names_of_words(size), vocab_from=model.path.parent / "data", **grid)


def recount(dataset: Dataset, z: np.ndarray, topics: int) -> tuple[np.ndarray, np.ndarray]:
    """Count topics densely, of documents (D, K) and words (V, K), from the topics of all rows and the blocks."""
    documents = np.zeros((dataset.documents, topics), np.int64)
    words = np.zeros((dataset.vocabulary_size, topics), np.int64)
    base = 0
    for number in range(dataset.block_count):
        block = dataset.block(number)
        tokens = block.positions.astype(np.int64)
        of_token = np.repeat(block.documents.astype(np.int64), np.diff(block.offsets))
        ranks = np.repeat(block.words, np.diff(block.word_offsets))[tokens]
        np.add.at(documents, (of_token, z[base + tokens]), 1)
        np.add.at(words, (dataset.index.word_ids[ranks].astype(np.int64), z[base + tokens]), 1)
        base += tokens.size
    return documents, words


def plan(workers: int = 1, buffers: int = 0, *, mapped: bool = False, start_mapped: bool = False) -> MemoryPlan:
    """Return a plan with all state in memory, or with `buffers` buffers.

    mapped: whether the slices' arrays are in a file. start_mapped: whether the arrays of the start are in a file.
    """
    return MemoryPlan(workers, buffers == 0, buffers, 0, (), mapped, start_mapped=start_mapped)


def new_run(path: Path, dataset: Dataset, spec: ProgramSpec, iterations: int, evaluate_every: int = 3) -> Run:
    return create_run(path, dataset, spec, iterations=iterations, evaluate_every=evaluate_every)


def open_engine(
    run: Run,
    chosen: MemoryPlan,
    switches: EngineOptions = EngineOptions(),  # noqa: B008
    **of_ring: Any,
) -> StaticEngine:
    """Return the engine of a run, for tests that run it step by step; use as a context manager.

    of_ring: see `StaticEngine`.
    """
    dataset = run.dataset(Dataset)
    layout = CellLayout(dataset.index.cells, run.spec.build(dataset).local_state())
    generations = StateGenerations.to_write(run.scratch / "state", dataset, layout)
    return StaticEngine(dataset, run.spec, generations, chosen, switches, **of_ring)


RESUME = """
import sys
from pathlib import Path
from ooc import training_loop
from samplers.resume import resume

training_loop.CHECKPOINT_S, training_loop.CHECKPOINT_SHARE = 0.0, 1.0
resume(Path(sys.argv[1]), workers=1, quiet=True)
"""


def kill_while_resuming(run: Path, until: str) -> None:
    """Resume a run in a new process that commits after each iteration; kill it once a file `until` exists."""
    with subprocess.Popen([sys.executable, "-c", RESUME, str(run)]) as process:
        kill_once_there(process, run, until)


def kill_once_there(process: subprocess.Popen[Any], directory: Path, until: str) -> None:
    """Kill a process once a file `until` exists below a directory, unless the process ends before.

    Files that are not locked yet are ignored: left by a killed process, they would stay for a minute, as cleanup cannot
    know whether a live process is about to lock them.
    """
    deadline = time.monotonic() + 60
    try:
        while not _is_there(directory, until) and process.poll() is None:
            assert time.monotonic() < deadline, f"waited in vain for {until}"
            time.sleep(0.001)
    finally:
        process.kill()
        process.wait()


def _is_there(directory: Path, pattern: str) -> bool:
    try:
        return any(found.suffix != ".unlocked" for found in directory.glob(pattern))
    except FileNotFoundError:  # of a directory removed meanwhile
        return False


def model_bytes(run: Path) -> dict[str, bytes]:
    """Return the files of a run's model by name."""
    return {file.name: file.read_bytes() for file in sorted((run / "model").iterdir())}


def leftovers(run: Path) -> list[Path]:
    """Return the files in a run directory that should not be there when no process uses it."""
    expected = {"config.json", "state", "metrics.jsonl", "log.txt", "model", "lock"}
    manifest = json.loads((run / "state" / "manifest.json").read_text())
    kept = {f"{entry['generation']:06}" for entry in (manifest["newest"], manifest["before"]) if entry}
    state = {f"{generation}.{kind}" for generation in kept for kind in ("cells", "h5", "json")} | {"manifest.json"}
    return [
        *(file for file in run.rglob("*") if ".partial-" in file.name),
        *(file for file in run.iterdir() if file.name not in expected),
        *(file for file in (run / "state").iterdir() if file.name not in state),
    ]


def tree(path: Path) -> dict[str, bytes]:
    """Return all files below a directory."""
    return {str(file.relative_to(path)): file.read_bytes() for file in path.rglob("*") if file.is_file()}
