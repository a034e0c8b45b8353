"""Tasks: one short file each, with what is learned and its loss. And what each can be told."""

from dataclasses import dataclass
from typing import ClassVar

from gcnmpi.core.settings import key
from partition.graph.manifest import Manifest
from partition.registry import Registry


@dataclass(frozen=True, kw_only=True)
class ClassOptions:
    """Of tasks that tell classes or labels."""

    section: ClassVar[str] = "task"
    class_weights: str = key(
        "none",
        "weight of each class in the loss (labels: of each label where it is 1): none, balanced, "
        "or a number each",
        joined=",",
        example="1,2.5,1",
    )
    label_smoothing: float = key(
        0.0, "share of a label that is spread evenly over all classes", low=0, below=1, example=0.1
    )


@dataclass(frozen=True, kw_only=True)
class RegressionOptions:
    """Of regression."""

    section: ClassVar[str] = "task"
    loss: str = key(
        "squared", "regression: what is minimised", choices=("squared", "absolute", "huber")
    )
    huber_delta: float = key(
        1.0,
        "regression, huber: error from which on the loss grows linearly",
        positive=True,
        needs=("task.loss", "huber"),
    )


TASKS = Registry(
    "task",
    {
        "classes": "gcnmpi.nn.tasks.classes:TASK",
        "labels": "gcnmpi.nn.tasks.labels:TASK",
        "regression": "gcnmpi.nn.tasks.regression:TASK",
    },
    options={
        "classes": (ClassOptions,),
        "labels": (ClassOptions,),
        "regression": (RegressionOptions,),
    },
)


def outputs(task: str, manifest: Manifest) -> int:
    """Columns of the network's output for a task on a graph; 0 where the graph lacks its labels."""
    if task == "classes":
        return manifest.classes
    # A class is one of several labels.
    return manifest.targets or (manifest.classes if task == "labels" else 0)
