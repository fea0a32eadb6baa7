"""ooc: out-of-core, model-parallel machine learning. Public names: programs, engines, estimators and datasets."""

from typing import TYPE_CHECKING

from ooc.exception_hook import install_exception_hook
from ooc.package_shadowing import require_own_packages

require_own_packages()
install_exception_hook()

from blocks.lazy_names import lazy_names  # noqa: E402  (what hides it has been told of)

if TYPE_CHECKING:
    from blocks.corpus.dataset import Dataset as Dataset
    from blocks.design.design import Design as Design
    from blocks.ratings.matrix import Matrix as Matrix
    from blocks.samples.samples import Samples as Samples
    from ooc.dynamic.engine import DynamicEngine as DynamicEngine
    from ooc.dynamic.program import DynamicProgram as DynamicProgram
    from ooc.engine import StaticEngine as StaticEngine
    from ooc.plan.memory_plan import make_plan as make_plan
    from ooc.program import (
        Job as Job,
    )
    from ooc.program import (
        LocalState as LocalState,
    )
    from ooc.program import (
        Phase as Phase,
    )
    from ooc.program import (
        StaticProgram as StaticProgram,
    )
    from ooc.program_fields import Field as Field
    from ooc.runs.new_run import create_run as create_run
    from ooc.runs.run import Run as Run
    from ooc.stochastic.engine import StochasticEngine as StochasticEngine
    from ooc.stochastic.program import Local as Local
    from ooc.stochastic.program import StochasticProgram as StochasticProgram
    from ooc.stochastic.variable_arrays import Shared as Shared
    from ooc.training import train as train
    from ooc.workers.shared_arrays import ArraySpec as ArraySpec
    from ooc.workers.worker import ProgramSpec as ProgramSpec
    from samplers.custom_program import ProgramRun as ProgramRun
    from samplers.custom_program import fit as fit
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
    "ArraySpec": "ooc.workers.shared_arrays",
    "Dataset": "blocks.corpus.dataset",
    "Design": "blocks.design.design",
    "DynamicEngine": "ooc.dynamic.engine",
    "DynamicProgram": "ooc.dynamic.program",
    "ElasticNet": "samplers.estimators.lasso",
    "ElasticNetCV": "samplers.estimators.cross_validation",
    "Field": "ooc.program_fields",
    "Job": "ooc.program",
    "Lasso": "samplers.estimators.lasso",
    "LassoCV": "samplers.estimators.cross_validation",
    "LatentDirichletAllocation": "samplers.estimators.lda",
    "Local": "ooc.stochastic.program",
    "LocalState": "ooc.program",
    "LogisticRegression": "samplers.estimators.logistic",
    "LogisticRegressionCV": "samplers.estimators.cross_validation",
    "Matrix": "blocks.ratings.matrix",
    "MatrixFactorization": "samplers.estimators.factorization",
    "Phase": "ooc.program",
    "PoissonRegressor": "samplers.estimators.poisson",
    "PoissonRegressorCV": "samplers.estimators.poisson",
    "ProgramRun": "samplers.custom_program",
    "ProgramSpec": "ooc.workers.worker",
    "Run": "ooc.runs.run",
    "Samples": "blocks.samples.samples",
    "Shared": "ooc.stochastic.variable_arrays",
    "SoftmaxRegression": "samplers.estimators.softmax",
    "StaticEngine": "ooc.engine",
    "StaticProgram": "ooc.program",
    "StochasticEngine": "ooc.stochastic.engine",
    "StochasticProgram": "ooc.stochastic.program",
    "create_run": "ooc.runs.new_run",
    "fit": "samplers.custom_program",
    "make_plan": "ooc.plan.memory_plan",
    "train": "ooc.training",
}
__all__ = list(_MODULES)
__getattr__, __dir__ = lazy_names(__name__, _MODULES)
