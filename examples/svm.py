"""Train a linear support vector machine online (Pegasos, 2007); labels are -1 and 1: python examples/svm.py SAMPLES
RUN
"""

from ooc import Field, StochasticProgram, fit


class Pegasos(StochasticProgram):
    penalty: float = 1e-4

    w = Field("column")
    t = Field()

    @staticmethod
    def process(element, weight, shared, local):
        margin = 0.0
        for entry in range(element.columns.size):
            margin += element.label * element.values[entry] * shared.w.get(element.columns[entry])
        shared.t.add(weight)
        share = weight / (shared.t.get() + 1 / shared.penalty)  # the step size times the penalty
        shared.w.multiply(1 - share)
        for entry in range(element.columns.size if margin < 1 else 0):
            shared.w.add(element.columns[entry], share / shared.penalty * element.label * element.values[entry])

    @staticmethod
    def loss(element, shared, local):
        margin = 0.0
        for entry in range(element.columns.size):
            margin += element.label * element.values[entry] * shared.w.get(element.columns[entry])
        return max(0.0, 1.0 - margin)


if __name__ == "__main__":
    from example_data import arguments

    data, run = arguments("samples")
    run = fit(Pegasos, data, run, options={"parallelism": 4}, iterations=5)
    print(f"mean hinge loss {run.last_metrics()['objective']:.4f}")
