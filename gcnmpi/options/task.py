"""The section ``[task]``: what is learned, how it is judged, and what each task can be told."""

from __future__ import annotations

from gcnmpi.options.model import ModelConfig
from gcnmpi.options.settings import key, options_of
from partition.errors import UserError
from partition.graph.examples import ARCS, VERTICES
from partition.graph.manifest import Manifest
from partition.registry import Registry

METRICS = Registry(
    "metric",
    {
        "accuracy": "gcnmpi.nn.metrics.counts:accuracy",
        "f1_micro": "gcnmpi.nn.metrics.counts:f1_micro",
        "f1_macro": "gcnmpi.nn.metrics.counts:f1_macro",
        "roc_auc": "gcnmpi.nn.metrics.ranking:roc_auc",
        "average_precision": "gcnmpi.nn.metrics.ranking:average_precision",
        "mae": "gcnmpi.nn.metrics.errors:mae",
        "rmse": "gcnmpi.nn.metrics.errors:rmse",
        "r2": "gcnmpi.nn.metrics.errors:r2",
    },
)

_OF_LABELS = ("f1_micro", "f1_macro", "roc_auc", "average_precision")
# The metrics of each task; the first one is taken where none is named.
METRICS_OF = {
    "classes": ("accuracy", *_OF_LABELS),
    "labels": ("roc_auc", "average_precision", "f1_micro", "f1_macro", "accuracy"),
    "regression": ("rmse", "mae", "r2"),
}
LOWER_IS_BETTER = ("mae", "rmse", "loss")  # losses are those that modules of PyTorch log


def is_better(metric: str, value: float | None, than: float | None) -> bool:
    """Whether a value of a metric is better than another one; than none, any is."""
    if value is None or than is None:
        return value is not None
    return value < than if metric in LOWER_IS_BETTER else value > than


TASKS = Registry(
    "task",
    {
        "classes": "gcnmpi.nn.tasks.classes:TASK",
        "labels": "gcnmpi.nn.tasks.labels:TASK",
        "regression": "gcnmpi.nn.tasks.regression:TASK",
    },
)


@options_of("task", of_all=True)
class TaskConfig:
    """``[task]``: what is learned. Each task has a class below, which adds its options."""

    name: str = key(
        "classes",
        "what is learned: one label a vertex, several labels, or numbers",
        choices=TASKS,
    )
    on: str = key(VERTICES, "what has the labels: vertices or arcs", choices=(VERTICES, ARCS))
    metric: str = key(
        "auto",
        "metric that chooses the best weights; auto: accuracy, roc_auc or rmse, by the task",
        choices=METRICS,
        also=("auto",),
    )
    metrics: tuple[str, ...] = key(
        (), "further metrics to evaluate", choices=METRICS, example=("f1_macro",)
    )


@options_of("task")
class ClassOptions(TaskConfig):
    """Of tasks that tell classes or labels."""

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


@options_of("task")
class RegressionOptions(TaskConfig):
    """Of regression: which error is minimised."""

    loss: str = key(
        "squared", "regression: what is minimised", choices=("squared", "absolute", "huber")
    )
    huber_delta: float = key(
        1.0,
        "regression, huber: error from which on the loss grows linearly",
        positive=True,
        needs=("task.loss", "huber"),
    )


TASKS.options.update(
    classes=(ClassOptions,),
    labels=(ClassOptions,),
    regression=(RegressionOptions,),
)


def outputs(task: TaskConfig, manifest: Manifest) -> int:
    """Columns of the network's output for a task on a graph; 0 where the graph lacks its labels."""
    classes, targets = manifest.classes, manifest.targets
    if task.on == ARCS:
        classes, targets = manifest.arc_classes, manifest.arc_targets
    if task.name == "classes":
        return classes
    # A class is one of several labels.
    return targets or (classes if task.name == "labels" else 0)


def ends(task: TaskConfig, model: ModelConfig, manifest: Manifest) -> tuple[int, int]:
    """Widths of features and outputs; the least where the graph has none, if nothing needs them."""
    return manifest.features or 1, outputs(task, manifest) or model.fewest_outputs


def chosen_metrics(task: TaskConfig) -> tuple[str, ...]:
    """The metrics that are evaluated; the first one chooses the best weights."""
    first = METRICS_OF[task.name][0] if task.metric == "auto" else task.metric
    return tuple(dict.fromkeys((first, *task.metrics)))


def class_weights(task: ClassOptions) -> tuple[float, ...] | None:
    """The weights that were given, one a class; None where none are.

    A UserError if they are neither a word that is known nor numbers.
    """
    if task.class_weights in ("none", "balanced"):
        return None
    try:
        weights = tuple(float(word) for word in task.class_weights.split(","))
    except ValueError:
        weights = ()
    if not weights or not all(0 <= weight < float("inf") for weight in weights):
        raise UserError(
            f"task.class_weights takes none, balanced, or a number for each class, not "
            f"{task.class_weights!r}",
            "such as 1,2.5,1",
        )
    return weights


def check_task(task: TaskConfig) -> None:
    """A UserError if the values do not go together."""
    if isinstance(task, ClassOptions):
        class_weights(task)
    for metric in chosen_metrics(task):
        if metric not in METRICS_OF[task.name]:
            raise UserError(
                f"{metric} is no metric of task.name = {task.name}",
                f"it has {', '.join(METRICS_OF[task.name])}",
            )
