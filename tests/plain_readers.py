"""Readers of input files in plain Python, as references: they return the contents, or refuse the file."""

from __future__ import annotations

import csv
import io
import json
import re
from collections import Counter
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet
import regex
from scipy import sparse

LDAC_WORDS = ["fig", "plum", "pear", "lime", "kiwi"]
NUMBER = re.compile(r"[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?")


class InvalidFile(Exception):
    """The reference reader refuses this file."""


def require(good: object) -> None:
    if not good:
        raise InvalidFile


def text_of(data: bytes, errors: str = "strict") -> str:
    """Decode a text according to its byte order mark, with line feeds as line ends."""
    marks = [(b"\xff\xfe\0\0", "utf-32"), (b"\0\0\xfe\xff", "utf-32"), (b"\xff\xfe", "utf-16"), (b"\xfe\xff", "utf-16")]
    encoding = next((name for mark, name in marks if data.startswith(mark)), "utf-8-sig")
    try:
        text = data.decode(encoding, errors)
    except UnicodeDecodeError:
        raise InvalidFile from None
    return io.StringIO(text, newline=None).read()


def plain_lines(data: bytes, errors: str = "strict") -> list[str]:
    text = text_of(data, errors)
    return text.removesuffix("\n").split("\n") if text else []


def number(text: str, largest: float = float(np.finfo(np.float32).max)) -> float:
    require(NUMBER.fullmatch(text))
    value = float(text)
    require(abs(value) <= largest)
    return value


def bag(text: str | list[str]) -> Counter[str]:
    return Counter(regex.findall(r"(?u)\b\w\w+\b", text.lower()) if isinstance(text, str) else text)


def lines_in(data: bytes) -> list[Any]:
    found = plain_lines(data)
    require(not any("\0" in line for line in found))
    return [("", bag(line)) for line in found]


def rows_in(data: bytes) -> list[list[str]]:
    text = text_of(data)
    require("\0" not in text)
    try:
        return [row for row in csv.reader(io.StringIO(text, newline=""), strict=True) if row]
    except csv.Error:
        raise InvalidFile from None


def csv_in(data: bytes) -> list[Any]:
    header, *rows = rows_in(data) or [[]]
    require({"id", "text"} <= set(header))
    require(all(len(row) == len(header) for row in rows))
    name, text = header.index("id"), header.index("text")
    return [(" ".join(row[name].split()), bag(row[text])) for row in rows]


def json_in(data: bytes) -> list[Any]:
    found = []
    for line in plain_lines(data):
        require("\0" not in line)
        if line.strip() == "":
            continue
        try:
            record = json.loads(line)
        except ValueError:
            raise InvalidFile from None
        require(isinstance(record, dict) and "text" in record)
        text = record["text"]
        require(isinstance(text, str) or (isinstance(text, list) and all(isinstance(word, str) for word in text)))
        if isinstance(text, list):
            require(all(word and not set("\n\0") & set(word) for word in text))
        name = record.get("id")
        found.append(("" if name is None else " ".join(str(name).split()), bag(text)))
    return found


def uci_in(data: bytes) -> list[Any]:
    lines = [re.split(r"[ \t]+", line.strip(" \t")) for line in plain_lines(data)]
    require(len(lines) >= 3 and all(len(line) == 1 and re.fullmatch("[0-9]+", line[0]) for line in lines[:3]))
    documents, words, entries = (int(line[0]) for line in lines[:3])
    rows = [line for line in lines[3:] if line != [""]]
    require(len(rows) == entries and all(len(row) == 3 for row in rows))
    found: list[Counter[str]] = [Counter() for _ in range(min(documents, 10**6))]
    before = 0
    for row in rows:
        require(all(re.fullmatch("[0-9]+", field) for field in row))
        document, word, count = map(int, row)
        require(before <= document <= documents and 1 <= word <= words and document >= 1 and count >= 1)
        before = document
        found[document - 1][str(word)] += count
    return [("", counts) for counts in found]


