"""Partitions of a graph beside each other: rows, pages, mini-batches, whole studies."""

import contextlib
import csv
import math
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from partition.backends.catalogue import AUTO
from partition.charts.figures import COLUMNS, Bars, Figure, Lines, Points, Series, look
from partition.charts.numbers import number
from partition.charts.page import Fact, Section, Table, write_page
from partition.errors import UserError, shown
from partition.graph import metrics, sampling, store
from partition.graph.graph import training_rows
from partition.graph.metrics import Metrics, measure
from partition.pipeline import adding, balance, portfolio
from partition.records import atomic_file
from partition.refinement.objective import Objective

_BASELINE = "rp"
_LISTED = 33  # curves that are told apart: three kinds of dashes
_SHOWN_K = 12  # numbers of parts with figures of their own
# Sums and maxima over the number of parts: key of a row → file, title, axis, what is best.
_SWEEPS = {
    "volume": ("volume", "Volume", "rows sent in one exchange", "least volume"),
    "max_send": (
        "max-send", "Busiest part", "rows sent by the busiest part", "least busiest part"
    ),
    "messages": ("messages", "Messages", "messages in one exchange", "fewest messages"),
    "imbalance": ("imbalance", "Imbalance", "imbalance of work", "least imbalance"),
}  # fmt: skip
# The columns of table 2 of Demirci et al. (2022), as keys of a summary.
_TABLE = {
    "volume_avg": "volume avg",
    "max_send": "volume max",
    "messages_avg": "messages avg",
    "max_send_messages": "messages max",
}
# Of the batches of a simulation.
_FIGURES = ("volume", "max_send", "max_recv", "messages", "max_send_messages")
_ITEMSIZE = 4  # bytes of a number of the features, in a run in float32
_QUANTILES = {"min": 0.0, "q05": 0.05, "median": 0.5, "q95": 0.95, "max": 1.0}
_RATIOS = ("volume", "max_send")
_Rows = Sequence[Mapping[str, Any]]
_Ratios = Mapping[str, float | None]


def compare(
    path: str | os.PathLike[str], names: Iterable[str] = (), direction: str | None = None
) -> list[dict[str, Any]]:
    """The figures of partitions of one graph, beside those of random rows with as many parts.

    All partitions there are, if none is named; the direction is by default the graph's own.

    Returns
    -------
    list of dict
        One per partition, by k and then by volume: ``name``, ``model``, ``tool``, ``k``,
        ``direction``, ``seconds``, the figures of :meth:`partition.graph.metrics.Metrics.summary`;
        ``relative``: each of these over that of the ``baseline`` (None over 0), which is the
        first stored partition of model rp with that k, or one made on the fly with seed 0;
        ``mixed``: the same figures of the mixed exchange, None where they are not known, and
        ``mixed_relative``: these over those of an exchange of random rows, as rows;
        ``nodes``: the figures of :meth:`partition.graph.metrics.NodeTraffic.summary`, or None.
    """
    stored = store.open_graph(path)
    direction = stored.direction(direction)
    existing = {
        name: store.read_partition(path, name, parts=False) for name in store.list_partitions(path)
    }
    named = [each for name in names for each in store.members(path, name)]
    wanted = [existing.get(name) or store.read_partition(path, name) for name in named]
    wanted = wanted or [*existing.values()]
    baselines: dict[int, tuple[str, dict[str, float]]] = {}
    for partition in existing.values():
        if partition.model == _BASELINE and partition.tool == "random":
            summary = _summary(partition, partition.metrics, direction)
            baselines.setdefault(partition.k, (partition.name, summary))
    for k in {partition.k for partition in wanted} - baselines.keys():
        parts = adding.make_parts(stored.merged, _BASELINE, k)
        summary = measure(stored.merged, parts, k, direction).summary()
        baselines[k] = "rp, seed 0, computed", summary

    rows = []
    for partition in wanted:
        label, yardstick = baselines[partition.k]
        summary = _summary(partition, partition.metrics, direction)
        mixed = _summary(partition, partition.mixed, direction) if partition.mixed else None
        traffic = partition.nodes.get(direction)
        facts = {key: getattr(partition, key) for key in ("name", "model", "tool", "k", "seconds")}
        rows.append(facts | {"direction": direction} | summary | {
            "mixed": mixed, "mixed_relative": _relative(mixed or {}, yardstick),
            "nodes": None if traffic is None else traffic.summary(),
            "baseline": label, "relative": _relative(summary, yardstick),
        })  # fmt: skip
    return sorted(rows, key=lambda row: (row["k"], row["volume"], row["name"]))


