"""`ooc train` and `ooc resume`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from cli.console import QUIET, Json, Overwrite, Workers, be_quiet, one_of, print_json, say
from cli.session import Transport, refuse_on_ring, session

app = typer.Typer(help="Train a model.", no_args_is_help=True, rich_markup_mode=None)

Memory = Annotated[
    str | None,
    typer.Option(metavar="SIZE", help="Memory of all processes, as 2GB [default: four fifths of what is free]."),
]
RunPath = Annotated[Path, typer.Argument(metavar="RUN", help="The run: a directory.")]
Iterations = Annotated[int, typer.Option(min=1, help="Passes over the data.")]
MaxTime = Annotated[float | None, typer.Option(metavar="SECONDS", help="Stop after this long; resume goes on.")]
Seed = Annotated[int, typer.Option(min=0, help="The same seed gives the same model, bit for bit.")]
Scratch = Annotated[
    Path | None,
    typer.Option(help="A directory on a faster disk, for the state of the run [default: in the run]."),
]
Quiet = Annotated[bool, typer.Option("--quiet", help=QUIET, callback=be_quiet)]

_VALUES = {  # of the last line of the metrics, as they are told
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


@app.command("lda")
def train_lda(
    context: typer.Context,
    data: Annotated[Path, typer.Argument(help="A dataset made by `ooc ingest`.")],
    run: RunPath,
    topics: Annotated[int, typer.Option(help="Number of topics, 1 to 1,000,000.")],
    iterations: Iterations = 100,
    sampler: Annotated[
        str,
        one_of("auto|two-phase|lightlda|aliaslda|sparselda|sparse-gibbs|gibbs|splash", "How topics are sampled."),
    ] = "auto",
    mh_steps: Annotated[
        int | None, typer.Option(help="Proposals a token, for two-phase, lightlda and aliaslda [default: 2].")
    ] = None,
    proposal: Annotated[str | None, one_of("cycle|word|doc", "Proposals of lightlda [default: cycle].")] = None,
    update: Annotated[
        str | None,
        one_of(
            "delayed|immediate|rotation|data-parallel",
            "When samplers other than two-phase count what they sampled [default: delayed].",
        ),
    ] = None,
    start: Annotated[
        str | None,
        one_of("scvb0|random", "Topics that sparse-gibbs starts with [default: scvb0 unless the model is large]."),
    ] = None,
    parallelism: Annotated[
        int | None,
        typer.Option(help="Of splash: workers that are combined, whatever the processes [default: 1 of each machine]."),
    ] = None,
    sync_per_pass: Annotated[
        int | None, typer.Option(min=1, help="Of splash: how often in a pass they are combined [default: 1].")
    ] = None,
    alpha: Annotated[
        str | None,
        typer.Option(
            metavar="A[,A...]", help="Prior of a topic in a document, or of each topic [default: by --topics]."
        ),
    ] = None,
    beta: Annotated[float | None, typer.Option(help="Prior of a word in a topic [default: 0.05].")] = None,
    optimize_every: Annotated[
        int,
        typer.Option(
            min=0,
            help="Iterations between estimations of alpha (from 0.01/K to 100 for each topic) and beta (up to 1); "
            "0: they stay as they are.",
        ),
    ] = 0,
    burn_in: Annotated[
        int | None, typer.Option(min=0, help="Iterations before the first estimation of the priors [default: 20].")
    ] = None,
    evaluate_every: Annotated[int, typer.Option(min=1, help="Iterations between values of the likelihood.")] = 10,
    held_out: Annotated[
        Path | None, typer.Option(help="Documents to evaluate on, ingested with --vocab-from DATA.")
    ] = None,
    stop_when_converged: Annotated[
        bool, typer.Option("--stop-when-converged", help="Stop when three evaluations gained less than 0.003 in all.")
    ] = False,
    average: Annotated[
        int | None,
        typer.Option(
            help="The model is the average over so many states, one at each of the last evaluations "
            "[default: sparse-gibbs has a running mean over all iterations; else 1, the last]."
        ),
    ] = None,
    chains: Annotated[
        int, typer.Option(help="Train so many models, from seeds that follow each other, and compare them by R-hat.")
    ] = 1,
    staleness: Annotated[
        int | None,
        typer.Option(help="Of the totals of topics on several machines: phases that they may be behind [default: 1]."),
    ] = None,
    transport: Transport = None,
    workers: Workers = None,
    memory: Memory = None,
    seed: Seed = 0,
    max_time: MaxTime = None,
    scratch: Scratch = None,
    overwrite: Overwrite = False,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Topics of documents: latent Dirichlet allocation.

    Example: ooc train lda corpus run --topics 100 --memory 512MB
    """
    with session(transport) as here:
        common: dict[str, Any] = {
            "topics": topics,
            "iterations": iterations,
            "sampler": sampler,
            "mh_steps": mh_steps,
            "proposal": proposal,
            "parallelism": parallelism,
            "sync_per_pass": sync_per_pass,
            "alpha": _alpha(alpha) if alpha else None,
            "beta": beta,
            "optimize_every": optimize_every,
            "burn_in": burn_in,
            "seed": seed,
            "workers": here.workers or workers,
            "memory_bytes": here.memory or bytes_of(memory),
            "evaluate_every": evaluate_every,
            "held_out": held_out and here.place(held_out),
            "stop_when_converged": stop_when_converged,
            "average": average,
            "max_time": here.limit(max_time),
            "scratch": scratch and here.place(scratch),
            "overwrite": overwrite,
            "quiet": quiet or here.quiet,
        }
        if here.ring:
            from samplers.lda.ring_training import train_lda_on_ring

            refuse_on_ring("train lda", context.params)
            common["staleness"] = staleness
            if scratch == Path("node"):
                common |= {"scratch": None, "on_node": True}
            last = train_lda_on_ring(here.place(data), here.place(run), here.ring, **common)
        else:
            from samplers.lda import training

            _refuse_staleness(staleness)
            last = training.train_lda(
                data,
                run,
                update=update,
                start=start,
                chains=chains,
                **common,
            )
    if here.is_first:
        tell(here.place(run), last, as_json=json)


