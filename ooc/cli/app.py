"""Run commands. Each command turns its options into a single call, and contains no algorithm.

Heavy modules such as numpy are imported inside the commands, so that `ooc --help` responds at once.
"""

from __future__ import annotations

import os
import select
import signal
import sys
from itertools import pairwise
from typing import Annotated, NoReturn

import typer

from blocks import stderr
from ooc.cli import (
    clean,
    compile,
    curves,
    demo,
    doctor,
    documents,
    evaluate,
    factors,
    ingest,
    inspect,
    launch,
    plan,
    predict,
    rank,
    report,
    results,
    settings,
    shard,
    sweep,
    train,
    watch,
)
from ooc.cli.command import OocCommand, OocCommandGroup, TrainingCommand
from ooc.cli.console import OutputPipeClosed, explain_error, prepare_output, visible
from ooc.cli.registry import commands, register
from ooc.cli.variables import variable, warn_of_unknown

app = typer.Typer(
    name="ooc",
    cls=OocCommandGroup,
    help="Train topic models, matrix factorizations and sparse regressions on data larger than memory.",
    epilog="""\b
Examples:
  ooc ingest jsonl texts.jsonl corpus
  ooc train lda corpus run --topics 100 --memory 2GB
  ooc topics run --top 8
  ooc report run -o report.html""",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
app.add_typer(ingest.app, name="ingest")
app.add_typer(train.app, name="train")
app.add_typer(settings.app, name="config")
for command in (
    train.resume,
    results.topics,
    documents.documents,
    documents.compare,
    documents.label,
    documents.view,
    sweep.sweep,
    results.infer,
    evaluate.evaluate,
    results.export,
    results.import_,
    factors.recommend,
    factors.similar_items,
    predict.predict,
    curves.curves,
    report.report,
    watch.watch,
    plan.plan,
    shard.shard,
    inspect.info,
    inspect.verify,
    clean.clean,
    demo.demo,
    doctor.doctor,
    compile.compile_,
):
    app.command(command.__name__.rstrip("_").replace("_", "-"))(command)
app.command(context_settings={"allow_interspersed_args": False})(
    launch.launch
)  # the remaining arguments belong to COMMAND
app.command(hidden=True)(rank.rank)

for registered in (*app.registered_commands, *ingest.app.registered_commands, *settings.app.registered_commands):
    registered.cls = TrainingCommand if registered.callback is train.resume else OocCommand
for registered in train.app.registered_commands:
    registered.cls = TrainingCommand
register(app)

_debug = False


def run() -> NoReturn:
    """Run a command, and turn a failure into a message, a remedy and an exit code."""
    for ending in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGALRM):
        if signal.getsignal(ending) is not signal.SIG_IGN:  # SIGINT is ignored in background commands of a script
            signal.signal(ending, _interrupt)
    sys.unraisablehook = _interrupt_again
    prepare_output()
    if "--log-format=json" in sys.argv or ("--log-format", "json") in pairwise(sys.argv):
        stderr.set_log_format("json")  # so that errors in options are reported in this format, too
    try:
        code = commands(*sys.argv[1:3])(standalone_mode=False)  # typer turns a KeyboardInterrupt into 130
        if code == 130:
            raise _SignalReceived
        if sys.stdout:
            sys.stdout.flush()
    except (BrokenPipeError, OutputPipeClosed) as error:
        if not _readers_closed(1):
            _fail(*explain_error(error.__cause__ or error))
        _drop_output()
        sys.exit(0)  # the reader, such as `head`, has closed the pipe
    except (Exception, KeyboardInterrupt) as error:
        if type(error).__name__ == "NoArgsIsHelpError":
            stderr.print_note(str(error))
            sys.exit(2)
        _fail(*explain_error(error))
    sys.exit(code or 0)


def _readers_closed(descriptor: int) -> bool:
    """Return whether a file descriptor is a pipe whose readers have all closed it."""
    poll = select.poll()
    poll.register(descriptor, select.POLLOUT)
    return any(event & (select.POLLERR | select.POLLHUP) for _, event in poll.poll(0))


class _SignalReceived(KeyboardInterrupt):
    """A signal that ends the command.

    This is a subclass because Python handles a plain KeyboardInterrupt that leaves an `exec` specially: it kills itself
    with a signal.
    """


def _interrupt(*_: object) -> None:
    raise _SignalReceived


def _interrupt_again(lost: sys.UnraisableHookArgs) -> None:
    """Raise again an interrupt that Python ignored because it was raised in a finalizer or a callback."""
    if lost.exc_type is _SignalReceived:
        signal.setitimer(signal.ITIMER_REAL, 0.01)
    else:
        sys.__unraisablehook__(lost)


def _fail(what: str, remedy: str, code: int) -> NoReturn:
    trace = ""
    if _debug and sys.exc_info()[0] is not None:
        import traceback

        trace = traceback.format_exc()
    stderr.print_error(visible(what), visible(remedy), exit_code=code, traceback=trace)
    try:
        if sys.stdout:
            sys.stdout.flush()
    except OSError:
        _drop_output()
    sys.exit(code)


def _drop_output() -> None:
    """Discard buffered output that cannot be written: otherwise Python would try to write it at exit, and exit with
    code 120.
    """
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def _print_version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version

        print(f"ooc {version('ooc')}")
        raise typer.Exit


@app.callback()
def _global(
    context: typer.Context,
    debug: Annotated[
        bool,
        typer.Option("--debug", envvar=variable("debug"), show_envvar=False, help="Show the traceback of an error."),
    ] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    global _debug  # noqa: PLW0603  (errors are shown after the command has ended)
    _debug = debug
    warn_of_unknown(context.command)
