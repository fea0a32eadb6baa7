"""Train a factorization machine (Rendle, 2010) for regression: python examples/fm.py SAMPLES RUN

The prediction is w0 + sum_j w_j x_j + 1/2 sum_k ((sum_j v_jk x_j)^2 - sum_j v_jk^2 x_j^2), and the squared error is
minimized by stochastic gradient descent.
"""

import numba

from ooc import Field, StochasticProgram, fit


@numba.njit
def predict(element, shared, sums):
    """Return the prediction for an element, and set sums, float64 (R,), to sum_j v_jk x_j."""
    found = shared.w0.get()
    sums[:] = 0
    for entry in range(element.columns.size):
        value, row = element.values[entry], shared.v.row_view(element.columns[entry])
        found += shared.w.get(element.columns[entry]) * value
        for k in range(sums.size):
            sums[k] += row.get(k) * value
            found -= 0.5 * (row.get(k) * value) ** 2
    for k in range(sums.size):
        found += 0.5 * sums[k] ** 2
    return found


def small(random, shape):
    return random.normal(scale=0.01, size=shape)


class FactorizationMachine(StochasticProgram):
    rank: int = 8
    rate: float = 0.01
    penalty: float = 1e-4

    w0 = Field()
    w = Field("column")
    v = Field("column", "rank", initial=small)
    sums = Field("work", "rank")

    @staticmethod
    def process(element, weight, shared, local):
        error = predict(element, shared, local.sums) - element.label
        step = shared.rate * weight
        shared.w0.add(-step * error)
        for entry in range(element.columns.size):
            column, value = element.columns[entry], element.values[entry]
            shared.w.add(column, -step * (error * value + shared.penalty * shared.w.get(column)))
            row = shared.v.row_view(column)
            for k in range(local.sums.size):
                gradient = value * (local.sums[k] - row.get(k) * value)
                row.add(k, -step * (error * gradient + shared.penalty * row.get(k)))

    @staticmethod
    def loss(element, shared, local):
        return (predict(element, shared, local.sums) - element.label) ** 2


if __name__ == "__main__":
    from example_data import arguments

    data, run = arguments("samples")
    run = fit(FactorizationMachine, data, run, options={"parallelism": 1}, iterations=20)
    print(f"mean squared error {run.last_metrics()['objective']:.4f}")
