"""How runs differ: keys, metrics, pairs; and groups of runs that differ by chance only."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path

from gcnmpi.options.config import keys
from gcnmpi.options.task import FILTERED, LINKS, hits_of
from gcnmpi.run.checkpoint import flat
from gcnmpi.run.record import RECORD, Start
from partition.errors import shown

PAIRS = "task.pairs"
_CHANCE = ("train.seed", "train.split", PAIRS)
# Of the start of a record, beside the configuration; shown under these names, not under their keys.
FACTS = ("graph", "partition", "ranks", "scheme", "kernel", "dtype", "metric")
_SHOWN = ("scheme.name", "kernel", "dtype")


def _settings(start: Start) -> dict[str, object]:
    """Every key of a run's configuration; those that its version did not have are the defaults."""
    usual = {name: json.loads(json.dumps(key.default)) for name, key in keys().items()}
    return usual | dict(flat(start.config))


def fact(start: Start, name: str) -> object:
    """One of FACTS; None where the record does not say it."""
    return start.config.get("dtype") if name == "dtype" else getattr(start, name)


def as_text(value: object) -> str:
    """The value of a key as ``--set`` takes it."""
    return value if isinstance(value, str) else json.dumps(value)


def different_facts(starts: Sequence[Start]) -> list[str]:
    """The names of FACTS that are not the same for all runs."""
    return [name for name in FACTS if len({str(fact(start, name)) for start in starts}) > 1]


def different_keys(starts: Sequence[Start], chance: bool = True) -> dict[str, list[object]]:
    """The keys that are not the same for all runs, and the value of each run.

    Seed and split are left out without ``chance``: groups of runs have several of each; so are
    names of pairs that were made in the same way.
    """
    every = [_settings(start) for start in starts]
    names: Sequence[str] = list(dict.fromkeys(name for one in every for name in one))
    hidden = list(_SHOWN if chance else (*_SHOWN, *_CHANCE))
    if not chance and len({as_text(_kind_of_pairs(start)) for start in starts}) > 1:
        hidden.remove(PAIRS)
    names = sorted((name for name in names if name not in hidden), key=lambda n: n in _CHANCE)
    columns = {name: [one.get(name) for one in every] for name in names}
    return {name: of for name, of in columns.items() if len(set(map(as_text, of))) > 1}


def groups(starts: Sequence[Start]) -> list[list[int]]:
    """The places of runs of one graph that differ in seed and split only, in order.

    Pairs that were made in the same way, as many of them, are splits, too.
    """
    found: dict[str, list[int]] = {}
    for place, start in enumerate(starts):
        same = {name: value for name, value in _settings(start).items() if name not in _CHANCE}
        here = [start.graph_id, start.data_id, start.direction]
        facts = [_kind_of_pairs(start), *(fact(start, name) for name in FACTS)]
        found.setdefault(json.dumps([same, here, facts], sort_keys=True), []).append(place)
    return list(found.values())


def further_metrics(start: Start) -> list[str]:
    """The metrics of a run beside the one that chose its best weights."""
    names = dict.fromkeys(start.section("task").get("metrics", []))
    return [name for name in names if name != start.metric]


def all_further(starts: Sequence[Start]) -> list[str]:
    """The metrics that any of some runs has beside the one that chose its best weights."""
    return list(dict.fromkeys(metric for start in starts for metric in further_metrics(start)))


def _kind_of_pairs(start: Start) -> object:
    """All that a record says of its pairs but their name; None of another task."""
    if start.pairs is None:  # records of earlier versions
        return start.pairs_id
    return {name: value for name, value in start.pairs.items() if name != "name"}


def spread(values: Sequence[float | None]) -> tuple[float | None, float | None]:
    """Mean and standard deviation of a sample, divided by one less than their number.

    >>> spread([1.0, 3.0]), spread([2.0]), spread([2.0, None])
    ((2.0, 1.4142135623730951), (2.0, None), (None, None))
    """
    known = [value for value in values if value is not None]
    if not known or len(known) < len(values):
        return None, None
    return statistics.fmean(known), statistics.stdev(known) if len(known) > 1 else None


def short_names(runs: Sequence[Path]) -> list[str]:
    """The folders' own names, or where those do not tell the runs apart what follows the first
    folder that all are in.
    """
    folders = [run.parent if run.name == RECORD else run for run in runs]
    names = [folder.name for folder in folders]
    if len(set(names)) == len(names) and all(names):
        return names
    parts = [folder.resolve().parts for folder in folders]
    common = 0
    while all(len(one) > common + 1 and one[common] == parts[0][common] for one in parts):
        common += 1
    return [str(Path(*one[common:])) for one in parts]


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
