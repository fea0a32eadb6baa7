"""Convert pyarrow tables and columns to data frames and lists."""

from __future__ import annotations

from typing import Any

import numpy as np


class ArrowFrame:
    """A pyarrow table with the part of the data frame interface that is needed here."""

    def __init__(self, table: Any) -> None:
        self._table = table
        self.columns: list[str] = table.column_names
        self.shape: tuple[int, int] = table.shape

    def __getitem__(self, name: str) -> np.ndarray:
        return np.asarray(self._table[name])

    def to_numpy(self) -> np.ndarray:
        """Return the table as an array (n, p), NaN for missing numbers."""
        return np.column_stack([np.asarray(column) for column in self._table.columns])


def from_arrow(X: Any) -> Any:
    """Convert pyarrow data to a data frame or a list; return anything else unchanged."""
    if not type(X).__module__.startswith("pyarrow."):
        return X
    return ArrowFrame(X) if hasattr(X, "column_names") else X.to_pylist() if hasattr(X, "to_pylist") else X
