"""How runs differ: the keys that do; and runs that differ by chance only, with their means."""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence
from pathlib import Path

from gcnmpi.options.config import keys
from gcnmpi.run.checkpoint import flat
from gcnmpi.run.record import RECORD, Start

PAIRS = "task.pairs"
CHANCE = ("train.seed", "train.split", PAIRS)
# Of the start of a record, beside the configuration; shown under these names, not under their keys.
FACTS = ("graph", "partition", "ranks", "scheme", "kernel", "dtype", "metric")
_SHOWN = ("scheme.name", "kernel", "dtype")


def settings(start: Start) -> dict[str, object]:
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
    every = [settings(start) for start in starts]
    names: Sequence[str] = list(dict.fromkeys(name for one in every for name in one))
    hidden = list(_SHOWN if chance else (*_SHOWN, *CHANCE))
    if not chance and len({as_text(_kind_of_pairs(start)) for start in starts}) > 1:
        hidden.remove(PAIRS)
    names = sorted((name for name in names if name not in hidden), key=lambda n: n in CHANCE)
    columns = {name: [one.get(name) for one in every] for name in names}
    return {name: of for name, of in columns.items() if len(set(map(as_text, of))) > 1}


def groups(starts: Sequence[Start]) -> list[list[int]]:
    """The places of runs of one graph that differ in seed and split only, in order.

    Pairs that were made in the same way, as many of them, are splits, too.
    """
    found: dict[str, list[int]] = {}
    for place, start in enumerate(starts):
        same = {name: value for name, value in settings(start).items() if name not in CHANCE}
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
