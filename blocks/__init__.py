"""Data on disk: HDF5 data blocks, ingestion, vocabularies. Knows no model."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from blocks.errors import Interrupted, OocError, RequestError, WorkFailed

if TYPE_CHECKING:
    from blocks.corpus.dataset import Dataset
    from blocks.corpus.from_memory import ingest_documents, write_corpus
    from blocks.corpus.ingestion import ingest
    from blocks.corpus.request import Request
    from blocks.corpus.synthetic import Synthetic, synthesize
    from blocks.design.design import Design
    from blocks.design.ingestion import ingest_design
    from blocks.design.request import DesignRequest
    from blocks.npz import write_npz
    from blocks.ratings.from_memory import write_matrix
    from blocks.ratings.matrix import Matrix
    from blocks.samples.ingestion import ingest_samples, write_samples
    from blocks.samples.samples import Samples

__all__ = [
    "Dataset",
    "Design",
    "DesignRequest",
    "Interrupted",
    "Matrix",
    "OocError",
    "Request",
    "RequestError",
    "Samples",
    "Synthetic",
    "WorkFailed",
    "ingest",
    "ingest_design",
    "ingest_documents",
    "ingest_samples",
    "synthesize",
    "write_corpus",
    "write_matrix",
    "write_npz",
    "write_samples",
]

# Loaded when first used: they need numpy, numba and h5py, and the command line must start at once.
_LAZY = {
    "Dataset": "blocks.corpus.dataset",
    "Design": "blocks.design.design",
    "DesignRequest": "blocks.design.request",
    "Matrix": "blocks.ratings.matrix",
    "Request": "blocks.corpus.request",
    "Samples": "blocks.samples.samples",
    "Synthetic": "blocks.corpus.synthetic",
    "ingest": "blocks.corpus.ingestion",
    "ingest_design": "blocks.design.ingestion",
    "ingest_documents": "blocks.corpus.from_memory",
    "ingest_samples": "blocks.samples.ingestion",
    "synthesize": "blocks.corpus.synthetic",
    "write_corpus": "blocks.corpus.from_memory",
    "write_matrix": "blocks.ratings.from_memory",
    "write_npz": "blocks.npz",
    "write_samples": "blocks.samples.ingestion",
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_LAZY[name]), name)
