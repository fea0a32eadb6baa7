"""Corpora: datasets of documents and their words, and their ingestion."""
