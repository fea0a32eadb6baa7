"""Chi-square test of counts against probabilities."""

from __future__ import annotations

from scipy import stats

ALARM = 1e-6  # chance that one chi-square test fails though the kernel is right


def alarmed(observed, expected):
    """Return whether a chi-square test rejects the expected probabilities at level ALARM."""
    total = observed.sum()
    assert not observed[expected == 0].any()
    possible = expected > 0
    return stats.chisquare(observed[possible], total * expected[possible] / expected.sum()).pvalue < ALARM
