"""Recognise documents passed to topic models: strings, lists of tokens, or tables of counts."""

from __future__ import annotations

import math
import reprlib
from collections.abc import Iterable, Iterator, Mapping, Sized
from itertools import chain
from typing import Any

import numpy as np

from blocks.errors import RequestError

DOCUMENTS = "a matrix of word counts, or a list of texts or of lists of tokens"


def require_counts(X: Any) -> None:
    """Raise RequestError, with an example of a valid call, if X contains neither texts nor counts."""
    empty = isinstance(X, Sized) and not hasattr(X, "shape") and not len(X)
    if X is None or empty or (isinstance(X, Mapping | bytes) and not hasattr(X, "tocsr")):
        shown = "None" if X is None else "empty" if empty else f"the {type(X).__name__} {reprlib.repr(X)}"
        raise RequestError(f"X must contain documents, got {shown}", f"Pass {DOCUMENTS}.")
    if hasattr(X, "columns"):
        if (column := next((name for name in X.columns if _has_texts(np.asarray(X[name]))), None)) is not None:
            raise RequestError(
                f"X is a data frame with texts in the column {column!r}; expected a single column",
                f"Pass only that column: X[{column!r}].",
            )
    elif isinstance(X, np.ndarray) and X.ndim == 2 and _has_texts(X.reshape(-1)):
        raise RequestError(
            f"X is an array of strings of shape {X.shape}; expected a one-dimensional array",
            "Pass X[:, 0]." if X.shape[1] == 1 else "If each row is a list of tokens, pass X.tolist().",
        )


def _has_texts(array: np.ndarray) -> bool:
    """Return whether the first element of an array is a string."""
    return array.ndim > 0 and array.size > 0 and isinstance(array[0], str)


def document_texts(X: Any) -> Iterable[Any] | None:
    """Return the texts or lists of tokens in an object; None if it is something else."""
    if hasattr(X, "tocsr") or hasattr(X, "columns"):
        return None
    if hasattr(X, "to_list"):  # a data frame column
        X = X.to_list()
    if isinstance(X, np.ndarray):
        if X.ndim != 1 or X.dtype.kind not in "OU":
            return None
        X = X.tolist()
    if hasattr(X, "__array__") or not isinstance(X, Iterable) or isinstance(X, Mapping | bytes):
        return None
    if iter(X) is not X:
        return X if _is_documents(X) else None
    began = []
    for each in X:
        began.append(each)
        if not _is_empty(each):
            break
    return chain(began, X) if _is_documents(began) else list(chain(began, X))


def _is_documents(began: Iterable[Any]) -> bool:
    """Return whether the first nonempty element is a document and not a row of numbers; if all are empty, whether there
    are any elements.
    """
    first = None
    for first in began:
        if not _is_empty(first):
            return _is_document(first)
    return first is not None


def _is_empty(document: Any) -> bool:
    return isinstance(document, list | tuple) and not document


def _is_document(document: Any) -> bool:
    """Return whether an object is a string, a list of tokens, or a missing document."""
    if isinstance(document, list | tuple):
        return isinstance(document[0], str)
    if isinstance(document, np.ndarray):
        return _has_texts(document)
    missing = document is None or (isinstance(document, float) and math.isnan(document))
    return missing or isinstance(document, str | bytes | Mapping)


def checked_documents(documents: Iterable[Any]) -> Iterator[str | list[str]]:
    """Yield texts and lists of tokens.

    Raises RequestError for anything else.
    """
    for number, document in enumerate(documents):
        if isinstance(document, str):
            yield document
        elif isinstance(document, list | tuple | np.ndarray) and all(isinstance(token, str) for token in document):
            require_one_line(document, f"X: document {number} (counted from 0) has the token")
            yield list(document)
        else:
            shown = reprlib.repr(document)
            raise RequestError(
                f"X: document {number} (counted from 0) must be a text or a list of tokens, got {shown}",
                "Remove missing documents, and decode bytes.",
            )


def require_one_line(words: Iterable[str], where: str) -> None:
    """Raise RequestError for a word with a line break, since vocabulary files have one word per line."""
    if broken := next((word for word in words if "\n" in word), None):
        raise RequestError(
            f"{where} {reprlib.repr(broken)}, which contains a line break", "Replace line breaks with spaces."
        )
