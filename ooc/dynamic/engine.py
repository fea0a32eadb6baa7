"""The dynamic engine: rounds of updates of a few parameters each, scheduled from the current state of the model.

scan blocks, hold columns -> rounds of schedule, update, aggregate, apply (workers, shared memory)

Within rounds, workers synchronize through shared counters without the coordinator, see `ooc.dynamic.round_schedule`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import Any

import numpy as np

from blocks.design.design import Design
from blocks.errors import WorkFailed
from blocks.memory import held_memory as held_bytes
from blocks.workers import WorkerPool
from ooc.dynamic.column_rounds import rounds_of
from ooc.dynamic.held_columns import HeldColumnsCapacity, band_bounds, gatherings, make_room, whole_room
from ooc.dynamic.machine_exchange import MachineExchange
from ooc.dynamic.round_loop import COUNTERS, PRIORITIES, RoundLoopShape, set_stop_flag
from ooc.dynamic.selection_rules import SelectionRule, check_rule
from ooc.dynamic.worker import (
    DynamicWorkerArguments,
    InitializeRowsRequest,
    RunRoundsRequest,
    ScanRequest,
    SurveyRequest,
    WorkerIndexMessage,
    all_specs,
)
from ooc.ring.array_exchange import exchange_parts
from ooc.ring.ring import Ring
from ooc.state.slice_file import SliceFile
from ooc.workers.shared_arrays import SharedArrays, total_bytes
from ooc.workers.worker import ProgramSpec

_GRACE = 1.0  # seconds to wait for the ring's error after workers were stopped
_SURVEYED = 1 << 12  # number of parameters that a worker surveys at a time
_SETTLED = 1e-3  # a new survey is due below this fraction of the sum of priorities after the last survey
_NEAREST = 16  # the first partial survey covers 1 in 16 parameters
_WIDER = 2  # factor by which the first chunk grows from survey to survey
_MORE = 4  # factor by which chunks grow, and by which the sum of priorities must grow to end a survey


def shared_bytes(design: Design, spec: ProgramSpec, rule: SelectionRule, workers: int) -> tuple[int, int]:
    """Return the shared memory in bytes of an engine that holds all columns, as two numbers: without the columns, and
    for the columns.
    """
    program, room = rounds_of(spec, design), whole_room(design)
    shape = RoundLoopShape(workers, room.columns // program.group)
    rounds, columns = all_specs(design, program, rule, room, shape)
    return total_bytes(rounds), total_bytes(columns)


class DynamicEngine:
    """Runs rounds of a program over columns of a design that are held in memory, and scans the blocks of the design.

    Use as a context manager.

    directory: directory of a file that holds the columns instead of memory, and is removed at exit; None for memory.
    ring: machines that run the rounds together, each with the whole design.
    Raises RequestError for an invalid rule.

    Attributes: `program`; `arrays`, the program's shared arrays; `columns` int64 (m,), the columns held; `parameters`,
    the number of these columns or of their groups; `round`, number of rounds done; `samples`, number of values
    processed on this machine in rounds and surveys; `bytes_read`, bytes read from blocks.

    Results depend on the number of rounds and on how the rounds are split into calls of `run`, but not on the number of
    workers or machines.
    """

    def __init__(
        self,
        design: Design,
        spec: ProgramSpec,
        rule: SelectionRule,
        workers: int,
        room: HeldColumnsCapacity | None = None,
        *,
        directory: Path | None = None,
        ring: Ring | None = None,
    ) -> None:
        check_rule(rule)
        self._design, self._count = design, workers
        self._room = room or whole_room(design)
        self.program = rounds_of(spec, design, self._room.columns)
        self.columns = np.empty(0, np.int64)
        self.round = self.samples = self.bytes_read = 0
        self._surveyed = 0.0  # sum of priorities after the last survey
        self._width = 0  # number of parameters in the first chunk of the next survey, 0 for the default
        shape = RoundLoopShape(workers, self._room.columns // self.program.group)
        shape = shape._replace(rank=ring.rank, ranks=ring.ranks) if ring else shape
        rounds, columns = all_specs(design, self.program, rule, self._room, shape)
        with ExitStack() as stack:
            self._shared = stack.enter_context(closing(SharedArrays(rounds)))
            self._file = stack.enter_context(closing(SliceFile(directory, columns))) if directory else None
            self._held = self._file.arrays if self._file else stack.enter_context(closing(SharedArrays(columns)))
            self.arrays = {name: self._shared[name] for name in self.program.shared_arrays()}
            descriptors = self._shared.descriptor, self._held.descriptor
            attachment = DynamicWorkerArguments(str(design.path), spec, rule, self._room, shape, descriptors)
            self._workers = stack.enter_context(
                WorkerPool("ooc.dynamic.worker:attach", attachment, workers, inherit=descriptors)
            )
            self._machines = None
            if ring and ring.ranks > 1:
                machines = MachineExchange(ring, rule.pipeline, shape, band_bounds(design), self._shared)
                self._machines = stack.enter_context(closing(machines))
            self._closing = stack.pop_all()
        self._ask_all([WorkerIndexMessage(number) for number in range(workers)])

    def __enter__(self) -> DynamicEngine:
        return self

    def __exit__(self, *_: object) -> None:
        set_stop_flag(self._shared[COUNTERS])
        self._closing.close()

    @property
    def pids(self) -> list[int]:
        """Return the process ids of the interpreter from which workers are forked, and of the workers."""
        return self._workers.pids

    @property
    def memory_bytes(self) -> int:
        """Return the memory in bytes of the process tree that the kernel cannot reclaim."""
        return held_bytes([os.getpid(), *self.pids])

    @property
    def parameters(self) -> int:
        return self.columns.size // self.program.group

    @property
    def priorities(self) -> np.ndarray:
        """Return a copy of the priorities of the parameters held, float64 (`parameters`,)."""
        return self._shared[PRIORITIES].T.reshape(-1)[: self.parameters]

    @priorities.setter
    def priorities(self, priorities: np.ndarray) -> None:
        schedulers = len(self._shared[PRIORITIES])
        for scheduler, mine in enumerate(self._shared[PRIORITIES]):
            some = priorities[scheduler::schedulers]
            mine[: some.size] = some

    def hold(self, columns: np.ndarray | None = None) -> None:
        """Hold the given columns, int64 (m,), ascending, in place of the current ones; None for all columns.

        Sets all priorities to 1.
        Raises RequestError if the columns do not fit.
        """
        columns = np.arange(self._design.columns) if columns is None else columns
        make_room(self._design, self._room, columns, self._held)
        self.columns = columns
        self.program.hold(columns, self._shared)
        for message, _ in self._workers.map_unordered(gatherings(self._design, columns)):
            self.bytes_read += self._design.manifest["blocks"][message.block]["bytes"]
            if self._file:
                self._file.write_back()
        self.priorities = np.ones(self.parameters)

    def start(self) -> None:
        """Compute the row arrays from the initial values of the parameters held."""
        self._ask_all([InitializeRowsRequest(self.parameters)] * self._count)
        self._share_rows()

    def survey(self, parameters: np.ndarray | None = None) -> None:
        """Set the priorities of parameters, int64 (c,) or None for all, from the current state.

        The program's `survey` computes them.
        """
        parameters = np.arange(self.parameters) if parameters is None else parameters
        here = self._machines.share_of(parameters.size) if self._machines else slice(None)
        mine = parameters[here]
        chunks = (SurveyRequest(mine[k : k + _SURVEYED]) for k in range(0, mine.size, _SURVEYED))
        self.samples += sum(samples for _, samples in self._workers.map_unordered(chunks))
        if self._machines:
            found = {name: self.arrays[name] for name in self.program.surveyed()} | {PRIORITIES: self.priorities}
            for array in found.values():
                some = array[parameters]
                exchange_parts(self._machines.ring, some, here)
                array[parameters] = some
            self.priorities = found[PRIORITIES]
        self._surveyed = float(self.priorities.sum())

    def survey_if_settled(self) -> None:
        """Survey again if the sum of priorities has fallen to a small fraction of the sum after the last survey.

        A parameter that did not change in its last update has priority 0, and may not be drawn for a long time although
        other parameters change. The parameters with the largest `nearness` are surveyed first. Further chunks are
        surveyed as long as little is found, and the first chunk grows from survey to survey, so that every parameter is
        surveyed eventually.
        """
        before = float(self.priorities.sum())
        if before >= _SETTLED * self._surveyed:
            return
        name, count, done = self.program.nearness, self.parameters, 0
        order = np.argsort(-self.arrays[name][:count], kind="stable") if name else np.arange(count)
        size = self._width = (self._width or -(-count // _NEAREST)) if name else count
        while done < count and (done == 0 or self._surveyed <= _MORE * before):
            self.survey(np.sort(order[done:size]))
            done, size = size, _MORE * size
        self._width = _WIDER * self._width if done < count else 0

    def run(self, rounds: int) -> None:
        """Run `rounds` rounds, and wait until all of them are complete."""
        stretch = RunRoundsRequest(self.round, self.round + rounds, self.parameters)
        exchange = self._machines.begin(stretch.first, stretch.last) if self._machines else None
        try:
            self.samples += sum(self._ask_all([stretch] * self._count))
        except WorkFailed:
            if exchange:
                with suppress(TimeoutError):
                    exchange.result(_GRACE)  # raises the cause if the workers were stopped because the ring failed
            raise
        if exchange:
            exchange.result()
        self._share_rows()
        self.round += rounds

    def _share_rows(self) -> None:
        """Exchange the row arrays among the machines, each of which has updated the rows of its own bands."""
        if self._machines:
            for name in self.program.followers():
                self._machines.share_rows(self.arrays[name])

    def committed(self) -> dict[str, np.ndarray]:
        """Return the state between runs of rounds, as one-dimensional arrays by name."""
        arrays = {name: self.arrays[name].reshape(-1) for name in self._goes_on_from()}
        done = {"round": self.round, "width": self._width, "surveyed": self._surveyed}
        return arrays | {name: np.array([value]) for name, value in done.items()} | {"priorities": self.priorities}

    def restore(self, committed: Mapping[str, np.ndarray]) -> None:
        """Continue from the arrays that `committed` returned, with the same columns held."""
        for name in self._goes_on_from():
            self.arrays[name].reshape(-1)[:] = committed[name]
        self.round, self._width = int(committed["round"][0]), int(committed["width"][0])
        self._surveyed, self.priorities = float(committed["surveyed"][0]), committed["priorities"]

    def _goes_on_from(self) -> list[str]:
        nearness = self.program.nearness
        return [*self.program.primary_arrays(), *([nearness] if nearness else [])]

    def scan(self, blocks: Iterable[int]) -> Iterator[Any]:
        """Scan the given blocks, without reading any others; yields the program's answers in block order."""
        asked, answers = list(blocks), {}
        following = iter(asked)
        wanted = next(following, None)
        for message, answer in self._workers.map_unordered(map(ScanRequest, asked)):
            self.bytes_read += self._design.manifest["blocks"][message.block]["bytes"]
            answers[message.block] = answer
            while wanted in answers:
                yield answers.pop(wanted)
                wanted = next(following, None)

    def _ask_all(self, messages: list[Any]) -> list[Any]:
        """Send one message to each worker; returns the answers in worker order."""
        for worker, message in enumerate(messages):
            self._workers.send(worker, message)
        answers: dict[int, Any] = {}
        while len(answers) < len(messages):
            for worker, _, answer in self._workers.receive(progress=self._shared[COUNTERS].sum):
                answers[worker] = answer
        return [answers[worker] for worker in range(len(messages))]
