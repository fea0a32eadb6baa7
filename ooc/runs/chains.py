"""Read chains.json, which describes several chains of one model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, TypedDict

from msgspec import Meta

from blocks.json_files import read_json, write_json
from blocks.schemas import Count

SCHEMA = 1
CHAINS = "chains.json"  # in a directory with several runs of one model


class ChainsFile(TypedDict):
    """Contents of chains.json."""

    chains: Annotated[int, Meta(ge=1, le=1 << 16)]
    iterations: Count
    r_hat: float | None
    best: Annotated[str, Meta(pattern=r"^chain-[0-9]+\Z")] | None  # None until all chains are done


def is_chains(path: Path) -> bool:
    return (path / CHAINS).exists()


def read_chains(path: Path) -> dict[str, Any]:
    """Read chains.json."""
    return read_json(path / CHAINS, what="several chains made by `ooc train`", schema=SCHEMA, holds=ChainsFile)


def write_chains(path: Path, chains: int, iterations: int, **found: Any) -> None:
    config = {"schema": SCHEMA, "chains": chains, "iterations": iterations, "r_hat": None, "best": None}
    write_json(path / CHAINS, config | found)


def chain_paths(path: Path) -> list[Path]:
    """Return the run directories of the chains."""
    return [path / f"chain-{number + 1}" for number in range(read_chains(path)["chains"])]
