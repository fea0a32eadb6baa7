"""Convert raw text to word counts with `ooc ingest jsonl`, gensim and scikit-learn, which all find the same tokens in
the same file.

    python -m benchmarks.ingestion arxiv25k.jsonl docword.arxiv300k.txt.gz

A bag of words is first written as text: the words of a document in random order, in sentences. ooc is timed as a whole
command, start and end of its processes included, and leaves a dataset on disk; of the others only the work counts, not
their imports, and what they make stays in memory. gensim: `Dictionary.doc2bow(..., allow_update=True)` over one pass of
`re.findall`, which is faster than a pass for the dictionary and one for the bags. scikit-learn: `CountVectorizer`.
Memory is sampled in a round of its own, which is not timed; the others alternate, and times are their medians.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks import corpus as corpora
from benchmarks.measure import ONE_THREAD, ROOT, watch
from benchmarks.report import describe_machine, machine
from blocks import Dataset
from blocks.corpus.tokenization_rules import TOKEN_PATTERN
from blocks.text_inputs import TextInput, last_line_end

SENTENCE = 12  # words


class IngestedCounts(NamedTuple):
    """Word counts that a contestant found in a file, and the seconds that it took."""

    seconds: float
    documents: int
    words: int
    tokens: int


def texts(path: str) -> Iterator[str]:
    with Path(path).open(encoding="utf-8") as file:
        for line in file:
            yield json.loads(line)["text"]


def gensim(path: str) -> IngestedCounts:
    from gensim.corpora import Dictionary

    began = time.perf_counter()
    dictionary, find = Dictionary(), re.compile(TOKEN_PATTERN).findall
    bags = [dictionary.doc2bow(find(text.lower()), allow_update=True) for text in texts(path)]
    return IngestedCounts(time.perf_counter() - began, len(bags), len(dictionary), dictionary.num_pos)


def sklearn(path: str) -> IngestedCounts:
    from sklearn.feature_extraction.text import CountVectorizer

    began = time.perf_counter()
    matrix = CountVectorizer(token_pattern=TOKEN_PATTERN).fit_transform(texts(path))
    documents, words = matrix.shape
    return IngestedCounts(time.perf_counter() - began, documents, words, int(matrix.sum()))


PEERS = {"gensim": gensim, "scikit-learn": sklearn}


def peer(name: str, path: Path, watched: bool) -> tuple[IngestedCounts, int]:
    """Return the result of another program in a separate process, with its peak memory if it was monitored."""
    command = [sys.executable, "-m", "benchmarks.ingestion", "--peer", name, str(path)]
    process = subprocess.Popen(command, cwd=ROOT, env=os.environ | ONE_THREAD, stdout=subprocess.PIPE, text=True)
    held = most_held(process) if watched else 0
    said, _ = process.communicate()
    return IngestedCounts(*json.loads(said)), held


def ooc(path: Path, out: Path, workers: int, watched: bool) -> tuple[IngestedCounts, int]:
    """Return the result of `ooc ingest`."""
    options = ["--workers", str(workers), "--stop-words", "none", "--overwrite"]
    command = [sys.executable, "-m", "ooc", "ingest", "jsonl", str(path), str(out), *options]
    began = time.perf_counter()
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL)
    held = most_held(process) if watched else 0
    if process.wait():
        raise SystemExit(f"ooc ended with exit code {process.returncode}")
    seconds = time.perf_counter() - began
    dataset = Dataset(out)
    return IngestedCounts(seconds, dataset.documents, dataset.vocabulary_size, dataset.tokens), held


def most_held(process: subprocess.Popen[Any]) -> int:
    return max(size for _, size in watch(process, 3600))


def write_text(source: Path, target: Path, seed: int) -> None:
    """Write a corpus as JSON Lines: JSON Lines are copied, and bags of words become sentences of their words."""
    if ".jsonl" in source.suffixes:
        with target.open("wb") as file:
            file.writelines(data for _, data in TextInput(str(source)).chunks(last_line_end))
        return
    corpus, vocabulary = corpora.load_any(source, None)
    terms, random = np.array(vocabulary, object), np.random.default_rng(seed)
    with target.open("w", encoding="utf-8") as lines:
        for place in range(corpus.documents):
            words = terms[random.permutation(corpus.document(place))].tolist()
            sentences = (" ".join(words[at : at + SENTENCE]) for at in range(0, len(words), SENTENCE))
            text = " ".join(sentence.capitalize() + "." for sentence in sentences)
            lines.write(json.dumps({"id": str(place), "text": text}) + "\n")


def compare(source: Path, scratch: Path, workers: list[int], rounds: int) -> None:
    """Run all contestants on one corpus and print a table."""
    path = scratch / "text.jsonl"
    write_text(source, path, 0)
    contestants = [(name, 1) for name in PEERS] + [("ooc", count) for count in workers]

    def run(name: str, count: int, watched: bool) -> tuple[IngestedCounts, int]:
        return ooc(path, scratch / "dataset", count, watched) if name == "ooc" else peer(name, path, watched)

    held = {one: run(*one, watched=True)[1] for one in contestants}
    rounds_found = [{one: run(*one, watched=False)[0] for one in contestants} for _ in range(rounds)]
    facts = {result[1:] for found in rounds_found for result in found.values()}
    if len(facts) != 1:
        raise SystemExit(f"the contestants found different (documents, words, tokens): {facts}")
    (documents, words, tokens), size = facts.pop(), path.stat().st_size / 1e6
    print(f"{source.name}: {documents:,} documents, {words:,} words, {tokens:,} tokens, {size:.0f} MB")
    print(f"  {'':14} workers  seconds   MB/s  M tokens/s  RAM, MB  x gensim  x scikit-learn")
    median = {one: statistics.median(found[one].seconds for found in rounds_found) for one in contestants}
    for (name, count), seconds in median.items():
        speed = f"{seconds:8.2f} {size / seconds:6.1f} {tokens / 1e6 / seconds:11.2f} {held[name, count] / 1e6:8.0f}"
        ratios = (median[other, 1] / seconds for other in PEERS)
        print(f"  {name:14} {count:7} {speed} {' '.join(f'{ratio:9.2f}' for ratio in ratios)}")


def main() -> None:
    parser = argparse.ArgumentParser("python -m benchmarks.ingestion", description=(__doc__ or "").partition("\n")[0])
    add = parser.add_argument
    add("corpora", type=Path, nargs="+", help="JSON Lines with a field `text`, UCI bags of words, or datasets")
    add("--workers", type=int, nargs="+", default=[1, 2], help="of ooc")
    add("--rounds", type=int, default=3)
    add("--scratch", type=Path, help="for temporary files")
    add("--peer", choices=PEERS, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.peer:
        print(json.dumps(PEERS[args.peer](str(args.corpora[0]))))
        return
    print(*describe_machine(machine()), sep="\n")
    for source in args.corpora:
        with tempfile.TemporaryDirectory(dir=args.scratch) as scratch:
            compare(source, Path(scratch), args.workers, args.rounds)


if __name__ == "__main__":
    main()
