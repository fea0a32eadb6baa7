"""Run the document-major kernels on corpora of a few tokens in compiled loops, for tests that need many draws.

Rows are a mixture of both kinds, dense for even words and tables for odd ones, though a row of so few topics would be
dense: what is sampled may not depend on it.
"""

# ruff: noqa: RUF005  (Numba joins tuples by + only)

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numba
import numpy as np
from corpora import make_prior, tiny_dataset

from ooc.rng import random_bits
from samplers.lda import aliaslda, gibbs, lightlda, sparse_gibbs, sparselda
from samplers.lda.document_kernels import DocumentCell, DocumentCountsScratch, aggregate_words, order_tokens
from samplers.lda.sparse_gibbs import sum_rests
from samplers.lda.token_kernels import GroupPrior
from samplers.lda.word_prior import WordPrior, added_by_topic
from samplers.lda.word_tables import AliasTableScratch, WordAliasTables, make_smoothing, make_table, room_for_tables
from samplers.lda.word_topic_rows import DENSE, WordTopicRows, decrease, increase


class SamplerKernel(NamedTuple):
    """A sampler and its options.

    proposal: only for lightlda.
    steps: only for lightlda and aliaslda.
    """

    sampler: str
    steps: int = 1
    proposal: str = "cycle"

    @property
    def name(self) -> str:
        """Return the name shown by pytest."""
        options = {"aliaslda": f"-{self.steps}", "lightlda": f"-{self.proposal}-{self.steps}"}
        return self.sampler + options.get(self.sampler, "")


EXACT = [SamplerKernel("gibbs"), SamplerKernel("sparse_gibbs"), SamplerKernel("sparselda")]
PROPOSING = [
    *(SamplerKernel("aliaslda", steps) for steps in (1, 2)),
    *(SamplerKernel("lightlda", steps, proposal) for proposal in lightlda.PROPOSALS for steps in (1, 2)),
]
KERNELS = [*EXACT, *PROPOSING]

_MODULES = (gibbs, sparse_gibbs, sparselda, aliaslda, lightlda)
_SAMPLE = {module.__name__.split(".")[-1]: module.sample_cell for module in _MODULES}


class DerivedRows(NamedTuple):
    """Data that samplers derive from word rows: `tables`, `rests`, the memory to compute them, and the topics under
    which the rows count the tokens.
    """

    tables: WordAliasTables
    scratch: AliasTableScratch
    rests: np.ndarray
    counted: np.ndarray
    counts: DocumentCountsScratch
    alpha: np.ndarray
    beta: float
    own: tuple  # the word prior, if any


