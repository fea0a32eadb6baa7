"""Export the counts of a topic model as sparse matrices for `scipy.sparse.load_npz`."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from blocks.npz import write_npz
from blocks.stored_dataset import write_lines
from samplers.topics.model import TopicModel


def write_scipy(model: TopicModel, directory: Path) -> None:
    """Write words.npz (V, K) and documents.npz (D, K), both CSR; priors.npz with alpha and beta; vocabulary.txt;
    documents.txt if documents have names; and, with a word prior, word_prior.npz (V, K), its additions to beta, which
    words.npz includes."""
    matrices = {"words": model.words, "documents": model.documents}
    if model.prior is not None:
        matrices["word_prior"] = model.prior
    for name, rows in matrices.items():
        arrays = {
            "indices": rows.topics.astype(np.int32),
            "indptr": rows.offsets,
            "format": np.array(b"csr"),
            "shape": np.array([rows.offsets.size - 1, model.topics]),
            "data": rows.counts,
        }
        write_npz(directory / f"{name}.npz", arrays)
    write_npz(directory / "priors.npz", {"alpha": model.alpha, "beta": np.array(model.beta)})
    write_lines(directory, "vocabulary.txt", model.vocabulary())
    if names := model.document_names():
        write_lines(directory, "documents.txt", names)
