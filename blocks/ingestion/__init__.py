"""The ingestion of any kind of dataset: inputs are read, sorted and written by workers."""
