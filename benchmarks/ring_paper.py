"""Extrapolate to more machines with `ooc plan`, given the speeds that the ring benchmark measured."""

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
    """Return plans for the corpus divided among machines, and for one such corpus on each machine.

    speed: tokens per second of a worker.
    link: bytes per second.
    """
    corpora = {"this corpus, divided": lambda machines: machines, "as much on each": lambda machines: 1}
    return [
        (name, plan_paper(dataset, divided(machines), machines, topics, speed, link))
        for name, divided in corpora.items()
        for machines in MACHINES
    ]


def plan_paper(dataset: Dataset, share: int, machines: int, topics: int, speed: float, link: float) -> dict[str, Any]:
    """Return the plan for machines with one worker each and a share of the corpus."""
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
    """Return a table of plans, and the last plan in full, with its assumptions."""
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
