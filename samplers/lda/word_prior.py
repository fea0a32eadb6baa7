"""Prior of each topic and word, as weights that differ from beta.

The prior of word w in topic k is beta, except for listed pairs, which have a weight of their own: beta_kw >= 0. Only
these pairs are stored, word by word. A weight of 0 means that the word cannot occur in the topic. So with n_kw tokens,

    phi_kw = (n_kw + beta_kw) / (n_k + sum_w beta_kw)
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from blocks.alias_table import alias_table
from blocks.compiled import inlined, inlined_kernel, kernel
from blocks.corpus.dataset import TokenBlock
from blocks.errors import RequestError
from ooc.program import Arrays
from ooc.rng import stream_key, uniform
from samplers.lda.document_fold_in import NO_ROW
from samplers.lda.document_kernels import first_above
from samplers.lda.token_kernels import (
    GroupPrior,
    count_runs,
    dense_likelihood,
    gather_word,
    group_likelihood,
    word_tokens,
)
from samplers.lda.topic_tree import AT_ONCE
from samplers.topics.model import TopicCountRows

MOST_PAIRS = 1 << 22  # maximum number of listed pairs: the configuration of a run, which holds them, has 16 bytes each
_PAIR = np.dtype([("word", "<u4"), ("topic", "<u4"), ("weight", "<f8")])


class WordPrior(NamedTuple):
    """The listed pairs of all words, ordered by word and topic, and the working memory of one worker.

    starts: int64 (V+1,), first pair of each word.
    topics: uint32 (n,).
    weights: float64 (n,), beta_kw.
    additions: float64 (n,), beta_kw - beta.
    of_topics: float64 (K,), 0 except while a word's additions are in use.
    """

    starts: np.ndarray
    topics: np.ndarray
    weights: np.ndarray
    additions: np.ndarray
    of_topics: np.ndarray

    def from_word(self, rank: int) -> WordPrior:
        """Return the prior of the words from a rank on, counted from 0 there."""
        return self._replace(starts=self.starts[rank:])


def pack_pairs(words: np.ndarray, topics: np.ndarray, weights: np.ndarray) -> str:
    """Return listed pairs as text, for the options of a program.

    words: original indices.
    """
    pairs = np.empty(words.size, _PAIR)
    pairs["word"], pairs["topic"], pairs["weight"] = words, topics, weights
    return base64.b64encode(pairs.tobytes()).decode("ascii")


def unpack_pairs(text: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the words, topics and weights that were given to `pack_pairs`.

    Raises ValueError.
    """
    pairs = np.frombuffer(base64.b64decode(text, validate=True), _PAIR)
    return pairs["word"], pairs["topic"], pairs["weight"]


def word_prior(text: str, word_ids: np.ndarray, topics: int, beta: float) -> WordPrior:
    """Return the word prior of a program.

    word_ids: (V,), original index of each word.
    topics: K.
    Raises ValueError if a pair names a word or topic that the model does not have.
    """
    ranks = np.empty(word_ids.size, np.int64)
    ranks[word_ids] = np.arange(word_ids.size)
    words, of, weights = unpack_pairs(text)
    if words.size and (words.max() >= ranks.size or of.max() >= topics or not weights.min() >= 0.0):
        raise ValueError("a word, a topic or a weight is out of range")
    order = np.lexsort((of, ranks[words]))
    starts = np.searchsorted(ranks[words][order], np.arange(ranks.size + 1))
    weights = weights[order].astype(np.float64)
    return WordPrior(starts, of[order].astype(np.uint32), weights, weights - beta, np.zeros(topics))


def added_by_topic(prior: WordPrior) -> np.ndarray:
    """Return sum_w (beta_kw - beta), float64 (K,)."""
    return np.bincount(prior.topics, prior.additions, prior.of_topics.size)


def rows_of_prior(prior: WordPrior, word_ids: np.ndarray) -> TopicCountRows:
    """Return the additions of all words in the original order.

    word_ids: (V,), original index of each word.
    """
    order = np.argsort(word_ids)
    sizes = np.diff(prior.starts)[order]
    offsets = np.append(0, np.cumsum(sizes))
    pairs = np.repeat(prior.starts[order] - offsets[:-1], sizes) + np.arange(offsets[-1])
    return TopicCountRows(offsets, prior.topics[pairs], prior.additions[pairs].astype(np.float32))


def totals_of_model(
    beta: float, topic_counts: np.ndarray, prior: WordPrior | None, word_ids: np.ndarray
) -> dict[str, Any]:
    """Return the arguments of `samplers.topics.model.write_model` that depend on the word prior.

    topic_counts: (K,), without it.
    word_ids: (V,), original index of each word.
    """
    if prior is None:
        return {"beta": beta, "topic_counts": topic_counts}
    return {
        "beta": float(np.float32(beta)),  # the count of a word that cannot occur in a topic is -beta, in float32
        "topic_counts": topic_counts + added_by_topic(prior),
        "prior": rows_of_prior(prior, word_ids),
    }


