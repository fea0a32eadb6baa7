"""Trainings with a symmetric and an asymmetric alpha, from the command or the ring's own entry, against known shares.

Where every document is one word, every word occurs once and beta is large, words say next to nothing about topics:
the posterior share of a topic is alpha_k / sum(alpha).
"""

from __future__ import annotations

import json

import numpy as np
import pytest
from corpora import names_of_words
from long_mark import long_but
from rings import on_ring

from blocks import write_corpus
from blocks.shards.splitting import make_shards
from samplers.lda.training import train_lda
from samplers.topics.model import SavedTopicModel

DOCUMENTS, BETA, ITERATIONS = 2_000, 100.0, 50
ALPHA = {"asymmetric": [0.5, 0.5, 1.0, 2.0], "symmetric": [0.5]}
SAMPLERS = ["two-phase", "gibbs", "sparse-gibbs", "sparselda", "aliaslda", "lightlda"]
OTHERS = ["data-parallel", "rotation", "immediate"]
UPDATES = [(sampler, "delayed") for sampler in SAMPLERS] + [
    (name, other) for name in ("gibbs", "lightlda") for other in OTHERS
]


def assert_shares(counts: np.ndarray, alpha: list[float]) -> None:
    """Tokens of the topics within 5 standard deviations of what alpha says."""
    expected = np.broadcast_to(alpha, 4) / np.broadcast_to(alpha, 4).sum()
    deviations = np.sqrt(expected * (1 - expected) / DOCUMENTS)
    assert abs(counts.sum() - DOCUMENTS) <= 4  # averages of several states are rounded
    assert (np.abs(counts / DOCUMENTS - expected) < 5 * deviations).all(), counts / DOCUMENTS


@pytest.fixture(scope="module")
def ones(tmp_path_factory, ooc_in):
    """The dataset of a text of one word a line."""
    place = tmp_path_factory.mktemp("ones")
    (place / "ones.txt").write_text("".join(f"{name}\n" for name in names_of_words(DOCUMENTS)))
    assert ooc_in(place)("ingest", "text", "ones.txt", "data", "--lines", "--stop-words", "none").returncode == 0
    return place / "data"


EVERY = [(*chosen, prior) for chosen in UPDATES for prior in ALPHA]
QUICK = [
    *((*chosen, "asymmetric") for chosen in UPDATES if "delayed" in chosen or "lightlda" in chosen),
    *((name, "delayed", "symmetric") for name in ("two-phase", "lightlda")),
]


@pytest.mark.few(3)
@pytest.mark.parametrize(("sampler", "update", "prior"), long_but(QUICK, EVERY))
def test_topics_have_the_shares_of_alpha(tmp_path, ooc, ones, sampler, update, prior):
    alpha = ALPHA[prior]
    chosen = ["--sampler", sampler, *(["--update", update] if sampler != "two-phase" else [])]
    priors = ["--alpha", ",".join(map(str, alpha)), "--beta", BETA]
    size = ["--topics", 4, "--iterations", ITERATIONS, "--workers", 1]
    done = ooc("train", "lda", ones, "run", *size, *priors, *chosen)
    assert done.returncode == 0, done.stderr
    counts = [topic["tokens"] for topic in json.loads(ooc("topics", "run", "--json").stdout)]  # largest first
    assert_shares(np.array(counts), sorted(alpha, reverse=True))


@pytest.mark.long
@pytest.mark.few(1)
@pytest.mark.parametrize(
    "sampler", long_but(["two-phase", "lightlda"], ["two-phase", "gibbs", "lightlda", "sparse-gibbs"])
)
def test_topics_have_the_shares_of_alpha_on_a_ring(tmp_path, sampler):
    words = np.arange(DOCUMENTS, dtype=np.uint32)
    write_corpus(tmp_path / "whole", np.arange(DOCUMENTS + 1), words, names_of_words(DOCUMENTS), slices=4)
    paths = [shard.path for shard in make_shards(tmp_path / "whole", str(tmp_path / "shards"), 2, workers=1)]
    options = {"topics": 4, "alpha": ALPHA["asymmetric"], "beta": BETA, "iterations": ITERATIONS, "sampler": sampler}

    def train(ring):
        train_lda(paths[ring.rank], tmp_path / f"run-{ring.rank}", ring=ring, workers=1, quiet=True, **options)

    on_ring(2, train)
    assert_shares(SavedTopicModel(tmp_path / "run-0" / "model").topic_counts, ALPHA["asymmetric"])
