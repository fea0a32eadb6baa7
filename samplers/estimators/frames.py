"""Tables and columns of pyarrow as the data frames and lists that they hold."""

from __future__ import annotations

from typing import Any

import numpy as np


class ArrowFrame:
    """A table of pyarrow with what is used of a data frame."""

    def __init__(self, table: Any) -> None:
        self._table = table
        self.columns: list[str] = table.column_names
        self.shape: tuple[int, int] = table.shape

    def __getitem__(self, name: str) -> np.ndarray:
        return np.asarray(self._table[name])

    def to_numpy(self) -> np.ndarray:
        """The table as an array (n, p), NaN where a number is missing."""
        return np.column_stack([np.asarray(column) for column in self._table.columns])


def from_arrow(X: Any) -> Any:
    """A data frame or a list in place of what pyarrow has; anything else as it is."""
    if not type(X).__module__.startswith("pyarrow."):
        return X
    return ArrowFrame(X) if hasattr(X, "column_names") else X.to_pylist() if hasattr(X, "to_pylist") else X