def ratings_in(data: bytes) -> dict[tuple[str, str], float]:
    """Read lines `user,item,rating` below a header; fields may have quotes and surrounding blanks."""
    header, *lines = plain_lines(data) or [""]
    require("\0" not in header)
    names = ["".join(filter(str.isalnum, name.lower())) for name in rating_fields(header)]
    if len(names) == 2 and names != ["user", "item"]:  # no header
        require("user" not in names)
        lines, names = [header, *lines], ["user", "item"]
    elif len(names) == 3 and NUMBER.fullmatch(rating_fields(header)[2]):
        lines, names = [header, *lines], ["user", "item", "rating"]
    require(names[:3] in (["user", "item", "rating"], ["user", "item"]))
    found = {}
    for line in lines:
        require("\0" not in line)
        if line.strip(" \t"):
            fields = rating_fields(line)
            user, item, rating, *_ = [*fields[:2], "1"] if len(names) == len(fields) == 2 else [*fields, "", "", ""]
            require(user and item and len(fields) <= len(names) + (len(names) == 3))
            found[user, item] = float(np.float32(number(rating)))
    return found


def rating_fields(line: str) -> list[str]:
    """Return the first three fields."""
    fields, rest = [], line.strip(" \t")
    while len(fields) < 3 and rest is not None:
        if quoted := re.match(r'[ \t]*"((?:[^"]|"")*)"[ \t]*(?:,|$)', rest):
            fields.append(quoted[1].replace('""', '"'))
            rest = rest[quoted.end() :] if rest[: quoted.end()].endswith(",") else None
        else:
            field, comma, after = rest.partition(",")
            require(not field.strip(" \t").startswith('"'))
            fields.append(field.strip(" \t"))
            rest = after if comma else None
    return fields


def svmlight_in(data: bytes) -> Any:
    rows, labels = [], []
    for line in plain_lines(data, "replace"):  # of comments
        fields = [field for field in re.split(r"[ \t]", line.partition("#")[0]) if field]
        if not fields:
            continue
        labels.append(number(fields[0], np.inf))
        require(np.isfinite(labels[-1]))
        row: dict[int, float] = {}
        for pair in fields[1:]:
            index, colon, value = pair.partition(":")
            require(colon and re.fullmatch("[0-9]+", index) and max(row, default=0) < int(index) < 10**6)
            row[int(index)] = float(np.float32(number(value)))
        rows.append(row)
    width = max((index for row in rows for index, value in row.items() if value), default=0)
    return [[row.get(index, 0.0) for index in range(1, width + 1)] for row in rows], labels


def market_in(data: bytes) -> Any:
    banner, *lines = plain_lines(data, "replace") or [""]
    require(banner.lower().split() == ["%%matrixmarket", "matrix", "coordinate", "real", "general"])
    while lines and (lines[0].startswith("%") or not lines[0].strip()):
        lines.pop(0)
    require(lines)
    sizes = lines[0].split()
    require(len(sizes) == 3 and all(re.fullmatch("[0-9]+", size) for size in sizes))
    rows, columns, entries = map(int, sizes)
    require(0 < rows < 10**4 and 0 < columns < 10**4)
    x, given = np.zeros((rows, columns)), set()
    lines = [line for line in lines[1:] if line.strip(" \t")]
    require(len(lines) == entries)
    for line in lines:
        fields = [field for field in re.split(r"[ \t]", line) if field]
        require(len(fields) == 3)
        row, column, value = number(fields[0]), number(fields[1]), number(fields[2])
        require(row % 1 == column % 1 == 0 and 1 <= row <= rows and 1 <= column <= columns)
        if np.float32(value):
            require((row, column) not in given)
            given.add((row, column))
        x[int(row) - 1, int(column) - 1] += np.float32(value)
    return x.tolist()


