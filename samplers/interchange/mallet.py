"""A topic model's files for MALLET: the state, from which MALLET can continue training, topic keys, and the topics of
documents.

    corpus.txt      one document per line, as `mallet import-file` reads it with --keep-sequence --preserve-case
                    --token-regex '\\S+'
    state.gz        "doc source pos typeindex type topic" of each token, for --input-state and `read_state`
    topic-keys.txt  index, alpha and top words of each topic
    doc-topics.txt  shares of all topics in each document

Words are numbered in the order of their first occurrence in the corpus, as in MALLET.
"""

from __future__ import annotations

import gzip
import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np

from blocks.errors import RequestError
from samplers.interchange.topic_counts import model_of_tokens
from samplers.topics.model import TopicModel
from samplers.topics.results import top_entries
from samplers.topics.token_topics import TokenTopics

_HEADER = "#doc source pos typeindex type topic"
_KEYS = 20  # top words per topic
_BLANKS = re.compile(r"\s+")


def write_mallet(model: TopicModel, directory: Path, tokens: TokenTopics | None) -> None:
    """Write all files to an empty directory; files about tokens are only written if tokens are given."""
    names = [_BLANKS.sub("_", name) for name in _names(model)]
    write_keys(model, directory / "topic-keys.txt")
    with (directory / "doc-topics.txt").open("w", encoding="utf-8") as file:
        file.writelines(_doc_topics(model, names))
    if tokens is None:
        return
    words = checked_words(model.vocabulary())
    with (directory / "corpus.txt").open("w", encoding="utf-8") as corpus:
        for name, (document_words, _) in zip(names, _documents(tokens), strict=True):
            corpus.write(f"{name}\t-\t{' '.join(words[word] for word in document_words)}\n")
    with gzip.GzipFile(directory / "state.gz", "wb", compresslevel=5, mtime=0) as file:
        _write_state(file, tokens, names, words)


def checked_words(words: Sequence[str]) -> Sequence[str]:
    """Return the words unchanged.

    Raises RequestError if a word contains white space.
    """
    if broken := next((word for word in words if _BLANKS.search(word)), None):
        raise RequestError(f"the word {broken!r} contains a blank, which separates words in MALLET's format")
    return words


def write_keys(model: TopicModel, path: Path) -> None:
    """Write the topic keys."""
    vocabulary, alpha = model.vocabulary(), model.alpha / model.states
    tops, _ = top_entries(model.words, alpha, _KEYS, per_row=False)
    with path.open("w", encoding="utf-8") as file:
        for topic, words in enumerate(tops.tolist()):
            file.write(f"{topic}\t{alpha[topic]:.5f}\t{''.join(f'{vocabulary[w]} ' for w in words if w >= 0)}\n")


def _names(model: TopicModel) -> list[str]:
    return model.document_names() or list(map(str, range(model.documents.offsets.size - 1)))


def _doc_topics(model: TopicModel, names: list[str]) -> Iterator[str]:
    offsets, topics, counts = model.documents
    for document, name in enumerate(names):
        shares, document_words = np.array(model.alpha), slice(offsets[document], offsets[document + 1])
        shares[topics[document_words]] += counts[document_words]
        yield "\t".join([str(document), name, *map("{:.6g}".format, shares / shares.sum())]) + "\n"


def _documents(tokens: TokenTopics) -> Iterator[tuple[list[int], list[int]]]:
    """Yield the words and topics of each document's tokens."""
    for first, last in pairwise(tokens.offsets.tolist()):
        yield tokens.words[first:last].tolist(), tokens.topics[first:last].tolist()


def _write_state(file: gzip.GzipFile, tokens: TokenTopics, names: list[str], words: Sequence[str]) -> None:
    alpha = "".join(f"{value!r} " for value in tokens.alpha.tolist())
    file.write(f"{_HEADER}\n#alpha : {alpha}\n#beta : {tokens.beta!r}\n".encode())
    numbers: dict[int, int] = {}
    for document, (name, (document_words, topics)) in enumerate(zip(names, _documents(tokens), strict=True)):
        lines = (
            f"{document} {name} {place} {numbers.setdefault(word, len(numbers))} {words[word]} {topic}\n"
            for place, (word, topic) in enumerate(zip(document_words, topics, strict=True))
        )
        file.write("".join(lines).encode())


def read_state(path: Path) -> TopicModel:
    """Return the model of a state written by MALLET's --output-state or by `write_mallet`.

    Raises RequestError if the file is invalid.
    """
    documents, types, topics = [], [], []
    words: dict[int, str] = {}
    names: dict[int, str] = {}
    try:
        with gzip.open(path, "rt", encoding="utf-8") as file:
            priors = _priors([next(file, "") for _ in range(3)])
            for line in file:
                document, name, _, number, word, topic = line.rstrip("\n").split(" ")
                names[int(document)] = name
                documents.append(int(document))
                types.append(int(number))
                topics.append(int(topic))
                words.setdefault(int(number), word)
    except (OSError, ValueError, EOFError) as error:
        raise RequestError(f"{path} is not a state file of MALLET: {error}") from None
    if not topics or len(words) != max(words) + 1 or max(topics) >= priors[0].size:
        raise RequestError(f"{path} is not a state file of MALLET: its words, topics and priors do not match")
    count = max(names) + 1
    return model_of_tokens(
        np.array(documents, np.uint32),
        np.array(types, np.uint32),
        np.array(topics, np.uint32),
        alpha=priors[0],
        beta=priors[1],
        vocabulary=[words[number] for number in range(len(words))],
        names=None if set(names.values()) == {"NA"} else [names.get(number, str(number)) for number in range(count)],
        count=count,
    )


def _priors(lines: list[str]) -> tuple[np.ndarray, float]:
    if lines[0].strip() != _HEADER or not lines[1].startswith("#alpha : ") or not lines[2].startswith("#beta : "):
        raise ValueError(f"it begins with {lines[0][:60]!r}")
    return np.array(lines[1].split()[2:], np.float64), float(lines[2].split()[2])
