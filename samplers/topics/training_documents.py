"""Training documents of a topic model: the dataset of its run, and the document table."""

from __future__ import annotations

from pathlib import Path

from blocks.corpus.dataset import Dataset
from blocks.dataset_generations import generation_of
from blocks.documents.document_table import DocumentTable
from blocks.errors import OocError, RequestError
from blocks.stderr import print_warning
from ooc.runs.run import CONFIG, Run
from samplers.topics.model import SavedTopicModel

_AGAIN = "Ingest the documents again with --keep into another directory, and name it with --data."


def training_dataset(model: SavedTopicModel, data: Path | None = None) -> Dataset:
    """Return the dataset that a model was trained on, of the same generation.

    data: path of the dataset; by default the path in the configuration of the run.
    Raises RequestError if it does not exist or has other documents.
    """
    run = model.path.parent
    if data is None and not (run / CONFIG).exists():
        raise RequestError(
            f"{model.path} does not say which dataset it was trained on",
            "Set --data to the training dataset.",
        )
    place = data or Run(run).dataset_path
    if not place.exists():
        raise RequestError(f"{place}, the dataset of {model.path}, does not exist", "Set its new path with --data.")
    dataset = Dataset(generation_of(place, model.dataset))
    documents = model.documents.offsets.size - 1
    if dataset.identity != (model.dataset or dataset.identity) or dataset.documents != documents:
        raise RequestError(
            f"{place} is not the dataset that {model.path} was trained on, or has changed since",
            "Set --data to the training dataset; for a run on shards, to the dataset that was split.",
        )
    return dataset


def training_table(model: SavedTopicModel, data: Path | None = None) -> DocumentTable:
    """Return the document table of a model's training dataset.

    Raises RequestError if nothing was kept.
    """
    dataset = training_dataset(model, data)
    table = dataset.table()
    if table is None:
        raise RequestError(f"{dataset.path} does not keep the texts and columns of its documents", _AGAIN)
    return table


def table_if_kept(model: SavedTopicModel, data: Path | None = None) -> DocumentTable | None:
    """Return the document table of the training dataset; None if there is none or, with a warning, if the dataset of
    the run is gone.
    """
    if data is not None:
        return training_table(model, data)
    try:
        return training_dataset(model).table() if (model.path.parent / CONFIG).exists() else None
    except OocError as error:
        print_warning(f"texts and columns of documents are left out: {error.what}\n{error.remedy}")
        return None
