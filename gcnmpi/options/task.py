"""The section ``[task]``: what is learned, how it is judged, and what each task can be told."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gcnmpi.core.functions import FUNCTIONS
from gcnmpi.options.settings import Options, key
from partition.errors import UserError
from partition.graph.graph import ARCS, VERTICES
from partition.registry import Registry

SAMPLES = "samples"
"""The task that predicts frames from those before, of many samples on one graph."""

LINKS = "links"
"""The task that tells pairs of vertices that are joined from others."""

FILTERED = "filtered"
"""Positives are ranked among all vertices but known ones."""

HITS = "hits@K"
"""A metric of pairs for every K: hits@100."""


class Metrics(Registry):
    """The metrics, of which hits@K is one for every K."""

    def get(self, name: str) -> Any:
        """The function that gives the metric."""
        return super().get(HITS if hits_of(name) else name)

    def __contains__(self, name: object) -> bool:
        return bool(hits_of(str(name))) or (super().__contains__(name) and name != HITS)


def hits_of(metric: str) -> int:
    """The K of hits@K; 0 of another metric.

    >>> [hits_of(metric) for metric in ("hits@100", "mrr", "hits@0", "hits@K")]
    [100, 0, 0, 0]
    """
    number = metric.removeprefix(HITS[:-1])
    return int(number) if number != metric and number.isdecimal() and len(number) < 10 else 0


METRICS = Metrics(
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
        "auc": "gcnmpi.nn.metrics.pairs:auc",
        "ap": "gcnmpi.nn.metrics.pairs:ap",
        "mrr": "gcnmpi.nn.metrics.pairs:mrr",
        HITS: "gcnmpi.nn.metrics.pairs:hits",
    },
)

METRICS_OF: dict[str, tuple[str, ...]] = {}
"""The metrics of each task; the first one is taken where none is named."""

WIDTH = 64  # of the rows of vertices, where the network has no hidden layers
LOWER_IS_BETTER = ("mae", "rmse", "loss")  # losses are those that modules of PyTorch log


def is_better(metric: str, value: float | None, than: float | None) -> bool:
    """Whether a value of a metric is better than another one; than none, any is."""
    if value is None or than is None:
        return value is not None
    return value < than if metric in LOWER_IS_BETTER else value > than


_TASKS: dict[str, str] = {}
TASKS = Registry("task", _TASKS)

DECODERS = Registry(
    "decoder",
    {
        "dot": "gcnmpi.nn.decoders:dot",
        "hadamard": "gcnmpi.nn.decoders:hadamard",
        "concat": "gcnmpi.nn.decoders:concat",
        "distmult": "gcnmpi.nn.decoders:distmult",
        "transe": "gcnmpi.nn.decoders:transe",
        "complex": "gcnmpi.nn.decoders:complex_",
    },
)
OF_RELATIONS = ("distmult", "transe", "complex")  # decoders that tell relations of pairs apart


class TaskConfig(Options, section="task", of_all=True):
    """``[task]``: what is learned. Each task has a class below, which adds its options.

    Attributes
    ----------
    name
        what is learned, docs/tasks.md: classes (one label a vertex), labels (several), regression
        (numbers), samples (frames) or links (pairs)
    on
        what has the labels: vertices or arcs, docs/tasks.md#tasks-on-arcs
    metric
        metric that chooses the best weights, docs/tasks.md#metrics, docs/links.md#metrics; auto:
        the task's first: accuracy, roc_auc, rmse or auc; hits@K for any K
    metrics
        further metrics to evaluate
    """

    name: str = key("classes", choices=TASKS)
    on: str = key(VERTICES, choices=(VERTICES, ARCS))
    metric: str = key("auto", choices=METRICS, also=("auto",))
    metrics: tuple[str, ...] = key((), choices=METRICS, example=("f1_macro",))


class ClassOptions(TaskConfig):
    """Of tasks that tell classes or labels.

    Attributes
    ----------
    class_weights
        weight of each class in the loss (of labels: where it is 1): none, balanced, or a number for
        each, such as 1,2.5,1
    label_smoothing
        share of a label that is spread evenly over all classes
    """

    class_weights: str = key("none", joined=",", example="1,2.5,1")
    label_smoothing: float = key(0.0, low=0, below=1, example=0.1)


class RegressionOptions(TaskConfig):
    """Of regression: which error is minimised.

    Attributes
    ----------
    loss
        which error is minimised
    huber_delta
        error from which on the loss grows linearly
    """

    loss: str = key("squared", choices=("squared", "absolute", "huber"))
    huber_delta: float = key(1.0, positive=True, needs=("task.loss", "huber"))


class _BatchOptions(TaskConfig):
    """Of tasks whose steps are about some of many examples, each time with all of M.

    Attributes
    ----------
    batch
        pairs of a step, each step with a forward and a backward pass over all of M, 0: all at once;
        or samples of a step, 0: one
    """

    batch: int = key(0, low=0)


class SampleOptions(RegressionOptions, _BatchOptions):
    """Of samples: the frames that a network reads, and those that it predicts.

    Attributes
    ----------
    samples
        name of the set that gcn-partition samples puts into the folder, docs/samples.md
    columns
        columns of a state; 0: those of the set
    targets
        columns of targets of their own; 0: those of the set
    standardize
        numbers are less their mean and over their deviation, of the training steps
    history
        frames that the network reads, the last ones
    horizon
        frames that it predicts at once
    rollout
        how often it is applied to what it predicted; if more than once, task.horizon is 1
    rollout_gradient
        the gradient goes through all applications, or through the last one of each prediction
    difference
        the network gives changes since the last frame
    predicted
        how many columns of a frame, the first ones, are predicted; the others are given for all
        times; 0: all
    """

    samples: str = SAMPLES
    columns: int = key(0, low=0, below=2**24, example=2)
    targets: int = key(0, low=0, below=2**24)
    standardize: bool = True
    history: int = key(1, low=1, below=2**12)
    horizon: int = key(1, low=1, below=2**12)
    rollout: int = key(1, low=1, below=2**12)
    rollout_gradient: str = key("all", choices=("all", "last"))
    difference: bool = False
    predicted: int = key(0, low=0, below=2**24)


class LinkOptions(_BatchOptions):
    """Of links: the pairs, how they are scored, and what they are told from.

    Attributes
    ----------
    pairs
        name of the pairs that gcn-partition pairs makes, docs/tasks.md#pairs-for-link-prediction
    width
        columns of a vertex's row, which the network's last layer gives; 0: as many as the last
        hidden layer
    decoder
        the score of a pair of rows x, y: dot: x·y; hadamard: a perceptron of x ⊙ y; concat: a
        perceptron of [x | y], which tells the first vertex from the second; distmult, transe,
        complex: docs/links.md#triples
    decoder_hidden
        widths of the decoder's hidden layers, of hadamard and concat; []: one linear layer
    decoder_dropout
        dropout on the decoder's hidden layers
    decoder_activation
        activation of the decoder's hidden layers
    decoder_norm
        normalisation of the decoder's hidden layers
    decoder_residual
        add the decoder's input to each hidden layer, which is as wide
    decoder_relations
        relations of pairs that distmult, transe and complex tell apart, docs/links.md#triples; 0:
        those of the pairs, 1: none
    decoder_p
        the distance is the sum of absolute numbers (1) or Euclidean (2)
    objective
        what is minimised: bce: binary cross-entropy, the means over positives and over negatives
        added; softmax: a positive among its negatives; auc: the squared difference of a positive
        and a negative from 1
    negatives
        uniform,K: K drawn pairs for each positive, both ends uniform; corrupt,K: K with a uniform
        vertex in place of either end (drawn vertices are of the type of those whose place they
        take); pool,B: B drawn vertices a step, and the first vertex of each positive (without a
        direction, either one) with each of them; given: train_negatives of the pairs
    filter
        a negative that is a pair to be learned does not count; nor, always, the positive itself
    ranked
        what a positive is ranked among, for mrr and hits@K: given: candidates of the pairs, or the
        negatives in common; filtered: all vertices (of a type) in place of either end, but of known
        pairs, docs/links.md#triples
    supervise
        share of the pairs that a step is about: below 1 their arcs leave M in that step, and
        degrees are those of the rest; an epoch goes through all of them
    """

    pairs: str = LINKS
    width: int = key(0, low=0, below=2**24, example=128)
    decoder: str = key("dot", choices=DECODERS)
    decoder_hidden: tuple[int, ...] = key((), low=1, below=2**24, most=64, example=(128, 128))
    decoder_dropout: float = key(0.0, low=0, below=1, example=0.5)
    decoder_activation: str = key("relu", choices=("relu", "elu", "leaky_relu", *FUNCTIONS, "none"))
    decoder_norm: str = key("none", choices=("none", "layer"))
    decoder_residual: bool = False
    decoder_relations: int = key(0, low=0, below=2**16 + 1, example=1)
    decoder_p: int = key(1, low=1, below=3, needs=("task.decoder", "transe"))
    objective: str = key("bce", choices=("bce", "softmax", "auc"))
    negatives: str = key("uniform,1", joined=",")
    filter: bool = False
    ranked: str = key("given", choices=("given", FILTERED))
    supervise: float = key(1.0, positive=True, example=0.5)


def add_task(name: str, where: str, options: type[TaskConfig], *metrics: str) -> None:
    """Add a task, "module:attribute", with its options and metrics, before keys are asked for."""
    _TASKS[name] = where
    TASKS.options[name], METRICS_OF[name] = (options,), metrics
    vars(TASKS).pop("_owners", None)  # computed without it, if keys were asked for before


_OF_LABELS = ("f1_micro", "f1_macro", "roc_auc", "average_precision")
_OF_NUMBERS = ("rmse", "mae", "r2")
add_task("classes", "gcnmpi.nn.tasks.classes:TASK", ClassOptions, "accuracy", *_OF_LABELS)
add_task(
    "labels", "gcnmpi.nn.tasks.labels:TASK", ClassOptions,
    "roc_auc", "average_precision", "f1_micro", "f1_macro", "accuracy",
)  # fmt: skip
add_task("regression", "gcnmpi.nn.tasks.regression:TASK", RegressionOptions, *_OF_NUMBERS)
add_task(SAMPLES, "gcnmpi.nn.tasks.samples:TASK", SampleOptions, *_OF_NUMBERS)
add_task(LINKS, "gcnmpi.nn.tasks.links:TASK", LinkOptions, "auc", "ap", "mrr", HITS)


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
    if isinstance(task, LinkOptions):
        _check_links(task)
    if isinstance(task, SampleOptions):
        _check_samples(task)
    for metric in chosen_metrics(task):
        if (HITS if hits_of(metric) else metric) not in METRICS_OF[task.name]:
            raise UserError(
                f"{metric} is no metric of task.name = {task.name}",
                f"it has {', '.join(METRICS_OF[task.name])}",
            )


@dataclass(frozen=True)
class Negatives:
    """The pairs that positives are told from, as ``task.negatives`` says.

    ``kind`` is "uniform", "corrupt", "pool" or "given"; ``count`` how many there are for each
    positive, or in the pool; of those given, the pairs say it.
    """

    kind: str
    count: int


def negatives_of(task: LinkOptions) -> Negatives:
    """The negatives of training; a UserError if ``task.negatives`` is not spelled as it should be.

    >>> negatives_of(LinkOptions(name="links", negatives="uniform,3"))
    Negatives(kind='uniform', count=3)
    """
    kind, *numbers = task.negatives.split(",")
    if kind == "given" and not numbers:
        return Negatives(kind, 0)
    count = int(numbers[0]) if len(numbers) == 1 and numbers[0].isdecimal() else 0
    if kind not in ("uniform", "corrupt", "pool") or not 0 < count < 2**24:
        raise UserError(
            f"task.negatives takes uniform,K, corrupt,K, pool,B or given, not {task.negatives!r}",
            "such as uniform,1 or pool,1024",
        )
    return Negatives(kind, count)


def samples_of_step(task: SampleOptions) -> int:
    """The samples of a step, on all groups of ranks."""
    return task.batch or 1


def tells_relations(task: TaskConfig) -> bool:
    """Whether the score of a pair depends on its relation."""
    return (
        isinstance(task, LinkOptions)
        and task.decoder in OF_RELATIONS
        and task.decoder_relations > 1
    )


def _ranks_all(task: TaskConfig) -> bool:
    """Whether positives are ranked among all vertices but known ones."""
    return isinstance(task, LinkOptions) and task.ranked == FILTERED


def _check_samples(task: SampleOptions) -> None:
    if task.on != VERTICES:
        raise UserError("task.on: frames have rows of vertices", "leave task.on out")
    if task.rollout > 1 and task.horizon > 1:
        raise UserError(
            "task.rollout: a network that is applied to its own results predicts one frame at once",
            "leave task.horizon or task.rollout out",
        )
    if task.rollout == 1 and task.rollout_gradient != "all":
        raise UserError("task.rollout_gradient: the network is applied once", "set task.rollout")
    if task.targets and (task.horizon > 1 or task.rollout > 1 or task.difference or task.predicted):
        raise UserError(
            "task.targets: targets of their own are predicted once, from the frames until theirs",
            "leave task.horizon, rollout, difference and predicted out",
        )


def _check_links(task: LinkOptions) -> None:
    negatives_of(task)
    if task.on != VERTICES:
        raise UserError("task.on: pairs are scored by rows of vertices", "leave task.on out")
    if task.supervise > 1:
        raise UserError(f"task.supervise is at most 1, not {task.supervise:g}")
    if task.supervise < 1 and task.batch:
        raise UserError(
            "task.batch and task.supervise both say how many pairs a step is about",
            "leave one of them out",
        )