def table_in(data: bytes) -> Any:
    header, *rows = rows_in(data) or [[]]
    header = [" ".join(name.split()) for name in header]
    require("y" in header and len(set(header)) == len(header) > 1)
    rows = [row for row in rows if len(row) > 1 or row[0].strip(" \t")]
    require(all(len(row) == len(header) for row in rows))
    values = [[number(field.strip(" \t\n")) for field in row] for row in rows]
    at = header.index("y")
    x = [[float(np.float32(value)) for place, value in enumerate(row) if place != at] for row in values]
    return x, [row[at] for row in values]


def ldac_in(data: bytes) -> Any:
    documents = []
    for line in plain_lines(data):
        if not line.strip():
            continue
        require(re.fullmatch(r"[ \t]*[0-9]{1,12}([ \t]+[0-9]{1,12}:[0-9]{1,12})*[ \t]*", line))
        terms, *pairs = line.split()
        require(int(terms) == len(pairs))
        words: Counter[str] = Counter()
        for pair in pairs:
            term, count = map(int, pair.split(":"))
            require(term < len(LDAC_WORDS) and 1 <= count < 10**6)
            words[LDAC_WORDS[term]] += count
        documents.append(("", words))
    require(any(words for _, words in documents))
    return documents


def plink_in(data: bytes) -> Any:
    bim, fam, bed = parts_of(data)
    variants, people = fields_of(bim), fields_of(fam)
    stride = -(-len(people) // 4)
    require(bed[:3] == b"\x6c\x1b\x01" and len(bed) == 3 + stride * len(variants))
    columns = []
    for number_ in range(len(variants)):
        packed = bed[3 + stride * number_ : 3 + stride * (number_ + 1)]
        codes = [packed[person // 4] >> 2 * (person % 4) & 3 for person in range(len(people))]
        known = [(2.0, None, 1.0, 0.0)[code] for code in codes if code != 1]
        mean = sum(known) / len(known) if known else 0.0
        columns.append([mean if code == 1 else (2.0, None, 1.0, 0.0)[code] for code in codes])
    x = np.array(columns).T.astype(np.float32).astype(np.float64).tolist()
    phenotypes = [fields[5] for fields in people]
    told = [None if text.lower() in ("na", "nan") else number(text) for text in phenotypes]
    missing = {None, -9.0}
    if set(told) <= {None, -9.0, 0.0, 1.0, 2.0} and 2.0 in told:
        missing.add(0.0)
    if missing.issuperset(told):
        return x
    require(not missing.intersection(told))
    return x, told


def parts_of(data: bytes) -> list[bytes]:
    """Split a file into its three parts."""
    parts = data.split(b"\n--\n")
    require(len(parts) == 3)
    return parts


def fields_of(data: bytes) -> list[list[str]]:
    """Return the six fields of each line."""
    lines = re.split("\r\n|\r|\n", data.decode("utf-8", "replace"))
    found = [line.split() for line in (lines if lines[-1] else lines[:-1])]
    require(found and all(len(fields) == 6 for fields in found))
    return found


def npz_in(data: bytes) -> Any:
    try:
        with np.load(io.BytesIO(data)) as arrays:  # load_npz reads another one, which is not needed
            require(arrays["format"].item() == b"csr")
            parts = [arrays[name] for name in ("data", "indices", "indptr")]
            found = sparse.csr_array(tuple(parts), shape=arrays["shape"]).toarray()
    except Exception:
        raise InvalidFile from None
    require(found.size and np.isfinite(found).all())
    return found.tolist()


def parquet_in(data: bytes) -> Any:
    try:
        table = pyarrow.parquet.read_table(io.BytesIO(data), page_checksum_verification=True)
        table.validate(full=True)
    except Exception:
        raise InvalidFile from None
    names = [name for name in table.column_names if name != "y"]
    require("y" in table.column_names and names and len(table))
    columns = [table[name].to_numpy() for name in [*names, "y"]]
    require(all(column.dtype.kind in "iuf" and np.isfinite(column).all() for column in columns))
    *x, y = (column.astype(np.float64) for column in columns)
    return np.array(x).astype(np.float32).astype(np.float64).T.tolist(), y.tolist()
