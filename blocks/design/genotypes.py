"""PLINK 1 genotypes: .bed, .bim and .fam files, read with the package bed-reader (extra `plink`)."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import numpy as np

from blocks.design.covariates import Name, number_or_missing
from blocks.design.design import DenseDesignBlock
from blocks.errors import RequestError, quoted

_MISSING = -127  # code of bed-reader
_MAGIC = b"\x6c\x1b"
_BY_VARIANT = b"\x01"


class PlinkIndividuals(NamedTuple):
    """Contents of .fam and .bim files.

    individuals, variants: names.
    y: phenotypes float64 (n,), NaN if missing; None if all are missing.
    """

    individuals: list[Name]
    variants: list[str]
    y: np.ndarray | None


def bed_reader() -> ModuleType:
    """Return the package bed_reader.

    Raises RequestError if it is not installed.
    """
    try:
        import bed_reader
    except ImportError:
        raise RequestError(
            "reading PLINK files needs the package bed-reader, which is not installed",
            'Install it with: pip install "ooc[plink]"',
        ) from None
    return bed_reader


def plink_files(given: str) -> tuple[str, ...]:
    """Return the .bed, .bim and .fam files of a data set, given one of them or their common prefix."""
    stem = Path(given).with_suffix("") if Path(given).suffix in (".bed", ".bim", ".fam") else Path(given)
    return tuple(f"{stem}{suffix}" for suffix in (".bed", ".bim", ".fam"))


def read_individuals(given: str, *, labelled: bool, missing: bool = False) -> PlinkIndividuals:
    """Read the .fam and .bim files.

    labelled: take y from the phenotypes.
    missing: accept missing phenotypes.
    Raises RequestError for invalid files.
    """
    bed, bim, fam = plink_files(given)
    (names,), (families, individuals, phenotypes) = _fields(bim, 1), _fields(fam, 0, 1, 5)
    for path, found_there, what in ((fam, phenotypes, "individuals"), (bim, names, "variants")):
        if not found_there:
            raise RequestError(f"{path} has no {what}", "Copy or make the file again.")
    _require_by_variant(bed)
    expected = 3 + -(-len(phenotypes) // 4) * len(names)
    if (found := Path(bed).stat().st_size) != expected:
        raise RequestError(
            f"{bed}: {found} bytes, but {len(phenotypes)} individuals and {len(names)} variants take {expected}",
            "The three files must belong together, with the .bed file in variant-major order.",
        )
    y = _numbers(phenotypes, fam, missing) if labelled else None
    return PlinkIndividuals(list(zip(families, individuals, strict=True)), names, y)


def _require_by_variant(bed: str) -> None:
    """Raise RequestError if the .bed file is not in variant-major order."""
    with Path(bed).open("rb") as file:
        begin = file.read(3)
    if begin[:2] != _MAGIC:
        raise RequestError(f"{bed} is not a PLINK 1 .bed file", "Write it with plink; its first bytes must be 6c 1b.")
    if begin[2:] != _BY_VARIANT:
        raise RequestError(
            f"{bed} is in individual-major order; expected variant-major", "Convert it with: plink --make-bed"
        )


def _fields(path: str, *places: int) -> list[list[str]]:
    """Return the fields at some positions of all lines, each of which must have six fields."""
    found: list[list[str]] = [[] for _ in places]
    with Path(path).open(encoding="utf-8", errors="replace") as file:
        for number, line in enumerate(file, 1):
            fields = line.split()
            if len(fields) != 6:
                raise RequestError(
                    f"{path}, line {number}: {len(fields)} fields, expected 6", "Write the file again with plink."
                )
            for some, place in zip(found, places, strict=True):
                some.append(fields[place])
    return found


def _numbers(phenotypes: list[str], fam: str, missing: bool) -> np.ndarray | None:
    """Return phenotypes as float64; None if all are missing.

    Raises RequestError if a phenotype is not a number, or is missing although this is not accepted.
    """
    found = [number_or_missing(phenotype) for phenotype in phenotypes]
    if None in found:
        line = found.index(None)
        bad = quoted(phenotypes[line].encode())
        raise RequestError(f"{fam}, line {line + 1}: the phenotype must be a number, got {bad}")
    numbers = np.array(found, np.float64)
    if (numbers == 2).any() and np.isin(numbers, (0, 1, 2)).sum() == np.count_nonzero(~np.isnan(numbers)):
        numbers[numbers == 0] = np.nan  # 0 means missing for cases and controls
    unknown = np.isnan(numbers)
    if unknown.all():
        return None
    if unknown.any() and not missing:
        line = int(np.argmax(unknown))
        raise RequestError(
            f"{fam}, line {line + 1}: the phenotype is missing (coded as {phenotypes[line]})",
            "Exclude such individuals with --skip-missing, or provide all phenotypes with --target FILE.",
        )
    return numbers


def read_variants(
    bed: str, shape: tuple[int, int], variants: slice, individuals: np.ndarray | None
) -> DenseDesignBlock:
    """Read the counts of allele A1, in column 5 of the .bim file, for some variants.

    shape: numbers of individuals and variants in the .bed file.
    individuals: int64, rows to keep, in order; None for all.
    """
    with bed_reader().open_bed(bed, *shape, num_threads=1) as file:
        values = file.read(index=np.s_[:, variants], dtype="int8", order="F").T
    if individuals is not None:
        values = values[:, individuals]
    missing, rows = np.nonzero(values == _MISSING)
    values[missing, rows] = 0
    offsets = np.searchsorted(missing, np.arange(len(values) + 1)).astype(np.int64)
    return DenseDesignBlock(values, offsets, rows.astype(np.uint32))
