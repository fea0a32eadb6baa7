"""Export and import formats of other programs, by name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from blocks.errors import RequestError
from blocks.files import disk_errors, is_free, publish_directory, require_new
from blocks.outputs import publish_output, require_free
from ooc.runs.run import CONFIG
from samplers.factorization.model import Factorization
from samplers.interchange.gensim_models import read_gensim, write_gensim
from samplers.interchange.mallet import read_state, write_mallet
from samplers.interchange.parquet import write_parquet
from samplers.interchange.pyldavis import write_pyldavis
from samplers.interchange.scipy_matrices import write_scipy
from samplers.interchange.tomotopy_models import read_tomotopy, write_tomotopy
from samplers.interchange.word2vec import write_word2vec
from samplers.model_files import MANIFEST
from samplers.models import open_any_model
from samplers.regression.model import RegressionModel
from samplers.regression.softmax.model import SoftmaxModel
from samplers.topics.document_files import check_format, suffix_of
from samplers.topics.mixtures import write_trained
from samplers.topics.model import TopicModel, write_topic_model
from samplers.topics.results import export_npz
from samplers.topics.token_topics import TokenTopics, read_assignments
from samplers.topics.word_topics import check_table_format, write_trained_words

_TOPICS, _FACTORS = (TopicModel,), (Factorization,)
_ANY = (*_TOPICS, *_FACTORS, RegressionModel, SoftmaxModel)


class ExportFormat(NamedTuple):
    """An export format.

    write: function of a model, a path and, if needed, the topics of tokens.
    models: kinds of models that it supports.
    directory: whether it writes several files to a directory.
    mixtures: whether it writes topic mixtures in the format of the file extension.
    words: whether it writes the topics of words likewise.
    """

    write: Callable[..., None]
    models: tuple[type, ...]
    directory: bool
    tokens: bool = False
    mixtures: bool = False
    words: bool = False


FORMATS = {
    "npz": ExportFormat(export_npz, _ANY, directory=False),
    "scipy": ExportFormat(write_scipy, _TOPICS, directory=True),
    "parquet": ExportFormat(write_parquet, _TOPICS + _FACTORS, directory=True),
    "mixtures": ExportFormat(write_trained, _TOPICS, directory=False, mixtures=True),
    "words": ExportFormat(write_trained_words, _TOPICS, directory=False, words=True),
    "word2vec": ExportFormat(write_word2vec, _FACTORS, directory=True),
    "pyldavis": ExportFormat(write_pyldavis, _TOPICS, directory=False),
    "gensim": ExportFormat(write_gensim, _TOPICS, directory=True),
    "mallet": ExportFormat(write_mallet, _TOPICS, directory=True, tokens=True),
    "tomotopy": ExportFormat(write_tomotopy, _TOPICS, directory=False, tokens=True),
}
IMPORTS: dict[str, Callable[[Path], TopicModel]] = {
    "mallet": read_state,
    "gensim": read_gensim,
    "tomotopy": read_tomotopy,
}


def export(
    run: Path,
    out: Path,
    name: str,
    *,
    top: int | None = None,
    spread: bool = False,
    data: Path | None = None,
    overwrite: bool = False,
) -> int:
    """Write the model of a run, or of a model directory, in a format; returns the number of bytes written.

    top: maximum number of topics per document in exported mixtures, the largest ones.
    spread: whether to export the standard deviations of mixtures.
    data: path of the training dataset, for mixtures, if it has been moved.
    Raises RequestError if the format does not support the model.
    """
    form = _form(name, out, top=top, spread=spread, data=data)
    model = open_any_model(run)
    if not isinstance(model, form.models):
        of = [each for each, other in FORMATS.items() if isinstance(model, other.models)]
        raise RequestError(f"--format {name} cannot be used for the model of {run}", f"Choose one of: {', '.join(of)}.")
    more: dict[str, Any] = {"top": top, "data": data, "spread": spread} if form.mixtures else {}
    more |= {"run": run} if form.words else {"tokens": _tokens(run)} if form.tokens else {}
    return _write(form, model, out, name, more, overwrite=overwrite)


def export_model(model: TopicModel, out: Path, name: str, *, top: int | None = None, overwrite: bool = False) -> int:
    """Write a topic model in memory in a format; returns the number of bytes written.

    Raises RequestError.
    """
    form = _form(name, out, top=top, spread=False, data=None)
    if form.words or not isinstance(model, form.models):
        of = [each for each, other in FORMATS.items() if other.models != _FACTORS and not other.words]
        raise RequestError(
            f"--format {name} cannot be used for a topic model in memory", f"Choose one of: {', '.join(of)}."
        )
    more: dict[str, Any] = {"top": top} if form.mixtures else {"tokens": None} if form.tokens else {}
    return _write(form, model, out, name, more, overwrite=overwrite)


def _form(name: str, out: Path, *, top: int | None, spread: bool, data: Path | None) -> ExportFormat:
    """Return a format.

    Raises RequestError if it is unknown, or options or the file extension do not fit it.
    """
    form = _named(FORMATS, name)
    if form.mixtures:
        check_format(out)
    elif option := "--top" if top is not None else "--spread" if spread else "--data" if data is not None else "":
        raise RequestError(
            f"{option} cannot be used with --format {name}", f"Omit {option}, or choose --format mixtures."
        )
    if form.words:
        check_table_format(out)
    return form


def _write(form: ExportFormat, model: Any, out: Path, name: str, more: dict[str, Any], *, overwrite: bool) -> int:
    """Write a model; returns the number of bytes written.

    more: additional arguments of the format's function.
    """
    if form.tokens and model.prior is not None:
        raise RequestError(
            f"--format {name} can only store a single beta, but the model has a prior for each topic and word",
            "Choose one of: npz, scipy, parquet, pyldavis, gensim.",
        )
    if form.directory:
        require_new(out, overwrite=overwrite, directory=True)
    else:
        require_free(out, overwrite=overwrite)
    if form.directory and out.exists() and not is_free(out):
        raise RequestError(
            f"{out} already exists, and --format {name} writes a directory", "Choose another name, or remove it."
        )
    if form.mixtures or form.words:
        more = {"suffix": suffix_of(out), **more}
    with disk_errors(out), publish_directory(out) if form.directory else publish_output(out) as beside:
        form.write(model, beside, **more)
        return sum(file.stat().st_size for file in (beside.iterdir() if form.directory else [beside]))


def _tokens(run: Path) -> TokenTopics | None:
    """Return the topics of the tokens, or None if the run no longer has its state."""
    return read_assignments(run) if (run / CONFIG).exists() else None


def import_model(
    name: str, source: Path, out: Path, *, overwrite: bool = False, trust_pickle: bool = False
) -> TopicModel:
    """Create a model directory from another program's model.

    Raises RequestError if the model cannot be read.

    trust_pickle: whether to read pickles, such as gensim's models, which can execute arbitrary code.
    """
    read = _named(IMPORTS, name)
    if out.exists() and not is_free(out) and not (overwrite and (out / MANIFEST).exists()):
        raise RequestError(
            f"{out} already exists{' and is not a model, so it is not replaced' if overwrite else ''}",
            "Choose another name.",
        )
    model = read_gensim(source, trust_pickle=trust_pickle) if name == "gensim" else read(source)
    with publish_directory(out, overwrite=overwrite) as directory:
        write_topic_model(directory, model)
    return model


def _named(formats: dict[str, Any], name: str) -> Any:
    if name not in formats:
        raise RequestError(f"--format: unknown format {name!r}", f"Choose one of: {', '.join(formats)}.")
    return formats[name]
