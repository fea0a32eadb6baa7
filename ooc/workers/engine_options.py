"""How the static engine deals out work and makes it durable: what is computed does not depend on it.

These are the optimisations of the STRADS paper (sections 3.3.1, 3.4 and 5.1.2). The defaults are what is best; what
each of them brings, `python -m benchmarks.static_engine` tells.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Switches:
    """macro: workers wait for each other when a phase ends, or a stage where a phase has them; else after each unit.

    heaviest_first: the parts of a stage are dealt as the program's schedule says, those with the most entries before;
    else in a random order. own_queues: each worker has its own parts, dealt in turn, and asks nobody; else
    whoever is free takes the next. background: state in memory is written while workers go on; else they wait.
    """

    macro: bool = True
    heaviest_first: bool = True
    own_queues: bool = False
    background: bool = True
