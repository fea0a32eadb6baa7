"""Data on disk: HDF5 data blocks, ingestion, vocabularies. Knows no model."""

from blocks.errors import Interrupted, OocError, RequestError, WorkFailed

__all__ = ["Interrupted", "OocError", "RequestError", "WorkFailed"]
