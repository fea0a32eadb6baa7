"""Steps of stochastic gradient descent for samples with weights above 1, for use in `process`.

A sample of weight m counts as m consecutive copies of the sample. `integrated_rate` sums the rates of their steps
(Splash, 4.3). The other functions also take into account how the loss, a function of p = w . x, changes during these
steps (Karampatziakis and Langford, Online importance weight aware updates, UAI 2011). They return how far w moves along
x, which never passes the optimum, however large m is.
"""

from __future__ import annotations

import math

from blocks.compiled import inlined_kernel


@inlined_kernel
def integrated_rate(t, weight, rate, power):
    """Return the approximate sum of the rates, rate / i^power, of the last `weight` steps up to step t: the integral
    from t - weight + 1 to t + 1.

    power: from 0 to 1.
    """
    first, last = t - weight + 1.0, t + 1.0
    if power == 1.0:
        return rate * math.log(last / first)
    return rate * (last ** (1.0 - power) - first ** (1.0 - power)) / (1.0 - power)


@inlined_kernel
def squared_step(p, y, square, rate):
    """Return the step along x for the loss (p - y)^2 / 2.

    square: x . x.
    rate: learning rate times the weight.
    """
    return (y - p) * -math.expm1(-rate * square) / square if square > 0.0 else 0.0


@inlined_kernel
def hinge_step(p, y, square, rate):
    """Return the step along x for the loss max(0, 1 - y * p) with y = -1 or 1.

    square, rate: see `squared_step`.
    """
    if y * p >= 1.0 or square <= 0.0:
        return 0.0
    return y * min(rate, (1.0 - y * p) / square)


@inlined_kernel
def logistic_step(p, y, square, rate):
    """Return the step along x for the loss log(1 + exp(-y * p)) with y = -1 or 1.

    square, rate: see `squared_step`.

    During the step, q = y * p follows dq/dh = square / (1 + e^q), so q + e^q grows by rate * square. The equation q +
    e^q = c is solved for q by Newton's method from above, as its left side is convex.
    """
    if square <= 0.0:
        return 0.0
    q = y * p
    if q > 30.0:  # e^q dominates the sum; a gradient step is exact enough
        return y * rate * math.exp(-q)
    c = q + math.exp(q) + rate * square
    found = math.log(c) if c > 1.0 else c
    for _ in range(50):
        grown = math.exp(found)
        change = (found + grown - c) / (1.0 + grown)
        found -= change
        if abs(change) <= 1e-14 * max(1.0, abs(found)):
            break
    return y * (found - q) / square
