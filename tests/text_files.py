"""Write files of random documents for ingestion."""

from __future__ import annotations

import csv
import gzip
import json
import random
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa

WORDS = [f"word{number}" for number in range(300)]


def random_texts(seed, documents, length=30):
    generator = np.random.default_rng(seed)
    return [
        " ".join(WORDS[word] for word in generator.zipf(1.4, generator.integers(0, length)).clip(max=300) - 1)
        for _ in range(documents)
    ]


def write_jsonl(path, texts, first=0):
    path.write_text("".join(json.dumps({"id": f"doc{first + n}", "text": text}) + "\n" for n, text in enumerate(texts)))
    return str(path)


def write_uci(path, texts, vocabulary):
    place = {word: number for number, word in enumerate(vocabulary, 1)}
    rows = [(d, place[w], c) for d, text in enumerate(texts, 1) for w, c in Counter(text.split()).items()]
    lines = [str(len(texts)), str(len(vocabulary)), str(len(rows)), *(f"{d} {w} {c}" for d, w, c in rows)]
    path.write_bytes(gzip.compress("\n".join(lines).encode()))
    return str(path)


SIZES = (90, 7, 140)  # documents of each machine


def files_of(folder: Path, kind: str) -> list[str]:
    paths, first = [], 0
    for rank, size in enumerate(SIZES):
        texts, path = random_texts(rank, size), folder / f"in-{rank}{'.gz' if kind == 'uci' else ''}"
        texts[-1] = f"only here{rank} {WORDS[299]}"
        if kind == "jsonl":
            write_jsonl(path, texts, first)
        elif kind == "text":
            path.write_text("".join(text + "\n" for text in texts))
        else:
            write_uci(path, [text.replace("only ", "").replace(f"here{rank}", WORDS[rank]) for text in texts], WORDS)
        paths.append(str(path))
        first += size
    return paths


def write_texts(file: Path, *names: str) -> None:
    words = ["apple", "pear", "plum", "fruit", "goal", "team", "ball", "match"]
    lines = [
        {"id": name, "text": " ".join(words[(place * 3 + k) % 8] for k in range(12))}
        for place, name in enumerate(names)
    ]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))


DAY_WORDS = ["apple", "pear", "plum", "goal", "team", "ball", "match", "fruit"]


def write_day(file: Path, *names: str) -> None:
    lines = [{"id": name, "text": " ".join(words_of(name))} for name in names]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))


def words_of(name: str) -> list[str]:
    return random.Random(name).choices(DAY_WORDS, k=6)


def write_csv(table: pa.Table, path: Path) -> None:
    """By Python's csv and repr."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(table.column_names)
        writer.writerows(zip(*(column.to_pylist() for column in table.columns), strict=True))


def quoted_texts(number: int) -> list[str]:
    """Texts of 20 random words, of which some have commas, quotes and line feeds, and the fourth is empty."""
    generator = np.random.default_rng(5)
    texts = [" ".join(generator.choice(WORDS, 20)) + (', "so"\nthey said' if n % 7 == 0 else "") for n in range(number)]
    texts[3] = ""
    return texts
