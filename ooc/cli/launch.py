"""`ooc launch`: run a command on several machines."""

from __future__ import annotations

import shlex
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from blocks import stderr
from blocks.errors import RequestError
from ooc.cli.session import quoted_run

Hosts = Annotated[
    Path, typer.Option(metavar="PATH", help="File with one line per rank: user@host:port dir=PATH cores=N ...")
]
Patience = Annotated[
    float, typer.Option(metavar="SECONDS", help="Stop all ranks when one has been silent for this many seconds.")
]
Restarts = Annotated[
    int,
    typer.Option(
        min=0,
        metavar="N",
        help="Maximum number of restarts after a rank was lost, each from the newest state that all ranks have.",
    ),
]
Insecure = Annotated[
    bool,
    typer.Option("--insecure", help="Do not encrypt the connections between ranks; only for a private network."),
]
Ports = Annotated[
    str | None,
    typer.Option(
        metavar="FIRST-LAST", help="Ports on which ranks listen; the firewall must allow them [default: any]."
    ),
]
Tunnel = Annotated[
    bool,
    typer.Option("--tunnel", help="Connect the ranks through ssh, for firewalls that allow only ssh."),
]
SshConfig = Annotated[
    Path | None,
    typer.Option(
        metavar="PATH", help="Configuration file of ssh, instead of ~/.ssh/config.", exists=True, dir_okay=False
    ),
]


def launch(
    context: typer.Context,
    command: Annotated[
        list[str],
        typer.Argument(
            metavar="COMMAND", help="Command to run, without `ooc`: train lda ..., resume RUN or ingest text ..."
        ),
    ],
    hosts: Hosts,
    patience: Patience = 8.0,
    restarts: Restarts = 0,
    insecure: Insecure = False,
    ports: Ports = None,
    tunnel: Tunnel = False,
    ssh_config: SshConfig = None,
) -> None:
    """Run a command on several machines together, over ssh.

    {rank} in a path stands for the rank of a machine: the number of its line in the hosts file, counted from 0.

    Examples: ooc launch --hosts hosts.txt -- train lda shard-{rank} run --topics 100

    ooc launch --hosts hosts.txt -- ingest jsonl part-{rank}.jsonl.gz corpus
    """
    from ooc.cli.session import choose
    from ooc.launch.hosts import read_hosts
    from ooc.launch.launcher import LaunchRequest
    from ooc.launch.launcher import launch as start
    from ooc.launch.ports import parse_ports

    if not 1 <= patience <= 3600:
        raise RequestError(f"--patience must be from 1 to 3600 seconds, got {patience:g}")
    places = read_hosts(hosts)
    chosen = choose(command, len(places))
    _check_combinations(context.params, ingests=chosen.ingests)
    if insecure:
        stderr.print_warning(
            "--insecure: the connections between ranks are not encrypted, and others on the network can read them"
        )
    terminal = sys.stderr.isatty()
    start(
        LaunchRequest(
            hosts=places,
            arguments=_arguments(chosen.name, chosen.rest),
            resume="" if chosen.ingests else _resume(context.params, chosen.makes),
            again=lambda elapsed: _arguments("resume", chosen.to_go_on(elapsed)),
            restarts=restarts,
            insecure=insecure,
            ports=parse_ports(ports, "--ports") if ports else None,
            tunnel=tunnel,
            patience=patience,
            ssh_config=ssh_config,
            columns=shutil.get_terminal_size().columns if terminal else 0,
            debug=bool(context.find_root().params.get("debug")),
        )
    )


def _check_combinations(options: dict[str, Any], *, ingests: bool) -> None:
    """Raise RequestError for options that cannot be used together, or not with the command.

    ingests: whether the command ingests.
    """
    if options["restarts"] and ingests:
        raise RequestError(
            "--restarts can only be used to train",
            "Omit --restarts; a failed ingestion must be started again by hand.",
        )
    if options["tunnel"] and options["ports"]:
        raise RequestError(
            "--tunnel and --ports are mutually exclusive",
            "Omit --ports: with --tunnel, only the port of ssh has to be open.",
        )


def _arguments(name: str, rest: Sequence[str]) -> list[str]:
    """Return the arguments that every rank gets.

    name, rest: name and arguments of the command.
    """
    return [*name.split(), *(["--log-format=json"] if stderr.is_json() else []), *rest]


def _resume(options: dict[str, Any], run: Path) -> str:
    """Return the command that continues a run."""
    words = ["ooc", "launch", "--hosts", str(options["hosts"])]
    words += ["--ssh-config", str(options["ssh_config"])] if options["ssh_config"] else []
    words += ["--insecure"] if options["insecure"] else []
    words += ["--ports", options["ports"]] if options["ports"] else []
    words += ["--tunnel"] if options["tunnel"] else []
    return f"{shlex.join([*words, '--', 'resume'])} {quoted_run(run)}"
