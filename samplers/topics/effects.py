"""Linear regression of the prevalence of topics on several columns of the documents, with the method of composition.

The share theta_dk of each topic is regressed on the same n x p matrix X of the documents, with an intercept, as stm's
estimateEffect does: mixtures are drawn from their posterior given the topics of tokens, Dirichlet(n_d + alpha); each
draw is regressed by least squares, and coefficients are drawn from their sampling distribution. With infinitely many
draws the variance of the coefficients b_k of topic k is

    s_k^2 A + A M_k A,   A = (X'X)^-1,   M_k = sum_d v_dk x_d x_d',
    s_k^2 = (RSS_k + sum_d v_dk - tr(A M_k)) / (n - p)

with v_dk the posterior variance of theta_dk, as in `samplers.topics.prevalence`, and RSS_k the residual sum of squares
of the posterior means. So nothing is drawn: sums are taken in one pass. For an X of groups these are the intervals of
`prevalence`, with one variance for all groups in place of one for each.

Intervals and two-sided p-values are those of Student's t distribution with n - p degrees of freedom; `q` is the p-value
adjusted by Benjamini and Hochberg (1995) over all topics and terms but the intercept.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from blocks.compiled import kernel
from blocks.errors import RequestError
from samplers.topics.model import TopicModel, read_only
from samplers.topics.prevalence import benjamini_hochberg
from samplers.topics.student_t import quantile, two_sided

_MOST_BYTES = 256 << 20  # maximum memory for the sums over documents


@kernel
def add_products(offsets, topics, counts, alpha, states, rows, bases, sums, squares, spreads):
    """Add up the sums over documents that a regression of topic shares needs.

    offsets: int64 (n+1,), start of each document in `topics` and `counts`.
    alpha: float64 (K,).
    states: number of states whose counts are summed.
    rows: float64 (n, p), rows of X; documents without tokens, or with NaN in the first column, are left out. With T = N
        + abar and T' = T / states, `bases`, float64 (2p + 2, p), receives the terms that all topics share: the sums of
        x / T, of 1 / T^2 (first entry of the second row), of x x' / (T (T' + 1)) and of x x' / (T^2 (T' + 1)). The
        additional terms of the topics that occur in a document are added to `sums`, float64 (K, p), of theta x;
        `squares`, float64 (K,), of theta^2; and `spreads`, float64 (K, p, p), of v x x', lower triangles.
    Returns the number of documents.
    """
    mass, size, documents = alpha.sum(), rows.shape[1], 0
    for document in range(offsets.size - 1):
        row, first, last = rows[document], offsets[document], offsets[document + 1]
        if np.isnan(row[0]) or first == last:
            continue
        documents += 1
        total = mass
        for entry in range(first, last):
            total += counts[entry]
        inverse, spread = 1.0 / total, 1.0 / (total / states + 1.0)
        bases[1, 0] += inverse * inverse
        for i in range(size):
            bases[0, i] += inverse * row[i]
            for j in range(i + 1):
                product = row[i] * row[j] * inverse * spread
                bases[2 + i, j] += product
                bases[2 + size + i, j] += product * inverse
        for entry in range(first, last):
            k, count = topics[entry], float(counts[entry])
            share = count * inverse
            square = count * (count + 2.0 * alpha[k]) * inverse * inverse
            variance = (share - square) * spread
            squares[k] += square
            for i in range(size):
                sums[k, i] += share * row[i]
                for j in range(i + 1):
                    spreads[k, i, j] += variance * row[i] * row[j]
    return documents


@dataclass(frozen=True)
class TopicEffects:
    """Regression coefficients of K topics for p terms.

    Attributes: `terms`, names of the terms, the first of which is the intercept; `documents`, number of documents;
    `level`, confidence level of the intervals; `estimate`, `error` (standard error), `low`, `high`, `t`, `p` and `q`,
    float64 (p, K); `without_value` and `without_tokens`, numbers of documents that were left out.
    """

    terms: list[str]
    documents: int
    level: float
    estimate: np.ndarray
    error: np.ndarray
    low: np.ndarray
    high: np.ndarray
    t: np.ndarray
    p: np.ndarray
    q: np.ndarray
    without_value: int
    without_tokens: int


class EffectSums:
    """Sums over documents for a regression on `size` columns, the first of which is 1.

    model: topic model whose trained mixtures are regressed.
    Raises RequestError if the sums need too much memory.
    """

    def __init__(self, model: TopicModel, size: int) -> None:
        if 8 * model.topics * size * size > _MOST_BYTES:
            raise RequestError(
                f"--regress: {size} columns for {model.topics:,} topics need more than {_MOST_BYTES >> 20} MB",
                "Remove terms, or use columns with fewer values.",
            )
        self._model, self._alpha = model, read_only(model.alpha)
        self._documents = [read_only(array) for array in model.documents]
        self._bases, self._sums = np.zeros((2 * size + 2, size)), np.zeros((model.topics, size))
        self._squares, self._spreads = np.zeros(model.topics), np.zeros((model.topics, size, size))
        self._products = np.zeros((size, size))
        self.documents = self.without_value = self.without_tokens = 0

    def add(self, first: int, rows: np.ndarray) -> None:
        """Add the documents from index `first` on, given their rows of X, float64 (n, p). NaN in the first column
        leaves a document out.
        """
        offsets, topics, counts = self._documents
        some = offsets[first : first + len(rows) + 1]
        entries = slice(int(some[0]), int(some[-1]))
        own = read_only(some - some[0]), read_only(topics[entries]), read_only(counts[entries])
        sums = self._bases, self._sums, self._squares, self._spreads
        self.documents += add_products(*own, self._alpha, self._model.states, rows, *sums)
        chosen = ~np.isnan(rows[:, 0])
        self.without_tokens += int(np.count_nonzero(chosen & (np.diff(some) == 0)))
        used = rows[chosen & (np.diff(some) > 0)]
        self._products += used.T @ used

    def effects(self, terms: list[str], scale: np.ndarray, level: float) -> TopicEffects:
        """Return the coefficients.

        scale: float64 (p, p), matrix that maps the coefficients of X to the coefficients of the terms.
        Raises RequestError if X does not determine the coefficients.
        """
        size, alpha = len(terms), self._alpha
        if self.documents <= size:
            raise RequestError(
                f"--regress: {self.documents:,} documents are too few for {size} coefficients", "Remove terms."
            )
        length = np.sqrt(np.diag(self._products))
        if (length == 0).any() or np.linalg.eigvalsh(self._products / np.outer(length, length))[0] < 1e-10:
            raise RequestError(
                "--regress: the terms are linearly dependent, so that their coefficients are not determined",
                f"Remove a term that the others determine. The columns are: {', '.join(terms)}.",
            )
        inverse = np.linalg.inv(self._products)
        bases = self._bases
        sums = self._sums + alpha[:, None] * bases[0]
        squares = self._squares + alpha**2 * bases[1, 0]
        spreads = self._spreads + alpha[:, None, None] * bases[2 : 2 + size]
        spreads -= (alpha**2)[:, None, None] * bases[2 + size :]
        spreads = np.tril(spreads) + np.tril(spreads, -1).transpose(0, 2, 1)
        estimate = sums @ inverse
        residual = squares - np.einsum("kp,kp->k", sums, estimate)
        own = residual + spreads[:, 0, 0] - np.einsum("pq,kqp->k", inverse, spreads)
        variance = np.maximum(own, 0.0) / (self.documents - size)
        covariance = variance[:, None, None] * inverse + inverse @ spreads @ inverse
        estimate = estimate @ scale.T
        error = np.sqrt(np.einsum("pq,kqr,pr->kp", scale, covariance, scale))
        return self._tested(terms, estimate.T, error.T, level)

    def _tested(self, terms: list[str], estimate: np.ndarray, error: np.ndarray, level: float) -> TopicEffects:
        freedom = np.full(estimate.shape, float(self.documents - len(terms)))
        with np.errstate(invalid="ignore", divide="ignore"):
            t = estimate / error
        p = two_sided(t, freedom)
        q = np.full(p.shape, np.nan)
        q[1:] = benjamini_hochberg(p[1:])
        margin = quantile(level, freedom[:1, :1]) * error
        return TopicEffects(
            terms=terms,
            documents=self.documents,
            level=level,
            estimate=estimate,
            error=error,
            low=estimate - margin,
            high=estimate + margin,
            t=t,
            p=p,
            q=q,
            without_value=self.without_value,
            without_tokens=self.without_tokens,
        )
