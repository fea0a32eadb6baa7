"""Programs of the models, by the names that runs store; a name stays the same when its class moves.

A `ProgramSpec` names a program as `samplers.programs:NAME`; users' programs are named by module. The option `on_ring`
means that the dataset is a shard, and that all shards are trained together.
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
    "mf-sgd": "samplers.factorization.gradient_programs:StochasticGradient",
    "mf-bsp": "samplers.factorization.gradient_programs:DataParallelGradient",
    "mf-ccd": "samplers.factorization.programs:CoordinateDescent",
    "mf-als": "samplers.factorization.programs:AlternatingLeastSquares",
    "mf-implicit": "samplers.factorization.programs:ImplicitFeedback",
    "mf-splash": "samplers.factorization.splash:SplashFactorization",
    "regression": "samplers.regression.program:RegressionProgram",
    "softmax": "samplers.regression.softmax.program:SoftmaxProgram",
}
_PLACES_ON_RING = {  # programs that traverse the grid in another order when several machines share it: `on_ring`
    "lda-two-phase": "samplers.lda.ring_programs:RingTwoPhase",
    "lda-gibbs": "samplers.lda.ring_programs:RingGibbs",
    "lda-sparse-gibbs": "samplers.lda.ring_programs:RingSparseGibbs",
    "lda-sparselda": "samplers.lda.ring_programs:RingSparseLda",
    "lda-aliaslda": "samplers.lda.ring_programs:RingAliasLda",
    "lda-lightlda": "samplers.lda.ring_programs:RingLightLda",
    "lda-splash": "samplers.lda.splash:RingSplashLda",
    "mf-sgd": "samplers.factorization.ring_gradient:RingGradient",
    "mf-ccd": "samplers.factorization.ring_columns:RingDescent",
    "mf-als": "samplers.factorization.ring_columns:RingLeastSquares",
    "mf-implicit": "samplers.factorization.ring_columns:RingImplicitFeedback",
    "mf-splash": "samplers.factorization.splash:RingSplashFactorization",
}
_REPLICATED = ("lda-splash", "mf-ccd", "mf-als", "mf-implicit", "mf-splash", "regression", "softmax")
_RING_NAMES = {f"ring-{name}": name for name in _PLACES_ON_RING}  # names that earlier versions used on a ring
_CLASSES = frozenset([*_PLACES.values(), *_PLACES_ON_RING.values()])  # names that still earlier versions used


def target(name: str) -> str:
    """Return the target of a program's name for a `ProgramSpec`."""
    return f"{__name__}:{name}"


TARGETS = frozenset([*map(target, [*_PLACES, *_RING_NAMES]), *_CLASSES])
"""What runs may name without their user's word."""


def current(named: str, options: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return the current target and options, given those of an earlier version."""
    module, _, name = named.partition(":")
    if module == __name__ and name in _RING_NAMES:
        return target(_RING_NAMES[name]), options | {"on_ring": True}
    return named, options


def model_of(named: str) -> str:
    """Return the model of a target: "lda", "mf", "softmax" or "regression"; "" for a user's program."""
    module, _, name = named.partition(":")
    if module != __name__:
        name = next((each for places in (_PLACES, _PLACES_ON_RING) for each, at in places.items() if at == named), "")
    return name.removeprefix("ring-").split("-")[0]


def computes_alike(named: str, options: dict[str, Any]) -> bool:
    """Return whether every rank of a ring computes replicated data itself, so that the results must be equal bit for
    bit.

    named, options: target and options of a `ProgramSpec`.
    """
    named, options = current(named, options)
    if named not in TARGETS:  # a user's program, whose ranks have equal arrays or equal sums
        return True
    places = [places[name] for places in (_PLACES, _PLACES_ON_RING) for name in _REPLICATED if name in places]
    return bool(options.get("optimize_every")) or named in (*map(target, _REPLICATED), *places)


def find(named: str, options: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Return the class of one of TARGETS, and the options with which to build it."""
    named, options = current(named, options)
    module, _, name = named.partition(":")
    if module == __name__:
        place = _PLACES[name]
        if name in _PLACES_ON_RING:
            options = dict(options)
            place = _PLACES_ON_RING[name] if options.pop("on_ring", False) else place
        module, _, name = place.partition(":")
    return getattr(import_module(module), name), options
