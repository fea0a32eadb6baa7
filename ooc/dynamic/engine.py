"""The dynamic engine: rounds of updates of a few parameters each, chosen by what the model is like now.

scan blocks, hold columns -> rounds of schedule, update, aggregate, apply (workers, shared memory)

What the workers do within rounds they do without the coordinator: see `ooc.dynamic.rounds`.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, closing
from typing import Any

import numpy as np

from blocks.design.design import Design
from blocks.memory import held as held_bytes
from blocks.workers import Workers
from ooc.dynamic.held_columns import Room, gatherings, make_room, whole_room
from ooc.dynamic.program import DynamicProgram
from ooc.dynamic.round_loop import COUNTERS, PRIORITIES, stop
from ooc.dynamic.schedules import Rule, check
from ooc.dynamic.worker import DynamicAttachment, Number, Scanning, Stretch, Surveying, all_specs
from ooc.workers.shared_arrays import SharedArrays
from ooc.workers.worker import ProgramSpec

_SURVEYED = 1 << 12  # parameters that a worker surveys at a time
_SETTLED = 1e-3  # of the sum of the priorities that a survey has found
_NEAREST = 16  # parameters for each of those that the first survey after one of all looks at
_WIDER = 2  # times as many are those that the next one looks at
_MORE = 4  # times as many are looked at, and again, until the sum of the priorities is so many times what it was


def shared_bytes(design: Design, spec: ProgramSpec, rule: Rule, workers: int) -> int:
    """What the processes of an engine that has room for all columns share."""
    program: DynamicProgram = spec.build(design)  # type: ignore[assignment]
    attachment = DynamicAttachment(str(design.path), spec, rule, whole_room(design), workers, -1)
    specs = all_specs(design, program, attachment)
    return sum(math.prod(array.shape) * np.dtype(array.dtype).itemsize for array in specs.values())


class DynamicEngine:
    """Runs rounds of a program over columns of a design that are held in memory, and scans of its blocks.

    Use as a context manager. Attributes: `program`; `arrays`, its shared arrays; `columns` int64 (m,), those that are
    held; `round`, how many there have been; `samples` processed in them and in surveys; `bytes_read` of blocks. Raises
    RequestError for a rule that makes no sense.

    The result of a run depends on its rounds, and on how they are split into runs, but not on the workers.
    """

    def __init__(self, design: Design, spec: ProgramSpec, rule: Rule, workers: int, room: Room | None = None) -> None:
        check(rule)
        self._design, self._count = design, workers
        self._room = room or whole_room(design)
        spec = spec._replace(options={**spec.options, "most": self._room.columns})
        self.program: DynamicProgram = spec.build(design)  # type: ignore[assignment]
        self.columns = np.empty(0, np.int64)
        self.round = self.samples = self.bytes_read = 0
        self._surveyed = 0.0  # sum of priorities
        self._width = 0  # of the next survey, if not 0
        attachment = DynamicAttachment(str(design.path), spec, rule, self._room, workers, -1)
        with ExitStack() as stack:
            self._shared = stack.enter_context(closing(SharedArrays(all_specs(design, self.program, attachment))))
            self.arrays = {name: self._shared[name] for name in self.program.shared_arrays()}
            descriptor = self._shared.descriptor
            attachment = attachment._replace(descriptor=descriptor)
            target = "ooc.dynamic.worker:attach"
            self._workers = stack.enter_context(Workers(target, attachment, workers, inherit=[descriptor]))
            self._closing = stack.pop_all()
        self._ask_all([Number(number) for number in range(workers)])

    def __enter__(self) -> DynamicEngine:
        return self

    def __exit__(self, *_: object) -> None:
        stop(self._shared[COUNTERS])
        self._closing.close()

    @property
    def pids(self) -> list[int]:
        """Processes: the interpreter that the workers are forked from, then the workers."""
        return self._workers.pids

    @property
    def memory_bytes(self) -> int:
        """What the process tree holds that the kernel cannot drop."""
        return held_bytes([os.getpid(), *self.pids])

    @property
    def priorities(self) -> np.ndarray:
        """float64 (m,), a copy of those of the parameters of the columns that are held."""
        return self._shared[PRIORITIES].T.reshape(-1)[: self.columns.size]

    @priorities.setter
    def priorities(self, priorities: np.ndarray) -> None:
        schedulers = len(self._shared[PRIORITIES])
        for scheduler, mine in enumerate(self._shared[PRIORITIES]):
            some = priorities[scheduler::schedulers]
            mine[: some.size] = some

    def hold(self, columns: np.ndarray | None = None) -> None:
        """Hold some columns, int64 (m,), ascending, instead of others; None for all. Their priorities are all 1.

        Raises RequestError if there is no room for them.
        """
        columns = np.arange(self._design.columns) if columns is None else columns
        make_room(self._design, self._room, columns, self._shared)
        self.columns = columns
        for _ in self._workers.map_unordered(gatherings(self._design, columns)):
            pass
        self.priorities = np.ones(columns.size)

    def survey(self, parameters: np.ndarray | None = None) -> None:
        """Have the program set the priorities of parameters, int64 (c,) and all if None, by the present state."""
        parameters = np.arange(self.columns.size) if parameters is None else parameters
        chunks = (Surveying(parameters[k : k + _SURVEYED]) for k in range(0, parameters.size, _SURVEYED))
        self.samples += sum(samples for _, samples in self._workers.map_unordered(chunks))
        self._surveyed = float(self.priorities.sum())

    def survey_if_settled(self) -> None:
        """Survey again if what the last survey found worth an update is done with.

        A parameter that stays where it is has no priority: it may not be drawn for long, whatever else changes. Those
        that were nearest to an update come first; others follow as long as there is next to nothing in what was found,
        and every time more, so that none is passed over for ever.
        """
        before = float(self.priorities.sum())
        if before >= _SETTLED * self._surveyed:
            return
        name, count, done = self.program.nearness, self.columns.size, 0
        order = np.argsort(-self.arrays[name][:count], kind="stable") if name else np.arange(count)
        size = self._width = (self._width or -(-count // _NEAREST)) if name else count
        while done < count and (done == 0 or self._surveyed <= _MORE * before):
            self.survey(np.sort(order[done:size]))
            done, size = size, _MORE * size
        self._width = _WIDER * self._width if done < count else 0

    def run(self, rounds: int) -> None:
        """Do so many rounds; none is in the making afterwards."""
        stretch = Stretch(self.round, self.round + rounds, self.columns.size)
        self.samples += sum(self._ask_all([stretch] * self._count))
        self.round += rounds

    def committed(self) -> dict[str, np.ndarray]:
        """What it goes on from, between runs of rounds; all one-dimensional."""
        arrays = {name: self.arrays[name].reshape(-1) for name in self._goes_on_from()}
        done = {"round": self.round, "width": self._width, "surveyed": self._surveyed}
        return arrays | {name: np.array([value]) for name, value in done.items()} | {"priorities": self.priorities}

    def restore(self, committed: Mapping[str, np.ndarray]) -> None:
        """Go on from what `committed` was, with the same columns held."""
        for name in self._goes_on_from():
            self.arrays[name].reshape(-1)[:] = committed[name]
        self.round, self._width = int(committed["round"][0]), int(committed["width"][0])
        self._surveyed, self.priorities = float(committed["surveyed"][0]), committed["priorities"]

    def _goes_on_from(self) -> list[str]:
        nearness = self.program.nearness
        return [*self.program.primary_arrays(), *([nearness] if nearness else [])]

    def scan(self, blocks: Iterable[int]) -> Iterator[Any]:
        """Have blocks scanned, and no others read; yields the program's answers in the order of the blocks."""
        asked, answers = list(blocks), {}
        following = iter(asked)
        wanted = next(following, None)
        for message, answer in self._workers.map_unordered(map(Scanning, asked)):
            self.bytes_read += self._design.manifest["blocks"][message.block]["bytes"]
            answers[message.block] = answer
            while wanted in answers:
                yield answers.pop(wanted)
                wanted = next(following, None)

    def _ask_all(self, messages: list[Any]) -> list[Any]:
        """Give a message to each worker; returns the answers, in the order of the workers."""
        for worker, message in enumerate(messages):
            self._workers.send(worker, message)
        answers: dict[int, Any] = {}
        while len(answers) < len(messages):
            for worker, _, answer in self._workers.receive(progress=self._shared[COUNTERS].sum):
                answers[worker] = answer
        return [answers[worker] for worker in range(len(messages))]
