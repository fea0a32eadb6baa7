"""Train or resume a run in a separate process, for tests that kill it.

Arguments: run, workers, buffers (0: all in memory), whether slices lie in a file (0 or 1), seconds between commits, and
the program of the run if it is not one of ooc.
"""

from __future__ import annotations

import sys
from pathlib import Path

from corpora import plan

from blocks.errors import OocError
from ooc import training, training_loop
from ooc.runs.run import Run

if __name__ == "__main__":
    path, workers, buffers, mapped, checkpoint_s, *program = sys.argv[1:]
    training_loop.CHECKPOINT_S, training_loop.CHECKPOINT_SHARE = float(checkpoint_s), 1.0
    try:
        training.train(Run(Path(path), *program), plan(int(workers), int(buffers), mapped=mapped == "1"), quiet=True)
    except OocError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
