"""Message handler of the dynamic engine's workers: gather, survey and scan columns, and run rounds."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import psutil

from blocks.compiler import compile_kernels
from blocks.design.design import Design
from blocks.errors import WorkFailed
from ooc.dynamic.column_rounds import report_numba_errors, rounds_of
from ooc.dynamic.held_columns import ColumnsToCopy, HeldColumnsCapacity, gather, held_columns_of_arrays, held_specs
from ooc.dynamic.round_loop import RoundLoop, RoundLoopShape, round_specs
from ooc.dynamic.round_program import BlockScan, RoundProgram
from ooc.dynamic.round_trial import try_rounds
from ooc.dynamic.selection_rules import SelectionRule
from ooc.workers.shared_arrays import ArraySpec, SharedArrays
from ooc.workers.worker import ProgramSpec

_NAP = 50e-6  # seconds
_LOOK_ROUND = 0.5  # seconds between checks that the coordinator runs


class DynamicWorkerArguments(NamedTuple):
    """Arguments of the workers, set before they are forked."""

    design: str
    program: ProgramSpec
    rule: SelectionRule
    room: HeldColumnsCapacity
    shape: RoundLoopShape
    descriptors: tuple[int, int]  # file descriptors of the shared arrays and of the held columns


class WorkerIndexMessage(NamedTuple):
    """First message to a worker: its index."""

    number: int


class RunRoundsRequest(NamedTuple):
    """Request to run rounds `first` to `last` (exclusive) over `parameters` parameters.

    The answer is the number of values read.
    """

    first: int
    last: int
    parameters: int


class InitializeRowsRequest(NamedTuple):
    """Request to compute the row arrays from the initial values of `parameters` parameters."""

    parameters: int


class SurveyRequest(NamedTuple):
    """Request to survey parameters, int64 (c,); the answer is the number of values read."""

    parameters: np.ndarray


class ScanRequest(NamedTuple):
    """Request to scan a block; the answer is the value that the program returns."""

    block: int


def all_specs(
    design: Design, program: RoundProgram, rule: SelectionRule, room: HeldColumnsCapacity, shape: RoundLoopShape
) -> tuple[dict[str, ArraySpec], dict[str, ArraySpec]]:
    """Return the specs of the shared arrays: of the program and its rounds, and of the held columns."""
    return program.shared_arrays() | round_specs(design, program, rule, shape), held_specs(design, room)


def attach(attachment: DynamicWorkerArguments) -> Callable[[Any], Any]:
    """Build the program, compile its kernels, and return the message handler (see `blocks.workers`)."""
    design = Design(Path(attachment.design))
    spec, rule = attachment.program, attachment.rule
    program = rounds_of(spec, design, attachment.room.columns)
    with report_numba_errors(program):
        for form in design.block_forms:
            compile_kernels(partial(try_rounds, spec, form, rule, program.group))
    return RoundWorker(design, program, attachment, os.getppid())


class RoundWorker:
    """Handles the messages of one worker.

    coordinator: id of the process that started the interpreter from which workers are forked.
    """

    def __init__(
        self, design: Design, program: RoundProgram, attachment: DynamicWorkerArguments, coordinator: int
    ) -> None:
        self._design, self._program, self._attachment = design, program, attachment
        self._coordinator = coordinator
        specs = all_specs(design, program, attachment.rule, attachment.room, attachment.shape)
        each = zip(specs, attachment.descriptors, strict=True)
        self._shared = {name: array for known in each for name, array in SharedArrays(*known).items()}
        self._do: dict[type, Callable[[Any], Any]] = {
            WorkerIndexMessage: self._number,
            ColumnsToCopy: self._gather,
            InitializeRowsRequest: lambda message: self._loop.start(message.parameters),
            RunRoundsRequest: self._run,
            SurveyRequest: lambda message: self._loop.survey(*message),
            ScanRequest: self._scan,
        }

    def __call__(self, message: Any) -> Any:
        """Handle a message; returns the answer."""
        return self._do[type(message)](message)

    def _number(self, message: WorkerIndexMessage) -> None:
        rule, shape = self._attachment.rule, self._attachment.shape
        self._loop = RoundLoop(self._program, rule, shape, message.number, self._shared)

    def _gather(self, gathering: ColumnsToCopy) -> None:
        gather(self._design, gathering, held_columns_of_arrays(self._design, self._shared))

    def _scan(self, message: ScanRequest) -> Any:
        first = int(self._design.block_bounds[message.block])
        return self._program.scan(BlockScan(first, self._design.block(message.block), self._shared))

    def _run(self, stretch: RunRoundsRequest) -> int:
        before = self._loop.samples
        go_on(self._loop.run(*stretch), self._coordinator)
        return self._loop.samples - before


def go_on(steps: Iterator[bool], coordinator: int) -> None:
    """Run an iterator that yields whether it is waiting, and sleep after each True.

    If other processes need the processor, the kernel resumes a process that has slept sooner than one that has yielded.
    Raises WorkFailed if the coordinator has ended, because nothing else would stop this worker.
    """
    last = time.monotonic()
    for waits in steps:
        if waits:
            time.sleep(_NAP)
        if (now := time.monotonic()) - last > _LOOK_ROUND:
            last = now
            if psutil.Process(os.getppid()).ppid() != coordinator:
                raise WorkFailed("the main process of this worker has ended")
