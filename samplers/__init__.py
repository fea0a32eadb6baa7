"""The models: kernels, programs, estimators, and what is done with a trained model."""

from typing import TYPE_CHECKING

from blocks.lazy_names import lazy_names

if TYPE_CHECKING:
    from samplers.estimators.factorization import MatrixFactorization as MatrixFactorization
    from samplers.estimators.lasso import ElasticNet as ElasticNet
    from samplers.estimators.lasso import Lasso as Lasso
    from samplers.estimators.lda import LatentDirichletAllocation as LatentDirichletAllocation
    from samplers.estimators.logistic import LogisticRegression as LogisticRegression
    from samplers.estimators.softmax import SoftmaxRegression as SoftmaxRegression

_MODULES = {
    "ElasticNet": "samplers.estimators.lasso",
    "Lasso": "samplers.estimators.lasso",
    "LatentDirichletAllocation": "samplers.estimators.lda",
    "LogisticRegression": "samplers.estimators.logistic",
    "MatrixFactorization": "samplers.estimators.factorization",
    "SoftmaxRegression": "samplers.estimators.softmax",
}
__all__ = list(_MODULES)
__getattr__, __dir__ = lazy_names(__name__, _MODULES)