@app.command("mf")
def train_mf(
    context: typer.Context,
    data: Annotated[Path, typer.Argument(help="A matrix made by `ooc ingest ratings`.")],
    run: RunPath,
    rank: Annotated[int, typer.Option(help="Factors of each user and item.")],
    iterations: Iterations = 20,
    method: Annotated[str | None, one_of("sgd|ccd|als|splash", "How factors are found [default: sgd].")] = None,
    regularization: Annotated[
        float | None, typer.Option(help="Weight of the squared factors [default: 0.03; by row 1].")
    ] = None,
    penalty: Annotated[
        str | None,
        one_of("entry|row", "Whether it counts for each rating, or once for each user and item [default: entry]."),
    ] = None,
    biases: Annotated[
        bool | None,
        typer.Option("--biases/--no-biases", help="Users and items have biases [default: yes, where possible]."),
    ] = None,
    center: Annotated[
        bool | None, typer.Option("--center/--no-center", help="The mean rating is taken out [default: yes].")
    ] = None,
    nonnegative: Annotated[bool, typer.Option("--nonnegative", help="No factor is below 0, for ccd.")] = False,
    implicit: Annotated[
        bool, typer.Option("--implicit", help="Values count what users did, rather than rate it, for als.")
    ] = False,
    alpha: Annotated[
        float | None, typer.Option(help="Confidence that a count of 1 adds, with --implicit [default: 1].")
    ] = None,
    rate: Annotated[float | None, typer.Option(help="Of the first steps of sgd [default: 0.15].")] = None,
    schedule: Annotated[
        str | None,
        one_of(
            "rotation|bsp",
            "Of sgd: no two workers at the same row or column [the default], or data-parallel, to compare with.",
        ),
    ] = None,
    replicas: Annotated[int | None, typer.Option(help="Of all columns, with --schedule bsp [default: 2].")] = None,
    combine: Annotated[
        str | None, one_of("mean|sum", "What the replicas changed is taken over as [default: mean].")
    ] = None,
    steps: Annotated[
        int | None, typer.Option(help="Conjugate gradients of als for each user and item [default: 3].")
    ] = None,
    parallelism: Annotated[
        str | None,
        typer.Option(metavar="auto|M", help="Of splash: workers that are combined [default: auto]."),
    ] = None,
    sync_per_pass: Annotated[
        int | None, typer.Option(min=1, help="Of splash: how often in a pass they are combined [default: 1].")
    ] = None,
    evaluate_every: Annotated[int, typer.Option(min=1, help="Iterations between values of the objective.")] = 1,
    held_out: Annotated[
        Path | None, typer.Option(help="Ratings to evaluate on, ingested with --names-from DATA.")
    ] = None,
    transport: Transport = None,
    workers: Workers = None,
    memory: Memory = None,
    seed: Seed = 0,
    max_time: MaxTime = None,
    scratch: Scratch = None,
    overwrite: Overwrite = False,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Factors of users and items from ratings: matrix factorization.

    Example: ooc train mf ratings run --rank 64 --held-out others
    """
    from samplers.factorization.training import train_mf as train

    with session(transport) as here:
        on_node = here.ring is not None and scratch == Path("node")
        if here.ring:
            refuse_on_ring("train mf", context.params)
        last = train(
            here.place(data),
            here.place(run),
            rank=rank,
            iterations=iterations,
            method=method,
            regularization=regularization,
            penalty=penalty,
            biases=biases,
            center=center,
            nonnegative=nonnegative,
            implicit=implicit,
            alpha=alpha,
            rate=rate,
            schedule=schedule,
            replicas=replicas,
            combine=combine,
            steps=steps,
            parallelism=_parallelism(parallelism) if parallelism else None,
            sync_per_pass=sync_per_pass,
            evaluate_every=evaluate_every,
            held_out=held_out and here.place(held_out),
            workers=here.workers or workers,
            memory_bytes=here.memory or bytes_of(memory),
            seed=seed,
            max_time=here.limit(max_time),
            scratch=here.place(scratch) if scratch and not on_node else None,
            overwrite=overwrite,
            quiet=quiet or here.quiet,
            ring=here.ring,
            on_node=on_node,
        )
    if here.is_first:
        tell(here.place(run), last, as_json=json)


@app.command("softmax")
def train_softmax(
    data: Annotated[Path, typer.Argument(help="Samples made by `ooc ingest svmlight --by-rows`.")],
    run: RunPath,
    passes: Annotated[int, typer.Option(min=1, help="Over the data.")] = 10,
    loss: Annotated[str, one_of("softmax|hinge|squared", "The latter are one class against the rest.")] = "softmax",
    rate: Annotated[float, typer.Option(help="Of the first steps; they are AdaGrad's.")] = 0.5,
    regularization: Annotated[float, typer.Option(help="Weight of the squared weights, for each sample.")] = 0.0,
    parallelism: Annotated[
        str, typer.Option(metavar="auto|M", help="Workers whose results are combined, whatever the processes.")
    ] = "auto",
    most_parallelism: Annotated[
        int | None, typer.Option(min=1, help="Of the workers that auto tries [default: 16].")
    ] = None,
    sync_per_pass: Annotated[int, typer.Option(min=1, help="How often in a pass they are combined.")] = 1,
    evaluate_every: Annotated[int, typer.Option(min=1, help="Passes between values of the objective.")] = 1,
    held_out: Annotated[
        Path | None, typer.Option(help="Samples to evaluate on, ingested with --columns-from DATA.")
    ] = None,
    transport: Transport = None,
    workers: Workers = None,
    memory: Memory = None,
    seed: Seed = 0,
    max_time: MaxTime = None,
    overwrite: Overwrite = False,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Classes of samples: multi-class regression.

    By stochastic gradient descent, on as many workers as serve it best.

    Example: ooc train softmax samples run --passes 5 --held-out others
    """
    from samplers.regression.softmax.training import train_softmax as train

    with session(transport) as here:
        last = train(
            here.place(data),
            here.place(run),
            passes=passes,
            loss=loss,
            rate=rate,
            regularization=regularization,
            parallelism=_parallelism(parallelism),
            most_parallelism=most_parallelism,
            sync_per_pass=sync_per_pass,
            evaluate_every=evaluate_every,
            held_out=held_out and here.place(held_out),
            workers=here.workers or workers,
            memory_bytes=here.memory or bytes_of(memory),
            seed=seed,
            max_time=here.limit(max_time),
            overwrite=overwrite,
            quiet=quiet or here.quiet,
            ring=here.ring,
        )
    if here.is_first:
        tell(here.place(run), last, as_json=json)


def resume(
    run: RunPath,
    iterations: Annotated[int | None, typer.Option(help="Train to this many in all [default: as planned].")] = None,
    program: Annotated[
        str | None,
        typer.Option(metavar="MODULE:CLASS", help="Your own program, if the run is one of it: its code is imported."),
    ] = None,
    data: Annotated[
        Path | None, typer.Option(help="Where the dataset of the run is now, if it was moved alone; the run notes it.")
    ] = None,
    held_out: Annotated[Path | None, typer.Option(help="Likewise what it evaluates on.")] = None,
    transport: Transport = None,
    workers: Workers = None,
    memory: Memory = None,
    max_time: MaxTime = None,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Go on with a run that was stopped or killed, or for longer.

    A run and its dataset that were moved or copied together find each other.

    Example: ooc resume run --iterations 200
    """
    from samplers.lda import training

    with session(transport) as here:
        last = training.resume(
            here.place(run),
            iterations=iterations,
            workers=here.workers or workers,
            memory_bytes=here.memory or bytes_of(memory),
            max_time=here.limit(max_time),
            quiet=quiet or here.quiet,
            ring=here.ring,
            program=program,
            data=data and here.place(data),
            held_out=held_out and here.place(held_out),
        )
    if here.is_first:
        tell(here.place(run), last, as_json=json)


def _refuse_staleness(staleness: int | None) -> None:
    from blocks.errors import RequestError

    if staleness is not None:
        raise RequestError("--staleness is for several machines", "Leave it out, or start them with: ooc launch")


def _alpha(text: str) -> float | list[float]:
    """One number, or a list of those between commas."""
    from blocks.errors import RequestError

    try:
        numbers = [float(number) for number in text.split(",")]
    except ValueError:
        raise RequestError(f"--alpha: {text!r} is no number", "Write one number, or several as 0.1,0.2.") from None
    return numbers if len(numbers) > 1 else numbers[0]


def _parallelism(text: str) -> int | str:
    """How many workers there are, or auto."""
    from blocks.errors import RequestError

    if text != "auto" and not text.isdigit():
        raise RequestError(f"--parallelism {text}: write auto, or how many workers there are")
    return text if text == "auto" else int(text)


def bytes_of(memory: str | None) -> int | None:
    from blocks.memory import parse_size

    return parse_size(memory) if memory else None


def tell(run: Path, last: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        print_json({"run": str(run), **last})
        return
    if "best" in last:
        r_hat = "infinite" if last["r_hat"] is None else f"{last['r_hat']:.3f}"
        say(f"R-hat of the likelihood of {last['chains']} chains: {r_hat}; the best is {last['best']}")
    of = "values of lambda, the last with {nonzeros:,} columns," if "lambda" in last else "iterations"
    of = "passes of rounds, to {nonzeros:,} columns," if "schedule" in last else of
    told = [
        f"{'converged after ' if last.get('converged') else ''}{last['iteration']} {of.format(**last)}"
        f" in {last['elapsed_s']:.1f} s",
        *(told.format(last[name]) for name, told in _VALUES.items() if name in last),
        f"{last['memory_bytes'] / 1e6:.0f} MB",
    ]
    say(f"{run}: {', '.join(told)}")
    if "log_likelihood_per_token" in last:
        say(f"Look at the topics with: ooc topics {run}")
    elif "lambda" in last or "error" in last:
        if "chosen_lambda" in last:
            chosen = "lambda {chosen_lambda:g} is chosen, with {chosen_nonzeros:,} columns; {best_lambda:g} errs least"
            say(chosen.format(**last))
        say(f"Use it with: ooc predict {run} DATA OUT")
    else:
        say(f"Use it with: ooc recommend {run} --user NAME")
