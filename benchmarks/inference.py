"""Infer the topics of new documents with ooc and with tomotopy, given the same topics, and compare documents per second
at equal held-out likelihood.

    python -m benchmarks.inference docword.20news.txt.gz --shuffle --topics 100 1000

ooc trains. tomotopy gets the same counts n_kw, alpha and beta: they are written into a model file of tomotopy in place
of its own. Each finds the mixtures theta of the held-out documents from half of their different words; one function
computes the likelihood of the other words under theta and phi. Only inference is timed: models are loaded, documents in
memory (tomotopy's made by `make_doc`), workers started and kernels compiled before.

tomotopy's `infer` copies the model for each document, or once for all with `together=True`, which is what competes; one
call has them all, so that the copy weighs least. A mixture of tomotopy is one state of a Gibbs chain. Rounds of all
settings alternate; times are medians. Documents per second of processor time tell more where others use the machine.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import psutil

from benchmarks import corpus as corpora
from benchmarks import report
from benchmarks.lda import say
from blocks import write_corpus
from blocks.workers import WorkerPool
from samplers.lda.training import train_lda
from samplers.topics.infer_kernels import infer_documents
from samplers.topics.inference import inferred_arrays, model_topics
from samplers.topics.model import SavedTopicModel

PARTS_PER_WORKER = 4
PASSES = 20  # of ooc over the documents in a round: one is over too soon to be timed


class DocumentHalves(NamedTuple):
    """Held-out documents: one half of the distinct words is observed, and the other half is to be predicted."""

    observed: corpora.Corpus
    predicted: corpora.Corpus


def attach(task: tuple[str, str, str]) -> Callable[[tuple[int, int]], None]:
    """Load all inputs; returns a function that infers the documents `first` to `last - 1` (see `blocks.workers`).

    task: paths of a model, of the observed documents (a saved corpus), and of the output file for mixtures.
    """
    model = SavedTopicModel(Path(task[0]))
    topics, observed = model_topics(model), corpora.load(Path(task[1]))
    offsets, words = (np.array(array) for array in (observed.offsets, observed.words))
    mixtures = np.asarray(np.memmap(task[2], np.float32, "r+", shape=(observed.documents, model.topics)))
    word_ids, numbers = (
        np.arange(model.vocabulary_size, dtype=np.uint32),
        np.arange(observed.documents, dtype=np.uint64),
    )

    found = inferred_arrays({"mixtures": mixtures}, topics)

    def infer(part: tuple[int, int]) -> None:
        first, last = part
        infer_documents(offsets[first : last + 1], words, word_ids, topics, found, numbers[first:last])

    infer((0, observed.documents))
    return infer


def halves(corpus: corpora.Corpus, seed: int) -> DocumentHalves:
    """Split the distinct words of each document at random; documents with fewer than two are left out."""
    rng = np.random.default_rng(seed)
    pieces: tuple[list[np.ndarray], list[np.ndarray]] = ([], [])
    for place in range(corpus.documents):
        words = corpus.document(place)
        different = rng.permutation(np.unique(words))
        if different.size > 1:
            observed = np.isin(words, different[: (different.size + 1) // 2])
            for half, tokens in zip(pieces, (words[observed], words[~observed]), strict=True):
                half.append(tokens)
    return DocumentHalves(*map(_joined, pieces))


def _joined(documents: list[np.ndarray]) -> corpora.Corpus:
    offsets = np.cumsum([0, *(words.size for words in documents)])
    return corpora.Corpus(offsets, np.concatenate(documents), np.arange(len(documents), dtype=np.uint64))


def dense_counts(model: SavedTopicModel) -> np.ndarray:
    """Return the counts n_kw, int32 (V, K)."""
    rows = model.words
    counts = np.zeros((model.vocabulary_size, model.topics), np.int32)
    counts[np.repeat(np.arange(model.vocabulary_size), np.diff(rows.offsets)), rows.topics] = rows.counts
    return counts


def likelihood(mixtures: np.ndarray, phi: np.ndarray, predicted: corpora.Corpus) -> float:
    """Return the log-likelihood per predicted token, with p(w) = sum_k theta_dk * phi_kw.

    mixtures: (D, K).
    phi: float32 (V, K).
    """
    total = sum(
        float(np.log(phi[predicted.document(place)] @ mixture, dtype=np.float64).sum())
        for place, mixture in enumerate(mixtures.astype(np.float32))
    )
    return total / predicted.tokens


def tomotopy_model(model: SavedTopicModel, counts: np.ndarray, seed: int) -> Any:
    """Return a tomotopy LDAModel with the counts of an ooc model, int32 (V, K); word w is named str(w).

    A model file of tomotopy ends with n_k, int32 (K,), and n_kw, int32 (V, K). This function saves a model of a single
    document that contains every word once, and overwrites these arrays in the file. Raises RuntimeError if phi of the
    loaded model differs from that of ooc.
    """
    import tomotopy

    blank = tomotopy.LDAModel(
        tw=tomotopy.TermWeight.ONE, k=model.topics, alpha=float(model.alpha[0]), eta=model.beta, seed=seed
    )
    blank.add_doc([str(word) for word in range(model.vocabulary_size)])
    blank.train(0, workers=1)
    order = np.array(blank.used_vocabs, np.int64)
    saved = bytearray(blank.saves(full=False))
    old = np.array([blank.get_topic_word_dist(topic) for topic in range(model.topics)], np.float64).T
    sizes = np.asarray(blank.get_count_by_topics(), np.int32)
    old = np.rint(old * (sizes + order.size * model.beta) - model.beta).astype(np.int32)
    at = saved.find(old.tobytes())
    at_sizes = saved.rfind(sizes.tobytes(), 0, at)
    if at < 0 or at_sizes < 0:
        raise RuntimeError("the counts were not found in a model file of this version of tomotopy")
    new_sizes = counts.sum(axis=0, dtype=np.int32)
    for place, array in ((at_sizes, new_sizes), (at, counts[order])):
        saved[place : place + array.nbytes] = array.tobytes()
    loaded = tomotopy.LDAModel.loads(bytes(saved))
    for topic in (0, model.topics - 1):
        phi = (counts[order, topic] + model.beta) / (new_sizes[topic] + order.size * model.beta)
        if not np.allclose(loaded.get_topic_word_dist(topic), phi, rtol=1e-4, atol=0):
            raise RuntimeError("tomotopy has other topics than those it was given")
    return loaded


class MeasuredInference(NamedTuple):
    """Elapsed and processor seconds for all documents, and their mixtures, float32 (D, K)."""

    seconds: float
    cpu_seconds: float
    mixtures: np.ndarray


def cpu_seconds(pids: list[int]) -> float:
    """Return the processor seconds used so far by this process and the processes `pids`."""
    others = (psutil.Process(pid).cpu_times() for pid in pids)
    return time.process_time() + sum(times.user + times.system for times in others)


class InferenceContest:
    """Contest of both programs with one model of ooc on the same documents."""

    def __init__(
        self, args: argparse.Namespace, model: SavedTopicModel, held_out: DocumentHalves, scratch: Path
    ) -> None:
        self.args, self.model, self.held_out, self.scratch = args, model, held_out, scratch
        counts = dense_counts(model)
        self.phi = (counts + np.float32(model.beta)) * (
            1.0 / (model.topic_counts + counts.shape[0] * model.beta)
        ).astype(np.float32)
        self.peer = tomotopy_model(model, counts, args.seed)

    def results(self) -> Iterator[report.Result]:
        """Return the measurements of each setting with each number of workers."""
        for workers in self.args.workers:
            with ExitStack() as stack:
                settings = self.settings(stack, workers)
                rounds = [{name: run() for name, run in settings.items()} for _ in range(self.args.rounds)]
            for name in settings:
                documents = self.held_out.observed.documents
                yield {
                    "setting": name,
                    "topics": self.model.topics,
                    "workers": workers,
                    "documents_per_s": documents / statistics.median(each[name].seconds for each in rounds),
                    "documents_per_cpu_s": documents / statistics.median(each[name].cpu_seconds for each in rounds),
                    "likelihood": likelihood(rounds[0][name].mixtures, self.phi, self.held_out.predicted),
                }

    def settings(self, stack: ExitStack, workers: int) -> dict[str, Callable[[], MeasuredInference]]:
        """Return the functions to run in one round, by name."""
        shape = (self.held_out.observed.documents, self.model.topics)
        file = self.scratch / f"mixtures-{shape[1]}-{workers}"
        mixtures = np.memmap(file, np.float32, "w+", shape=shape)
        task = (str(self.model.path), str(self.scratch / "observed"), str(file))
        pool = stack.enter_context(WorkerPool("benchmarks.inference:attach", task, workers))
        return {"ooc": lambda: self.infer_ooc(pool, mixtures)} | {
            f"tomotopy, {iterations}": lambda iterations=iterations: self.infer_tomotopy(iterations, workers)
            for iterations in self.args.iterations
        }

    def infer_ooc(self, pool: WorkerPool, mixtures: np.ndarray) -> MeasuredInference:
        bounds = np.linspace(0, mixtures.shape[0], PARTS_PER_WORKER * len(pool) + 1).astype(int).tolist()
        began, used = time.perf_counter(), cpu_seconds(pool.pids)
        for _ in pool.map_unordered(PASSES * list(pairwise(bounds))):
            pass
        seconds, cpu = time.perf_counter() - began, cpu_seconds(pool.pids) - used
        return MeasuredInference(seconds / PASSES, cpu / PASSES, mixtures)

    def infer_tomotopy(self, iterations: int, workers: int) -> MeasuredInference:
        observed = self.held_out.observed
        documents = [
            self.peer.make_doc([str(word) for word in observed.document(place).tolist()])
            for place in range(observed.documents)
        ]
        began, used = time.perf_counter(), cpu_seconds([])
        found, _ = self.peer.infer(documents, iterations=iterations, workers=workers, together=True)
        return MeasuredInference(time.perf_counter() - began, cpu_seconds([]) - used, np.array(found, np.float32))


def compare(results: list[report.Result]) -> None:
    """Add to each result of tomotopy the ratio of the speed of ooc with equally many workers."""
    for result in results:
        for ours in results:
            same = all(ours[key] == result[key] for key in ("corpus", "topics", "workers"))
            if same and ours["setting"] == "ooc" != result["setting"]:
                for rate in ("documents_per_s", "documents_per_cpu_s"):
                    result[f"ooc_{rate}_ratio"] = ours[rate] / result[rate]
                result["ooc_likelihood_gain"] = ours["likelihood"] - result["likelihood"]


def table(results: list[report.Result]) -> str:
    lines = [
        "| corpus | K | workers | setting | documents/s | documents/CPU s | likelihood | ooc / setting: documents/s "
        "| documents/CPU s | gain of ooc |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for result in results:
        ratios = "| |"
        if "ooc_likelihood_gain" in result:
            ratios = (
                f"{result['ooc_documents_per_s_ratio']:.1f} | {result['ooc_documents_per_cpu_s_ratio']:.1f} "
                f"| {result['ooc_likelihood_gain']:.4f}"
            )
        lines.append(
            f"| {result['corpus']} | {result['topics']:,} | {result['workers']} | {result['setting']} "
            f"| {result['documents_per_s']:,.0f} | {result['documents_per_cpu_s']:,.0f} "
            f"| {result['likelihood']:.4f} | {ratios} |"
        )
    return "\n".join(lines)


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser("python -m benchmarks.inference", description=(__doc__ or "").partition("\n")[0])
    add = parser.add_argument
    add("corpora", type=Path, nargs="+", help="UCI bags of words; vocab.X.txt beside docword.X.txt[.gz] is their words")
    add("--shuffle", action="store_true", help="put the documents in random order first")
    add("--topics", type=int, nargs="+", default=[100, 1000])
    add("--workers", type=int, nargs="+", default=[1, 2])
    add("--iterations", type=int, nargs="+", default=[1, 2, 5, 10, 20, 50, 100], help="of tomotopy")
    add("--train-iterations", type=int, default=50)
    add("--documents", type=int, default=0, help="use so many only (default: all)")
    add("--held-out", type=int, default=1000, help="documents that are inferred, and not trained on")
    add("--models", type=Path, help="keep the trained models there, and use those that are there")
    add("--rounds", type=int, default=3)
    add("--seed", type=int, default=0)
    add("--json", type=Path, help="write the numbers there")
    return parser.parse_args()


def trained(args: argparse.Namespace, topics: int, models: Path) -> SavedTopicModel:
    """Return the model with a given number of topics in `models`; train it if it does not exist."""
    run = models / f"run-{topics}"
    if not (run / "model").exists():
        say(f"training K = {topics} ...")
        options = {"topics": topics, "iterations": args.train_iterations, "seed": args.seed, "quiet": True}
        train_lda(models / "dataset", run, average=1, **options)  # one state: tomotopy's counts are whole numbers
    return SavedTopicModel(run / "model")


def compete(args: argparse.Namespace, path: Path, scratch: Path) -> Iterator[report.Result]:
    """Return all results for one corpus."""
    corpus, vocabulary = corpora.load_any(path, None)
    if args.shuffle:
        corpus = corpora.shuffled(corpus, args.seed)
    corpus = corpus.head(args.documents or corpus.documents)
    models = (args.models or scratch) / path.name.partition(".txt")[0]
    if not models.exists():
        models.mkdir(parents=True)
        training = corpus.head(corpus.documents - args.held_out)
        write_corpus(models / "dataset", training.offsets, training.words, vocabulary, seed=args.seed)
    held_out = halves(corpus.tail(args.held_out), args.seed)
    here = scratch / f"held-out-{path.name}"
    here.mkdir()
    corpora.save(held_out.observed, vocabulary, here / "observed")
    for topics in args.topics:
        contest = InferenceContest(args, trained(args, topics, models), held_out, here)
        for result in contest.results():
            say(f"{path.name}, K = {topics}: {result}")
            yield {"corpus": path.name.partition(".txt")[0].removeprefix("docword."), **result}


def main() -> None:
    args = options()
    facts = report.machine()
    results: list[report.Result] = []
    with tempfile.TemporaryDirectory(prefix="ooc-benchmark-") as scratch:
        for path in args.corpora:
            for result in compete(args, path, Path(scratch)):
                results.append(result)
                compare(results)
                if args.json:
                    whole = {"machine": facts, "held_out": args.held_out, "results": results}
                    args.json.write_text(json.dumps(whole, indent=1) + "\n", encoding="utf-8")
    print(table(results))


if __name__ == "__main__":
    main()
