"""Validate a stochastic program and its options before training."""

from __future__ import annotations

from typing import TYPE_CHECKING

from blocks.errors import RequestError
from blocks.plurals import count_of
from ooc.stochastic.elements import KINDS
from ooc.stochastic.program_functions import check_functions
from ooc.stochastic.variable_arrays import check_variable

if TYPE_CHECKING:
    from ooc.stochastic.program import StochasticProgram

STRATEGIES = ("reweight", "average", "accumulate")


def check_declared(program: StochasticProgram) -> None:
    """Raise RequestError if a program's options, variables or functions are invalid."""
    if program.first_degree < 1 or program.most < 1:
        least = min(program.first_degree, program.most)
        raise RequestError(f"--parallelism must be at least 1, got {least}")
    if program.rounds < 1:
        raise RequestError(f"--sync-per-pass must be at least 1, got {program.rounds}")
    if program.strategy not in STRATEGIES:
        raise RequestError(
            f"--strategy: unknown strategy {program.strategy!r}", f"Choose one of: {', '.join(STRATEGIES)}."
        )
    if type(program.dataset) not in KINDS:
        dataset = program.dataset
        raise RequestError(f"{dataset.path} is a {dataset.kind}, which has no elements to process")
    for name, declared in program.declared.items():
        check_variable(name, declared)
    check_functions(program)


def check_sizes(program: StochasticProgram) -> None:
    """Raise RequestError if there are too few elements for the workers, or if machines would have unequal numbers of
    workers."""
    if program.adaptive and "loss" not in program.functions:
        raise RequestError("--parallelism auto requires a program with a loss", "Set a number, or define `loss`.")
    if program.first_degree % program.machines:
        raise RequestError(
            f"--parallelism must be a multiple of {program.machines}, the number of machines; got "
            f"{program.first_degree}"
        )
    if program.rounds * (program.most // program.machines) > program.elements:
        raise RequestError(
            f"{program.elements} {program.dataset.counted} are too few for {program.most // program.machines} parallel "
            f"learners and {count_of(program.rounds, 'synchronization')} per pass",
            "Reduce --parallelism.",
        )
