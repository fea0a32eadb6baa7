"""Files that select or weight the rows of a design matrix, and random folds.

The format is .npy, or text with one number per line. Selected rows are given as row numbers, from 1 in text and from 0
in .npy files, or, in .npy files, as a boolean for each row.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from blocks.errors import RequestError, quoted
from blocks.files import no_such_file
from blocks.plain_numbers import plain_number
from blocks.text_inputs import TextInput, last_line_end


def read_rows(path: str, rows: int) -> np.ndarray:
    """Read the selected rows, bool (n,).

    Raises RequestError if a number is not a row of the design, or is repeated.
    """
    found = _numbers(path)
    if found.dtype == bool:
        if found.size != rows:
            raise _other_size(path, found.size, rows)
        chosen = found
    else:
        first = 0 if Path(path).suffix == ".npy" else 1
        wrong = (found < first) | (found >= first + rows) | (found != np.rint(found))
        if wrong.any():
            place = int(np.argmax(wrong))
            last = first + rows - 1
            raise RequestError(
                f"{path}, entry {place + 1}: expected a row number from {first} to {last}, got {found[place]:g}"
            )
        chosen, places = np.zeros(rows, bool), found.astype(np.int64) - first
        chosen[places] = True
        if np.count_nonzero(chosen) < found.size:
            twice = int(np.argmax(np.bincount(places, minlength=rows) > 1)) + first
            raise RequestError(
                f"{path} lists row {twice} twice",
                "Remove the repetition; to count a row twice, give it the weight 2 with --weights.",
            )
    if not chosen.any():
        raise RequestError(f"{path} contains no row numbers", "List at least one row.")
    return chosen


def read_weights(path: str, rows: int) -> np.ndarray:
    """Read the sample weights, float64 (n,).

    Raises RequestError unless they are finite, nonnegative, and not all 0.
    """
    found = _numbers(path).astype(np.float64)
    if found.size != rows:
        raise _other_size(path, found.size, rows)
    wrong = ~(np.isfinite(found) & (found >= 0))
    if wrong.any():
        place = int(np.argmax(wrong))
        raise RequestError(f"{path}, row {place + 1}: a weight must be 0 or more, got {found[place]:g}")
    if not found.any():
        raise RequestError(f"{path}: all weights are 0; at least one must be above 0")
    return found


def draw_folds(rows: int, folds: int, seed: int, classes: np.ndarray | None = None) -> np.ndarray:
    """Draw the fold of each row, int64 (n,); fold sizes differ by at most one.

    classes: (n,), labels for stratified folds.
    Raises RequestError for fewer than 2 folds, or fewer rows than folds.
    """
    if not 2 <= folds <= rows:
        raise RequestError(f"the number of folds must be from 2 to {rows}, the number of rows; got {folds}")
    order = np.random.default_rng(seed).permutation(rows)
    if classes is not None:
        order = order[np.argsort(classes[order], kind="stable")]
    drawn = np.empty(rows, np.int64)
    drawn[order] = np.arange(rows) % folds
    return drawn


def _numbers(path: str) -> np.ndarray:
    """Read a one-dimensional array of booleans or numbers."""
    if Path(path).suffix != ".npy":
        return _of_text(path)
    try:
        found = np.load(path, mmap_mode="r", allow_pickle=False)
    except FileNotFoundError:
        raise no_such_file(Path(path)) from None
    except (OSError, ValueError, EOFError) as error:
        raise RequestError(f"{path} cannot be read as an array: {error}", "Write the file with numpy.save.") from error
    if found.ndim != 1 or found.dtype.kind not in "biuf":
        raise RequestError(
            f"{path}: expected a one-dimensional array of numbers, got dtype {found.dtype} and shape {found.shape}"
        )
    return found


def _of_text(path: str) -> np.ndarray:
    numbers = []
    for first, data in TextInput(path).chunks(last_line_end):
        for line, text in enumerate(data.split(b"\n"), first):
            if not text.strip():
                continue
            number = plain_number(text.strip().decode("utf-8", "replace"))
            if number is None:
                raise RequestError(f"{path}, line {line}: expected a number, got {quoted(text)}")
            numbers.append(number)
    return np.array(numbers)


def _other_size(path: str, found: int, rows: int) -> RequestError:
    return RequestError(
        f"{path} has {found} values, but the dataset has {rows} rows", "Provide one value for each row."
    )
