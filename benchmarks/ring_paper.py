"""What `ooc plan` makes of the speeds that the benchmark of rings measured, for more machines than there are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from benchmarks.report import table
from blocks.corpus.dataset import Dataset
from blocks.corpus.hypothetical_corpus import HypotheticalCorpus
from samplers.training_plan import plan_lda, told

MACHINES = (2, 8, 100)
_BUDGET = 1 << 40  # bytes: what is not there is given all that it takes


def extrapolate(dataset: Dataset, topics: int, speed: float, link: float) -> list[tuple[str, dict[str, Any]]]:
    """Plans for the corpus divided among machines, and for one as large as this on each of them.

    speed: tokens a second of a worker. link: bytes a second.
    """
    corpora = {"this corpus, divided": lambda machines: machines, "as much on each": lambda machines: 1}
    return [
        (name, plan_paper(dataset, divided(machines), machines, topics, speed, link))
        for name, divided in corpora.items()
        for machines in MACHINES
    ]


def plan_paper(dataset: Dataset, share: int, machines: int, topics: int, speed: float, link: float) -> dict[str, Any]:
    """The plan of machines with one worker and a share of such a corpus each."""
    paper = HypotheticalCorpus(
        tokens=dataset.tokens // share,
        documents=max(dataset.documents // share, 1),
        vocabulary=dataset.vocabulary_size,
        shards=machines,
    )
    return plan_lda(
        paper,
        topics=topics,
        workers=1,
        memory_bytes=_BUDGET,
        machines=machines,
        speed=speed,
        disk=float("inf"),
        network=link,
    )


def described(plans: list[tuple[str, dict[str, Any]]]) -> Iterator[str]:
    """A table of them, and the last one in full, with what it assumes."""
    yield "On paper, with one worker on each machine: ooc plan"
    rows = [
        ["", "machines", "M tokens", "iteration s", "limited by", "network s", "MB sent", "M tokens/s", "MB of each"]
    ]
    for name, facts in plans:
        seconds = facts["iteration_s"]
        rows.append(
            [
                name,
                str(facts["machines"]),
                f"{facts['tokens'] / 1e6:,.0f}",
                f"{seconds:,.2f}",
                facts["limit"],
                f"{facts['network_s']:,.2f}",
                f"{facts['sent_bytes'] / 1e6:,.1f}",
                f"{facts['tokens'] / seconds / 1e6:,.1f}",
                f"{facts['memory_bytes'] / 1e6:,.0f}",
            ]
        )
    yield from table(rows)
    yield ""
    yield from told(plans[-1][1])