def _summary(
    partition: store.Partition, figures: Mapping[str, Metrics], direction: str
) -> dict[str, float]:
    if direction not in figures:
        raise UserError(f"partition {partition.name!r} was stored without metrics")
    return figures[direction].summary()


def _relative(summary: Mapping[str, float], yardstick: Mapping[str, float]) -> _Ratios:
    return {key: _ratio(value, yardstick.get(key)) for key, value in summary.items()}


def _ratio(above: float | None, below: float | None) -> float | None:
    return above / below if above is not None and below else None


def geometric_mean(values: Iterable[float | None]) -> float | None:
    """Of the values there are; 0 if one is; None if there are none."""
    known = [value for value in values if value is not None]
    if not known or min(known) <= 0:
        return 0.0 if known else None
    return math.exp(sum(map(math.log, known)) / len(known))


@dataclass(frozen=True)
class StudyRecipe:
    """How a partition of a study is made: a model, its options, and whether it is refined.

    Labels are such as ``gp``, ``gp:objective=vol+refined``, ``auto``.
    """

    label: str
    model: str
    options: Mapping[str, Any] = field(default_factory=dict)
    refined: bool = False


def parse_recipe(text: str) -> StudyRecipe:
    """A recipe from ``MODEL[:OPTION=VALUE,…][+refined]``; names are checked when it is made."""
    body = text.removesuffix(adding.REFINED)
    model, colon, rest = body.partition(":")
    pairs = [pair.partition("=") for pair in rest.split(",")] if colon else []
    if not model.isalnum() or any(not key.isidentifier() or not value for key, _, value in pairs):
        form = f"MODEL, MODEL:OPTION=VALUE,…, with or without {adding.REFINED}"
        raise UserError(f"{text!r} is not a recipe", form)
    options = {key: value for key, _, value in pairs}
    if len(options) < len(pairs):
        raise UserError(f"{text!r} is not a recipe: an option is given twice")
    return StudyRecipe(text, model, options, body != text)


def study(
    graphs: Iterable[str | os.PathLike[str]],
    recipes: Sequence[StudyRecipe],
    ks: Sequence[int],
    *,
    direction: str | None = None,
    imbalance: float = 0.01,
    seed: int = 0,
    report: Callable[[str], None] = lambda line: None,
) -> list[dict[str, Any]]:
    """Partition every graph by every recipe into every number of parts, and compare.

    Partitions are stored in the graph folders and taken from there when they are there already,
    so a study that was interrupted goes on where it stopped. Random rows are always among them.
    The direction is by default each graph's own; ``report`` is told what is being done. A stored
    partition that was made with another seed or imbalance is refused.

    Returns
    -------
    list of dict
        The rows of :func:`compare` with ``graph`` and ``label``, by graph, k and recipe.
    """
    if _BASELINE not in [recipe.label for recipe in recipes]:
        recipes = [StudyRecipe(_BASELINE, _BASELINE), *recipes]
    asked = {"imbalance": imbalance, "seed": seed}
    rows = []
    for path in graphs:
        stored = store.open_graph(path)
        towards = stored.direction(direction)
        ending = balance.name_of_numbers(imbalance, seed)
        if towards != stored.manifest.direction:
            ending += f"-{towards}"
        for k in ks:
            labels = {}
            for recipe in recipes:
                name = f"{re.sub('[:,]', '.', recipe.label)}-{k}{ending}"
                labels[name] = recipe.label
                if not store.has_partition(path, name):
                    report(f"{stored.manifest.name}: {name}")
                    _make(path, recipe, k, {"name": name, "direction": towards, **asked})
                    continue
                there = store.read_partition(path, name, parts=False)
                for what, value in asked.items():
                    if (had := getattr(there, what)) not in (None, value):
                        raise UserError(
                            f"partition {name!r} is there already, made with {what} {had}",
                            f"gcn-partition remove it, or ask for {what} {had}",
                        )
            found = {row["name"]: row for row in compare(path, labels, towards)}
            for name, label in labels.items():
                rows.append({"graph": stored.manifest.name, "label": label} | found[name])
    return rows


