"""Covariates of individuals from a text file in PLINK's format, joined to genotypes by FID and IID."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import NamedTuple

import numpy as np

from blocks.design.design_rows import LARGEST, not_finite_error
from blocks.encodings import decode_utf8
from blocks.errors import RequestError, quoted
from blocks.plain_numbers import plain_number
from blocks.text_inputs import TextInput, last_line_end

_HEADERS = (["FID", "IID"], ["#FID", "IID"], ["IID"], ["#IID"])  # columns before the names of covariates
Name = tuple[str, str]  # family id and individual id
Line = tuple[int, list[str]]  # line number and fields


def number_or_missing(text: str) -> float | None:
    """Parse a number as PLINK does: NaN for the missing-value codes -9, NA and nan; None if it is not a number."""
    if text.casefold() in ("na", "nan"):
        return np.nan
    number = plain_number(text)
    return np.nan if number == -9 else number


class GenotypeCovariates(NamedTuple):
    """Covariates of all n genotyped individuals.

    names: names of the m covariates.
    values: float64 (n, m), NaN if missing or if the individual is not in the file.
    strangers: number of individuals in the file without genotypes.
    path: path of the file.
    individuals: family and individual ids.
    """

    names: list[str]
    values: np.ndarray
    strangers: int
    path: str
    individuals: Sequence[Name]

    def complete(self, missing: bool) -> np.ndarray:
        """Return the mask of individuals that have all values, bool (n,).

        missing: accept missing values instead of raising RequestError.
        """
        found = ~np.isnan(self.values).any(axis=1)
        if missing or found.all():
            return found
        first, count = self.individuals[int(np.argmin(found))], found.size - np.count_nonzero(found)
        raise RequestError(
            f"{self.path}: {count:,} of {found.size:,} individuals have no covariates; the first is {' '.join(first)}",
            "Exclude such individuals with --skip-missing.",
        )


def read_covariates(path: str, individuals: Sequence[Name], room: int) -> GenotypeCovariates:
    """Read the covariates of individuals.

    A header starts with `FID IID` or `IID`, possibly after a `#`, followed by the covariate names. Without a header,
    lines start with FID and IID, and covariates are called COV1, COV2, ...

    room: maximum bytes of the values.
    Raises RequestError for unreadable lines and repeated individuals.
    """
    lines = _lines(TextInput(path))
    number, fields = next(lines, (1, []))
    header = next((header for header in _HEADERS if fields[: len(header)] == header), None)
    before = len(header) if header else 2
    names = fields[before:] if header else [f"COV{place}" for place in range(1, len(fields) - 1)]
    if not names:
        raise RequestError(f"{path}, line {number}: no covariates; expected FID IID name name ...")
    if twice := [name for name, times in Counter(names).items() if times > 1]:
        raise RequestError(f"{path}, line {number}: two covariates are named {twice[0]!r}", "Rename one of them.")
    if 8 * len(individuals) * len(names) > room:
        raise RequestError(
            f"{path}: {len(names):,} covariates of {len(individuals):,} individuals do not fit in --memory",
            "Increase --memory.",
        )
    values = np.full((len(individuals), len(names)), np.nan)
    strangers = _fill(
        values, _rows_of(individuals, before, path), lines if header else chain([(number, fields)], lines), path, names
    )
    return GenotypeCovariates(names, values, strangers, path, individuals)


def _fill(
    values: np.ndarray, rows: dict[tuple[str, ...], int], lines: Iterator[Line], path: str, names: list[str]
) -> int:
    """Fill in the values of known individuals; return the number of unknown ones."""
    before = len(next(iter(rows)))
    seen, strangers = np.zeros(len(values), bool), 0
    for line, fields in lines:
        where = f"{path}, line {line}"
        if len(fields) != before + len(names):
            raise RequestError(f"{where}: {len(fields)} fields, expected {before + len(names)} as in the first line")
        row = rows.get(tuple(fields[:before]))
        if row is None:
            strangers += 1
        elif seen[row]:
            raise RequestError(
                f"{where}: the individual {' '.join(fields[:before])} appears on two lines", "Keep one of the lines."
            )
        else:
            seen[row] = True
            values[row] = _numbers(fields[before:], names, where)
    return strangers


def _lines(source: TextInput) -> Iterator[Line]:
    """Yield all nonblank lines."""
    for first, data in source.chunks(last_line_end):
        for number, line in enumerate(decode_utf8(data, source.name, first).split("\n"), first):
            if fields := line.split():
                yield number, fields


def _rows_of(individuals: Sequence[Name], before: int, path: str) -> dict[tuple[str, ...], int]:
    """Return the row of each individual by the name used in the file: IID, or FID and IID."""
    named = [name[2 - before :] for name in individuals]
    if len(rows := dict(zip(named, range(len(named)), strict=True))) < len(named):
        twice = next(name for name, times in Counter(named).items() if times > 1)
        raise RequestError(
            f"{path}: two individuals of the .fam file are named {' '.join(twice)}",
            "Use a different name for each individual, or add the families: FID IID ..."
            if before == 1
            else "Use a different name for each individual.",
        )
    return rows


def _numbers(fields: list[str], names: list[str], where: str) -> list[float]:
    found = []
    for name, field in zip(names, fields, strict=True):
        number = number_or_missing(field)
        if number is None:
            raise RequestError(
                f"{where}: {name} must be a number, got {quoted(field.encode())}", "Code categories as 0 and 1."
            )
        if abs(number) > LARGEST:
            raise not_finite_error(f"{where}, {name}", field)
        found.append(number)
    return found
