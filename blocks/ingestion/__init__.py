"""Ingestion of all kinds of datasets: workers read, sort and write."""
