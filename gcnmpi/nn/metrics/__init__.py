"""Metrics of predictions, exact over all ranks: one function each, and which task has which.

A metric is ``metric(comm, scored)``: a number, the same on all ranks, or None where it is not
defined. Their meaning is that of scikit-learn; what is unknown is left out, and a mean over columns
is one over those where the metric is defined.
"""

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
LOWER_IS_BETTER = ("mae", "rmse")


def is_better(metric: str, value: float | None, than: float | None) -> bool:
    """Whether a value of a metric is better than another one; than none, any is."""
    if value is None or than is None:
        return value is not None
    return value < than if metric in LOWER_IS_BETTER else value > than
