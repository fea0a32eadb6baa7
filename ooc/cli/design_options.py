"""Options of the commands of `ooc ingest` that create a design matrix of numbers."""

from collections.abc import Sequence
from typing import Annotated

from samplers.options import INPUT, LAYOUT, Option


class CsvDesignOptions:
    """Options of `ooc ingest csv` for a design matrix of numbers."""

    group = INPUT

    target: Annotated[
        str | None,
        Option("Column with the target y; creates a design matrix of numbers instead of a corpus.", metavar="COLUMN"),
    ] = None
    drop: Annotated[
        Sequence[str], Option("Column to exclude from the design matrix; can be repeated.", metavar="COLUMN")
    ] = ()


class ReusedColumnsOptions:
    """Options for a design matrix that uses the columns of another one."""

    group = INPUT

    columns_from: Annotated[
        str | None,
        Option("Use the columns of this dataset, to predict with a model trained on it.", metavar="DATASET"),
    ] = None


class SvmlightOptions:
    """Options of `ooc ingest svmlight`."""

    group = INPUT

    zero_based: Annotated[bool, Option("Read indices that start at 0 rather than 1.")] = False
    by_rows: Annotated[bool, Option("Store shuffled samples row by row, for `ooc train softmax`.", group=LAYOUT)] = (
        False
    )
    seed: Annotated[
        int | None, Option("With --by-rows: random seed of the shuffle [default: 0].", least=0, group=LAYOUT)
    ] = None


class TargetFileOptions:
    """Options for a design matrix whose target y is in a separate file."""

    group = INPUT

    target: Annotated[
        str | None, Option("File with the target y: .npy, or a text file with one number per line.", metavar="FILE")
    ] = None


class GenotypesOptions:
    """Options of `ooc ingest plink`."""

    group = INPUT

    covariates: Annotated[
        str | None,
        Option("File of covariates to add as columns: lines of FID IID value ..., in any order.", metavar="FILE"),
    ] = None
    skip_missing: Annotated[bool, Option("Exclude individuals without a phenotype or without covariates.")] = False


class DesignBlockOptions:
    """Options of the blocks of a design matrix."""

    group = LAYOUT

    block_size: Annotated[
        str | None, Option("Approximate size of a block of columns [default: 32MiB].", metavar="SIZE")
    ] = None
