"""The models' programs, by the names that runs remember them by: a name stays when its class moves.

What `ooc.worker.ProgramSpec` names `samplers.programs:NAME` is one of these; programs of users go by their module.
"""

from importlib import import_module
from typing import Any

_PLACES = {
    "lda-two-phase": "samplers.lda.programs:TwoPhase",
    "lda-gibbs": "samplers.lda.programs:Gibbs",
    "lda-sparse-gibbs": "samplers.lda.programs:SparseGibbs",
    "lda-sparselda": "samplers.lda.programs:SparseLda",
    "lda-aliaslda": "samplers.lda.programs:AliasLda",
    "lda-lightlda": "samplers.lda.programs:LightLda",
    "lda-splash": "samplers.lda.splash:SplashLda",
    "ring-lda-two-phase": "samplers.lda.ring_programs:RingTwoPhase",
    "ring-lda-gibbs": "samplers.lda.ring_programs:RingGibbs",
    "ring-lda-sparse-gibbs": "samplers.lda.ring_programs:RingSparseGibbs",
    "ring-lda-sparselda": "samplers.lda.ring_programs:RingSparseLda",
    "ring-lda-aliaslda": "samplers.lda.ring_programs:RingAliasLda",
    "ring-lda-lightlda": "samplers.lda.ring_programs:RingLightLda",
    "ring-lda-splash": "samplers.lda.splash:RingSplash",
    "mf-sgd": "samplers.factorization.gradient_programs:StochasticGradient",
    "mf-bsp": "samplers.factorization.gradient_programs:DataParallelGradient",
    "mf-ccd": "samplers.factorization.programs:CoordinateDescent",
    "mf-als": "samplers.factorization.programs:AlternatingLeastSquares",
    "mf-implicit": "samplers.factorization.programs:ImplicitFeedback",
    "mf-splash": "samplers.factorization.splash:SplashFactorization",
    "ring-mf-sgd": "samplers.factorization.ring_gradient:RingGradient",
    "ring-mf-ccd": "samplers.factorization.ring_columns:RingDescent",
    "ring-mf-als": "samplers.factorization.ring_columns:RingLeastSquares",
    "ring-mf-implicit": "samplers.factorization.ring_columns:RingImplicitFeedback",
    "ring-mf-splash": "samplers.factorization.splash:RingSplash",
    "regression": "samplers.regression.program:RegressionProgram",
    "softmax": "samplers.regression.softmax:Softmax",
}


TARGETS = frozenset([*(f"{__name__}:{name}" for name in _PLACES), *_PLACES.values()])
"""What runs may name without their user's word; the classes are what older runs named."""


def target(name: str) -> str:
    """What a `ProgramSpec` of the program so named has."""
    return f"{__name__}:{name}"


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no program {name!r}")
    module, _, of_class = _PLACES[name].partition(":")
    return getattr(import_module(module), of_class)