def _make(
    path: str | os.PathLike[str], recipe: StudyRecipe, k: int, common: dict[str, Any]
) -> None:
    options = dict(recipe.options)
    if "time_limit" in options:
        with contextlib.suppress(ValueError):
            common["time_limit"] = float(options.pop("time_limit"))
        if common.get("time_limit", 0) <= 0:
            raise UserError(f"{recipe.label!r}: time_limit=SECONDS, a positive number")
    if recipe.model != AUTO:
        refine = Objective() if recipe.refined else None
        adding.add_partition(path, recipe.model, k, refine=refine, **common, **options)
    elif options or recipe.refined:
        raise UserError(f"{recipe.label!r}: the one option of auto here is time_limit=SECONDS")
    else:
        portfolio.add_best(path, k, exchange="rows", **common)


def table(rows: _Rows) -> str:
    """The rows of a study in the form of table 2 of Demirci et al. (2022), as Markdown.

    Averages and maxima over the parts of what one sends in an expand, over those of random rows;
    the first recipe over each other one; at the end the geometric means over graphs and k.
    """
    lines = [["graph", "k", "model", *_TABLE.values(), "imbalance", "seconds"]]
    rows = [row for row in rows if row["label"] != _BASELINE]
    for graph, k in dict.fromkeys((row["graph"], row["k"]) for row in rows):
        case = {row["label"]: row for row in rows if (row["graph"], row["k"]) == (graph, k)}
        ratios = {label: row["relative"] for label, row in case.items()}
        ends = [[f"{row['imbalance']:.3f}", f"{row['seconds']:.1f}"] for row in case.values()]
        lines += _lines([graph, str(k)], ratios, ends)
    means = {
        label: {
            key: geometric_mean(row["relative"][key] for row in rows if row["label"] == label)
            for key in _TABLE
        }
        for label in dict.fromkeys(row["label"] for row in rows)
    }
    lines += _lines(["mean", ""], means, [["", ""]] * len(means))
    # Columns are padded, so that the source reads well too; the first three are texts.
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    form = " | ".join(f"{{:{'<' if i < 3 else '>'}{width}}}" for i, width in enumerate(widths))
    rule = ["-" * width if i < 3 else "-" * (width - 1) + ":" for i, width in enumerate(widths)]
    lines.insert(1, rule)
    return "".join(f"| {form.format(*line)} |\n" for line in lines)


def _lines(
    case: list[str], ratios: Mapping[str, _Ratios], ends: Sequence[list[str]]
) -> Iterator[list[str]]:
    """A line for each recipe, and one for the first recipe's figures over those of each other."""
    for (label, of), end in zip(ratios.items(), ends, strict=True):
        yield [*case, label, *(_cell(of[key]) for key in _TABLE), *end]
    first, *others = ratios
    for other in others:
        cells = (_cell(_ratio(ratios[first][key], ratios[other][key])) for key in _TABLE)
        yield [*case, f"{first} / {other}", *cells, "", ""]


def _cell(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.2f}" if value >= 0.1 or value == 0 else f"{value:.4f}"


def write_csv(rows: _Rows, file: str | os.PathLike[str]) -> None:
    """One line per partition of a study: its figures, and ``relative_…`` to random rows."""
    flat = [
        {key: value for key, value in row.items() if key not in ("relative", "nodes")}
        | {f"relative_{key}": value for key, value in row["relative"].items()}
        for row in rows
    ]
    with atomic_file(file, "w") as out:
        writer = csv.DictWriter(out, list(flat[0]) if flat else [], lineterminator="\n")
        writer.writeheader()
        writer.writerows(flat)


