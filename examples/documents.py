"""Compute statistics of the documents of a corpus in one pass: python examples/documents.py CORPUS

The counts are sums, so they do not depend on the number of workers: each worker sees a part of the documents, and
weights them by the inverse of that fraction.
"""

from blocks import Dataset
from ooc import ProgramSpec, Shared, StochasticEngine, StochasticProgram


class Statistics(StochasticProgram):
    maps = ("length",)

    def shared_variables(self):
        return {"documents": Shared(), "tokens": Shared(), "containing": Shared((self.dataset.vocabulary_size,))}

    @staticmethod
    def process(element, weight, shared, local):
        shared.documents.add(weight)
        shared.tokens.add(weight * element.words.size)
        for token in range(element.words.size):  # the words of a document are sorted
            if token == 0 or element.words[token] != element.words[token - 1]:
                shared.containing.add(element.words[token], weight)

    @staticmethod
    def length(element, shared, local):
        return element.words.size


if __name__ == "__main__":
    from example_data import arguments

    corpus = Dataset(arguments("documents")[0])
    with StochasticEngine(corpus, ProgramSpec("documents:Statistics", {"parallelism": 8})) as engine:
        engine.run()
        found, lengths = engine.variables(), engine.map("length")
    print(f"{found['documents']:,.0f} documents, {found['tokens']:,.0f} tokens; the longest has {lengths.max():,.0f}")
    words = corpus.vocabulary()
    for rank in (-found["containing"]).argsort()[:10]:
        share = found["containing"][rank] / found["documents"]
        print(f"{words[corpus.index.word_ids[rank]]:20} in {share:.1%} of them")
