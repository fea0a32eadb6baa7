"""Observer of a topic model's training: evaluates and publishes the model according to the settings of the run."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta

from blocks.corpus.dataset import Dataset
from ooc.engine import StaticEngine
from ooc.runs.run import Run
from ooc.runs.schemas import HeldOutObserverSettings
from ooc.training import publish_model
from samplers.lda.averaging import keep_state, publish_average
from samplers.lda.convergence import evaluations, has_converged
from samplers.lda.held_out import held_out_likelihood, present_model
from samplers.lda.program import LdaProgram


class LdaSettings(HeldOutObserverSettings):
    """Settings of the observer."""

    stop_when_converged: bool
    average: Annotated[int, Meta(ge=1, lt=1 << 53)]


class LdaObserver:
    """Observer of a run.

    workers: number of processes that rank 0 uses for evaluations.
    """

    def __init__(self, run: Run, workers: int, *, first: bool = True) -> None:
        self._run, self._workers = run, workers
        self._settings = run.settings(LdaSettings)
        self._every: int = run.config["evaluate_every"]
        self._held_out = run.held_out(Dataset) if first else None
        self._bounds_logged: set[str] = set()

    def observe(self, engine: StaticEngine, line: dict[str, Any]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        self._log_bounds(engine, line["iteration"])
        if self._is_due(line["iteration"]):
            keep_state(engine, self._run.path, line["iteration"], self._settings["average"], self._every)
        if self._settings["held_out"]:
            with present_model(engine, self._run.path) as model:
                likelihood = (
                    held_out_likelihood(model, self._held_out, self._workers) if model and self._held_out else {}
                )
            found |= engine.gather(likelihood)[0]
        if self._settings["stop_when_converged"]:
            values = evaluations([*self._run.metrics(), line | found], self._every, self._run.config["extended_at"])
            found |= {"converged": True} if has_converged(values, self._settings["average"]) else {}
        return found

    def _log_bounds(self, engine: StaticEngine, iteration: int) -> None:
        """Log, once per bound, in log.txt that an estimated prior has reached a bound."""
        if not isinstance(engine.program, LdaProgram):
            return
        for bound, message in engine.program.bounds_met(iteration, engine.arrays).items():
            if bound not in self._bounds_logged:
                self._bounds_logged.add(bound)
                self._run.log(f"iteration {iteration}: {message}")

    def _is_due(self, iteration: int) -> bool:
        """Return whether the state after an iteration may be part of the final average."""
        states = self._settings["average"]
        if states == 1 or iteration % self._every:
            return False
        first = self._run.config["iterations"] - states * self._every
        return self._settings["stop_when_converged"] or iteration > first

    def finish(self, engine: StaticEngine) -> None:
        if self._settings["average"] == 1:
            publish_model(self._run, engine)
        elif engine.is_first:
            publish_average(self._run, self._run.dataset(Dataset), engine.cursor.iteration)
