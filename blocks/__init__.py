"""Data on disk: HDF5 data blocks, ingestion, vocabularies. Knows no model."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from blocks.errors import Interrupted, OocError, RequestError, WorkFailed

if TYPE_CHECKING:
    from blocks.dataset import Dataset
    from blocks.design import Design
    from blocks.design_ingestion import ingest_design
    from blocks.design_request import DesignRequest
    from blocks.from_memory import ingest_documents, write_corpus
    from blocks.ingestion import ingest
    from blocks.matrix import Matrix
    from blocks.matrix_from_memory import write_matrix
    from blocks.npz import write_npz
    from blocks.request import Request
    from blocks.samples import Samples
    from blocks.samples_ingestion import ingest_samples, write_samples
    from blocks.synthetic import Synthetic, synthesize

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
    "Dataset": "blocks.dataset",
    "Design": "blocks.design",
    "DesignRequest": "blocks.design_request",
    "Matrix": "blocks.matrix",
    "Request": "blocks.request",
    "Samples": "blocks.samples",
    "Synthetic": "blocks.synthetic",
    "ingest": "blocks.ingestion",
    "ingest_design": "blocks.design_ingestion",
    "ingest_documents": "blocks.from_memory",
    "ingest_samples": "blocks.samples_ingestion",
    "synthesize": "blocks.synthetic",
    "write_corpus": "blocks.from_memory",
    "write_matrix": "blocks.matrix_from_memory",
    "write_npz": "blocks.npz",
    "write_samples": "blocks.samples_ingestion",
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_LAZY[name]), name)
