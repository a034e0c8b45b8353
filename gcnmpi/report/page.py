"""The page of runs: what they gave, where their time and bytes went, and what they ran on."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from gcnmpi import __version__
from gcnmpi.options.config import keys
from gcnmpi.options.task import LOWER_IS_BETTER
from gcnmpi.report.comparison import (
    FACTS,
    all_further,
    as_text,
    counts_of,
    different_facts,
    different_keys,
    fact,
    how_scored,
    label_of,
    learns_pairs,
    spread,
)
from gcnmpi.report.run_facts import COMPUTING, RunFacts, total
from gcnmpi.report.run_figures import (
    Entry,
    by_run,
    curves,
    entries_of,
    figures_of_run,
)
from gcnmpi.run.checkpoint import flat
from gcnmpi.run.record import End
from partition.charts.figures import Figure
from partition.charts.numbers import BYTES, SECONDS, number, with_unit
from partition.charts.page import Fact, Section, Table, write_page

DETAILED = 12  # runs that are shown one by one; a page of more would be large


def write_report(path: str | os.PathLike, runs: Sequence[RunFacts]) -> None:
    """Write the page of some runs; a UserError if the file cannot be written."""
    first = runs[0]
    if len(runs) == 1:
        title, subtitle = f"Training run: {first.name}", _what(first)
        sections = list(_sections(first, "", ""))
    else:
        title = f"{len(runs)} training runs"
        subtitle = _common(runs)
        sections = [_comparison(runs)]
        numbers = {id(run): entry.place + 1 for entry in entries_of(runs) for run in entry.runs}
        for place, run in enumerate(runs[:DETAILED]):
            group = f"{numbers[id(run)]}. {run.name}"
            sections += _sections(run, f"run{place + 1}-", group)
    write_page(path, title, subtitle, sections, f"Written by gcnmpi report, version {__version__}.")


def report_figures(runs: Sequence[RunFacts]) -> Iterator[Figure]:
    """Every figure of such a page, the curves of each run in one."""
    yield from curves(runs)
    if len(runs) > 1:
        yield from by_run(runs)
    for place, run in enumerate(runs[:DETAILED]):
        prefix = "" if len(runs) == 1 else f"run{place + 1}-"
        for figures in figures_of_run(run, prefix).values():
            yield from figures


def _comparison(runs: Sequence[RunFacts]) -> Section:
    entries = entries_of(runs)
    grouped = len(entries) < len(runs)
    text = "" if len(runs) <= DETAILED else f"Only the first {DETAILED} are shown one by one below."
    tables = [_means(entries)] if grouped else []
    tables.append(_runs(runs, entries, marked=not grouped))
    return Section(
        "comparison", "Comparison", text, tables=tables,
        figures=[*curves(runs), *by_run(runs)],
    )  # fmt: skip


@dataclass(frozen=True)
class _Column:
    """A column of a table of runs: what it says of each row, its format, and what is best in it."""

    head: str
    cells: Sequence[object]
    form: str | None = None
    best: str | Sequence[str] | None = None  # low or high


def _table(title: str, note: str, columns: Sequence[_Column], of: Sequence[RunFacts]) -> Table:
    """A row for each of some runs; of those of one graph and metric, the best is marked."""
    marks = {place: column.best for place, column in enumerate(columns) if column.best}
    formats = {place: column.form for place, column in enumerate(columns) if column.form}
    scopes = [(run.start.graph, str(run.start.graph_id), run.metric) for run in of]
    rows = list(zip(*(column.cells for column in columns), strict=True))
    return Table(title, [column.head for column in columns], rows, note, marks, scopes, formats,
                 sorts=True)  # fmt: skip


def _settings(runs: Sequence[RunFacts], chance: bool = True) -> list[_Column]:
    """Columns of the settings that differ, as they were given."""
    starts = [run.start for run in runs]
    found = {name: [fact(start, name) for start in starts] for name in different_facts(starts)}
    found |= different_keys(starts, chance)
    return [_Column(name, list(map(_cell, values)), "g") for name, values in found.items()]


def _means(entries: Sequence[Entry]) -> Table:
    """Runs that differ by chance only, with mean and deviation."""
    firsts = [entry.runs[0] for entry in entries]
    seconds = [float(np.mean([run.seconds for run in entry.runs])) for entry in entries]

    def spreads(head: str, of: Callable[[RunFacts], float | None],
                best: str | Sequence[str] | None = None) -> list[_Column]:  # fmt: skip
        found = [spread([of(run) for run in entry.runs]) for entry in entries]
        means, deviations = zip(*found, strict=True)
        return [_Column(head, means, ".4f", best), _Column("deviation", deviations, ".4f")]

    columns = [
        _Column("entry", [entry.name for entry in entries]),
        *_settings(firsts, chance=False),
        _Column("runs", [len(entry.runs) for entry in entries]),
        _Column("s/epoch", seconds, best="low"),
        *spreads("loss", lambda run: run.epochs[-1].loss, "low"),
        *spreads("best validation", lambda run: run.of_best("val", run.metric),
                 list(map(_better, firsts))),
        *spreads("its test", lambda run: run.of_best("test", run.metric)),
    ]  # fmt: skip
    for metric in all_further([run.start for run in firsts]):
        test = partial(RunFacts.of_best, mask="test", metric=metric)
        columns += spreads(f"its {label_of(metric)}", test)
    note = (
        "Runs that differ in seed and split only are one entry: mean and standard deviation (of a "
        "sample). Best validation, its test: in the epoch of the best validation metric of each "
        "run. ✓: the best of one graph and metric. Choose by the validation metric."
    )
    return _table("Means over seeds and splits", note, columns, firsts)


def _runs(runs: Sequence[RunFacts], entries: Sequence[Entry], marked: bool) -> Table:
    """A row for each run, with the number of its entry."""
    numbers = {id(run): entry.place + 1 for entry in entries for run in entry.runs}
    low = "low" if marked else None

    def most(head: str, of: str, size: float, sums: bool = False) -> _Column:
        """The sum, or the largest, of one number a rank."""
        each = [getattr(run, of) for run in runs]
        cells = [None if x is None else float(x.sum() if sums else x.max()) / size for x in each]
        return _Column(head, cells, best=low)

    columns = [
        _Column("run", [run.name + " (not finished)" * (not run.end.finished) for run in runs]),
        _Column("no.", [numbers[id(run)] for run in runs]),
        *_settings(runs),
        _Column("epochs", [len(run.epochs) for run in runs]),
        _Column("s/epoch", [run.seconds for run in runs], best=low),
        most("MB/epoch", "sent", 1e6, sums=True),
        most("MB busiest rank", "sent", 1e6),
        most("peak GB per rank", "peak", 1e9),
        _Column("loss", [run.epochs[-1].loss for run in runs], best=low),
        _Column("best validation", [run.of_best("val", run.metric) for run in runs], ".4f",
                list(map(_better, runs)) if marked else None),
        _Column("its test", [run.of_best("test", run.metric) for run in runs], ".4f"),
        *(_Column(f"its {label_of(metric)}", [run.of_best("test", metric) for run in runs], ".4f")
          for metric in all_further([run.start for run in runs])),
    ]  # fmt: skip
    metrics = ", ".join(dict.fromkeys(run.metric for run in runs))
    note = (
        "MB/epoch: what all ranks send in the exchanges of an epoch of training. Loss: of the last "
        f"epoch. Best validation, its test: {metrics} in the epoch of the best validation metric."
        + (" ✓: the best of one graph and metric." if marked else "")
    )
    return _table("Runs", note, columns, runs)


def _better(run: RunFacts) -> str:
    return "low" if run.metric in LOWER_IS_BETTER else "high"


def _cell(value: object) -> object:
    """A number as one, which is aligned and sorted as such; all else as ``--set`` takes it."""
    if value is None:
        return "–"
    return value if isinstance(value, int | float) and type(value) is not bool else as_text(value)


def _sections(run: RunFacts, key: str, group: str) -> Iterator[Section]:
    notes = [f"Warning: {warning}" for warning in run.start.warnings]
    if not run.end.finished:
        of = run.start.wanted_epochs
        notes.insert(0, f"The run has not finished: epoch {run.epochs[-1].epoch} of {of}.")
    yield Section(key + "overview", "Overview", _what(run) if group else "", _overview(run),
                  notes=notes, group=group)  # fmt: skip
    yield Section(key + "training", "Training", figures=curves([run], key), group=group)
    drawn = figures_of_run(run, key)
    tables = [] if run.phases else _phase_table(run.end)
    if drawn["time"] or tables:
        text = "Phases are timed without barriers: time lost to a slower rank appears as waiting."
        yield Section(key + "time", "Time", text, figures=drawn["time"], tables=tables, group=group)
    notes = [] if run.pairs is not None or run.ranks == 1 else [
        "Bytes from rank to rank are not known: the scheme moves them by collectives, every "
        "mini-batch sends other rows, there are more than 256 ranks, or the record is of an "
        "earlier version."
    ]  # fmt: skip
    yield Section(key + "bytes", "Communication", _counted(run), figures=drawn["bytes"],
                  notes=notes, group=group)  # fmt: skip
    for name, title in (("balance", "Balance of work"), ("memory", "Memory")):
        if drawn[name]:
            yield Section(key + name, title, figures=drawn[name], group=group)
    yield Section(key + "environment", "Environment", tables=_environment(run), group=group)


def _overview(run: RunFacts) -> list[Fact]:
    stopped = "stopped early" if run.end.stopped_early else f"of {number(run.start.wanted_epochs)}"
    facts = [
        Fact("epochs", number(len(run.epochs)), stopped),
        Fact("time per epoch", with_unit(run.seconds, SECONDS), "median, slowest rank"),
        Fact("training loss", number(run.epochs[-1].loss), "last epoch"),
    ]
    if run.best is not None:
        value, when = run.of_best("val", run.metric), f"best, epoch {number(run.best.epoch)}"
        facts.append(Fact(f"validation {label_of(run.metric)}", _score(value), when))
        for other in run.metrics:
            if (value := run.of_best("test", other)) is not None:
                where = "in the epoch of the best validation"
                facts.append(Fact(f"test {label_of(other)}", _score(value), where))
    if run.sent is not None and run.ranks > 1:
        busiest = with_unit(float(run.sent.max()), BYTES)
        total_sent = with_unit(float(run.sent.sum()), BYTES)
        exchange = run.start.scheme_options.get("exchange") if run.start.scheme == "p2p" else None
        told = f", exchange of {_EXCHANGES.get(exchange, exchange)}" if exchange else ""
        facts.append(Fact("sent per epoch", total_sent, f"busiest rank {busiest}{told}"))
    if run.phases and run.ranks > 1 and (work := total(run.phases, COMPUTING)).any():
        excess = f"{work.max() / work.mean() - 1:.0%}"
        facts.append(Fact("slowest rank", f"+{excess}", "computing, above the average rank"))
    if hidden := [share for share in run.end.hidden or [] if share]:
        facts.append(Fact("hidden", f"{np.mean(hidden):.0%}", "of the time of exchanges"))
    if run.peak is not None:
        facts.append(Fact("peak memory", with_unit(float(run.peak.max()), BYTES), "largest rank"))
    return facts


_EXCHANGES = {"mixed": "rows and partial sums (mixed)"}


def _score(value: float | None) -> str:
    """A metric, always with as many digits."""
    return number(value) if value is None or abs(value) >= 100 else f"{value:.4f}"


def _counted(run: RunFacts) -> str:
    """Whether what was counted is what was predicted."""
    if run.ranks == 1:
        return "One rank sends nothing."
    end = run.end
    counted, predicted = (
        (end.bytes_sent, end.messages_sent),
        (end.bytes_predicted, end.messages_predicted),
    )
    if None in (*counted, *predicted):
        return ""
    equal = counted == predicted
    text = (
        "equal to those predicted from the partition" if equal else "NOT equal to those predicted"
    )
    messages = "" if run.messages is None else f" {number(float(run.messages.sum()))} messages"
    return f"Bytes and messages counted are {text}.{messages and f' An epoch takes{messages}.'}"


def _phase_table(end: End) -> list[Table]:
    """Of records that have no figures of single ranks."""
    rows = [[name, *(times.get(which) for which in ("min", "mean", "max"))]
            for name, times in end.phases.items()]  # fmt: skip
    head = ["phase", "least (s)", "mean (s)", "most (s)"]
    return [Table("Seconds of the whole run, over ranks", head, rows)] if rows else []


def _environment(run: RunFacts) -> list[Table]:
    start = run.start
    hosts = Counter(start.hosts)
    described = [
        "time", "graph", "n", "nnz", "partition", "direction", "scheme", "kernel", "ranks",
        "threads", "job", "reduction", "graph_id", "data_id", "partition_id",
    ]  # fmt: skip
    names = {"n": "vertices", "nnz": "arcs", "threads": "threads per rank", "time": "started (UTC)"}
    known = {key: value for key in described if (value := getattr(start, key)) is not None}
    facts = [(names.get(key, key), _plain(value)) for key, value in known.items()]
    if start.pairs is not None:
        made = _text(start.pairs.get("made"))
        facts += [("pairs", counts_of(start)), ("pairs: made by", made)]
    options = {key: value for key, value in start.scheme_options.items() if key != "name"}
    facts += [(f"scheme: {key}", _plain(value)) for key, value in options.items()]
    facts += [("order of products", ", ".join(run.end.orders))] if run.end.orders else []
    devices = Counter(device for device in start.devices if device is not None)
    shown = [f"{host}: {number(count)} ranks" for host, count in hosts.most_common(64)]
    shown += [f"{device}: {number(count)} ranks" for device, count in devices.most_common(8)]
    more = len(hosts) - 64
    shown += [f"and {more} other hosts"] if more > 0 else []
    usual = {name: as_text(key.default) for name, key in keys().items()}
    chosen = [(name, as_text(value)) for name, value in flat(start.config)]
    other = [(name, value) for name, value in chosen if usual.get(name) != value]
    tables = [
        Table("Run", (), facts),
        Table("Versions", (), [(name, _text(text)) for name, text in start.versions.items()]),
        Table("Hosts", (), [[text] for text in shown]),
        Table("Configuration: other values than the defaults", (), other),
        Table("Whole configuration", (), chosen, folded=True),
    ]
    return [table for table in tables if table.rows]


def _what(run: RunFacts) -> str:
    """A run in a sentence."""
    start, parts = run.start, []
    model = start.section("model").get("name")
    parts.append(f"{str(model).upper() if model else 'Training'} on {start.graph}")
    if start.n is not None and start.nnz is not None:
        parts.append(f"{start.n:,} vertices, {start.nnz:,} arcs")
    if learns_pairs(start):
        parts.append(f"links of the pairs {_text(start.section('task').get('pairs'))}")
        parts += [counts, how_scored(start)] if (counts := counts_of(start)) else []
    ranks = "1 rank" if run.ranks == 1 else f"{run.ranks} ranks"
    hosts = len(set(start.hosts))
    parts.append(f"{ranks} on {hosts} {'host' if hosts == 1 else 'hosts'}" if hosts else ranks)
    partition = f", partition {start.partition}" if start.partition else ""
    parts.append(f"scheme {start.scheme}{partition}")
    return "; ".join(parts) + "."


def _common(runs: Sequence[RunFacts]) -> str:
    """A sentence of the facts that all runs have in common."""
    different = different_facts([run.start for run in runs])
    same = [f"{name} {_text(fact(runs[0].start, name))}" for name in FACTS if name not in different]
    return f"In common: {', '.join(same)}." if same else ""


def _plain(value: object) -> str:
    """An identifier or a count as it is; counts with commas."""
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else _text(value)


def _text(value: object) -> str:
    return "–" if value is None else str(value)
