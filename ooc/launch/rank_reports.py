"""Reports of ranks about their own end, and which of several failures caused the others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from blocks.errors import STOPPED
from ooc.launch.remote_rank import RemoteRank


class RankReport(NamedTuple):
    """Report of a rank about its own end.

    ring: whether the rank failed because of another rank.
    transient: whether a restart may succeed.
    begun: whether there is a run that can be continued.
    """

    code: int
    what: str = ""
    remedy: str = ""
    ring: bool = False
    transient: bool = False
    begun: bool = False


def first_cause(
    failed: Sequence[tuple[RemoteRank, RankReport | None]], *, signalled: bool
) -> tuple[RemoteRank, RankReport | None] | None:
    """Return the failure that caused the others.

    A rank's report about itself, or an end without a report, takes precedence over the failure that most other ranks
    report.

    failed: ranks and reports, in order of time.
    signalled: whether all ranks were told to stop.
    """
    for remote, report in failed:
        if report is None or (report.code not in STOPPED and not report.ring):
            return remote, report
    asked = [(remote, report) for remote, report in failed if report and report.code in STOPPED]
    if asked and (signalled or failed[0] == asked[0]):
        return max(asked, key=lambda each: bool(each[1].remedy))
    blamed = Counter(report.what for _, report in failed if report and report.ring)
    return next((each for each in failed if each[1] and each[1].what == max(blamed, key=blamed.__getitem__)), None)
