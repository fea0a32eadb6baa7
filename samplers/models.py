"""Open the model of a run, of any kind."""

from __future__ import annotations

from pathlib import Path

from blocks import stderr
from blocks.errors import RequestError
from ooc.runs.chains import is_chains, read_chains
from ooc.runs.replaced_run import MODEL, PREVIOUS
from ooc.runs.run import Run
from samplers.factorization.model import FactorModel
from samplers.lda.chains import best_chain
from samplers.model_files import MANIFEST, read_manifest
from samplers.programs import model_of
from samplers.regression.model import RegressionModel
from samplers.regression.softmax.model import SoftmaxModel
from samplers.topics.model import SavedTopicModel


def model_directory(path: Path) -> Path:
    """Return the model directory of a run, or `path` itself if it is a model directory.

    For a run of several chains, the model of the best chain is used, with a note on standard error.
    Raises RequestError if the run has not finished.
    """
    if is_chains(path) and not read_chains(path)["best"] and (path / PREVIOUS).is_dir():
        return _previous(path)
    if is_chains(path):
        path = best_chain(path)
        stderr.print_note(f"using {path}, the chain with the best log-likelihood")
    if (path / MANIFEST).exists():
        return path
    run = Run(path)
    if not (path / MODEL).exists() and (path / PREVIOUS).is_dir():
        return _previous(path)
    if is_own(run):
        raise RequestError(
            f"{path} was trained by a program of your own, {run.config['program']}: this command cannot read its model",
            f"Its arrays are in {path / MODEL}; in Python, ooc.ProgramRun reads them by name.",
        )
    if not (path / MODEL).exists():
        raise RequestError(
            f"{path} has no model yet: it is at iteration {len(run.metrics())} of {run.config['iterations']}",
            f"Finish the run with: ooc resume {path}  (--iterations N ends it earlier)",
        )
    return path / MODEL


def is_own(run: Run) -> bool:
    """Return whether a run trains a user's program, whose model has its own format."""
    return not model_of(run.config["program"]) and not (run.path / MODEL / MANIFEST).exists()


def _previous(path: Path) -> Path:
    """Return the model of the replaced run, which a run keeps until it has a model itself."""
    stderr.print_note(f"{path} has no model yet: using the model of the run that it replaces")
    return path / PREVIOUS


def open_model(path: Path) -> SavedTopicModel:
    """Open the topic model of a run, or of a model directory."""
    return SavedTopicModel(model_directory(path))


def open_factors(path: Path) -> FactorModel:
    """Open the factorization of a run, or of a model directory."""
    return FactorModel(model_directory(path))


def open_any_model(path: Path) -> SavedTopicModel | FactorModel | RegressionModel | SoftmaxModel:
    """Open the model of a run, or of a model directory."""
    directory = model_directory(path)
    kind = read_manifest(directory)["kind"]
    return {opened.kind: opened for opened in (RegressionModel, SoftmaxModel, FactorModel)}.get(kind, SavedTopicModel)(
        directory
    )
