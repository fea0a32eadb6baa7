"""Benchmarks: `python -m benchmarks.NAME`, from the top of a checkout installed with the extra `[bench]`."""