def write_comparison(page: Path, path: str | os.PathLike[str], rows: _Rows) -> None:
    """Write a page about partitions of the graph folder ``path``: the rows of :func:`compare`."""
    manifest = store.open_graph(path, check=False).manifest
    kind = "directed" if manifest.directed else "undirected"
    subtitle = (
        f"{manifest.n:,} vertices, {manifest.nnz:,} arcs, {kind}; rows of M aggregate in direction "
        f"{rows[0]['direction']!r}. Figures are of one exchange."
    )
    made_by = f"Written by gcn-partition compare, version {version('gcnmpi')}."
    figures, tables, ks = comparison_figures(path, rows), [_table(rows)], _ks(rows)
    sections = [Section("overview", "Overview", "", list(_facts(rows)), figures.pop(0), tables)]
    for k, of_k in zip(ks, figures, strict=False):
        more = k == ks[0] and len(ks) > _SHOWN_K
        text = f"Shown are the first {_SHOWN_K} numbers of parts." if more else ""
        sections.append(Section(f"k{k}", f"{k} parts", text, figures=of_k))
    write_page(page, f"Partitions of {shown(manifest.name)}", subtitle, sections, made_by)


def comparison_figures(path: str | os.PathLike[str], rows: _Rows) -> list[list[Figure]]:
    """The figures of such a page: those of all partitions, and those of each number of parts."""
    stored = {row["name"]: store.read_partition(path, row["name"], parts=False) for row in rows}
    parts = {row["name"]: stored[row["name"]].metrics[row["direction"]] for row in rows}
    ks = _ks(rows)[:_SHOWN_K]
    return [list(_overall(rows)), *(list(_of_k(rows, parts, k)) for k in ks)]


def _facts(rows: _Rows) -> Iterator[Fact]:
    """How many there are, and the best of the largest number of parts."""
    k = _ks(rows)[-1]
    of_k = [row for row in rows if row["k"] == k]
    yield Fact("partitions", number(len(rows)), f"k = {', '.join(map(str, _ks(rows)))}")
    for key, (*_, name) in _SWEEPS.items():
        best = min(of_k, key=lambda row, key=key: row[key])  # type: ignore[misc]
        ratio = best["relative"].get(key)
        beside = "" if ratio is None or key == "imbalance" else f", {ratio:.2f} of random rows"
        value = f"{best[key]:.3f}" if key == "imbalance" else number(best[key])
        yield Fact(f"{name}, k = {k}", value, f"{shown(best['name'])}, exchange of rows{beside}")
    mixed = {row["name"]: row["mixed"] for row in of_k if row["mixed"]}
    for key in _RATIOS if mixed else ():
        name = min(mixed, key=lambda name, key=key: mixed[name][key])  # type: ignore[misc]
        note = f"{shown(name)}, mixed exchange: rows and partial sums"
        yield Fact(f"{_SWEEPS[key][-1]}, k = {k}", number(mixed[name][key]), note)


def _table(rows: _Rows) -> Table:
    head = [
        "partition", "k", "made by", "volume", "of random", "busiest sends", "of random ",
        "messages", "imbalance", "imbalance of rows", "mixed volume", "mixed busiest", "seconds",
    ]  # fmt: skip
    cells = []
    for row in rows:
        mixed = row["mixed"] or {}
        cells.append([
            shown(row["name"]), row["k"], shown(f"{row['model']}, {row['tool']}"),
            row["volume"], row["relative"]["volume"], row["max_send"], row["relative"]["max_send"],
            row["messages"], row["imbalance"], row["row_imbalance"],
            mixed.get("volume"), mixed.get("max_send"), row["seconds"],
        ])  # fmt: skip
    formats = {4: ".2f", 6: ".2f", 8: ".3f", 9: ".3f", 12: ".1f"}
    # Within one number of parts.
    best = dict.fromkeys((3, 5, 7, 10, 11), "low")
    scopes = [row["k"] for row in rows]
    note = (
        "Volume: rows sent by all parts in one exchange; busiest: by the part that sends most. Of "
        "random: over the same number of random rows with as many parts. Mixed: rows and partial "
        "sums of the mixed exchange; all else is of the exchange of rows. Imbalance: heaviest part "
        "over the average part, less 1. ✓: the least of as many parts."
    )
    return Table("Partitions", head, cells, note, best, scopes, formats, sorts=True)


