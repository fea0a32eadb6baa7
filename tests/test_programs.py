"""The names that runs remember the models' programs by."""

from __future__ import annotations

import pytest

from samplers import programs
from samplers.factorization.programs import METHODS, ON_RING
from samplers.lda.programs import SAMPLERS

NAMES = [
    *(f"lda-{name}" for name in SAMPLERS),
    *(f"ring-lda-{name}" for name in SAMPLERS),
    *(f"mf-{name}" for name in METHODS),
    *(f"ring-mf-{name}" for name in ON_RING),
    "regression",
    "softmax",
]


def test_each_name_has_a_program_of_its_own() -> None:
    found = {getattr(programs, name) for name in NAMES}
    assert len(found) == len(NAMES)
    assert all(hasattr(program, "local_state") for program in found)


def test_a_name_that_is_none_is_told() -> None:
    with pytest.raises(AttributeError, match="no program 'lda-none'"):
        _ = programs.__getattr__("lda-none")