def mixed_rows(words: int, topics: int) -> WordTopicRows:
    """Return empty rows with room for all topics: dense for even words, tables for odd words."""
    slots = 2 ** int(np.ceil(np.log2(2 * topics)))
    masks = np.where(np.arange(words) % 2, slots - 1, DENSE).astype(np.int32)
    starts = np.arange(words) // 2 * np.where(masks == DENSE, topics, slots)
    return WordTopicRows(
        topics, masks, starts, np.zeros((words + 1) // 2 * topics, np.int32), np.zeros(words // 2 * slots, np.int64)
    )


def room_for_counts(topics: int, mass: float | np.ndarray) -> DocumentCountsScratch:
    """Return empty working memory.

    mass: V*beta, or the sum of the prior over all words for each topic.
    """
    summary = np.full(topics, mass, np.float64)
    ints = (np.zeros(size, np.int32) for size in (topics, topics + 1, topics))
    row = (np.zeros(topics + 1, np.int32) for _ in range(2))
    return DocumentCountsScratch(*ints, summary, *(np.zeros(topics) for _ in range(3)), *row)


def empty_tables(words: int, topics: int, weights: np.ndarray) -> tuple[WordAliasTables, AliasTableScratch]:
    """Return tables without entries for a number of words, with a smoothing table for the weights."""
    specs, starts = room_for_tables(np.full(words, topics), topics)
    tables = WordAliasTables(**{name: spec.zeros() for name, spec in specs.items()}, starts=starts)
    scratch = AliasTableScratch(np.zeros(topics + 1), *(np.zeros(topics + 1, np.int32) for _ in range(3)))
    tables.weights[:] = weights
    make_smoothing(tables, scratch)
    return tables, scratch


@dataclass
class TokenCorpus:
    """A corpus of one block, all of its tokens under topic 0, and what the kernels need to sample it.

    offsets, positions: as in `DocumentCell`. words: uint32 (N,), word at each position. weights: float64 (K,), of the
    tables that are not made in place: any positive numbers will do, as a proposal corrects for them. prior: of
    documents, for lightlda; whoever repeats what a program does sets that program's. own: word prior, for the samplers
    that take one.
    """

    offsets: np.ndarray
    positions: np.ndarray
    words: np.ndarray
    vocabulary: int
    alpha: np.ndarray
    beta: float
    weights: np.ndarray | None = None
    own: WordPrior | None = None
    rows: WordTopicRows = field(init=False)
    prior: GroupPrior = field(init=False)

    def __post_init__(self) -> None:
        self.topics = self.alpha.size
        self.mass = self.vocabulary * self.beta + (added_by_topic(self.own) if self.own else 0.0)
        for array in (self.offsets, self.positions):
            array.setflags(write=False)  # as mapped files are: what the cache of compiled kernels holds fits
        state = np.zeros((self.words.size, 1), np.uint8)
        laid_out = np.zeros(self.words.size, np.uint8), np.zeros(self.words.size, np.uint32)
        self.cell = DocumentCell(self.offsets, *laid_out, self.positions, state, 0, 0, self.words.size)
        self.rows = mixed_rows(self.vocabulary, self.topics)
        self.prior = make_prior(self.topics, self.alpha)
        self.counts = room_for_counts(self.topics, self.mass)
        self.assign(np.zeros(self.words.size, np.int64))
        weights = np.array([0.9, 0.2, 0.05])[: self.topics] if self.weights is None else self.weights
        tables = empty_tables(self.vocabulary, self.topics, weights)
        rests, counted = np.zeros(self.vocabulary), np.zeros(self.words.size, np.uint8)
        self.derived = DerivedRows(*tables, rests, counted, self.counts, self.alpha, self.beta, self.of_own)

    def assign(self, z: np.ndarray) -> None:
        """Set the initial topics of the tokens, int64 (N,)."""
        self.cell.state[:] = z[:, None]
        self.counts.summary[:] = np.bincount(z, minlength=self.topics) + self.mass
        self.rows.dense[:], self.rows.tables[:] = 0, 0
        for word, topic in zip(self.words, z, strict=True):
            increase(self.rows, word, topic)

    @property
    def documents(self) -> np.ndarray:
        """Return the document of each position, int64 (N,)."""
        documents = np.empty(self.words.size, np.int64)
        documents[self.positions] = np.repeat(np.arange(self.offsets.size - 1), np.diff(self.offsets))
        return documents

    def kernel(self, kernel: SamplerKernel) -> tuple[Any, tuple]:
        """Return the `sample_cell` of a sampler and its arguments after the cell, except `in_place` and `key`."""
        arguments: tuple = (self.rows, self.counts)
        if kernel.sampler == "sparse_gibbs":
            arguments = (self.rows, self.derived.rests, self.counts)
        if kernel.sampler in ("aliaslda", "lightlda"):
            arguments = (self.rows, self.derived.tables, self.derived.scratch, self.counts)
        if kernel.sampler == "lightlda":
            arguments += (self.prior,)
        arguments += (self.alpha, self.beta)
        if kernel.sampler == "lightlda":
            arguments += (lightlda.PROPOSALS.index(kernel.proposal),)
        if kernel.sampler in ("aliaslda", "lightlda"):
            arguments += (kernel.steps,)
        return _SAMPLE[kernel.sampler], arguments

    def driven(self, kernel: SamplerKernel, how: int) -> tuple:
        """Return the first arguments of `sweep` and of the loops that call it."""
        return how, self.cell, self.words, *self.kernel(kernel), self.rows, self.derived

    @property
    def of_own(self) -> tuple:
        """Return the word prior as the last arguments of a kernel."""
        return () if self.own is None else (self.own,)


def tokens_of(
    path: Path, documents: list[list[int]], vocabulary: int, alpha: list[float], beta: float, slices: int = 2
) -> TokenCorpus:
    """Return documents as a dataset with one block and two slices lays them out."""
    block = tiny_dataset(path, documents, vocabulary, slices=slices).block(0)
    words = np.repeat(block.words, np.diff(block.word_offsets))
    return TokenCorpus(block.offsets.copy(), block.positions.copy(), words, vocabulary, np.array(alpha), beta)


IMMEDIATE, FROZEN, OWN_LEFT_IN, DELAYED = range(4)
"""How `sweep` goes: the product's way with rows updated in place; rows frozen while one token is sampled, from tables
that were made of them with other weights; the same with the token's own count left in its word's row, a mistake; and
rows frozen over a whole sweep."""


@numba.njit
def derive(derived, rows, word):
    """Compute the table and the rest of a word."""
    make_table(derived.tables, word, rows, word, derived.scratch)
    one = np.array([word], np.uint32)
    counts = derived.counts
    sum_rests(*((rows, one, counts, derived.alpha, derived.beta, counts.summary, derived.rests) + derived.own))


@numba.njit
def sweep(how, cell, words, sample, arguments, rows, derived, key):
    """Sample every token once. words: uint32 (N,), word at each position."""
    order_tokens(cell.state, cell.base, cell.positions, words, cell.topics, cell.words, derived.counted)
    if how == IMMEDIATE:
        sample(*((cell,) + arguments + (True, key) + derived.own))
        return
    each = np.arange(cell.words.size + 1)
    if how == DELAYED:
        for position in range(cell.words.size):
            derive(derived, rows, words[position])
        sample(*((cell,) + arguments + (False, key) + derived.own))
        aggregate_words(cell.state, cell.base, derived.counted, words, each, rows)
        return
    for position in range(cell.words.size):
        word, old = words[position], np.int64(cell.state[position, 0])
        if how == OWN_LEFT_IN:
            increase(rows, word, old)
        derive(derived, rows, word)
        one = DocumentCell(
            cell.offsets, cell.topics, cell.words, cell.positions, cell.state, cell.base, position, position + 1
        )
        sample(*((one,) + arguments + (False, random_bits(key, np.uint64(position))) + derived.own))
        if how == OWN_LEFT_IN:
            decrease(rows, word, old)
        aggregate_words(cell.state, cell.base, derived.counted, words, each, rows)


@numba.njit
def code_of(state, topics):
    """Return the index of an assignment in the order of `itertools.product`."""
    code = 0
    for row in range(state.shape[0]):
        code = code * topics + state[row, 0]
    return code


@numba.njit
def count_visits(how, cell, words, sample, arguments, rows, derived, batches, sweeps, thin, key):
    """Count the visits of each assignment, int64 (batches, K^N), after every `thin` sweeps."""
    visits = np.zeros((batches, rows.topics**cell.words.size), np.int64)
    n = np.uint64(0)
    for batch in range(batches):
        for _ in range(sweeps):
            for _ in range(thin):
                sweep(how, cell, words, sample, arguments, rows, derived, random_bits(key, n))
                n += np.uint64(1)
            visits[batch, code_of(cell.state, rows.topics)] += 1
    return visits
