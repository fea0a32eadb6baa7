"""Word ids: a hash table over the bytes of words, and the kernel that splits text and looks up its words.

The table uses open addressing with linear probing; a slot holds 32 bits of a word's hash and its id, so that letters
are compared once for nearly every word found. A token takes 70 ns (6 letters, 60,000 words), a quarter of the time
of Python strings, lists and dictionaries.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from blocks.compiled import inlined, unmanaged_kernel

BREAK, END = 0, 255  # bytes between words and at the end of a document in translated text
END_BYTE = b"\xff"  # in no UTF-8 text
_WORDS = 1  # position of words in the state: at, words, tokens, documents, stopped, unknown
_BASIS, _PRIME = np.uint64(0xCBF29CE484222325), np.uint64(0x100000001B3)  # constants of the FNV-1a hash
_MIX = np.uint64(0x9E3779B97F4A7C15)
_LOW = np.uint64(0xFFFFFFFF)
_32 = np.uint64(32)


class WordTable:
    """Words with their ids.

    fixed: all words that get an id; None to assign ids in order of first occurrence.
    stop_words: words that are counted separately and dropped, unless they are fixed.
    """

    def __init__(self, stop_words: Iterable[str] = (), fixed: Iterable[str] | None = None) -> None:
        self._slots = np.zeros(1 << 12, np.uint64)
        self._letters = np.empty(1 << 14, np.uint8)
        self._ends = np.zeros(self._slots.size // 2, np.int64)
        self._state = np.zeros(6, np.int64)
        self._closed, self._stops = False, (0, 0)  # first and last (exclusive) id of the stop words
        self._fill(fixed or ())
        first = self._numbered
        self._fill(stop_words)
        self._closed, self._stops = fixed is not None, (first, self._numbered)

    def _fill(self, words: Iterable[str]) -> None:
        self.add(END_BYTE.join(word.encode() for word in words) + END_BYTE, LINES, 1)

    @property
    def _numbered(self) -> int:
        return int(self._state[_WORDS])

    def __len__(self) -> int:
        """Return the number of words; stop words count only if the vocabulary is not fixed."""
        return self._stops[0] if self._closed else self._numbered

    @property
    def letters(self) -> int:
        """Return the total number of bytes of all words."""
        return int(self._ends[self._numbered])

    def words(self) -> bytes:
        """Return all words in the order of their ids, one per line."""
        return b"\n".join(
            bytes(self._letters[begin:end])
            for begin, end in zip(self._ends[: len(self)], self._ends[1 : len(self) + 1], strict=True)
        )

    def add(
        self, text: bytes, letters: bytes, shortest: int, *, stop: bool = True
    ) -> tuple[np.ndarray, np.ndarray, int, np.ndarray]:
        """Assign ids to the words of documents.

        text: UTF-8, END_BYTE after each document.
        letters: map of each byte (WORDS, LOWER_WORDS or LINES).
        shortest: minimum number of bytes in a word.
        stop: drop stop words, rather than treating them like other words.
        Returns the ids of the tokens, uint32 (N,), the number of tokens in each document, uint32 (D,), how many tokens
        were dropped as stop words, and how many tokens of each document were dropped as unknown, uint32 (D,).
        """
        buffer = np.frombuffer(text.translate(letters), np.uint8)
        ids = np.empty(buffer.size // (shortest + 1) + 1, np.uint32)
        ends = np.zeros((text.count(END_BYTE) + 1, 3), np.int64)
        self._state[:] = 0, self._numbered, 0, 0, 0, 0
        rules = (shortest, *(self._stops if stop or self._closed else (0, 0)), self._closed)
        while not number_words(buffer, rules, self._slots, self._letters, self._ends, ids, ends, self._state):
            self._grow()
        lengths, stopped, unknown = np.diff(ends, axis=0).astype(np.uint32).T
        if not stop:  # stop words count as unknown words if the vocabulary is fixed
            stopped, unknown = np.zeros_like(stopped), stopped + unknown
        return ids[: ends[-1, 0]], lengths.copy(), int(stopped.sum()), unknown

    def _grow(self) -> None:
        if self._numbered + 2 <= self._ends.size:
            self._letters = np.concatenate((self._letters, np.empty_like(self._letters)))
            return
        self._ends = np.concatenate((self._ends, np.zeros_like(self._ends)))
        self._slots = np.zeros(2 * self._slots.size, np.uint64)
        refill(self._slots, self._letters, self._ends, self._numbered)


def _table(letters: Iterable[int]) -> bytes:
    kept = {*letters, END}
    return bytes(code if code in kept else BREAK for code in range(256))


_ASCII_WORD = (code for code in range(128) if chr(code).isalnum() or chr(code) == "_")
WORDS = _table([*_ASCII_WORD, *range(128, END)])  # all non-ASCII bytes count as letters
LOWER_WORDS = WORDS.lower()
LINES = _table(code for code in range(1, END) if code != ord("\n"))


@inlined
def _hash_of(letters, begin, end):
    code = _BASIS
    for at in range(begin, end):
        code = (code ^ np.uint64(letters[at])) * _PRIME
    return code * _MIX


@inlined
def shift_of(slots):
    """Return the number of bits to shift a hash right to get a slot index."""
    return np.uint64(64) - np.uint64(np.round(np.log2(slots.size)))


@unmanaged_kernel
def refill(slots, letters, ends, words):
    """Insert all words into empty slots.

    slots: uint64, length a power of two.
    letters, ends: see `number_words`.
    words: number of words.
    """
    for word in range(words):
        code = _hash_of(letters, ends[word], ends[word + 1])
        slot = np.int64(code >> shift_of(slots))
        while slots[slot]:
            slot = (slot + 1) & (slots.size - 1)
        slots[slot] = (code << _32) | np.uint64(word + 1)


@unmanaged_kernel
def find_word(slots, letters, ends, code, word_letters):
    """Look up a word by the hash `code`.

    word_letters: uint8.
    Returns its id and slot; the id is -1, with the slot for inserting the word, if it is not found.
    """
    length = word_letters.size
    tag = code << _32
    slot = np.int64(code >> shift_of(slots))
    while slots[slot]:
        if slots[slot] & ~_LOW == tag:
            word = np.int64(slots[slot] & _LOW) - 1
            first = ends[word]
            same = 0
            if ends[word + 1] - first == length:
                while same < length and letters[first + same] == word_letters[same]:
                    same += 1
                if same == length:
                    return word, slot
        slot = (slot + 1) & (slots.size - 1)
    return np.int64(-1), slot


@unmanaged_kernel
def number_words(text, rules, slots, letters, ends, ids, document_ends, state):
    """Split text into words and find their ids; return False at a new word for which the table has no room.

    text: uint8, see `WordTable.add`, translated.
    rules: (minimum word length, first and last (exclusive) id of stop words, closed).
    Updated: slots uint64 (length a power of two, twice that of ends), letters uint8, ends int64 (end of each word's
    letters, after a leading 0), ids uint32 (N,), document_ends int64 (D+1, 3) (numbers of tokens, stop words and
    unknown words up to the end of each document) and state int64 (6,), from which the kernel resumes.
    """
    shortest, first_stop, after_stops, closed = rules
    at, words, tokens, documents, stopped, unknown = state
    while at < text.size:
        begin, code = at, _BASIS
        while BREAK < text[at] < END:
            code = (code ^ np.uint64(text[at])) * _PRIME
            at += 1
        if at - begin >= shortest:
            code *= _MIX
            word, slot = find_word(slots, letters, ends, code, text[begin:at])
            if word < 0 and not closed:
                end = ends[words] + at - begin
                if end > letters.size or words + 2 > ends.size:
                    state[:] = begin, words, tokens, documents, stopped, unknown
                    return False
                for place in range(begin, at):
                    letters[end - at + place] = text[place]
                word = words
                words += 1
                ends[words] = end
                slots[slot] = code << _32 | np.uint64(words)
            if word < 0:
                unknown += 1
            elif first_stop <= word < after_stops:
                stopped += 1
            else:
                ids[tokens] = word
                tokens += 1
        if text[at] == END:
            documents += 1
            document_ends[documents, 0] = tokens
            document_ends[documents, 1] = stopped
            document_ends[documents, 2] = unknown
        at += 1
    state[:] = at, words, tokens, documents, stopped, unknown
    return True
