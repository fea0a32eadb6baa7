"""The models: kernels, programs, estimators, and what is done with a trained model."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from samplers.estimators.factorization import MatrixFactorization
    from samplers.estimators.lasso import ElasticNet, Lasso
    from samplers.estimators.lda import LatentDirichletAllocation
    from samplers.estimators.logistic import LogisticRegression
    from samplers.estimators.softmax import SoftmaxRegression

__all__ = [
    "ElasticNet",
    "Lasso",
    "LatentDirichletAllocation",
    "LogisticRegression",
    "MatrixFactorization",
    "SoftmaxRegression",
]

# Loaded when first used: they need numba, and the command line must start at once.
_LAZY = {
    "ElasticNet": "samplers.estimators.lasso",
    "Lasso": "samplers.estimators.lasso",
    "LatentDirichletAllocation": "samplers.estimators.lda",
    "LogisticRegression": "samplers.estimators.logistic",
    "MatrixFactorization": "samplers.estimators.factorization",
    "SoftmaxRegression": "samplers.estimators.softmax",
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_LAZY[name]), name)
