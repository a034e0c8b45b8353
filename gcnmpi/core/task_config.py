"""The section ``[task]`` of the configuration: what is learned, and how it is judged."""

from __future__ import annotations

from dataclasses import dataclass

from gcnmpi.core.settings import key
from gcnmpi.nn.metrics import METRICS, METRICS_OF
from gcnmpi.nn.tasks import TASKS, ClassOptions, RegressionOptions
from partition.errors import UserError


@dataclass(frozen=True)
class TaskConfig(ClassOptions, RegressionOptions):
    """``[task]``: what is learned. What only some tasks have, those own."""

    name: str = key(
        "classes",
        "what is learned: one label a vertex, several labels, or numbers",
        choices=TASKS,
    )
    metric: str = key(
        "auto",
        "metric that chooses the best weights; auto: accuracy, roc_auc or rmse, by the task",
        choices=METRICS,
        also=("auto",),
    )
    metrics: tuple[str, ...] = key(
        (), "further metrics to evaluate", choices=METRICS, example=("f1_macro",)
    )


def chosen_metrics(task: TaskConfig) -> tuple[str, ...]:
    """The metrics that are evaluated; the first one chooses the best weights."""
    first = METRICS_OF[task.name][0] if task.metric == "auto" else task.metric
    return tuple(dict.fromkeys((first, *task.metrics)))


def class_weights(task: TaskConfig) -> tuple[float, ...] | None:
    """The weights that were given, one a class; None where none are.

    Raises
    ------
    UserError
        If they are neither a word that is known nor numbers.
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
    class_weights(task)
    for metric in chosen_metrics(task):
        if metric not in METRICS_OF[task.name]:
            raise UserError(
                f"{metric} is no metric of task.name = {task.name}",
                f"it has {', '.join(METRICS_OF[task.name])}",
            )
