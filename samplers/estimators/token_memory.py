"""Memory of tokens in estimators: word counts are expanded to tokens only if the tokens fit. Measured as the increase
of the resident set, for one document of 10M and 40M tokens, and for documents of 1,000 tokens.
"""

from __future__ import annotations

from blocks.corpus.partition import BLOCK_TOKENS
from blocks.errors import RequestError
from blocks.memory import available_memory
from samplers.training_preparation import MEMORY_SHARE

_PROCESS = 180_000_000  # resident bytes of a process without tokens
_LEAST = _PROCESS + 10_000_000  # approximate minimum for training, which reports the error
# bytes per token while a dataset is written: of all tokens, and of the current block's tokens
_WRITTEN, _OF_BLOCK = 13, 8
_FOLDED_IN = 13  # bytes per token of the documents that threads are processing


def budget_of(memory: int | None) -> int:
    """Return the memory limit in bytes, by default a fraction of the available memory."""
    return int(MEMORY_SHARE * available_memory()) if memory is None else memory


def require_memory_to_fit(tokens: int, longest: int, budget: int) -> None:
    """Raise RequestError unless `tokens` tokens can be written as a dataset.

    longest: number of tokens in the longest document.
    """
    needed = _PROCESS + _WRITTEN * tokens + _OF_BLOCK * max(longest, min(tokens, BLOCK_TOKENS))
    if needed <= max(budget, _LEAST):
        return
    what = f"memory {_mb(budget)} is too small: X has {tokens:,} tokens, and fitting them in memory takes {_mb(needed)}"
    if _PROCESS + (_WRITTEN + _OF_BLOCK) * longest > budget:
        raise RequestError(what, f"Increase memory if one document can have {longest:,} words.")
    ingest = "write the counts to a file, ingest that (`ooc ingest uci`) and fit the path of the dataset"
    raise RequestError(what, f"Increase memory; or {ingest}.")


def folding_threads(tokens: int, threads: int, budget: int) -> int:
    """Return how many of `threads` threads can process documents of `tokens` tokens at the same time.

    Raises RequestError if not even one can.
    """
    fitting = budget // (_FOLDED_IN * max(tokens, 1))
    if not fitting:
        raise RequestError(
            f"memory {_mb(budget)} is too small: a document of X has {tokens:,} tokens, which take "
            f"{_mb(_FOLDED_IN * tokens)}",
            "Increase memory, or split the document.",
        )
    return min(threads, fitting)


def _mb(size: int) -> str:
    return f"{size / 1e6:,.0f} MB"
