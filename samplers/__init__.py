"""The models: kernels, programs, estimators, and what is done with a trained model."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from samplers.factorization_estimator import MatrixFactorization
    from samplers.lasso_estimators import ElasticNet, Lasso
    from samplers.lda_estimator import LatentDirichletAllocation
    from samplers.logistic_estimator import LogisticRegression

__all__ = ["ElasticNet", "Lasso", "LatentDirichletAllocation", "LogisticRegression", "MatrixFactorization"]

# Loaded when first used: they need numba, and the command line must start at once.
_LAZY = {
    "ElasticNet": "samplers.lasso_estimators",
    "Lasso": "samplers.lasso_estimators",
    "LatentDirichletAllocation": "samplers.lda_estimator",
    "LogisticRegression": "samplers.logistic_estimator",
    "MatrixFactorization": "samplers.factorization_estimator",
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_LAZY[name]), name)
