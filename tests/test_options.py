"""The description of the options, from the outside: the command, a file of options, Python, a launch, estimators."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from blocks.errors import RequestError
from ooc.cli.app import app
from ooc.cli.command import command_options
from ooc.cli.config import read_config
from ooc.cli.options import read
from ooc.cli.session import choose
from samplers import (
    ElasticNet,
    LatentDirichletAllocation,
    LogisticRegression,
    MatrixFactorization,
    PoissonRegressor,
    SoftmaxRegression,
)
from samplers.factorization.options import FactorizationOptions
from samplers.factorization.programs import METHODS
from samplers.factorization.training import train_mf
from samplers.lda.options import LdaOptions
from samplers.lda.programs import SAMPLERS
from samplers.lda.training import train_lda
from samplers.options import DescribedField, Options, TrainingResources, described, takers
from samplers.regression.options import RegressionOptions, SoftmaxOptions
from samplers.regression.softmax.training import train_softmax
from samplers.regression.training import train_regression

TRAIN: Any = get_command(app).commands["train"]  # type: ignore[attr-defined]
MODELS: dict[str, tuple[type[Options], Callable[..., Any], type]] = {
    "lda": (LdaOptions, train_lda, LatentDirichletAllocation),
    "mf": (FactorizationOptions, train_mf, MatrixFactorization),
    "softmax": (SoftmaxOptions, train_softmax, SoftmaxRegression),
    "lasso": (RegressionOptions, train_regression, ElasticNet),
    "logistic": (RegressionOptions, train_regression, LogisticRegression),
    "poisson": (RegressionOptions, train_regression, PoissonRegressor),
}
OTHER_DEFAULTS = {  # of estimators: those of scikit-learn
    "n_components": "has none on the command line",
    "n_jobs": "is all cores",
    "random_state": "is anything",
    "standardize": "is left to a pipeline",
    "l1_ratio": "is that of scikit-learn's ElasticNet",
    "alpha": "is one penalty, where the command has a path",
    "verbose": "is 0, where the command tells what it does",
}
KINDS = [pytest.param(kind, name, id=name) for name, (kind, _, _) in MODELS.items()]


def all_options(kind: type[Options]) -> list[DescribedField]:
    return [*described(kind).values(), *described(TrainingResources).values()]


def a_value(each: DescribedField) -> Any:
    """A value that is not the default, as a file has it."""
    option = each.option
    if option.choices:
        return option.choices.split("|")[-1]
    if each.type is bool:
        return each.default is False
    if option.read:
        return {"A[,A...]": [0.5, 0.25], "SIZE": "2GB", "auto|M": "3"}[str(option.metavar)]
    return {int: 7, float: 0.25, str: "word", Path: "place"}.get(each.type, ["word"])


@pytest.mark.parametrize(("kind", "name"), KINDS)
def test_a_command_has_what_is_described(kind: type[Options], name: str) -> None:
    options = command_options(TRAIN.commands[name])
    for each in all_options(kind):
        if not each.option.help:
            assert each.name not in options
            continue
        made = options[each.name]
        assert made.help == each.option.help
        assert made.required == each.is_required
        assert made.default == (None if each.is_required or each.default == () else each.default)
        assert (made.min, made.max) == (each.option.least, each.option.most) if hasattr(made, "min") else True


@pytest.mark.parametrize(("kind", "name"), KINDS)
def test_a_file_says_the_same_as_the_command_line(kind: type[Options], name: str, tmp_path: Path) -> None:
    """Each option, in the file and as words, has the same value."""
    from ooc.runs.start_command import toml

    command = TRAIN.commands[name]
    taken = [each for each in all_options(kind) if each.option.help and each.name != "quiet"]
    lines = [f"{each.name} = {toml(a_value(each))}" for each in taken]
    (tmp_path / "mine.toml").write_text("\n".join(lines))
    found = read_config(tmp_path / "mine.toml", ["train", name], command_options(command))
    assert found.keys() == {each.field for each in taken}
    of_file = command.make_context(name, ["data", "run", f"--config={tmp_path}/mine.toml"]).params
    words = [word for each in taken for word in as_words(each)]
    assert of_file == command.make_context(name, ["data", "run", *words]).params
    for of in (kind, TrainingResources):
        chosen = read(of, of_file)
        for each in described(of).values():
            value = getattr(chosen, each.field)
            assert (value == each.default) == (each not in taken), each.name
            assert isinstance(value, each.type if isinstance(each.type, type) else object)


def as_words(each: DescribedField) -> list[str]:
    value = a_value(each)
    if isinstance(value, bool):
        return [f"--{each.name}" if value else f"--no-{each.name}"]
    if each.option.metavar == "A[,A...]":
        return [f"--{each.name}={','.join(map(str, value))}"]
    return [f"--{each.name}={one}" for one in (value if isinstance(value, list) else [value])]


@pytest.mark.parametrize(("kind", "name"), KINDS)
def test_python_takes_them_by_their_names(kind: type[Options], name: str) -> None:
    parameters = inspect.signature(MODELS[name][1]).parameters
    for each in all_options(kind):
        expected = inspect.Parameter.empty if each.is_required else each.default
        assert parameters[each.field].default is expected
    assert parameters.keys() - {"data", "path", "ring", "callback"} == {each.field for each in all_options(kind)}


@pytest.mark.parametrize(("kind", "name"), KINDS)
def test_an_estimator_has_them_or_there_is_a_reason(kind: type[Options], name: str) -> None:
    """And the same default, or a reason again."""
    parameters = inspect.signature(MODELS[name][2]).parameters
    names = {"logistic": {"alpha": "C"}}.get(name, {})
    for each in all_options(kind):
        parameter = names.get(each.parameter, each.parameter)
        if in_process(name) and each.field in vars(TrainingResources):
            continue
        assert (parameter in parameters) != ("estimator" in each.option.without), parameter
        if parameter in parameters and parameters[parameter].default != each.default:
            assert each.parameter in OTHER_DEFAULTS, parameter


def in_process(name: str) -> bool:
    """Whether an estimator trains without a run."""
    return name not in ("lda", "mf")


@pytest.mark.parametrize(("kind", "name"), KINDS)
def test_a_launch_takes_them_or_says_what_to_do(kind: type[Options], name: str) -> None:
    """As options of one command that several machines can be asked for, and are asked for alike."""
    required = [word for each in described(kind).values() if each.is_required for word in as_words(each)]
    for each in all_options(kind):
        if not each.option.help:
            continue
        words = ["train", name, "data", "run", *required, *as_words(each)]
        if each.option.alone and a_value(each) not in each.option.harmless:
            with pytest.raises(RequestError, match=f"--{each.name} .* cannot be used on several machines") as refused:
                choose(words, 2)
            assert refused.value.remedy == each.option.alone
        else:
            chosen = choose(words, 2)
            assert choose(chosen.arguments, 2) == chosen
            assert chosen.parameters[each.field] == choose(words, 2).parameters[each.field]


def test_values_that_none_can_have_are_refused() -> None:
    with pytest.raises(RequestError, match="--iterations must be at least 1, got 0"):
        LdaOptions(topics=2, iterations=0)
    with pytest.raises(RequestError, match="--schedule: unknown schedule 'magic'"):
        FactorizationOptions(rank=2, schedule="magic")
    with pytest.raises(RequestError, match="--workers must be at least 1, got 0"):
        TrainingResources(workers=0)
    with pytest.raises(TypeError, match="topcs"):
        train_lda(Path("data"), Path("run"), topics=2, topcs=3)


def test_samplers_and_methods_that_take_options_are_there() -> None:
    for kind, known in ((LdaOptions, SAMPLERS), (FactorizationOptions, METHODS)):
        for takes in takers(kind).values():
            assert set(takes) <= set(known)
    assert {*described(LdaOptions)["sampler"].option.words} == {"auto", *SAMPLERS}


def test_the_table_of_options_has_no_blank_without_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(Path(__file__).resolve().parents[1] / "docs")
    table = importlib.import_module("reference").options()
    rows = [line.split(" | ") for line in table.splitlines() if line.startswith("| `") or line.startswith("| (")]
    apart = [kind for name, (kind, _, _) in MODELS.items() if name not in ("logistic", "poisson")]
    assert len(rows) == sum(len(all_options(kind)) for kind in apart)
    for row in rows:
        assert all(cell.strip("| ") for cell in row[:4]), row
