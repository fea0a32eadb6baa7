"""Find the newest generation that all ranks have saved, from which the run continues."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from blocks.errors import WorkFailed
from ooc.state.generations import StateGenerations


def check_all_have(have: Sequence[bool]) -> None:
    """Raise WorkFailed unless all ranks have a saved state."""
    if not all(have):
        missing = have.index(False)
        raise WorkFailed(
            f"rank {missing} has no saved state, but other ranks have one",
            f"Restore the run directory of rank {missing}, or train again with --overwrite.",
        )


def fall_back_together(generations: StateGenerations, gather: Callable[[Any], list[Any]]) -> bool:
    """Drop newer generations until the newest is the same on all ranks; returns False if training has saved none.

    gather: function that returns the JSON values of all ranks, in rank order.
    Raises WorkFailed on all ranks if they have no generation in common.
    """
    everywhere = gather([[cursor.iteration, cursor.phase] for cursor in generations.cursors])
    if not all(everywhere):
        if any(newest != [0, 0] for newest, *_ in filter(None, everywhere)):
            check_all_have(list(map(bool, everywhere)))
        return False
    common = [place for place in everywhere[0] if all(place in others for others in everywhere)]
    if not common:
        raise WorkFailed("no saved state is common to all ranks", "Train again from the start, with --overwrite.")
    while [generations.cursor.iteration, generations.cursor.phase] != max(common):
        generations.fall_back(WorkFailed("not all ranks have the generation"))
    return True
