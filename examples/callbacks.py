"""Send the metrics of each iteration to MLflow, TensorBoard, or Weights & Biases: one callback for each.

python callbacks.py mlflow|tensorboard|wandb; without an argument they are printed
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from ooc import LatentDirichletAllocation


def numbers(line: dict[str, Any]) -> dict[str, float]:
    """The values of a line of the metrics, without its number and its time of day."""
    return {name: value for name, value in line.items() if name not in ("iteration", "time")}


def mlflow_callback() -> Callable[[dict[str, Any]], None]:
    """Log to the active run of MLflow, or to a new one. Needs `pip install mlflow-skinny`, or mlflow."""
    import mlflow

    return lambda line: mlflow.log_metrics(numbers(line), step=line["iteration"])


def tensorboard_callback(directory: str = "tensorboard") -> Callable[[dict[str, Any]], None]:
    """Write scalars that `tensorboard --logdir DIRECTORY` shows. Needs `pip install tensorboardX`."""
    from tensorboardX import SummaryWriter

    writer = SummaryWriter(directory)

    def log(line: dict[str, Any]) -> None:
        for name, value in numbers(line).items():
            writer.add_scalar(name, value, line["iteration"])
        writer.flush()

    return log


def wandb_callback() -> Callable[[dict[str, Any]], None]:
    """Log to a run of Weights & Biases; with WANDB_MODE=offline to a directory. Needs `pip install wandb`."""
    import wandb

    run = wandb.init(project="ooc")
    return lambda line: run.log(numbers(line), step=line["iteration"])


CALLBACKS = {"mlflow": mlflow_callback, "tensorboard": tensorboard_callback, "wandb": wandb_callback}

if __name__ == "__main__":
    tokens = [["cat", "dog", "cat"], ["stock", "market", "stock"]] * 50
    callback = CALLBACKS[sys.argv[1]]() if sys.argv[1:] else print
    LatentDirichletAllocation(2, callbacks=callback, max_iter=10, evaluate_every=5, random_state=0).fit(tokens)
