"""Opening the model of a run, of whatever kind."""

from __future__ import annotations

import sys
from pathlib import Path

from blocks.errors import RequestError
from blocks.files import read_json
from ooc.run import Run
from samplers.factorization import model as factor_model
from samplers.factorization.model import FactorModel
from samplers.lda.chains import best_chain, is_chains
from samplers.regression import model as regression_model
from samplers.regression import softmax_model
from samplers.regression.model import RegressionModel
from samplers.regression.softmax_model import SoftmaxModel
from samplers.topics.model import MANIFEST, SCHEMA, Model


def model_directory(path: Path) -> Path:
    """Where the model of a run is, or the model directory that is given; RequestError if the run is not finished.

    Of several chains it is that of the best, which is said on standard error.
    """
    if is_chains(path):
        path = best_chain(path)
        print(f"{path} is the chain with the best final likelihood", file=sys.stderr)
    if (path / MANIFEST).exists():
        return path
    run = Run(path)
    if not (path / "model").exists():
        raise RequestError(
            f"{path} has no model yet: {len(run.metrics())} of {run.config['iterations']} iterations are done",
            f"Finish it with `ooc resume {path}`; --iterations can also be fewer than were planned.",
        )
    return path / "model"


def open_model(path: Path) -> Model:
    """The topic model of a run, or of a model directory."""
    return Model(model_directory(path))


def open_factors(path: Path) -> FactorModel:
    """The factorization of a run, or of a model directory."""
    return FactorModel(model_directory(path))


def open_any_model(path: Path) -> Model | FactorModel | RegressionModel | SoftmaxModel:
    """The model of a run, or of a model directory."""
    directory = model_directory(path)
    kind = read_json(directory / MANIFEST, what="a trained model", schema=SCHEMA)["kind"]
    if kind == regression_model.KIND:
        return RegressionModel(directory)
    if kind == softmax_model.KIND:
        return SoftmaxModel(directory)
    return FactorModel(directory) if kind == factor_model.KIND else Model(directory)
