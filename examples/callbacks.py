"""Log the metrics of each iteration to MLflow, TensorBoard, or Weights & Biases: one callback for each of them.

python callbacks.py mlflow|tensorboard|wandb; without an argument, the metrics are printed
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from ooc import LatentDirichletAllocation


def numbers(line: dict[str, Any]) -> dict[str, float]:
    """Return the numbers in one line of metrics, without the iteration and the time of day."""
    return {name: value for name, value in line.items() if name not in ("iteration", "time")}


def mlflow_callback() -> Callable[[dict[str, Any]], None]:
    """Log to the active run of MLflow, or to a new run if none is active. Needs `pip install mlflow-skinny`, or
    mlflow.
    """
    import mlflow

    return lambda line: mlflow.log_metrics(numbers(line), step=line["iteration"])


def tensorboard_callback(directory: str = "tensorboard") -> Callable[[dict[str, Any]], None]:
    """Write scalars to a directory; `tensorboard --logdir DIRECTORY` shows them. Needs `pip install tensorboardX`."""
    from tensorboardX import SummaryWriter

    writer = SummaryWriter(directory)

    def log(line: dict[str, Any]) -> None:
        for name, value in numbers(line).items():
            writer.add_scalar(name, value, line["iteration"])
        writer.flush()

    return log


def wandb_callback() -> Callable[[dict[str, Any]], None]:
    """Log to a run of Weights & Biases, or to a local directory if WANDB_MODE=offline. Needs `pip install wandb`."""
    import wandb

    run = wandb.init(project="ooc")
    return lambda line: run.log(numbers(line), step=line["iteration"])


CALLBACKS = {"mlflow": mlflow_callback, "tensorboard": tensorboard_callback, "wandb": wandb_callback}

if __name__ == "__main__":
    tokens = [["cat", "dog", "cat"], ["stock", "market", "stock"]] * 50
    callback = CALLBACKS[sys.argv[1]]() if sys.argv[1:] else print
    LatentDirichletAllocation(2, callbacks=callback, max_iter=10, evaluate_every=5, random_state=0).fit(tokens)
