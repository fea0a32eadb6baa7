"""Agglomerative clustering of topics by average linkage (UPGMA: Sokal and Michener 1958), and the layout of its
dendrogram.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np


class DendrogramLayout(NamedTuple):
    """Layout of the dendrogram of n topics.

    order: int64 (n,), topics from top to bottom.
    lines: float64 (m, 4), line segments x1, y1, x2, y2, where x is the distance at which clusters are merged and y the
        position in `order`.
    """

    order: np.ndarray
    lines: np.ndarray


def average_linkage(distances: np.ndarray) -> np.ndarray:
    """Return the merges of clusters, float64 (n - 1, 4), in the format of `scipy.cluster.hierarchy.linkage`: indices of
    the two clusters, their mean distance, and the size of the new cluster.

    distances: float64 (n, n), symmetric.
    """
    size = len(distances)
    between = distances.astype(np.float64)
    np.fill_diagonal(between, np.inf)
    numbers, sizes = np.arange(size), np.ones(size)
    joined = np.empty((max(size - 1, 0), 4))
    for step in range(size - 1):
        first, second = sorted(np.unravel_index(between.argmin(), between.shape))
        weights = sizes[first], sizes[second]
        joined[step] = *sorted((numbers[first], numbers[second])), between[first, second], sum(weights)
        mean = (weights[0] * between[first] + weights[1] * between[second]) / sum(weights)
        between[first], between[:, first] = mean, mean
        between[first, first] = np.inf
        between[second], between[:, second] = np.inf, np.inf
        numbers[first], sizes[first] = size + step, sum(weights)
    return joined


def dendrogram_layout(joined: np.ndarray) -> DendrogramLayout:
    """Return the dendrogram for the result of `average_linkage`. Of two merged clusters, the one that was formed at the
    larger distance is drawn below.
    """
    size = len(joined) + 1
    members: dict[int, list[int]] = {leaf: [leaf] for leaf in range(size)}
    heights = np.concatenate((np.zeros(size), joined[:, 2]))
    for step, (first, second, _, _) in enumerate(joined):
        pair = sorted((int(first), int(second)), key=lambda cluster: (heights[cluster], cluster))
        members[size + step] = members.pop(pair[0]) + members.pop(pair[1])
    order = np.array(next(iter(members.values())), np.int64)
    places = np.empty(2 * size - 1)
    places[order] = np.arange(size)
    lines = []
    for step, (first, second, distance, _) in enumerate(joined):
        ends = places[int(first)], places[int(second)]
        lines += [
            (heights[int(each)], place, distance, place) for each, place in zip((first, second), ends, strict=True)
        ]
        lines.append((distance, ends[0], distance, ends[1]))
        places[size + step] = sum(ends) / 2
    return DendrogramLayout(order, np.array(lines, np.float64).reshape(-1, 4))