def _overall(rows: _Rows) -> Iterator[Figure]:
    """Total against maximum, both over random rows; and figures over k, where there are several."""
    kinds = _by_kind(rows)
    known = {
        place: [row for row in of if None not in (row["relative"][key] for key in _RATIOS)]
        for place, of in enumerate(kinds.values())
    }
    known = {place: of for place, of in known.items() if of}
    if sum(map(len, known.values())) > 1:
        yield Points(
            "volume-and-busiest", "Volume against busiest part",
            "Both relative to random rows with as many parts. Left: fewer bytes in all; below: the "
            "busiest part, for which the others wait, sends less.",
            "volume / volume of random rows", "busiest part / that of random rows",
            [
                Series(shown([*kinds][place]), [row["relative"]["volume"] for row in of],
                       [row["relative"]["max_send"] for row in of], **look(place))
                for place, of in known.items()
            ],
            [[shown(row["name"]) for row in of] for of in known.values()],
        )  # fmt: skip
    ks = _ks(rows)
    for key, (file, title, label, _) in _SWEEPS.items() if len(ks) > 1 else ():
        yield Lines(
            f"sweep-{file}", f"{title} over k",
            f"{label.capitalize()}, by the number of parts k. Partitions whose names differ only "
            "in k are one curve.",
            "parts k", label,
            [
                Series(shown(name), [row["k"] for row in of], [row[key] for row in of],
                       **look(place))
                for place, (name, of) in enumerate([*kinds.items()][:_LISTED])
            ],
            log_x=True, log_y=key != "imbalance", marks=True, x_ticks=ks,
        )  # fmt: skip


def _of_k(every: _Rows, parts: Mapping[str, Metrics], k: int) -> Iterator[Figure]:
    """Partitions into as many parts, side by side; in the colours of their kinds."""
    kinds = list(_by_kind(every))
    rows = [row for row in every if row["k"] == k][:COLUMNS]
    looks = [look(kinds.index(_kind(row["name"], k))) for row in rows]
    names = [shown(row["name"]) for row in rows]
    ticks, ending = names, "."
    if len(names) > 4 or max(map(len, names)) >= 12:
        ticks, ending = [str(i + 1) for i in range(len(names))], ", numbered as in the legend."
        names = [f"{tick}. {name}" for tick, name in zip(ticks, names, strict=True)]
    for key, (file, title, label, _) in [*_SWEEPS.items()][:3]:
        random = [row[key] / row["relative"][key] for row in rows if row["relative"].get(key)]
        yield Bars(
            f"k{k}-{file}", title,
            f"{label.capitalize()}, for each partition into {k} parts{ending}", "partition", label,
            names, ticks, {label: [row[key] for row in rows]}, [0],
            ("random rows", random[0]) if random else None, [each["colour"] for each in looks],
        )  # fmt: skip
    for key, title, label, about in (
        ("sends", "Rows sent by each part", "rows sent",
         "Parts sorted by the rows they send. A steep left end: a few parts send much more."),
        ("work", "Work of each part", "entries multiplied / average",
         "Parts sorted by the entries that they multiply, relative to the average part."),
    ):  # fmt: skip
        chosen = np.unique(np.linspace(0, k - 1, min(k, 200)).astype(int))
        series = []
        for name, row, of in list(zip(names, rows, looks, strict=True))[:_LISTED]:
            found = parts[row["name"]]
            values = np.sort(np.array(found.send_rows if key == "sends" else found.work, float))
            values = values[::-1][chosen] / (1 if key == "sends" else values.mean() or 1)
            series.append(Series(name, (chosen + 1).tolist(), values.tolist(), **of))
        words = f"k{k}-{key}", title, about, "part, by what it has", label
        yield Lines(*words, series, marks=k < 20, x_ticks=range(1, k + 1) if k < 10 else ())


