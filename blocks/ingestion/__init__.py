"""Ingestion of datasets of any kind: workers read, sort and write."""
