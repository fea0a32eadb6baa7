"""Train a multi-class linear model on samples in memory, with one worker of the stochastic engine and no run."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from blocks.compiled import inlined_kernel, unmanaged_kernel
from blocks.samples.samples import SampleBlock
from ooc.rng import stream_key
from ooc.stochastic.elements import ElementVisits, sample_at
from ooc.stochastic.variable_arrays import Shared, committed_specs, make_queue, slot_specs, slot_variable
from ooc.stochastic.variables import SCALE, begin
from samplers.regression.softmax.program import SoftmaxProgram, shared_constants, shared_variables, width_of


class SharedVariables(NamedTuple):
    """Shared variables passed to `SoftmaxProgram.process`."""

    weights: Any
    squares: Any
    t: Any
    kind: int
    rate: np.float32
    shrinkage: float
    labels: np.ndarray
    intercepts: int
    ahead: int


class LocalVariables(NamedTuple):
    """Local variables passed to `SoftmaxProgram.process`."""

    scores: np.ndarray


process = inlined_kernel(SoftmaxProgram.process)


@unmanaged_kernel
def process_samples(block, order, sample_weights, visits, shared, local):
    """Process samples of a block in the given order, int64 (n,), with weights, float64 (D,)."""
    for place in range(order.size):
        weight = sample_weights[order[place]]
        if weight > 0.0:
            process(sample_at(block, order[place], visits), weight, shared, local)


class SoftmaxInMemory:
    """Weights for `columns` columns and intercepts for `classes` classes, initially 0; see `SoftmaxProgram`."""

    def __init__(self, columns: int, classes: int, *, kind: int, rate: float, regularization: float) -> None:
        declared, self._queue = shared_variables(columns, classes), make_queue(0)
        self._arrays: dict[str, np.ndarray] = {}
        for name, each in declared.items():
            specs = committed_specs(name, each) | slot_specs(name, each, 1)
            self._arrays |= {array: spec.zeros() for array, spec in specs.items()}
        labels = np.arange(classes, dtype=np.float64)
        self._constants = shared_constants(columns, labels, kind=kind, rate=rate, regularization=regularization)
        self._local = LocalVariables(np.zeros(width_of(classes), np.float32))
        for variable in self._variables(declared):
            begin(variable.store, in_place=True)
        self._declared = declared

    def _variables(self, declared: dict[str, Shared]) -> list[Any]:
        numbered = enumerate(declared.items())
        arrays, queue = self._arrays, self._queue
        return [slot_variable(name, each, arrays, number, 0, queue, in_place=True) for number, (name, each) in numbered]

    def train(self, block: SampleBlock, order: np.ndarray, sample_weights: np.ndarray) -> None:
        """Take one step per sample, in the given order, int64 (n,); labels are class indices."""
        shared = SharedVariables(*self._variables(self._declared), **self._constants)
        visits = ElementVisits(0, block.labels.size, 0, 0, stream_key(0))
        process_samples(block, order, sample_weights, visits, shared, self._local)

    @property
    def weights(self) -> np.ndarray:
        """Return the weights, float32 (columns + 1, classes), with the intercepts in the last row; valid until the next
        training.
        """
        store = self._variables(self._declared)[0].store
        values, scale = store.values[:, : self._constants["labels"].size], store.state[SCALE]
        return values if scale == 1.0 else (scale * values.astype(np.float64)).astype(np.float32)
