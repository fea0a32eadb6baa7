"""Ingest documents into two datasets with the same vocabulary: training documents and held-out documents."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from blocks.append import require_replaceable
from blocks.corpus.dataset import Dataset
from blocks.corpus.held_out_fraction import HeldOutFraction
from blocks.corpus.ingestion import ingest
from blocks.corpus.request import CorpusRequest
from blocks.corpus.vocabulary import WordFilters
from blocks.errors import RequestError
from blocks.files import publish_directory
from blocks.kinds import open_any
from blocks.stored_dataset import MANIFEST
from blocks.text_inputs import is_stream


def held_out_path(out: str | Path) -> Path:
    """Return the path of the held-out documents of a dataset."""
    return Path(f"{str(out).rstrip('/')}-held-out")


def held_out_dataset(data: Dataset) -> Dataset | None:
    """Return the held-out dataset beside a dataset, or None if there is none.

    Raises RequestError if it was held out of another dataset: its documents may then be among the training documents.
    """
    place = held_out_path(data.path)
    if not place.exists():
        return None
    held = Dataset(place)
    own, others = (dataset.manifest["made"].get("options", {}) for dataset in (data, held))
    is_same_split = own.get("held") is False and all(own.get(name) == others.get(name) for name in ("hold_out", "seed"))
    if others.get("held") and not is_same_split:
        raise RequestError(
            f"{place} was not split off from {data.path}, so both may contain the same documents",
            "Ingest again with --hold-out, or use a dataset of held-out documents with --held-out.",
        )
    return held


def ingest_holding_out(request: CorpusRequest, share: float, **how: Any) -> tuple[Dataset, Dataset]:
    """Write two datasets and return them: training documents, and held-out documents with the same vocabulary.

    share: fraction of the documents to hold out. how: keyword arguments of `ingest`. Inputs are read twice. The
        training dataset appears last, so that both are complete once it exists; held-out documents that an interrupted
        call left are replaced.
    Raises RequestError if an input can be read only once.
    """
    out, held_out = Path(request.out), held_out_path(request.out)
    _check(request)
    require_replaceable(out, request.overwrite)
    overwrite = request.overwrite or _is_leftover(held_out, request, share)
    require_replaceable(held_out, overwrite)
    with publish_directory(out, overwrite=request.overwrite) as root:
        made = root / "made"
        ingest(replace(request, out=str(made), share=HeldOutFraction(share, request.seed, held=False)), **how)
        side = HeldOutFraction(share, request.seed, held=True)
        words = {"filters": WordFilters(), "vocab_from": str(made), "vocab_told": str(out), "duplicates_file": None}
        ingest(replace(request, out=str(held_out), share=side, overwrite=overwrite, **words), **how)  # type: ignore[arg-type]
        for path in made.iterdir():
            path.rename(root / path.name)
        made.rmdir()
    return Dataset(out), Dataset(held_out)


def _is_leftover(held_out: Path, request: CorpusRequest, share: float) -> bool:
    """Return whether a held-out dataset was left by an interrupted run of this request."""
    if Path(request.out).exists() or not (held_out / MANIFEST).is_file():
        return False
    made = open_any(held_out).manifest["made"]
    told = {"held": True, "hold_out": share, "seed": request.seed, "vocab_from": request.out}
    return told.items() <= made.get("options", {}).items() and {each["name"] for each in made["inputs"]} <= {
        *request.inputs
    }


def _check(request: CorpusRequest) -> None:
    """Raise RequestError if an option is incompatible with --hold-out, or an input can be read only once."""
    if request.append or request.vocab_from:
        raise RequestError(
            f"--hold-out cannot be used with --{'append' if request.append else 'vocab-from'}", "Omit --hold-out."
        )
    if once := next((path for path in request.inputs if is_stream(path) and not Path(path).is_dir()), None):
        raise RequestError(
            f"--hold-out reads the inputs twice, and {once} can be read only once", "Write it to a file first."
        )
