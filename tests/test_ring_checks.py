"""What ranks find out about each other over the ring before they begin."""

from __future__ import annotations

from pathlib import Path

import pytest
from rings import on_ring

from blocks import RequestError
from ooc.ring.ring import RingFailed
from samplers import ring_checks


def test_directories_that_only_look_the_same_are_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in two containers of one image, where they have the same number and were changed at the same time."""
    monkeypatch.setattr(ring_checks, "_signs", lambda there, path: [path.name])
    places = [tmp_path / "one" / "run", tmp_path / "two" / "run"]
    for place in places:
        place.parent.mkdir()
    on_ring(2, lambda ring: ring_checks.check_paths_differ(ring, places[ring.rank]))
    assert [list(place.parent.iterdir()) for place in places] == [[], []]
    with pytest.raises((RequestError, RingFailed), match="ranks 0 and 1 would write to the same directory"):
        on_ring(2, lambda ring: ring_checks.check_paths_differ(ring, places[0]))
