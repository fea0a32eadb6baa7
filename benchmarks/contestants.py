"""Run one contestant in a separate process: `python -m benchmarks.contestants NAME SPEC.json OUT.json`.

Each trains to some checkpoints and leaves there how many tokens of each word it gave to each topic; loading,
preparation and saving are not timed. What it reports is a `ContestantRecord`.
"""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.corpus import Corpus, load, load_vocabulary
from benchmarks.records import ContestantRecord, TopicCheckpoint, TopicModelSpec, save_counts

SMALLEST_COUNT = 1e-6  # of variational counts: below, a word is not in a topic


def train_ooc(spec: TopicModelSpec, corpus: Corpus, record: ContestantRecord) -> None:
    """Train with ooc, resuming from checkpoint to checkpoint; times are `elapsed_s` of its metrics."""
    from ooc.runs.run import Run
    from samplers.lda.training import train_lda
    from samplers.resume import resume

    run = Path(spec.out) / "run"
    sampler, _, steps = spec.variant.partition(":")
    for iteration in spec.checkpoints:
        with record.training():
            if run.exists():
                resume(run, iterations=iteration, workers=spec.workers, quiet=True)
            else:
                train_lda(
                    Path(spec.dataset),
                    run,
                    topics=spec.topics,
                    iterations=iteration,
                    sampler=sampler or "auto",
                    mh_steps=int(steps) if steps else None,
                    alpha=spec.alpha,
                    beta=spec.beta,
                    seed=spec.seed,
                    workers=spec.workers,
                    evaluate_every=spec.checkpoints[-1],
                    quiet=True,
                )
        kept = (run / "model").rename(Path(spec.out) / f"model-{iteration}")
        elapsed = [line["elapsed_s"] for line in Run(run).metrics()]
        record.checkpoints.append(TopicCheckpoint(iteration, elapsed[-1], str(kept)))
    record.seconds = np.diff(elapsed, prepend=0.0).tolist()


def train_tomotopy(spec: TopicModelSpec, corpus: Corpus, record: ContestantRecord) -> None:
    """Train tomotopy's LDAModel, with one call per iteration (measured: no slower than one call for all)."""
    import tomotopy

    model = tomotopy.LDAModel(
        tw=tomotopy.TermWeight.ONE, k=spec.topics, alpha=spec.alpha, eta=spec.beta, seed=spec.seed
    )
    model.optim_interval = model.burn_in = 0
    vocabulary = load_vocabulary(Path(spec.corpus))
    for place in range(corpus.documents):
        if (words := corpus.document(place)).size:
            model.add_doc([vocabulary[word] for word in words.tolist()])
    scheme = tomotopy.ParallelScheme[spec.variant or "DEFAULT"]
    warnings.filterwarnings("ignore", message="The training result may differ")
    model.train(0, workers=spec.workers, parallel=scheme)
    place_of = {term: word for word, term in enumerate(vocabulary)}
    words = np.array([place_of[term] for term in model.used_vocabs], np.uint32)
    del vocabulary, place_of
    for iteration in spec.checkpoints:
        with record.training():
            while len(record.seconds) < iteration:
                with record.timed():
                    model.train(1, workers=spec.workers, parallel=scheme)
        saved = save_counts(Path(spec.out) / f"counts-{iteration}", _tomotopy_counts(model, words))
        record.checkpoints.append(TopicCheckpoint(iteration, sum(record.seconds), saved))