def _kind(name: str, k: int) -> str:
    """The name of a partition without its number of parts.

    >>> _kind("hp-16-s1", 16), _kind("mine", 16)
    ('hp-s1', 'mine')
    """
    return re.sub(rf"-{k}(?=-|$)", "", name, count=1)


def _by_kind(rows: _Rows) -> dict[str, list[Mapping[str, Any]]]:
    """The rows of each kind, in order: the places of kinds say their colours."""
    found: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        found.setdefault(_kind(row["name"], row["k"]), []).append(row)
    return found


def _ks(rows: _Rows) -> list[int]:
    return sorted({row["k"] for row in rows})


@dataclass(frozen=True)
class MiniBatches:
    """The mini-batches that a simulation draws.

    Attributes
    ----------
    sampler : vertex|neighbor|labor
        vertex: the subgraph that uniformly drawn vertices induce; neighbor, labor: seed vertices
        and some neighbours of each, layer by layer.
    batch : NUMBER|SHARE%
        Vertices in a mini-batch (neighbor: seeds), or their share of all vertices.
    fanouts : F,F…
        neighbor, labor: neighbours per vertex for each layer, that of the seeds first; -1: all.
        [default: 10,10]
    batches
        Number of mini-batches.
    seed
        Seed of the mini-batches.
    as_trained
        The batches of a run with this train.seed, in their order; neighbor and labor draw seeds
        among the training vertices.
    cache_mb
        With --as-trained: MB of input rows of others that each part keeps, as train.cache_mb.
    relations
        Those of networks that tell relations apart: neighbours are drawn from the arcs of each
        relation.
    fanouts_of : NAME=F,F…
        neighbor, labor: the same, with fan-outs of this relation; may be repeated.
    """

    sampler: str = "vertex"
    batch: str | int = "6%"
    fanouts: str = ""
    batches: int = 1000
    seed: int = 0
    as_trained: bool = False
    cache_mb: float = 0.0
    relations: bool = False
    fanouts_of: tuple[str, ...] = ()

    def check(self) -> None:
        """Refuse options that contradict each other."""
        layered = sampling.SAMPLERS.get(self.sampler).layered
        if self.batches < 1:
            raise UserError(f"{self.batches} batches: draw at least one")
        if self.cache_mb and not (self.as_trained and layered and self.cache_mb > 0):
            raise UserError(
                "--cache-mb: rows are kept in runs, for batches of seeds",
                "a positive number, with --as-trained, and --sampler neighbor or labor",
            )
        if self.fanouts_of and not layered:
            raise UserError(
                f"--fanouts-of: --sampler {self.sampler} draws no neighbours",
                "--sampler neighbor or labor",
            )


