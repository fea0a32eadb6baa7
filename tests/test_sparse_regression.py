"""Lasso, elastic net and l1 logistic regression: solutions are optimal, whatever the problem and however it is held."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st
from regressions import RATIOS, RandomRegression, fit, gap, null_loss, objective, problems, solve, solver, violation
from sklearn.linear_model import ElasticNet, LogisticRegression

from blocks.errors import RequestError, WorkFailed
from samplers.regression.data import features
from samplers.regression.data.features import features_of_matrix
from samplers.regression.path.solver import LambdaPathFit
from samplers.regression.quadratic import descent
from samplers.regression.solver import correlations, dual_gap, working_sets
from samplers.regression.solver.sparse_regression import LinearModel, SparseRegression
from samplers.regression.solver.working_sets import RegressionSolution
from samplers.regression.threads import thread_pool

LOSSES = ["squared", "logistic", "poisson"]


@pytest.mark.parametrize("loss", LOSSES)
@settings(max_examples=40)
@given(data=st.data())
def test_solutions_are_optimal(loss, data):
    problem = data.draw(problems(loss))
    # The gap of the last residual is of the order of the root of the best one's, which is what is asked for.
    for lam, model in zip(*solve(problem, tolerance=1e-12), strict=True):
        assert gap(problem, model, lam) <= 1e-5 * null_loss(problem)
        assert violation(problem, model, lam) < 1e-4


@settings(max_examples=40)
@given(problem=problems())
def test_least_squares_agree_with_scikit_learn(problem):
    problem.options.pop("factors", None)  # of which scikit-learn knows nothing, nor of the next
    problem.options["standardize"] = False
    share, weights = problem.options["share"], problem.options.get("weights")
    for lam, model in zip(*solve(problem), strict=True):
        alpha = lam / problem.weights.sum()
        peer = ElasticNet(
            alpha=alpha,
            l1_ratio=share,
            fit_intercept=problem.options["intercept"],
            positive=problem.options.get("positive", False),
            tol=1e-11,
            max_iter=10**4,
        )
        fit(peer, problem.x, problem.y, sample_weight=weights)
        best = objective(problem, LinearModel(peer.intercept_, peer.coef_), lam)
        assert objective(problem, model, lam) == pytest.approx(best, rel=1e-6, abs=1e-9)


@settings(max_examples=30)
@given(problem=problems("logistic"))
def test_logistic_regression_agrees_with_liblinear(problem):
    plain = problem._replace(options={"intercept": False})
    for lam, model in zip(*solve(plain), strict=True):
        peer = LogisticRegression(
            l1_ratio=1, solver="liblinear", C=1 / lam, fit_intercept=False, tol=1e-10, max_iter=10**4
        )
        fit(peer, plain.x, plain.y)
        best = objective(plain, LinearModel(0.0, peer.coef_[0]), lam)
        assert objective(plain, model, lam) == pytest.approx(best, rel=1e-6)


@pytest.fixture(scope="module")
def genes() -> RandomRegression:
    """300 columns, float32 but not whole, of which few matter; neighbours are alike."""
    random = np.random.default_rng(1)
    x = random.standard_normal((60, 300))
    x[:, 1:] = 0.3 * x[:, 1:] + 0.7 * x[:, :-1]
    x[random.random(x.shape) < 0.5] = 0
    y = x[:, ::40] @ np.arange(1, 9) + random.standard_normal(60)
    return RandomRegression(x.astype(np.float32).astype(np.float64), y, "squared", {})


HELD = {
    "float32": lambda x: np.asfortranarray(x, np.float32),
    "rows first": np.ascontiguousarray,
    "sparse": scipy.sparse.csc_array,
    "sparse, float32": lambda x: scipy.sparse.csc_array(x.astype(np.float32)),
}


@pytest.mark.parametrize("way", HELD)
@pytest.mark.parametrize("loss", ["squared", "logistic"])
def test_solutions_do_not_depend_on_how_columns_are_held(genes, way, loss):
    y = genes.y if loss == "squared" else (genes.y > 0).astype(float)
    problem = RandomRegression(genes.x, y, loss, {"weights": np.linspace(0.5, 2, 60)})
    _, expected = solve(problem, tolerance=1e-12)
    _, found = solve(problem, tolerance=1e-12, x=HELD[way](genes.x))
    for one, other in zip(expected, found, strict=True):
        np.testing.assert_allclose(other.coefficients, one.coefficients, atol=1e-5)
        assert other.intercept == pytest.approx(one.intercept, abs=1e-5)


@pytest.mark.parametrize("loss", ["squared", "logistic"])
@pytest.mark.parametrize("sparse", [True, False])
def test_results_are_the_same_bits_for_any_number_of_threads(genes, monkeypatch, loss, sparse):
    monkeypatch.setattr("samplers.regression.data.features._LEAST", 1)
    y = genes.y if loss == "squared" else (genes.y > 0).astype(float)
    problem = RandomRegression(genes.x, y, loss, {})
    x = scipy.sparse.csc_array(genes.x) if sparse else np.asfortranarray(genes.x)
    found = {threads: solve(problem, x=x, threads=threads)[1] for threads in (1, 2, 3)}
    for threads in (2, 3):
        for one, other in zip(found[1], found[threads], strict=True):
            assert other.coefficients.tobytes() == one.coefficients.tobytes()
            assert other.intercept == one.intercept


@pytest.mark.parametrize("loss", ["squared", "logistic"])
@pytest.mark.parametrize("standardize", [True, False])
def test_a_weight_is_as_good_as_rows_that_are_there_more_often(genes, loss, standardize):
    times = np.arange(60) % 4  # some are not there at all
    y = genes.y if loss == "squared" else (genes.y > 0).astype(float)
    options = {"standardize": standardize}
    weighted = RandomRegression(genes.x, y, loss, options | {"weights": times.astype(float)})
    repeated = RandomRegression(np.repeat(genes.x, times, axis=0), np.repeat(y, times), loss, options)
    lambdas, found = solve(weighted, tolerance=1e-12)
    for lam, one, other in zip(lambdas, found, solve(repeated, tolerance=1e-12)[1], strict=True):
        assert objective(repeated, one, lam) == pytest.approx(objective(repeated, other, lam), rel=1e-9)
        np.testing.assert_allclose(one.coefficients, other.coefficients, atol=1e-5)


def test_columns_without_a_penalty_are_regressed_out(genes):
    """What they leave of y and of the other columns is a Lasso of its own, and they explain the rest."""
    factors = np.ones(300)
    factors[[5, 80, 81]] = 0
    problem = genes._replace(options={"factors": factors})
    free = np.column_stack([np.ones(60), genes.x[:, factors == 0]])
    others = genes.x[:, factors > 0]
    left = others - free @ np.linalg.lstsq(free, others, rcond=None)[0]
    y = genes.y - free @ np.linalg.lstsq(free, genes.y, rcond=None)[0]
    lambdas, found = solve(problem, tolerance=1e-12)
    alone = SparseRegression(features_of_matrix(np.asfortranarray(left)), y, intercept=False)
    assert alone.largest * np.array(RATIOS) == pytest.approx(lambdas, rel=1e-9)
    for solution, model in zip(alone.path(lambdas, 1e-12), found, strict=True):
        b = solution.coefficients(297)
        np.testing.assert_allclose(model.coefficients[factors > 0], b, atol=1e-6)
        rest = genes.y - others @ b
        best = np.linalg.lstsq(free, rest, rcond=None)[0]
        np.testing.assert_allclose([model.intercept, *model.coefficients[factors == 0]], best, atol=1e-6)


def test_columns_without_a_penalty_may_depend_on_each_other(genes):
    x = np.column_stack([genes.x, np.ones(60), genes.x[:, 0], genes.x[:, 1] - genes.x[:, 0]])
    factors = np.r_[0, 0, np.ones(298), 0, 0, 0]
    problem = RandomRegression(x, genes.y, "squared", {"factors": factors})
    plain = genes._replace(options={"factors": factors[:300]})
    for (lam, one), (_, other) in zip(zip(*solve(problem), strict=True), zip(*solve(plain), strict=True), strict=True):
        np.testing.assert_allclose(one.coefficients[2:300], other.coefficients[2:], atol=1e-6)
        assert objective(problem, one, lam) == pytest.approx(objective(plain, other, lam), rel=1e-9)


def test_standardised_columns_have_coefficients_for_the_columns_as_they_are(genes):
    """The same as columns divided by their deviations beforehand, whose coefficients are then divided."""
    deviations = genes.x.std(axis=0)
    divided = RandomRegression(genes.x / deviations, genes.y, "squared", {})
    _, found = solve(genes._replace(options={"standardize": True}), tolerance=1e-12)
    for one, other in zip(found, solve(divided, tolerance=1e-12)[1], strict=True):
        np.testing.assert_allclose(one.coefficients * deviations, other.coefficients, atol=1e-5)


@pytest.mark.parametrize("options", [{}, {"positive": True}])
@pytest.mark.parametrize("loss", LOSSES)
def test_a_path_is_the_same_without_screening(genes, loss, options, monkeypatch):
    y = {"squared": genes.y, "logistic": (genes.y > 0).astype(float), "poisson": np.round(np.exp(genes.y / 4))}[loss]
    problem = RandomRegression(genes.x, y, loss, options)
    ratios = np.geomspace(1, 0.01, 20)
    lambdas, screened = solve(problem, ratios, 1e-12)

    monkeypatch.setattr(correlations.ColumnCorrelations, "possible", lambda self, residual, candidates, *_: candidates)
    monkeypatch.setattr(correlations.ColumnCorrelations, "strong", lambda *_: np.empty(0, np.int64))
    for lam, one, other in zip(lambdas, screened, solve(problem, ratios, 1e-12)[1], strict=True):
        assert objective(problem, one, lam) == pytest.approx(objective(problem, other, lam), rel=1e-11)
        np.testing.assert_allclose(one.coefficients, other.coefficients, atol=1e-5)


def test_the_strong_rule_is_repaired_where_it_is_wrong(genes, monkeypatch):
    """A rule that discards nearly everything costs time, not the solution."""
    _, expected = solve(genes, np.geomspace(1, 0.05, 20), 1e-12)
    monkeypatch.setattr(correlations.ColumnCorrelations, "strong", lambda *_: np.array([7]))
    for one, other in zip(expected, solve(genes, np.geomspace(1, 0.05, 20), 1e-12)[1], strict=True):
        np.testing.assert_allclose(one.coefficients, other.coefficients, atol=1e-5)


@settings(max_examples=60)
@given(
    problem=st.one_of(problems(), problems("poisson")), near=st.sampled_from([0.0, 0.01, 0.5]), seed=st.integers(0, 99)
)
def test_the_sphere_discards_no_column_that_has_a_coefficient(problem, near, seed):
    """Whatever coefficients it is drawn about."""
    found = solver(problem)
    lam, (best,) = 0.2 * found.largest, solve(problem, (0.2,), 1e-13)[1]
    regression = found.regression
    noise = near * np.random.default_rng(seed).standard_normal(best.coefficients.size)
    b = np.where(regression.penalty.l1 > 0, best.coefficients * (1 + noise) + 0.1 * noise, 0)
    b = np.maximum(b, 0) if regression.positive else b
    fit = found.loss.fit(problem.x @ b, np.zeros(len(found.loss.free)))
    start = working_sets.RegressionSolution(lam, np.flatnonzero(b), b[b != 0], fit, 0.0, 0.0)
    working_set = working_sets.WorkingSet.beginning(regression, lam, start, 0.0)
    working_set.judge(regression.correlations.see(working_set.wants(), working_set.candidates))
    assert set(np.flatnonzero(best.coefficients)) <= set(working_set.candidates)


def test_the_next_working_set_is_of_what_was_seen(genes):
    """Also where columns that are ruled out are taken out of the very array that was seen."""
    found = solver(genes)
    regression, (solution,) = found.regression, found.path([0.2 * found.largest], 1e-6)
    working_set = working_sets.WorkingSet.beginning(regression, 0.9 * solution.lam, solution, 0.0)
    working_set.candidates = every = regression.usable.copy()
    working_set.look(
        correlations.CandidateCorrelations(every, regression.features.correlations(every, solution.fit.residual))
    )
    expected = working_set.next_columns()
    assert set(expected) > set(solution.support)
    working_set.go_on()
    assert working_set.candidates.size < every.size
    np.testing.assert_array_equal(working_set.working, expected)


def test_columns_are_not_lost_beside_much_shorter_ones():
    x = np.random.default_rng(0).standard_normal((20, 3)) * [1e-25, 1, 1e25]
    found = solver(RandomRegression(x, x[:, 2], "squared", {}))
    (solution,) = found.path([found.largest / 2], 1e-9)
    assert solution.support.tolist() == [2]


def test_few_columns_are_read_anew_along_a_path(genes):
    found = solver(genes)
    list(found.path(found.lambdas(100, 0.01), 1e-6))
    assert found.regression.correlations.columns_read < 25 * 300


def test_the_strong_rule_proposes_the_likeliest_columns(genes):
    found = solver(genes)
    regression, start = found.regression, found.nothing
    step = start.fit.residual, 0.7 * start.lam, start.lam, regression.usable
    every, few = (regression.correlations.strong(*step, most) for most in (300, 5))
    assert every.size > few.size == 5
    slopes = np.abs(genes.x.T @ start.fit.residual) / regression.penalty.l1
    left_out = np.setdiff1d(every, few)
    assert slopes[few].min() >= slopes[left_out].max() * (1 - 2**-7)


def chained_columns(random: np.random.Generator, rows: int, columns: int) -> scipy.sparse.csc_array:
    """Each is the one before but for one of its ten entries."""
    places, values = [random.choice(rows, 10, replace=False)], [random.standard_normal(10)]
    for _ in range(1, columns):
        changed, other = random.integers(10), random.choice(np.setdiff1d(np.arange(rows), places[-1]))
        places.append(np.where(np.arange(10) == changed, other, places[-1]))
        values.append(np.where(np.arange(10) == changed, random.standard_normal(), values[-1]))
    x = scipy.sparse.coo_array((np.concatenate(values), (np.concatenate(places), np.repeat(np.arange(columns), 10))))
    return x.tocsc()


def test_a_path_that_goes_on_from_its_state_is_the_same():
    """Bit for bit, from steps that have found columns to be missing further on."""
    random = np.random.default_rng(0)
    x = chained_columns(random, 500, 5000)
    y = 2 * x[:, ::166] @ random.standard_normal(31) + random.standard_normal(500)

    def begun() -> LambdaPathFit:
        fit = LambdaPathFit(SparseRegression(features_of_matrix(x), y), 1.0, 1e-5)
        fit.begin(lambdas[0])
        return fit

    def to_the_end(fit: LambdaPathFit, found: list[RegressionSolution]) -> list[RegressionSolution]:
        while fit.working_set:
            states.append(({name: array.copy() for name, array in fit.arrays().items()}, found))
            found = found + fit.step(lambdas[len(found) :])
        return found

    lambdas, states = SparseRegression(features_of_matrix(x), y).lambdas(60, 0.01), []
    solutions = to_the_end(begun(), [])
    some = [(state, found) for state, found in states if state["missed"].size][::4]
    assert len(some) > 4
    for state, found in some:
        again = begun()
        again.restore(state)
        for one, other in zip(to_the_end(again, found), solutions, strict=True):
            assert one.values.tobytes() == other.values.tobytes()


def test_slopes_of_columns_that_are_not_looked_at_are_not_missed():
    """A coefficient may be on its way to 0 when its column is ruled out."""
    chosen, support = np.array([1, 4, 6]), np.array([0, 4, 5, 9])
    found = dual_gap.penalty_slopes(chosen, np.array([1.0, 2.0, 3.0]), support, np.array([0.1, 0.2, 0.3, 0.4]))
    np.testing.assert_array_equal(found, [1.0, 1.8, 3.0])
    assert not dual_gap.penalty_slopes(np.empty(0, np.int64), np.empty(0), support, np.ones(4)).size


@pytest.mark.parametrize("sparse", [False, True])
def test_a_path_is_the_same_for_any_number_of_threads(genes, sparse, monkeypatch):
    """Bit for bit, where all that threads share is shared."""
    for module, name in ((thread_pool, "_FEW"), (descent, "_FEW"), (features, "_LEAST")):
        monkeypatch.setattr(module, name, 1)
    monkeypatch.setattr(thread_pool, "_VECTORS", 64)
    x = scipy.sparse.csc_array(np.where(np.abs(genes.x) > 0.5, genes.x, 0.0)) if sparse else np.asfortranarray(genes.x)
    found = []
    for threads in (1, 2, 3):
        _, models = solve(genes, np.geomspace(1, 0.01, 12), 1e-8, x=x, threads=threads)
        found.append(b"".join(model.coefficients.tobytes() for model in models))
    assert np.count_nonzero(models[-1].coefficients) > 20
    assert found[0] == found[1] == found[2]


REFUSED = [
    ({"y": np.zeros(3)}, "y must have one value for each of the 60 rows of X, got 3"),
    ({"y": np.r_[np.zeros(59), np.nan]}, "y must be finite numbers, got nan in row 59"),
    ({"y": np.ones(60)}, "lambda_max is 0: no column correlates with y"),
    (
        {"y": np.arange(60.0), "loss": "logistic"},
        "y of a logistic regression must have the values 0 and 1, got 0, 1, 2, 3, 4",
    ),
    ({"y": np.ones(60), "loss": "logistic"}, "y of a logistic regression must have the values 0 and 1, got 1"),
    ({"loss": "poisson"}, r"y of a Poisson regression must be at least 0, got -\d+\.?\d* in row \d+"),
    (
        {"y": np.zeros(60), "loss": "poisson"},
        "y of a Poisson regression is 0 in all rows, so its mean has no logarithm",
    ),
    (
        {"positive": True, "factors": np.r_[1, 1, 0, np.ones(297)]},
        "coefficients cannot be restricted to at least 0 if column 2 has no penalty",
    ),
    ({"loss": "hinge"}, "loss: unknown loss 'hinge'"),
    ({"share": 0.0}, "share must be above 0 and at most 1, got 0"),
    ({"weights": np.ones(59)}, "weights must have 60 elements, got 59"),
    ({"weights": -np.ones(60)}, "weights must be finite numbers of at least 0"),
    ({"factors": np.zeros(300)}, "factors must be finite numbers of at least 0, and not all 0"),
]


@pytest.mark.parametrize(("wrong", "told"), REFUSED)
def test_what_cannot_be_solved_is_refused(genes, wrong, told):
    arguments = {"y": genes.y, **wrong}
    with pytest.raises(RequestError, match=told):
        _ = SparseRegression(features_of_matrix(np.asfortranarray(genes.x)), **arguments).largest


@pytest.mark.parametrize("scale", [1e-8, 1.0, 1e6, 1e12])
def test_counts_of_any_size_have_the_null_model_that_they_must_have(genes, scale):
    """The mean, from wherever Newton's method starts; rows without weight do not count, even with huge scores."""
    y = scale * np.arange(60.0)
    weights = np.r_[np.zeros(3), np.ones(57)]
    x = np.asfortranarray(np.c_[np.r_[np.full(3, 1e8), np.arange(57) % 2], genes.x])
    found = SparseRegression(features_of_matrix(x), y, "poisson", weights=weights)
    (intercept,) = found.nothing.fit.free
    assert intercept == pytest.approx(np.log(y[3:].mean()), rel=1e-12)
    deviances = y[3:] * np.log(y[3:] / y[3:].mean()) - y[3:] + y[3:].mean()
    assert found.nothing.fit.loss == pytest.approx(deviances.sum(), rel=1e-9)
    (solution,) = found.path([0.1 * found.largest], 1e-8)
    assert solution.gap <= 1e-8 * found.nothing.fit.loss
    assert np.isfinite(found.model(solution).coefficients).all()