def _tomotopy_counts(model: Any, words: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Return the counts of each topic, computed from phi_kw = (n_kw + beta) / (n_k + V*beta), where V counts the words
    that occur.
    """
    for topic, tokens in enumerate(model.get_count_by_topics()):
        phi = np.asarray(model.get_topic_word_dist(topic), np.float64)
        counts = np.rint(phi * (int(tokens) + words.size * model.eta) - model.eta)
        if counts.sum() != tokens:
            raise RuntimeError(f"topic {topic} of tomotopy has {tokens} tokens, but its words have {counts.sum()}")
        present = np.flatnonzero(counts)
        yield words[present], counts[present]


def _chunk(documents: int, workers: int) -> int:
    """Return the number of documents between two updates of an online method: gensim's default, or fewer, so that each
    worker gets some.
    """
    return min(2000, -(-documents // workers))


def train_gensim(spec: TopicModelSpec, corpus: Corpus, record: ContestantRecord) -> None:
    """Train gensim's LdaModel, or LdaMulticore with several workers, without evaluations in between."""
    from gensim.models import LdaModel, LdaMulticore

    options = {
        "id2word": dict(enumerate(load_vocabulary(Path(spec.corpus)))),
        "num_topics": spec.topics,
        "alpha": np.full(spec.topics, spec.alpha),
        "eta": spec.beta,
        "chunksize": _chunk(corpus.documents, spec.workers),
        "passes": spec.checkpoints[-1],
        "eval_every": None,
        "random_state": spec.seed,
    }
    model = LdaModel(**options) if spec.workers == 1 else LdaMulticore(workers=spec.workers, **options)
    bags = corpus.bags()
    with record.training(), record.timed(spec.checkpoints[-1]):
        model.update(bags)
    _save_dense(spec, record, model.state.sstats)


def train_sklearn(spec: TopicModelSpec, corpus: Corpus, record: ContestantRecord) -> None:
    """Train scikit-learn's online LatentDirichletAllocation with gensim's schedule of learning rates."""
    from scipy.sparse import csr_matrix
    from sklearn.decomposition import LatentDirichletAllocation

    words = len(load_vocabulary(Path(spec.corpus)))
    ones = np.ones(corpus.tokens, np.int32)
    matrix = csr_matrix((ones, corpus.words.astype(np.int32), corpus.offsets), (corpus.documents, words))
    matrix.sum_duplicates()

    def model(passes: int) -> LatentDirichletAllocation:
        return LatentDirichletAllocation(
            spec.topics,
            doc_topic_prior=spec.alpha,
            topic_word_prior=spec.beta,
            learning_method="online",
            learning_decay=0.51,
            learning_offset=1.0,
            max_iter=passes,
            batch_size=_chunk(corpus.documents, 1),
            n_jobs=spec.workers,
            random_state=spec.seed,
        )

    model(1).fit(matrix[:10])  # starts the worker processes
    trained = model(spec.checkpoints[-1])
    with record.training(), record.timed(spec.checkpoints[-1]):
        trained.fit(matrix)
    _save_dense(spec, record, trained.components_ - spec.beta)


def _save_dense(spec: TopicModelSpec, record: ContestantRecord, counts: np.ndarray) -> None:
    rows = ((words, row[words]) for row in counts for words in [np.flatnonzero(row > SMALLEST_COUNT)])
    saved = save_counts(Path(spec.out) / "counts", rows)
    record.checkpoints.append(TopicCheckpoint(spec.checkpoints[-1], sum(record.seconds), saved))


CONTESTANTS: dict[str, Callable[[TopicModelSpec, Corpus, ContestantRecord], None]] = {
    "ooc": train_ooc,
    "tomotopy": train_tomotopy,
    "gensim": train_gensim,
    "scikit-learn": train_sklearn,
}


def main() -> None:
    name, spec_file, out_file = sys.argv[1:]
    spec = TopicModelSpec(**json.loads(Path(spec_file).read_text(encoding="utf-8")))
    corpus = load(Path(spec.corpus))
    corpus = corpus.head(spec.documents or corpus.documents)
    record = ContestantRecord(corpus.tokens, corpus.documents)
    CONTESTANTS[name](spec, corpus, record)
    Path(out_file).write_text(json.dumps(asdict(record)), encoding="utf-8")


if __name__ == "__main__":
    main()
