"""Options of the static engine that change how work is distributed and committed, but not the results.

The options are the optimisations of the STRADS paper (sections 3.3.1, 3.4 and 5.1.2). The defaults are fastest; `python
-m benchmarks.static_engine` measures each option.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class EngineOptions:
    """Options of the static engine.

    macro: workers wait for each other at the end of a phase or stage; otherwise after each unit.
    heaviest_first: parts of a stage are distributed in the order of the program's schedule, by descending number of
        entries; otherwise in random order.
    own_queues: each worker has its own queue of parts; otherwise all workers share one queue.
    background: state in memory is written while workers continue; otherwise workers wait.
    """

    macro: bool = True
    heaviest_first: bool = True
    own_queues: bool = False
    background: bool = True