def rows_of_model(
    found: tuple[np.ndarray, np.ndarray], prior: WordPrior | None, *, floats: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """Return rows of words as a model has them: unchanged, or `with_additions` if there is a word prior.

    found: sizes and rows. For the other arguments see `with_additions`.
    """
    return found if prior is None else with_additions(*found, floats, prior)


def draw_anew(
    where: tuple[Any, ...], block: TokenBlock, prior: WordPrior | None, delta: np.ndarray, key: np.uint64
) -> None:
    """Draw new topics for the tokens of documents that were drawn topics in which their words cannot occur.

    where: state, base, offsets and positions (`samplers.lda.token_kernels`).
    key: key of the random stream of the first draws. For the other arguments see `leave_barred`.
    """
    if prior is not None:
        leave_barred(*where, block.words, block.word_offsets, prior, delta, stream_key(int(key), 1))


class PriorPseudoCounts:
    """The additions of a word prior as part of the expected counts of `samplers.lda.scvb0`.

    row_of: uint32 (V,), row of each word, or NO_ROW.
    sizes: number of topics at each depth.
    Raises RequestError if there are several depths.
    """

    def __init__(self, prior: WordPrior, row_of: np.ndarray, sizes: Sequence[int]) -> None:
        if len(sizes) > 1:
            raise RequestError(
                f"--start scvb0: at most {AT_ONCE:,} topics can be learned with --topic-word-prior or --seed-words",
                "Use --start random.",
            )
        self._prior, self._row_of = prior, row_of

    @cached_property
    def _added(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the places of listed pairs in the expected rows, their additions, and the sums of all by topic."""
        totals = added_by_topic(self._prior)
        rows = np.repeat(self._row_of, np.diff(self._prior.starts)).astype(np.int64)
        kept = np.flatnonzero(rows != np.int64(NO_ROW))
        return rows[kept] * totals.size + self._prior.topics[kept], self._prior.additions[kept], totals

    def add(self, shared: Arrays, share: float) -> None:
        """Add a share of the additions to the expected counts. Each minibatch adds the share of the counts that it
        replaces, so that the expected counts always include the whole additions."""
        places, additions, totals = self._added
        shared["expected_totals"] += share * totals
        shared["expected_rows"][places] += share / shared["estimate"][1] * additions


def check_pairs(
    words: np.ndarray, topics: np.ndarray, weights: np.ndarray, *, size: int, vocabulary: list[str]
) -> None:
    """Raise RequestError if a pair is invalid or occurs twice, or if a word is left without topics or a topic without
    words.

    size: K.
    """
    if words.size and not 0 <= words.min() <= words.max() < len(vocabulary):
        raise RequestError("the prior has a word that is not in the vocabulary", "Provide a column for each word.")
    pairs, times = np.unique(words * size + topics, return_counts=True)
    if (times > 1).any():
        word, topic = divmod(int(pairs[times.argmax()]), size)
        raise RequestError(
            f"the prior has two weights of the word {vocabulary[word]!r} in topic {topic}", "Provide a single weight."
        )
    never = weights == 0.0
    barred = np.bincount(words[never], minlength=len(vocabulary)) == size
    if barred.any():
        raise RequestError(
            f"the word {vocabulary[int(barred.argmax())]!r} has the prior weight 0 in all {size} topics",
            "Set a positive weight for the word in at least one topic.",
        )
    empty = np.bincount(topics[never], minlength=size) == len(vocabulary)
    if empty.any():
        raise RequestError(
            f"all words have the prior weight 0 in topic {int(empty.argmax())}",
            "Set a positive weight for at least one word in this topic.",
        )


@inlined_kernel
def add_to(of_topics, prior, word):
    """Add the additions of a word to `of_topics`, float64 (K,), if there is a word prior."""
    if prior is not None:
        for pair in range(prior.starts[word], prior.starts[word + 1]):
            of_topics[prior.topics[pair]] += prior.additions[pair]


@inlined_kernel
def reset(of_topics, prior, word):
    """Set `of_topics`, float64 (K,), to 0 where `add_to` has added."""
    if prior is not None:
        for pair in range(prior.starts[word], prior.starts[word + 1]):
            of_topics[prior.topics[pair]] = 0.0


@inlined_kernel
def open_prior(prior, word):
    """Set `of_topics` to the additions of a word; returns whether the word has a prior of its own."""
    if prior is None:
        return False
    add_to(prior.of_topics, prior, word)
    return prior.starts[word] < prior.starts[word + 1]


@inlined_kernel
def close_prior(prior, word):
    """Set `of_topics` to 0 again."""
    if prior is not None:
        reset(prior.of_topics, prior, word)


@inlined_kernel
def addition(prior, topic):
    """Return beta_kw - beta of the word whose prior is open; 0 without a word prior."""
    return 0.0 if prior is None else prior.of_topics[topic]


@kernel
def prior_of_word(prior, word, common):
    """Return the prior of the topics in a word's tokens, a GroupPrior: `common`, the symmetric prior, if no pair of the
    word is listed."""
    first, last = prior.starts[word], prior.starts[word + 1]
    if first == last:
        return common
    weights = np.full(common.topics, common.weights[0])
    for pair in range(first, last):
        weights[prior.topics[pair]] = prior.weights[pair]
    cut, alias = alias_table(weights)
    likeliest = np.argmax(weights)
    for k in range(weights.size):
        if weights[k] == 0.0 and cut[k] > 0.0:  # rounding gave a share of the table to a topic that must not be drawn
            cut[k], alias[k] = 0.0, likeliest
    return GroupPrior(not common.symmetric, common.topics, weights.sum(), weights, cut, alias)


@inlined
def weight_of(prior, word, topic, beta):
    """Return beta_kw."""
    first, last = prior.starts[word], prior.starts[word + 1]
    place = first_above(prior.topics, first, last, np.int64(topic) - 1)
    return prior.weights[place] if place < last and prior.topics[place] == topic else beta


@kernel
def word_likelihood(state, bases, run_offsets, blocks, starts, lengths, scratch, common, word_prior):
    """Return the word part of the joint log-likelihood without its topic terms, and the total number of topics over
    words.

    common: prior of words without one of their own in word_prior, a WordPrior of these words or None.
    """
    likelihood, nonzeros = 0.0, 0
    for w in range(run_offsets.size - 1):
        runs = slice(run_offsets[w], run_offsets[w + 1])
        prior = common
        if word_prior is not None:
            prior = prior_of_word(word_prior, w, common)
        if word_tokens(lengths[runs]) > scratch.where.size:
            count_runs(state, bases, blocks[runs], starts[runs], lengths[runs], scratch.counts)
            found = dense_likelihood(scratch.counts, prior)
        else:
            tokens = gather_word(bases, blocks[runs], starts[runs], lengths[runs], scratch.where)
            found = group_likelihood(state, scratch.where[:tokens], scratch.counts, prior)
        likelihood += found[0]
        nonzeros += found[1]
    return likelihood, nonzeros


@kernel
def leave_barred(state, base, offsets, positions, words, word_offsets, prior, delta, key):
    """Move the tokens of some documents whose topic has a weight of 0 to another topic, drawn uniformly.

    state: topic type (rows, columns).
    base: row of position 0.
    offsets: int64 (D+1,), start of each document in `positions`, uint32.
    words: uint32 (n,), and word_offsets: int64 (n+1,), start of each word's positions in the block.
    prior: WordPrior.
    delta: int64 (K,), changes of the topic counts, added to.
    key: key of the random stream; one draw per token.
    """
    for token in range(offsets[0], offsets[-1]):
        position = np.int64(positions[token])
        word = words[first_above(word_offsets, 0, words.size, position) - 1]
        first, last = prior.starts[word], prior.starts[word + 1]
        old = np.int64(state[base + position, 0])
        barred, is_barred = 0, False
        for pair in range(first, last):
            barred += prior.weights[pair] == 0.0
            is_barred |= prior.weights[pair] == 0.0 and prior.topics[pair] == old
        if not is_barred:
            continue
        new = np.int64(uniform(key, np.uint64(token - offsets[0])) * (prior.of_topics.size - barred))
        for pair in range(first, last):  # ascending: skips the barred topics up to the drawn one
            new += prior.weights[pair] == 0.0 and prior.topics[pair] <= new
        delta[old] -= 1
        delta[new] += 1
        state[base + position, :] = new


@kernel
def with_additions(sizes, rows, floats, prior):
    """Return rows of words with the additions of the prior in their counts, which become the bits of float32.

    sizes: uint32 (W,) and rows: uint64 (n,), topic << 32 | count, of the first W words of the prior; the counts are the
        bits of float32 if `floats`, else integers.
    """
    size, words = rows.size + prior.starts[sizes.size] - prior.starts[0], sizes.size
    topics, values = np.empty(size, np.uint64), np.zeros(size, np.float32)
    bits = (rows & np.uint64(0xFFFFFFFF)).astype(np.uint32)
    counts = bits.view(np.float32) if floats else bits.astype(np.float32)
    changed, at, filled = np.zeros(words, np.uint32), 0, 0
    for w in range(words):
        pair, last, end, begin = prior.starts[w], prior.starts[w + 1], at + np.int64(sizes[w]), filled
        while at < end or pair < last:
            of_row = np.int64(rows[at] >> np.uint64(32)) if at < end else np.int64(1 << 40)
            of_pair = np.int64(prior.topics[pair]) if pair < last else np.int64(1 << 40)
            topics[filled] = min(of_row, of_pair)
            if of_row <= of_pair:
                values[filled] += counts[at]
                at += 1
            if of_pair <= of_row:
                values[filled] += np.float32(prior.additions[pair])
                pair += 1
            filled += 1
        changed[w] = filled - begin
    packed = topics[:filled] << np.uint64(32) | values[:filled].view(np.uint32).astype(np.uint64)
    return changed, packed
