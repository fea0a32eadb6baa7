"""Run contestants one at a time, and measure the memory of their process trees and the held-out likelihood of their
models.
"""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from scipy.sparse import csr_matrix

from benchmarks.corpus import Corpus
from benchmarks.em_fold_in import likelihood_by_em
from benchmarks.records import COUNT_FILES, TopicModelSpec
from blocks.memory import held_memory
from ooc.rng import stream_key
from samplers.topics import fold_in
from samplers.topics.model import SavedTopicModel

SAMPLE_S = 0.2
ROOT = Path(__file__).resolve().parent.parent
ONE_THREAD = {f"{library}_NUM_THREADS": "1" for library in ("OMP", "OPENBLAS", "MKL", "NUMBA")}


class ContestantFailed(Exception):
    """A contestant failed or exceeded its time limit; the message contains its output."""


def run_contestant(name: str, spec: TopicModelSpec, timeout: float) -> dict[str, Any]:
    """Run a contestant in a separate process.

    Returns its `ContestantRecord` as a dict, with `memory_bytes`, the peak memory of the process tree during training,
    and `memory_whole_bytes`, the peak including loading and saving. Raises ContestantFailed.
    """
    out = Path(spec.out)
    out.mkdir(parents=True)
    spec_file, record_file, log_file = out / "spec.json", out / "record.json", out / "log.txt"
    spec_file.write_text(json.dumps(asdict(spec)), encoding="utf-8")
    command = [sys.executable, "-m", "benchmarks.contestants", name, str(spec_file), str(record_file)]
    with log_file.open("wb") as log:
        process = subprocess.Popen(
            command, cwd=ROOT, env=os.environ | ONE_THREAD, stdout=log, stderr=log, start_new_session=True
        )
        samples = watch(process, timeout)
    if process.returncode or not record_file.exists():
        said = log_file.read_text(encoding="utf-8", errors="replace").strip()[-2000:]
        how = "took too long" if process.returncode == -signal.SIGKILL else f"exit code {process.returncode}"
        raise ContestantFailed(f"{name}: {how}\n{said}")
    record = json.loads(record_file.read_text(encoding="utf-8"))
    trained = [size for at, size in samples if any(first <= at <= last for first, last in record["intervals"])]
    record["memory_whole_bytes"] = max((size for _, size in samples), default=0)
    record["memory_bytes"] = max(trained, default=record["memory_whole_bytes"])  # a run too short to be sampled
    return record


def watch(process: subprocess.Popen[Any], timeout: float) -> list[tuple[float, int]]:
    """Wait for a process; returns samples of (monotonic time, bytes of its process tree)."""
    samples = []
    deadline = time.monotonic() + timeout
    try:
        while process.poll() is None and time.monotonic() < deadline:
            began, pids = time.monotonic(), _tree(process.pid)
            size = held_memory(pids)
            if _tree(process.pid) == pids:  # or what one shared before it ended would count again for those read after
                samples.append((began, size))
            time.sleep(max(SAMPLE_S, 30 * (time.monotonic() - began)))  # looking through much memory takes a while
    finally:
        if process.poll() is None:  # too late, or interrupted
            os.killpg(process.pid, signal.SIGKILL)  # the contestant's own session
            process.wait()
    return samples


def _tree(pid: int) -> list[int]:
    """Return a process and its descendants that hold memory."""
    with suppress(psutil.NoSuchProcess):
        children = psutil.Process(pid).children(recursive=True)
        return [pid, *(child.pid for child in children if child.status() != psutil.STATUS_ZOMBIE)]
    return []


def held_out_likelihood(
    counts: Path, spec: TopicModelSpec, held_out: Corpus, vocabulary_size: int
) -> tuple[float, float]:
    """Return the predictive log-likelihood per token by document completion, by the code of `ooc evaluate` and by EM.

    counts: counts saved by a contestant at a checkpoint. Every contestant predicts the same tokens.
    """
    matrix = _matrix(counts, spec, vocabulary_size)
    topics = _topics(matrix, spec)
    word_ids = np.arange(vocabulary_size, dtype=np.uint32)
    likelihoods, counts_predicted = fold_in.completion_likelihood(
        held_out.offsets, held_out.words, word_ids, topics, held_out.numbers, stream_key(0)
    )
    likelihood, predicted = math.fsum(likelihoods), int(counts_predicted.sum())
    if not predicted or not math.isfinite(likelihood):
        raise ContestantFailed(f"the held-out likelihood of {counts.name} is {likelihood} for {predicted} tokens")
    by_em = likelihood_by_em(matrix, np.full(spec.topics, spec.alpha), spec.beta, held_out)
    return likelihood / predicted, by_em


def _matrix(counts: Path, spec: TopicModelSpec, vocabulary_size: int) -> csr_matrix:
    """Return the counts of words in topics, float64 (V, K), of any contestant."""
    if (counts / "model.json").exists():
        rows = SavedTopicModel(counts).words
        matrix = csr_matrix((rows.counts.astype(np.float64), rows.topics, rows.offsets), (vocabulary_size, spec.topics))
    else:
        read = {name: np.fromfile(counts / name, kind) for name, kind in COUNT_FILES.items()}
        topics = np.repeat(np.arange(spec.topics), read["sizes"])
        matrix = csr_matrix((read["counts"], (read["words"], topics)), (vocabulary_size, spec.topics))
    matrix.sort_indices()
    return matrix


def _topics(matrix: csr_matrix, spec: TopicModelSpec) -> fold_in.FoldInModel:
    """Return the counts in the form that the kernels of `samplers.topics.fold_in` read."""
    alpha = np.full(spec.topics, spec.alpha)
    scale = 1.0 / (np.asarray(matrix.sum(axis=0)).ravel() + matrix.shape[0] * spec.beta)
    rows_of_counts = (matrix.indptr.astype(np.int64), matrix.indices.astype(np.uint32), matrix.data)
    prior = fold_in.prior_of_words(*rows_of_counts, scale, alpha, spec.beta)
    return fold_in.FoldInModel(*rows_of_counts, scale, alpha, spec.beta, prior)


def checked_tokens(counts: Path) -> float:
    """Return the number of tokens in the counts of a checkpoint; for Gibbs samplers, checks that it equals the number
    of training tokens.
    """
    if (counts / "model.json").exists():
        return float(
            SavedTopicModel(counts).documents.counts.sum(dtype=np.int64)
        )  # those of words may be a running mean
    return float(np.fromfile(counts / "counts", COUNT_FILES["counts"]).sum())
