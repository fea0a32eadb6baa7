"""The stochastic engine for scripts: run passes and functions of a program, without a run directory."""

from __future__ import annotations

import functools
from contextlib import ExitStack
from typing import Any

import numpy as np

from blocks import memory
from blocks.control_groups import core_count
from blocks.files import temporary_directory
from blocks.stored_dataset import StoredDataset
from ooc.engine import StaticEngine
from ooc.plan.memory_plan import make_plan
from ooc.state.cell_layout import CellLayout
from ooc.state.generations import StateGenerations
from ooc.stochastic.program import StochasticProgram
from ooc.stochastic.variables import KEPT, SCALE, unpacked
from ooc.workers.worker import ProgramSpec

_SHARE = 0.8  # fraction of the available memory used if no limit is given


class StochasticEngine(StaticEngine):
    """Engine that runs a program on a dataset, starting from its initial values. Use as a context manager.

    For a run directory with metrics, commits and resume, use `create_run` and `train` with the same program.

    Parameters
    ----------
    dataset : dataset
        Dataset to train on.
    spec : ProgramSpec
        Program and its options.
    workers : int, optional
        Number of processes; None for all cores.
    memory_bytes : int, optional
        Memory limit of all processes together.
    """

    def __init__(
        self, dataset: StoredDataset, spec: ProgramSpec, *, workers: int | None = None, memory_bytes: int | None = None
    ) -> None:
        program = spec.build(dataset)
        assert isinstance(program, StochasticProgram)
        budget = memory_bytes or int(_SHARE * memory.available_memory())
        plan = make_plan(dataset, program, workers or core_count(), budget)
        self._directory = ExitStack()
        place = self._directory.enter_context(temporary_directory())
        try:
            layout = CellLayout(dataset.cells, program.local_state())
            generations = StateGenerations.to_write(place / "state", dataset, layout)
            super().__init__(dataset, spec, generations, plan)
            self.start()
        except BaseException:
            self._directory.close()
            raise

    def __enter__(self) -> StochasticEngine:
        return self

    def __exit__(self, *exception: object) -> None:
        super().__exit__(*exception)
        self._directory.close()

    def run(self, passes: int = 1) -> None:
        """Process all elements `passes` times."""
        for _ in range(passes * len(self.program.phases)):
            self.step()

    def map(self, name: str) -> np.ndarray:
        """Return the values of a function of the program (`loss` or one of `maps`) for all elements, float64 (n,)."""
        return np.concatenate(list(self._stochastic.values(name, self.sweep)))

    def reduce(self, name: str, function: np.ufunc = np.add) -> float:
        """Return the values of a function, reduced with a ufunc in element order."""
        parts = (function.reduce(part) for part in self._stochastic.values(name, self.sweep) if part.size)
        return float(functools.reduce(function, parts))

    def variables(self) -> dict[str, Any]:
        """Return copies of the shared variables in their declared shapes."""
        return {name: value.copy() for name, value in self._stochastic.variables(self.arrays).items()}

    def solutions(self, name: str) -> np.ndarray:
        """Return a variable of each worker in the last batch before they were combined, (workers, ...)."""
        if int(self.arrays["choice"][0]) == 1:  # the only worker has changed the variable itself
            return self.variables()[name][None]
        declared, arrays, found = self._stochastic.declared[name], self.arrays, []
        for slot in range(min(self._stochastic.slots, int(arrays["choice"][0]))):
            state, rows = arrays[f"{name}.states"][slot], arrays[f"{name}.values"][slot].copy()
            untouched = arrays[f"{name}.stamps"][slot] != arrays[f"{name}.epochs"][slot]
            rows[untouched] = state[KEPT] * arrays[name][untouched]
            found.append(unpacked(declared.shape, state[SCALE] * rows))
        return np.stack(found)

    @property
    def _stochastic(self) -> StochasticProgram:
        assert isinstance(self.program, StochasticProgram)
        return self.program
