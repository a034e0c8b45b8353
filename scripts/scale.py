#!/usr/bin/env python
"""Every scheme at 64, 512 and 4,096 ranks of published machines: predicted, and replayed on links.

python scripts/scale.py soc-Slashdot0902.graph --partition gp --out runs/scale
"""

from __future__ import annotations

import argparse
import csv
import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import scipy.sparse as sp

from gcnmpi.options.config import load_config
from gcnmpi.options.scheme import SCHEMES
from gcnmpi.planner.costmodel import step_seconds
from gcnmpi.planner.fluid import networks_of
from gcnmpi.planner.machine import read_machine, shipped_machines
from gcnmpi.planner.ranking import Candidate, Setting, rank_schemes
from gcnmpi.planner.replay import Replay
from partition.graph.metrics import exchange_matrix
from partition.graph.store import list_partitions, open_graph, read_partition
from partition.records import atomic_file, make_room_for

FEATURES, CLASSES = 128, 32  # of most graphs of Ranjan et al. 2025, whose network has three layers
MODEL = "model.hidden=[128,128]"
OPTIONS = {"p2p": {"scheme.exchange": "rows"}, "replicated": {"scheme.sparse": False}}
FIELDS = ("graph", "machine", "ranks", "scheme", "options", "partition", "arithmetic", "transfer",
          "reduce", "predicted", "replayed transfer", "replayed reduce", "replayed")  # fmt: skip
Row = dict[str, Any]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("graphs", nargs="+", type=Path, help="graph folders")
    parser.add_argument("--partition", default="gp", help="partitions NAME-P; else random rows")
    parser.add_argument("-P", "--ranks", dest="sizes", type=int, action="append")
    parser.add_argument("--machine", dest="machines", action="append", help="[default: all]")
    parser.add_argument("--set", dest="settings", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--out", type=Path, default=Path("runs/scale"))
    words = parser.parse_args()
    rows = [
        row
        for graph in words.graphs
        for machine in words.machines or sorted(shipped_machines())
        for size in words.sizes or (64, 512, 4096)
        for row in replayed(graph, machine, size, words.partition, words.settings)
    ]
    make_room_for(words.out / "scale.csv")
    with atomic_file(words.out / "scale.csv", "w") as file:
        writer = csv.DictWriter(file, FIELDS)
        writer.writeheader()
        writer.writerows(rows)
    with atomic_file(words.out / "scale.md", "w") as file:
        file.write(table(rows))
    print(table(rows))


def replayed(
    graph: Path, name: str, size: int, partition: str, settings: Sequence[str]
) -> list[Row]:
    """A row for each scheme, with its fastest variant; for ``p2p`` one for each kind of rows."""
    machine, facts = read_machine(name)
    per_node, stored = facts["ranks_per_node"], open_graph(graph)
    rows = []
    for scheme in SCHEMES:
        given = OPTIONS.get(scheme, {})
        own = [f"{key}={str(value).lower()}" for key, value in given.items()]
        config = load_config(None, (f"scheme.name={scheme}", MODEL, *own, *settings))
        setting = Setting(stored, config, machine, per_node, FEATURES, CLASSES, given)
        found: dict[str, Candidate] = {}
        there = f"{partition}-{size}" in list_partitions(stored.path)
        for line in rank_schemes(
            setting, size, schemes=[scheme], estimate="always",
            partitions=[f"{partition}-{size}"] if there and scheme == "p2p" else (),
        )[0]:  # fmt: skip
            rows_of = line.candidate.partition.model if line.candidate.partition else ""
            found.setdefault(rows_of if scheme == "p2p" else "", line.candidate)
        for candidate in found.values():
            row = {"graph": stored.manifest.name, "machine": name, "ranks": size, "scheme": scheme}
            rows.append(row | row_of(setting, candidate, size, facts["network"]))
    return rows


def row_of(setting: Setting, candidate: Candidate, size: int, network: Row) -> Row:
    """Seconds of an epoch by the cost model, and with its messages on the links of a network."""
    case, partition = setting.case(candidate, size), candidate.partition
    phases, _ = step_seconds(case)
    exchange = None
    if candidate.scheme.name == "p2p" and partition is not None and not candidate.estimated:
        exchange = exchange_of(setting.stored.path, partition.name, setting.direction)
    nodes = -(-size // setting.ranks_per_node)
    networks = networks_of(network, nodes, setting.machine.bandwidth_inter)
    replays = [Replay(case, one, exchange).seconds() for one in networks]
    moved = {phase: min(found[phase] for found in replays) for phase in ("transfer", "reduce")}
    arithmetic = sum(phases.values()) - phases["transfer"] - phases["reduce"]
    return {
        "options": " ".join(map(str, candidate.options.values())),
        "partition": "" if partition is None else partition.model,
        "arithmetic": arithmetic,
        "transfer": phases["transfer"],
        "reduce": phases["reduce"],
        "predicted": sum(phases.values()),
        "replayed transfer": moved["transfer"],
        "replayed reduce": moved["reduce"],
        "replayed": arithmetic + sum(moved.values()),
    }


@functools.cache
def exchange_of(graph: Path, partition: str, direction: str) -> sp.csr_array:
    """Rows that each part sends to each other one, (P, P), sparse."""
    stored = read_partition(graph, partition)
    return exchange_matrix(open_graph(graph).graph, stored.parts, stored.k, direction)


def table(rows: Sequence[Row]) -> str:
    """Milliseconds of an epoch: predicted → replayed (ratio of transfers), by number of ranks."""
    sizes = sorted({row["ranks"] for row in rows})
    text = ""
    for graph, machine in dict.fromkeys((row["graph"], row["machine"]) for row in rows):
        text += (
            f"\n{graph}, {machine}: ms of an epoch, predicted → replayed (ratio of transfers)\n\n"
        )
        text += f"| scheme | {' | '.join(f'P = {size}' for size in sizes)} |\n"
        text += f"|---|{'---:|' * len(sizes)}\n"
        some = [row for row in rows if (row["graph"], row["machine"]) == (graph, machine)]
        for kind in dict.fromkeys((row["scheme"], row["partition"]) for row in some):
            cells = {row["ranks"]: row for row in some if (row["scheme"], row["partition"]) == kind}
            shown = [
                f"{1e3 * cells[size]['predicted']:.3g} → {1e3 * cells[size]['replayed']:.3g}"
                f" ({cells[size]['replayed transfer'] / cells[size]['transfer']:.2f})"
                if size in cells else ""
                for size in sizes
            ]  # fmt: skip
            text += f"| {' '.join(filter(None, kind))} | {' | '.join(shown)} |\n"
    return text


if __name__ == "__main__":
    main()
