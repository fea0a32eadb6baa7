"""Pass slices of a model and partial sums around a ring of machines. Public names: `run` and `Ring`."""

from typing import TYPE_CHECKING

from blocks.lazy_names import lazy_names

if TYPE_CHECKING:
    from ooc.launch.run_as_rank import run as run
    from ooc.ring.ring import Ring as Ring

_MODULES = {"Ring": "ooc.ring.ring", "run": "ooc.launch.run_as_rank"}
__all__ = list(_MODULES)
__getattr__, __dir__ = lazy_names(__name__, _MODULES)
