"""Tables, files and reports of a fitted topic model."""

from __future__ import annotations

from html import escape
from pathlib import Path
from typing import Any

from blocks.files import publish_directory
from blocks.given_tables import column_values
from samplers.estimators.base import integer_parameter, reword_errors
from samplers.estimators.run_estimator import RunEstimator
from samplers.topics.effects import TopicEffects
from samplers.topics.group_comparison import compare_groups
from samplers.topics.mixtures import publish_trained
from samplers.topics.model import TopicModel, write_topic_model
from samplers.topics.prevalence import PrevalenceComparison
from samplers.topics.results import describe_topics
from samplers.topics.topic_regression import regress_on

_SHOWN = 20  # maximum number of topics in the HTML of an estimator


class TopicOutputs(RunEstimator):
    """Methods of topic model estimators that write the model or show it in a notebook."""

    model_: TopicModel

    def compare(self, groups: Any, level: float = 0.95) -> PrevalenceComparison:
        """Return the prevalence of topics in groups of the training documents, with intervals and differences.

        Parameters
        ----------
        groups : iterable
            A value for each training document, such as a column of a data frame; documents with None or NaN are left
            out.
        level : float
            Confidence level of the intervals.

        Returns
        -------
        samplers.topics.prevalence.PrevalenceComparison
            Arrays (groups, topics), and ``rows()``. The method is described in `samplers.topics.prevalence`.

        Raises
        ------
        RequestError
            If `groups` does not have a value for each document.
        """
        self._require_fitted()
        return compare_groups(self.model_, column_values(groups), level=level)

    def regress(self, columns: Any, level: float = 0.95) -> TopicEffects:
        """Return a linear regression of the shares of topics in the training documents on several columns.

        Parameters
        ----------
        columns : data frame, or dict of iterables
            A value for each training document in each column: numbers, or texts, which become a column of 0 and 1 for
            each value but the first. Documents with None or NaN are left out.
        level : float
            Confidence level of the intervals.

        Returns
        -------
        samplers.topics.effects.TopicEffects
            Arrays (terms, topics). The method is described in `samplers.topics.effects`.

        Raises
        ------
        RequestError
            If a column does not have a value for each document, or the columns are linearly dependent.
        """
        self._require_fitted()
        return regress_on(self.model_, columns, level=level)

    def topics(self, top: int = 10, ranking: str = "probability") -> Any:
        """Return the topics in descending order of size.

        Parameters
        ----------
        top : int
            Number of words of each topic.
        ranking : "probability", "frex" or "lift"
            How the words are ranked (`samplers.topics.frex`).

        Returns
        -------
        pandas.DataFrame, or list of dict if pandas is not installed
            topic (index in `components_`), tokens, share of all tokens, live, and words, joined by commas.

        Raises
        ------
        RequestError
            If the ranking is unknown.
        """
        self._require_fitted()
        return _topic_records(self.model_, integer_parameter("top", top, 1), ranking)

    def _repr_html_(self) -> str:
        """Return the estimator and, once fitted, its largest topics, for notebooks."""
        return _topics_html(repr(self), self.model_ if self.__sklearn_is_fitted__() else None)

    def report(self, path: str | Path, groups: Any = None) -> None:
        """Write the report of the model to an HTML page, as `ooc report` does; an existing page is overwritten.

        path: an .html file.
        groups: a value for each training document, to add the comparison of `compare`.
        Raises RequestError if a library is missing (``pip install "ooc[report]"``).
        """
        self._require_fitted()
        from samplers.report.estimator_report import write_report

        facts = {"options": self.get_params(), "program": type(self).__name__}
        with reword_errors({}):
            comparison = None if groups is None else self.compare(groups)
            write_report(self.model_, Path(path), facts, getattr(self, "history_", []), comparison)

    def export(self, path: str | Path, format: str = "npz", *, top: int | None = None, overwrite: bool = False) -> None:
        """Write the model in a format of `ooc export`: npz, mixtures, scipy, parquet, pyldavis, gensim or mallet.

        path: a file, or a directory if the format has several files.
        top: maximum number of topics per document in mixtures.
        Raises RequestError if the format is unknown, or if the path exists and `overwrite` is False.
        """
        self._require_fitted()
        from samplers.interchange.formats import export_model

        with reword_errors({}):
            export_model(self.model_, Path(path), format, top=top, overwrite=overwrite)

    def save(self, path: str | Path, *, overwrite: bool = False) -> None:
        """Write the model to a directory that `from_run` and all commands accept in place of a run.

        Raises RequestError if the path exists and `overwrite` is False.
        """
        self._require_fitted()
        with reword_errors({}), publish_directory(Path(path), overwrite=overwrite) as directory:
            write_topic_model(directory, self.model_)

    def write_doc_topic(self, path: str | Path, *, top: int | None = None, spread: bool = False) -> None:
        """Write `doc_topic_`, with the names and token counts of the documents, row by row, as `ooc export --format
        mixtures` does.

        path: a .npz, .csv, .jsonl or .parquet file; overwritten if it exists.
        top: write only the largest topics of each document.
        spread: also write posterior standard deviations.
        """
        self._require_fitted()
        with reword_errors({}):
            publish_trained(self.model_, Path(path), top, spread=spread)


def _topic_records(model: TopicModel, top: int, ranking: str) -> Any:
    """Return the topics as a data frame, or a list of records if pandas is not installed."""
    records = _records(model, top, ranking)
    try:
        import pandas
    except ImportError:
        return records
    return pandas.DataFrame(records)


def _topics_html(title: str, model: TopicModel | None) -> str:
    """Return HTML with a title and the largest topics.

    model: None if there is none yet.
    """
    heading = f"<pre>{escape(title)}</pre>"
    if model is None:
        return heading
    lines = [
        f"<tr><td>{topic['topic']}</td><td>{topic['share']:.2%}</td><td>{escape(topic['words'])}</td></tr>"
        for topic in _records(model, 10, "probability")[:_SHOWN]
    ]
    more = f"<p>The {_SHOWN} largest of {model.topics:,} topics.</p>" if model.topics > _SHOWN else ""
    head = "<thead><tr><th>topic</th><th>tokens</th><th>words</th></tr></thead>"
    return f"{heading}<table>{head}<tbody>{''.join(lines)}</tbody></table>{more}"


def _records(model: TopicModel, top: int, ranking: str) -> list[dict[str, Any]]:
    described = describe_topics(model, top=top, documents=0, ranking=ranking)
    return [
        {name: topic[name] for name in ("topic", "tokens", "share", "live")}
        | {"words": ", ".join(word["word"] for word in topic["words"])}
        for topic in described
    ]
