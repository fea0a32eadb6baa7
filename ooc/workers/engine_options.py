"""Options of the static engine for dealing and committing; results do not depend on them.

They are the optimisations of the STRADS paper (sections 3.3.1, 3.4 and 5.1.2). The defaults are the fastest; `python -m
benchmarks.static_engine` measures each of them.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Switches:
    """Options of the static engine.

    macro: workers wait for each other at the end of a phase, or of a stage; else after each unit. heaviest_first: parts
    of a stage are dealt in descending order of entries, as the program's schedule says; else in random order.
    own_queues: each worker has its own queue of parts; else all take the next part of one queue. background: state in
    memory is written while workers continue; else they wait.
    """

    macro: bool = True
    heaviest_first: bool = True
    own_queues: bool = False
    background: bool = True
