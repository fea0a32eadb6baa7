"""`ooc sweep`: train and compare topic models with several numbers of topics and several seeds."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ooc.cli import console
from ooc.cli.console import Json, Workers, note, print_json

if TYPE_CHECKING:
    from blocks.corpus.dataset import Dataset

_RUN = re.compile(r"topics-([1-9][0-9]{0,8})-seed-(0|[1-9][0-9]{0,8})")

Plot = Annotated[
    Path | None,
    typer.Option(metavar="PATH", help="Plot to write: .png, .svg or .pdf; an existing one is replaced."),
]


def sweep(
    data: Annotated[Path, typer.Argument(help="Corpus made by `ooc ingest`.")],
    out: Annotated[Path, typer.Argument(help="Directory of the sweep; an existing sweep is continued.")],
    topics: Annotated[
        str, typer.Option(metavar="LIST", help="Numbers of topics, separated by commas, such as 10,20,50.")
    ],
    seeds: Annotated[int, typer.Option(min=1, metavar="N", help="Number of seeds for each number of topics.")] = 1,
    iterations: Annotated[int, typer.Option(min=1, metavar="N", help="Passes over the data.")] = 100,
    held_out: Annotated[
        Path | None,
        typer.Option(
            metavar="DATASET",
            help="Held-out documents for the perplexity [default: DATA-held-out from --hold-out, if it exists].",
        ),
    ] = None,
    memory: Annotated[str | None, typer.Option(metavar="SIZE", help="Memory limit of each training.")] = None,
    plot: Plot = None,
    workers: Workers = None,
    json: Json = False,
) -> None:
    """Compare topic models with several numbers of topics.

    Trains a run OUT/topics-K-seed-S for each number of topics and seed, one after the other. The same command continues
    an interrupted sweep, or extends a sweep by more topics or seeds. Writes OUT/sweep.csv with a row for each number of
    topics in OUT: perplexity on held-out documents, coherence (NPMI, C_v), diversity, exclusivity, and stability, which
    is the overlap of the top words of topics matched between seeds.

    Example: ooc sweep corpus sweep --topics 10,20,50,100 --seeds 3 --plot sweep.png
    """
    from itertools import product

    from blocks.control_groups import core_count
    from blocks.corpus.dataset import Dataset
    from blocks.corpus.held_out import held_out_dataset
    from blocks.outputs import publish_output, publish_text
    from ooc.runs.curves import check_plot
    from samplers.topics.sweep import advice, plot_sweep, sweep_table, write_sweep

    numbers, corpus = _numbers(topics), Dataset(data)
    if plot:
        check_plot(plot)
    held = Dataset(held_out) if held_out else held_out_dataset(corpus)
    _make_directory(out)
    more = ["--iterations", str(iterations), *(("--memory", memory) if memory else ())]
    more += ["--workers", str(workers)] if workers else []
    for number, seed in product(numbers, range(seeds)):
        run = out / f"topics-{number}-seed-{seed}"
        if not _is_trained(run, corpus.identity, iterations):
            _train(data, run, ["--topics", str(number), "--seed", str(seed), *more])
    trained = _trained_runs(out, corpus.identity, iterations)
    rows = _evaluated(trained, out / "evaluations", corpus, held, workers or core_count())
    with publish_text(out / "sweep.csv") as file:
        write_sweep(rows, file)
    if plot:
        with publish_output(plot) as beside:
            plot_sweep(rows, beside, plot.suffix)
    told = {"rows": rows, "advice": advice(rows), "held_out": str(held.path) if held else None}
    print_json(told) if json else print(f"{sweep_table(rows)}\n{told['advice']}")


def _numbers(text: str) -> list[int]:
    """Return the distinct numbers of topics in ascending order.

    Raises RequestError if the text is invalid.
    """
    from blocks.errors import RequestError

    listed = [each.strip() for each in text.split(",")]
    if not all(each.isascii() and each.isdecimal() and len(each) < 10 and int(each) for each in listed):
        raise RequestError(
            f"--topics must be numbers separated by commas, got {text!r}", "For example: --topics 10,20,50"
        )
    return sorted(set(map(int, listed)))


def _make_directory(out: Path) -> None:
    """Make the directory of a sweep.

    Raises RequestError if something else is there.
    """
    from blocks.errors import RequestError
    from blocks.files import disk_errors
    from ooc.runs.run import CONFIG

    there = [name for name in ("manifest.json", CONFIG, "model.json") if (out / name).exists()]
    if there or (out.exists() and not out.is_dir()):
        raise RequestError(f"{out} exists and is not a directory made by `ooc sweep`", "Choose another name.")
    with disk_errors(out):
        out.mkdir(parents=True, exist_ok=True)


def _is_trained(run: Path, identity: str, iterations: int) -> bool:
    """Return whether a run of the sweep is finished.

    identity: identity of the dataset.
    """
    from ooc.runs.run import CONFIG, Run

    if not (run / CONFIG).exists():
        return False
    config = Run(run).config
    return config["finished"] and (config["dataset"]["identity"], config["iterations"]) == (identity, iterations)


def _trained_runs(out: Path, identity: str, iterations: int) -> dict[int, list[Path]]:
    """Return the finished runs of a sweep by number of topics, both ascending, including those of earlier commands."""
    runs: dict[int, list[tuple[int, Path]]] = {}
    for path in out.iterdir():
        if (name := _RUN.fullmatch(path.name)) and _is_trained(path, identity, iterations):
            runs.setdefault(int(name[1]), []).append((int(name[2]), path))
    return {number: [path for _, path in sorted(runs[number])] for number in sorted(runs)}


def _evaluated(
    trained: dict[int, list[Path]], kept: Path, corpus: Dataset, held_out: Dataset | None, workers: int
) -> list[dict[str, Any]]:
    """Return a row of sweep.csv for each number of topics.

    trained: runs by number of topics.
    kept: directory of the evaluations of runs, each of which is done once.
    """
    from ooc.runs.run import Run
    from samplers.topics.sweep import evaluated_once, summary

    rows = []
    for number, runs in trained.items():
        found = [
            evaluated_once(run, kept, corpus, held_out, workers, quiet=console.quiet)
            | {"elapsed_s": Run(run).last_metrics()["elapsed_s"]}
            for run in runs
        ]
        rows.append(summary(number, found))
    return rows


def _train(data: Path, run: Path, options: list[str]) -> None:
    """Start or continue a run, like `ooc train lda --resume`.

    Raises RequestError or WorkFailed if this fails.
    """
    from blocks.errors import Interrupted, RequestError, WorkFailed
    from ooc.launch.supervised_command import run_supervised

    note(f"training {run}")
    command = ["train", "lda", str(data), str(run), "--resume", "--quiet", *options]
    code = run_supervised(command, stdout=subprocess.DEVNULL)
    remedy = "See the message above; run the same command again to continue the sweep."
    if code == Interrupted.exit_code:
        raise Interrupted(f"{run} was interrupted", "Run the same command again to continue the sweep.")
    if code:
        raise (RequestError if code == RequestError.exit_code else WorkFailed)(f"training {run} failed", remedy)
