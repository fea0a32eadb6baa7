"""Datasets on disk: ingestion, HDF5 data blocks, vocabularies. This package is independent of models."""

from typing import TYPE_CHECKING

from blocks.lazy_names import lazy_names

if TYPE_CHECKING:
    from blocks.corpus.dataset import Dataset as Dataset
    from blocks.corpus.from_memory import ingest_documents as ingest_documents
    from blocks.corpus.from_memory import write_corpus as write_corpus
    from blocks.corpus.incremental_writer import CorpusWriter as CorpusWriter
    from blocks.corpus.ingestion import ingest as ingest
    from blocks.corpus.request import CorpusRequest as CorpusRequest
    from blocks.corpus.synthetic import Synthetic as Synthetic
    from blocks.corpus.synthetic import synthesize as synthesize
    from blocks.design.design import Design as Design
    from blocks.design.incremental_writer import DesignWriter as DesignWriter
    from blocks.design.ingestion import ingest_design as ingest_design
    from blocks.design.request import DesignRequest as DesignRequest
    from blocks.errors import Interrupted as Interrupted
    from blocks.errors import OocError as OocError
    from blocks.errors import RequestError as RequestError
    from blocks.errors import WorkFailed as WorkFailed
    from blocks.npz import write_npz as write_npz
    from blocks.ratings.from_memory import write_matrix as write_matrix
    from blocks.ratings.incremental_writer import RatingsWriter as RatingsWriter
    from blocks.ratings.matrix import Matrix as Matrix
    from blocks.samples.incremental_writer import SamplesWriter as SamplesWriter
    from blocks.samples.ingestion import ingest_samples as ingest_samples
    from blocks.samples.ingestion import write_samples as write_samples
    from blocks.samples.samples import Samples as Samples

_MODULES = {
    "CorpusRequest": "blocks.corpus.request",
    "CorpusWriter": "blocks.corpus.incremental_writer",
    "Dataset": "blocks.corpus.dataset",
    "Design": "blocks.design.design",
    "DesignRequest": "blocks.design.request",
    "DesignWriter": "blocks.design.incremental_writer",
    "Interrupted": "blocks.errors",
    "Matrix": "blocks.ratings.matrix",
    "OocError": "blocks.errors",
    "RatingsWriter": "blocks.ratings.incremental_writer",
    "RequestError": "blocks.errors",
    "Samples": "blocks.samples.samples",
    "SamplesWriter": "blocks.samples.incremental_writer",
    "Synthetic": "blocks.corpus.synthetic",
    "WorkFailed": "blocks.errors",
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
__all__ = list(_MODULES)
__getattr__, __dir__ = lazy_names(__name__, _MODULES)
