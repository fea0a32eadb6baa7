"""Choose the earlier model from whose topics a new run goes on."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from blocks.errors import RequestError
from blocks.files import checksum
from ooc.ring.message_relay import from_rank_0
from ooc.ring.ring import Ring
from samplers.lda.options import LdaOptions
from samplers.model_files import MANIFEST
from samplers.models import open_model
from samplers.topics.labels import labels_of


class EarlierModel(NamedTuple):
    """An earlier model: its entry in the options of a program (see `samplers.lda.start_from_model`), its priors, and
    the labels of its topics by number."""

    entry: dict[str, Any]
    alpha: float | list[float]
    beta: float
    labels: dict[int, str]


def choose_earlier(options: LdaOptions, ring: Ring | None) -> EarlierModel | None:
    """Return the model of --from, or None without this option; on several machines, rank 0 has it.

    Raises RequestError, on all ranks, if there is no such model, or if other options do not fit it.
    """
    if options.start_from is None:
        return None
    if options.start is not None:
        raise RequestError(f"--start {options.start} cannot be used with --from", "Omit one of them.")
    path = options.start_from
    entry, alpha, beta, labels = from_rank_0(ring, lambda: _describe(path))
    found = EarlierModel(entry, alpha, beta, {int(topic): label for topic, label in labels.items()})
    if (topics := found.entry["topics"]) != options.topics:
        raise RequestError(
            f"--from {path}: its model has {topics:,} topics, but --topics is {options.topics:,}",
            f"Use --topics {topics}.",
        )
    return found


def _describe(path: Path) -> EarlierModel:
    model = open_model(path)
    entry: dict[str, Any] = {"path": str(model.path.resolve()), "checksum": checksum(model.path / MANIFEST)}
    entry |= {"topics": model.topics, "words": model.vocabulary_size}
    alpha, beta = np.asarray(model.alpha) / model.states, model.beta / model.states
    return EarlierModel(entry, alpha.tolist() if np.ptp(alpha) else float(alpha[0]), beta, labels_of(model))
