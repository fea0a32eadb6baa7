"""`ooc train` and `ooc resume`: train models, on one machine or several."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from blocks.plurals import count_of
from ooc.cli.console import JSON, print_json, print_line
from ooc.cli.options import DescribedCommand, on_ring, options, parameter, read, takes
from ooc.cli.session import RING, all_but_paths, options_equal_on_ranks, session
from samplers.factorization.options import FactorizationOptions
from samplers.lda.options import LdaOptions
from samplers.options import Options, ProgramOptions, ResumeOptions, TrainingResources
from samplers.regression.options import RegressionOptions, SoftmaxOptions

Train = Callable[..., dict[str, Any]]

app = typer.Typer(help="Train a model on a dataset.", no_args_is_help=True, rich_markup_mode=None)

RUN = parameter(
    "run",
    Annotated[Path, typer.Argument(metavar="RUN", help="Directory of the run: the model, its state and its metrics.")],
)

_VALUES = {  # fields of the last line of the metrics that are shown
    "log_likelihood_per_token": "log-likelihood per token {:.4f}",
    "held_out_log_likelihood_per_token": "held-out {:.4f}",
    "objective": "objective {:.6g}",
    "duality_gap": "duality gap {:.2g}",
    "rmse": "RMSE {:.4f}",
    "held_out_rmse": "held-out {:.4f}",
    "held_out_percentile_rank": "held-out percentile rank {:.2%}",
    "error": "error {:.4f}",
    "held_out_error": "held-out error {:.4f}",
}


def trains(name: str, kind: type[Options], data: str) -> Callable[[Callable[..., None]], DescribedCommand]:
    """Return a decorator that turns a function into a command of `ooc train`.

    kind: options class of the command.
    data: help of the argument DATA.
    """
    of_data = parameter("data", Annotated[Path, typer.Argument(help=data)])

    def decorate(function: Callable[..., None]) -> DescribedCommand:
        command = on_ring(takes(of_data, RUN, options(kind), options(TrainingResources), *RING, JSON)(function))
        command.kind = kind
        return app.command(name)(command)

    return decorate


@trains("lda", LdaOptions, "Corpus made by `ooc ingest`.")
def train_lda(**given: Any) -> None:
    """Train a topic model: latent Dirichlet allocation (LDA).

    Example: ooc train lda corpus run --topics 100 --memory 512MB
    """
    from samplers.lda.training import train

    _train("lda", train, LdaOptions, given)


@trains("mf", FactorizationOptions, "Ratings made by `ooc ingest ratings`.")
def train_mf(**given: Any) -> None:
    """Train a recommender: matrix factorization of ratings.

    Example: ooc train mf ratings run --rank 64 --held-out others
    """
    from samplers.factorization.training import train

    _train("mf", train, FactorizationOptions, given)


@trains("softmax", SoftmaxOptions, "Samples made by `ooc ingest svmlight --by-rows`.")
def train_softmax(**given: Any) -> None:
    """Train a classifier of samples: a multi-class linear model.

    It is fitted by stochastic gradient descent (AdaGrad) with parallel learners, whose best number is found by trial.

    Example: ooc train softmax samples run --passes 5 --held-out others
    """
    from samplers.regression.softmax.training import train

    _train("softmax", train, SoftmaxOptions, given)


_DESIGN = "Design matrix made by `ooc ingest svmlight|mtx|csv|npz|plink`."


@trains("lasso", RegressionOptions, _DESIGN)
def train_lasso(**given: Any) -> None:
    """Train a Lasso or elastic net on a path of lambdas.

    Minimizes 1/2 |y - a - X b|^2 + lambda |b|_1. Coefficients are on the scale of the input columns.

    Example: ooc train lasso genes run --path 100 --cross-validate 5
    """
    from samplers.regression.training import train

    _train("lasso", train, RegressionOptions, given | {"loss": "squared"})


@trains("logistic", RegressionOptions, _DESIGN)
def train_logistic(**given: Any) -> None:
    """Train an l1-penalized logistic regression on a path of lambdas.

    Minimizes sum_i (log(1 + exp(z_i)) - y_i z_i) + lambda |b|_1 with z = a + X b. y has two values; the larger one
    counts as 1.

    Example: ooc train logistic clicks run --path 100 --lambda-min-ratio 0.001
    """
    from samplers.regression.training import train

    _train("logistic", train, RegressionOptions, given | {"loss": "logistic"})


@trains("poisson", RegressionOptions, _DESIGN)
def train_poisson(**given: Any) -> None:
    """Train an l1-penalized Poisson regression of counts on a path of lambdas.

    Minimizes sum_i (exp(z_i) - y_i z_i) + lambda |b|_1 with z = a + X b. y is at least 0; exp(z) is its mean.

    Example: ooc train poisson claims run --path 100 --cross-validate 5
    """
    from samplers.regression.training import train

    _train("poisson", train, RegressionOptions, given | {"loss": "poisson"})


PROGRAM = parameter("program", Annotated[str, typer.Argument(metavar="MODULE:CLASS", help="Your program.")])
_ROWS = parameter("data", Annotated[Path, typer.Argument(help="A corpus, a matrix of ratings, or samples.")])


@app.command("program")
@on_ring
@takes(PROGRAM, _ROWS, RUN, options(ProgramOptions), options(TrainingResources), *RING, JSON)
def train_program(**given: Any) -> None:
    """Train with a program of your own, a class derived from ooc.StaticProgram.

    The module of the class is imported, so it must be in the current directory or on PYTHONPATH.

    Example: ooc train program kmeans:KMeans ratings run --set clusters=8 --set seed=0
    """
    from samplers.custom_program import find_beside, train

    find_beside()
    _train("program", train, ProgramOptions, given)


def _train(command: str, train: Train, kind: type[Options], given: dict[str, Any]) -> None:
    with session(given, {"command": f"train {command}", **options_equal_on_ranks(all_but_paths(kind, given))}) as here:
        chosen, resources = read(kind, given, here.place), here.resources(given)
        last = train(here.place(given["data"]), here.place(given["run"]), chosen, resources, here.ring)
    if here.is_first:
        tell(here.place(given["run"]), last, as_json=given["json"])


@on_ring
@takes(
    RUN,
    options(ResumeOptions),
    options(TrainingResources, names=("workers", "memory_bytes", "max_time", "quiet")),
    *RING,
    JSON,
)
def resume(**given: Any) -> None:
    """Continue a stopped or killed run, or train a run for longer.

    A run finds its dataset if both were moved or copied together; otherwise, set --data.

    Example: ooc resume run --iterations 200
    """
    from samplers.custom_program import find_beside
    from samplers.resume import resume_run

    if given["program"]:
        find_beside()
    with session(given, {"command": "resume", **options_equal_on_ranks(all_but_paths(ResumeOptions, given))}) as here:
        run = here.place(given["run"])
        last = resume_run(run, read(ResumeOptions, given, here.place), here.resources(given), here.ring)
    if here.is_first:
        tell(run, last, as_json=given["json"])


def tell(run: Path, last: dict[str, Any], *, as_json: bool) -> None:
    from ooc.runs.run import Run
    from samplers.programs import model_of

    if as_json:
        print_json({"run": str(run), **last})
        return
    if "best" in last:
        r_hat = "infinite" if last["r_hat"] is None else f"{last['r_hat']:.3f}"
        chains = count_of(last["chains"], "chain")
        print_line(f"R-hat of the log-likelihood of {chains}: {r_hat}; the best chain is {last['best']}")
    unit = "pass" if "schedule" in last else "lambda" if "lambda" in last else "iteration"
    steps = count_of(last["iteration"], unit, "passes" if unit == "pass" else "")
    told = [
        f"{'converged after ' if last.get('converged') else ''}{steps} in {last['elapsed_s']:.1f} s",
        *([count_of(last["nonzeros"], "nonzero coefficient")] if "lambda" in last else []),
        *(told.format(last[name]) for name, told in _VALUES.items() if name in last),
        *([f"{last['live_topics']:,} live topics"] if _has_dead(run, last) else []),
        f"{last['memory_bytes'] / 1e6:.0f} MB of memory",
    ]
    print_line(f"{run}: {', '.join(told)}")
    model = model_of(Run(run).config["program"]) if "best" not in last else "lda"
    if model == "lda":
        print_line(f"See the topics with: ooc topics {run}")
    elif model in ("regression", "softmax"):
        if "chosen_lambda" in last:
            nonzeros = count_of(last["chosen_nonzeros"], "nonzero coefficient")
            best = f"lambda {last['best_lambda']:g} has the smallest cross-validation error"
            print_line(
                f"lambda {last['chosen_lambda']:g} was chosen by the one-standard-error rule, with {nonzeros}; {best}"
            )
        print_line(f"Predict with: ooc predict {run} DATA OUT")
    elif model == "mf":
        print_line(f"Recommend items with: ooc recommend {run} --user NAME")
    else:
        print_line(f"The model is in {run / 'model'}")


def _has_dead(run: Path, last: dict[str, Any]) -> bool:
    """Return whether a topic model has dead topics."""
    from ooc.runs.run import Run

    return "live_topics" in last and last["live_topics"] < Run(run / last.get("best", "")).config["options"]["topics"]
