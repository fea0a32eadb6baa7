"""The names that runs remember the models' programs by."""

from __future__ import annotations

from samplers import programs
from samplers.factorization.programs import METHODS, ON_RING
from samplers.lda.programs import SAMPLERS

NAMES = [*(f"lda-{name}" for name in SAMPLERS), *(f"mf-{name}" for name in METHODS), "regression", "softmax"]
WITH_A_RING_ORDER = [*(f"lda-{name}" for name in SAMPLERS), *(f"mf-{name}" for name in ON_RING)]


def test_each_name_and_order_has_a_program_of_its_own() -> None:
    alone = [programs.find(programs.target(name), {})[0] for name in NAMES]
    on_ring = [programs.find(programs.target(name), {"on_ring": True})[0] for name in WITH_A_RING_ORDER]
    assert len({*alone, *on_ring}) == len(NAMES) + len(WITH_A_RING_ORDER)
    assert all(hasattr(program, "local_state") for program in (*alone, *on_ring))


def test_runs_of_earlier_versions_find_their_programs_on_a_ring() -> None:
    for name in WITH_A_RING_ORDER:
        old, new = programs.target(f"ring-{name}"), programs.target(name)
        assert old in programs.TARGETS
        assert programs.current(old, {"seed": 1}) == (new, {"seed": 1, "on_ring": True})
        found, options = programs.find(old, {"seed": 1})
        assert (found, options) == (programs.find(new, {"on_ring": True})[0], {"seed": 1})
        assert f"{found.__module__}:{found.__name__}" in programs.TARGETS