def simulate(
    path: str | os.PathLike[str],
    names: Sequence[str],
    *,
    direction: str | None = None,
    **options: Any,
) -> dict[str, object]:
    """Draw mini-batches, the same for all partitions, and count what each exchanges.

    The partitions are compared with the first one. ``options`` are fields of :class:`MiniBatches`.
    Every batch is an independent draw, and none is one that a stochastic hypergraph was made of.
    With ``as_trained`` they are the batches of a run with this seed, from its first epoch on, as it
    counts them; then each part may keep ``cache_mb`` MB (2²⁰ bytes) of input rows of others, in
    float32. With ``relations`` they are those of networks that tell relations apart: every arc is
    an entry, and neighbours are drawn from those of each relation.

    Returns
    -------
    dict
        ``sampler``, ``batch`` (vertices), ``batches``, ``seed``, ``direction``, ``entries`` (mean
        number of entries of M in a batch, without its diagonal, or of arcs), ``relations`` (whether
        they are told apart) and ``partitions``, a list of dict with ``name``, ``model``, ``k``; for
        each of ``_FIGURES``, which count rows and messages of one expand of every distinct pattern
        of the batch, ``mean``, ``sd`` and quantiles; ``relative_volume``, the mean volume over that
        of the first partition, and ``relative_error``, its standard error over batches (None for
        the first, and over 0).
    """
    stored, wanted = store.open_graph(path), MiniBatches(**options)
    direction, by_relation = stored.direction(direction), wanted.relations or wanted.fanouts_of
    wanted.check()
    if not names:
        raise UserError("no partition is named", "gcn-partition list shows what there is")
    relations = stored.graph.relations if by_relation else ()
    if by_relation and not relations:
        raise UserError(f"{path} has no relations", "leave out --relations and --fanouts-of")
    graph = stored.graph if relations else stored.merged
    seeds, many, stream = None, graph.n, sampling.SIMULATION
    if wanted.as_trained:
        stream = sampling.TRAINING
        if sampling.SAMPLERS.get(wanted.sampler).layered:
            trained = training_rows(graph)
            seeds = np.arange(graph.n) if trained is None else np.flatnonzero(trained)
            many = len(seeds)
    seed = sampling.stream_seed(wanted.seed, stream)
    sampler = sampling.make_sampler(wanted.sampler, many, wanted.batch, seed, wanted.fanouts)
    fanouts = ";".join(wanted.fanouts_of)
    sampler = sampling.by_relation(sampler, graph.n, relations, fanouts, "--fanouts-of")
    named = [store.member(path, name) for name in dict.fromkeys(names)]
    partitions = [store.read_partition(path, name) for name in named]

    side = sampling.sides(graph, direction, sampler.side, bool(relations))
    sizes = stored.manifest.inputs, stored.manifest.feature_entries, graph.n, _ITEMSIZE
    most = metrics.rows_within(wanted.cache_mb, *sizes)
    seen = metrics.observe(sampler, side, seeds) if most else []
    kept = [
        metrics.kept_pairs(seen, one.parts, one.k, most) if most else None for one in partitions
    ]
    figures = np.zeros((len(partitions), len(_FIGURES), wanted.batches), np.int64)
    entries = 0
    for i in range(wanted.batches):
        # The first batches of epochs are independent draws of whole size; a run counts from 1.
        place = (i, 0)
        if wanted.as_trained:
            epoch, batch = divmod(i, sampler.batches)
            place = (epoch + 1, batch)
        drawn = metrics.draw_batch(sampler, side, *place, seeds)
        entries += sum(len(pattern.rows) for pattern in drawn.patterns)
        for counted, one, rows in zip(figures, partitions, kept, strict=True):
            for layer in metrics.measure_batch(drawn, one.parts, one.k, direction, rows):
                counted[:, i] += (
                    layer.volume, max(layer.send_rows), max(layer.recv_rows),
                    layer.messages, max(layer.send_messages),
                )  # fmt: skip
    described = []
    for one, counted in zip(partitions, figures, strict=True):
        facts = {key: getattr(one, key) for key in ("name", "model", "k")}
        facts |= {key: _spread(of) for key, of in zip(_FIGURES, counted, strict=True)}
        described.append(facts | _over(counted[0], figures[0][0], one is partitions[0]))
    return {
        "sampler": wanted.sampler, "batches": wanted.batches, "seed": wanted.seed,
        "batch": sampler.size, "fanouts": list(sampler.fanouts), "direction": direction,
        "entries": entries / wanted.batches, "relations": bool(relations), "partitions": described,
    }  # fmt: skip


def _spread(values: np.ndarray) -> dict[str, float]:
    facts = {"mean": float(values.mean()), "sd": float(values.std(ddof=min(1, len(values) - 1)))}
    quantiles = np.quantile(values, list(_QUANTILES.values()))
    return facts | dict(zip(_QUANTILES, quantiles.tolist(), strict=True))


def _over(volume: np.ndarray, first: np.ndarray, same: bool) -> dict[str, float | None]:
    """Ratio of the mean volumes, and its standard error: both see the same batches."""
    mean = first.mean()
    if same or mean == 0:
        return {"relative_volume": 1.0 if same else None, "relative_error": None}
    ratio = volume.mean() / mean
    # The first-order (delta) variance of a ratio of paired means.
    error = np.sqrt(((volume - ratio * first) ** 2).sum()) / len(volume) / mean
    return {"relative_volume": float(ratio), "relative_error": float(error)}
