"""Splitting of datasets into shards, one for each machine of a ring."""