def test_rates_with_exposures_as_weights_are_counts_with_offsets(genes):
    """For the Poisson loss alone: e (exp(z) - y / e z) is exp(z + log e) - y (z + log e), plus a constant."""
    exposures = np.exp(genes.x[:, 1])
    counts = np.random.default_rng(3).poisson(exposures * np.exp(genes.x[:, 0] / 3)).astype(float)
    problem = RandomRegression(genes.x, counts / exposures, "poisson", {"weights": exposures})
    for lam, model in zip(*solve(problem, tolerance=1e-12), strict=True):
        slopes = genes.x.T @ (counts - np.exp(genes.x @ model.coefficients + model.intercept + np.log(exposures)))
        assert np.abs(slopes).max() <= lam * (1 + 1e-4)
        used = model.coefficients != 0
        np.testing.assert_allclose(slopes[used], lam * np.sign(model.coefficients[used]), rtol=1e-3)


def test_a_lambda_above_the_largest_has_the_zero_model(genes):
    _, (model,) = solve(genes, (1.5,))
    assert not model.coefficients.any()
    assert model.intercept == pytest.approx(genes.y.mean())


def test_a_tolerance_below_rounding_is_told_with_the_lambda(genes):
    with pytest.raises(
        WorkFailed, match=r"lambda 0\.\d+: did not converge: the duality gap stays at .* above the target"
    ):
        solve(genes, (1e-4,), 0.0)
