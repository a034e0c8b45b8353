"""Link prediction in reports: the pairs that runs learn and are judged by, and its metrics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gcnmpi.options.task import FILTERED, LINKS, hits_of
from gcnmpi.run.record import Start
from partition.errors import shown

NAMES = 3  # sets of pairs that are named
_LABELS = {
    "auc": "AUC", "ap": "average precision", "mrr": "MRR", "rmse": "RMSE", "mae": "MAE", "r2": "R²",
}  # fmt: skip


def label_of(metric: str) -> str:
    """A metric as people write it.

    >>> [label_of(metric) for metric in ("mrr", "hits@20", "roc_auc")]
    ['MRR', 'Hits@20', 'roc auc']
    """
    if hits_of(metric):
        return metric.capitalize()
    return _LABELS.get(metric, metric.replace("_", " "))


def heading_of(metric: str) -> str:
    """A metric as a title begins with it."""
    label = label_of(metric)
    return label[:1].upper() + label[1:]


def learns_pairs(start: Start) -> bool:
    """Whether a run is one of link prediction."""
    return start.section("task").get("name") == LINKS


def how_scored(start: Start) -> str:
    """The decoder of a run of link prediction, what it minimises, and its negatives."""
    task = start.section("task")
    hidden = task.get("decoder_hidden")
    layers = f" with hidden layers {hidden}" if hidden else ""
    share = task.get("supervise", 1)
    masked = f", {share} of the pairs in a step" if share != 1 else ""
    ranked = ", ranked among all but known pairs" if task.get("ranked") == FILTERED else ""
    words = (shown(str(task.get(key))) for key in ("decoder", "objective", "negatives"))
    decoder, objective, negatives = words
    return (
        f"decoder {decoder}{layers}, objective {objective}, negatives {negatives}{masked}{ranked}"
    )


def counts_of(start: Start) -> str:
    """How many pairs a run of link prediction has; empty where its record does not say it.

    >>> pairs = {"train": 85, "val": 5, "test": 10, "negatives": {"val": 5, "test": 10}}
    >>> counts_of(Start(pairs=pairs | {"candidates": {"val": 100, "test": 100}}))
    '85 to train on, 5 (5 negatives, 100 candidates each) to validate on, 10 (10 negatives, 100 candidates each) to test on'
    """  # noqa: E501
    pairs = start.pairs
    if pairs is None:
        return ""
    told = []
    for mask, what in (("train", "train"), ("val", "validate"), ("test", "test")):
        among = [
            f"{_count(pairs, kind, mask)} {kind}{each}"
            for kind, each in (("negatives", ""), ("candidates", " each"))
            if _count(pairs, kind, mask) != "0"
        ]
        beside = f" ({', '.join(among)})" if among else ""
        told.append(f"{_number(pairs.get(mask))}{beside} to {what} on")
    return ", ".join(told)


def told_pairs(starts: Sequence[Start]) -> list[str]:
    """A sentence for the pairs of runs; one for all sets of as many pairs."""
    found: dict[tuple[str, str], dict[str, None]] = {}
    for start in filter(learns_pairs, starts):
        name = shown(str(start.section("task").get("pairs")))
        found.setdefault((counts_of(start), how_scored(start)), {})[name] = None
    return [
        f"links: pairs {_few(list(names))}" + (f": {counts}" if counts else "") + f"; {how}"
        for (counts, how), names in found.items()
    ]


def _few(names: Sequence[str]) -> str:
    more = f" and {len(names) - NAMES} others" if len(names) > NAMES else ""
    return ", ".join(names[:NAMES]) + more


def _count(pairs: Mapping[str, object], kind: str, mask: str) -> str:
    of = pairs.get(kind)
    return _number(of.get(mask, 0) if isinstance(of, Mapping) else 0)


def _number(count: object) -> str:
    return f"{count:,}" if isinstance(count, int) else shown(str(count))
