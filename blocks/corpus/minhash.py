"""Hashes of documents for finding duplicates: a hash of all tokens, and a MinHash signature of the runs of three
tokens.

At any position, the signatures of two documents agree with a probability equal to the Jaccard similarity of the
documents: the number of runs that both have, divided by the number of runs that either has (Broder 1997). A run has
SHINGLE tokens, as split by the rules of the corpus, including stop words; a shorter document is a single run.
"""

from __future__ import annotations

import numpy as np

from blocks.compiled import kernel
from blocks.ingestion.word_table import BREAK, END

SHINGLE = 3
SIZE = 128  # values of a signature
_PRIME, _MIX = np.uint64(0x100000001B3), np.uint64(0x9E3779B97F4A7C15)
_OTHER = np.uint64(0xC2B2AE3D27D4EB4F)
_BASES = np.array([0xCBF29CE484222325, 0x84222325CBF29CE4], np.uint64)
_32 = np.uint64(32)

# Odd multipliers of the multiply-shift hash functions, drawn once: splitmix64 from 0.
MULTIPLIERS = np.empty(SIZE, np.uint64)


def _fill_multipliers() -> None:
    state = 0
    for place in range(SIZE):
        state = (state + 0x9E3779B97F4A7C15) % (1 << 64)
        mixed = (state ^ (state >> 30)) * 0xBF58476D1CE4E5B9 % (1 << 64)
        mixed = (mixed ^ (mixed >> 27)) * 0x94D049BB133111EB % (1 << 64)
        MULTIPLIERS[place] = (mixed ^ (mixed >> 31)) | 1


_fill_multipliers()


@kernel
def sign_documents(text, shortest, multipliers, hashes, signatures):
    """Hash the tokens of documents.

    text: uint8, translated as for `blocks.ingestion.word_table.WordTable.add`.
    shortest: minimum number of bytes in a token.
    multipliers: uint64 (H,), odd.
    hashes: uint64 (D, 2), set to two hashes of all tokens in order; 0 for a document without tokens.
    signatures: uint16 (D, H), set to the MinHash signatures; H is 0 if they are not needed.
    """
    least = np.empty(multipliers.size, np.uint64)
    at, document, tokens = 0, 0, 0
    before, last = np.uint64(0), np.uint64(0)
    hashes[:] = 0
    least[:] = np.uint64(0xFFFFFFFFFFFFFFFF)
    while at < text.size:
        begin, first, second = at, _BASES[0], _BASES[1]
        while BREAK < text[at] < END:
            first = (first ^ np.uint64(text[at])) * _PRIME
            second = (second ^ np.uint64(text[at])) * _OTHER
            at += 1
        if at - begin >= shortest:
            code = mixed(first)
            hashes[document, 0] = mixed(hashes[document, 0] * _OTHER + code + np.uint64(1))
            hashes[document, 1] = mixed(hashes[document, 1] * _PRIME + mixed(second) + np.uint64(1))
            tokens += 1
            shingle = mixed((before * _MIX + last) * _OTHER + code)
            if tokens <= SHINGLE:
                least[:] = np.uint64(0xFFFFFFFFFFFFFFFF)  # forget the document so far: it is no run unless it ends here
            for h in range(signatures.shape[1]):
                least[h] = min(least[h], shingle * multipliers[h])
            before, last = last, code
        if text[at] == END:
            for h in range(signatures.shape[1]):
                signatures[document, h] = np.uint16(mixed(least[h]) >> np.uint64(48))
            document, tokens = document + 1, 0
            before, last = np.uint64(0), np.uint64(0)
            least[:] = np.uint64(0xFFFFFFFFFFFFFFFF)
        at += 1


@kernel
def mixed(code):
    """Return a hash of a hash, in which every bit depends on all input bits (splitmix64)."""
    code = (code ^ (code >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    code = (code ^ (code >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return code ^ (code >> np.uint64(31))
