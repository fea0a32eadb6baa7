"""Models: kernels, programs and estimators, and the use of trained models."""

from typing import TYPE_CHECKING

from blocks.lazy_names import lazy_names

if TYPE_CHECKING:
    from samplers.estimators.cross_validation import ElasticNetCV as ElasticNetCV
    from samplers.estimators.cross_validation import LassoCV as LassoCV
    from samplers.estimators.cross_validation import LogisticRegressionCV as LogisticRegressionCV
    from samplers.estimators.factorization import MatrixFactorization as MatrixFactorization
    from samplers.estimators.lasso import ElasticNet as ElasticNet
    from samplers.estimators.lasso import Lasso as Lasso
    from samplers.estimators.lda import LatentDirichletAllocation as LatentDirichletAllocation
    from samplers.estimators.logistic import LogisticRegression as LogisticRegression
    from samplers.estimators.poisson import PoissonRegressor as PoissonRegressor
    from samplers.estimators.poisson import PoissonRegressorCV as PoissonRegressorCV
    from samplers.estimators.softmax import SoftmaxRegression as SoftmaxRegression

_MODULES = {
    "ElasticNet": "samplers.estimators.lasso",
    "ElasticNetCV": "samplers.estimators.cross_validation",
    "Lasso": "samplers.estimators.lasso",
    "LassoCV": "samplers.estimators.cross_validation",
    "LatentDirichletAllocation": "samplers.estimators.lda",
    "LogisticRegression": "samplers.estimators.logistic",
    "LogisticRegressionCV": "samplers.estimators.cross_validation",
    "MatrixFactorization": "samplers.estimators.factorization",
    "PoissonRegressor": "samplers.estimators.poisson",
    "PoissonRegressorCV": "samplers.estimators.poisson",
    "SoftmaxRegression": "samplers.estimators.softmax",
}
__all__ = list(_MODULES)
__getattr__, __dir__ = lazy_names(__name__, _MODULES)
