"""Rows of vertices that are made again, or written to a file, for the backward pass."""

import errno
import os
from dataclasses import replace
from itertools import cycle, product
from pathlib import Path

import numpy as np
import pytest
from axes import ALL
from refusals import raising, refuses
from small_arcs import SmallRun, check_oracle
from stored_graphs import store

from gcnmpi.core.timing import Phases
from gcnmpi.kernels.host.scipy_ import SciPyKernel
from gcnmpi.nn.compile.residency import choices
from gcnmpi.nn.scratch import Scratch
from gcnmpi.options.config import from_table
from gcnmpi.options.train import Residences
from gcnmpi.planner.costmodel import predict
from gcnmpi.planner.machine import Machine
from gcnmpi.planner.ranking import Candidate, Setting
from partition.graph.store import open_graph
from partition.importing.synthetic import rmat

pytestmark = pytest.mark.slow

BOTH = ("scipy", "native")
DROPPED = {"hidden": [8, 6], "dropout": 0.5}
NETWORKS = {
    "gcn": DROPPED | {"norm": "batch", "residual": "linear", "jk": "cat", "activation": "gelu"},
    "gcn plain": {"hidden": [8, 8, 8], "dropout": 0.5},
    "gcn trained": {"hidden": [8, 8], "train_features": True},
    "sage max": DROPPED | {"aggregation": "max", "norm": "layer", "activation": "prelu"},
    "gat": DROPPED | {"heads": 2, "attention_dropout": 0.5},
    "gatv2": DROPPED | {"heads": 2, "residual": "linear"},
    "gin": {"hidden": [8, 6], "train_eps": True, "norm": "batch"},
    "gcnii": {"hidden": [8, 8, 8], "dropout": 0.5},
    "appnp": {"hops": 3},
    "sgc": {},
    "mlp": {"hidden": [8, 8], "norm": "batch"},
    # With rows of arcs.
    "gine": {"hidden": [6, 6], "train_eps": True, "norm": "layer", "jk": "cat"},
    "gatv2 arcs": {"hidden": [6, 6], "heads": 2, "concat": False, "arc_features": True},
    "transformer": {"hidden": [6], "root_weight": False, "bias": False, "dropout": 0.2},
    "transformer arcs": {
        "hidden": [6, 6], "heads": 2, "beta": True, "arc_features": True, "attention_dropout": 0.3,
        "norm": "layer", "residual": "identity"},
    "gatedgcn arcs": {"hidden": [6, 6], "arc_features": True, "linear_after": True},
    "pna towers": {
        "hidden": [6], "towers": 2, "arc_features": True, "pre_layers": 2, "post_layers": 2,
        "scalers": "attenuation+linear+inverse_linear", "aggregators": "sum+std",
        "residual": "linear"},
    "mgn": {"hidden": [8], "layers": 3},
    "mgn mean": {"hidden": [6], "mlp_layers": 1, "reduction": "mean", "activation": "prelu"},
    "sage several": {"hidden": [6], "aggregation": "mean+max", "normalize_output": True},
    "sage std": {"hidden": [6], "aggregation": "std", "root_weight": False},
}  # fmt: skip


def in_turn(values):
    """Each network with one of the values, or all of them at night."""
    return product(NETWORKS, values) if ALL else zip(NETWORKS, cycle(values))


def run_of(case, every=0, again=(), written=(), first=0, folder=None, **options):
    left = Residences(every, frozenset(again), frozenset(written), first)
    disk = Scratch(folder, SciPyKernel(np.float64), Phases()) if written else None
    settings = {"name": case.split()[0]} | NETWORKS[case]
    return SmallRun(settings, residences=left, disk=disk, **options)


def numbers_of(run):
    """The gradient of two epochs, running moments, and what an evaluation gives."""
    return run.gradient(), run.gradient(), run.model.parameters.flat, run.model.evaluate()


@pytest.mark.parametrize(("case", "blocks"), [*in_turn((True, False))])
def test_whatever_leaves_memory_no_bit_changes(case, blocks, tmp_path, monkeypatch):
    monkeypatch.setattr("gcnmpi.nn.slices.ROWS_AT_ONCE", 5)
    monkeypatch.setattr("gcnmpi.nn.slices.ARCS_AT_ONCE", 7)  # in several slices
    kept = run_of(case, blocks=blocks)
    expected, possible = numbers_of(kept), choices(kept.program, repeats=True)
    assert possible.again <= possible.written
    assert possible.written or case == "sgc"
    random = np.random.default_rng(5)
    sets = [(0, possible.again, ()), (0, (), possible.written), (9, (), possible.written), (1,)]
    for every in (0, 9):
        written = {value for value in possible.written if random.random() < 0.4}
        again = {value for value in possible.again - written if random.random() < 0.6}
        sets.append((every, again, written))
    sets += [(0, possible.again, (), first) for first in (3, 10, 99)] if blocks else []
    for left in sets:
        found = numbers_of(run_of(case, *left, folder=tmp_path, blocks=blocks))
        assert all(map(np.array_equal, found, expected)), left
    assert not [*tmp_path.iterdir()]  # a file without a name


@pytest.mark.parametrize(("case", "kernel"), [*in_turn(BOTH)])
def test_the_oracle_gives_the_same(case, kernel, monkeypatch):
    """Of all rows at once, and block by block and slice by slice."""
    check_oracle(run_of(case, kernel=kernel))
    for name in ("ROWS_AT_ONCE", "ARCS_AT_ONCE"):
        monkeypatch.setattr(f"gcnmpi.nn.slices.{name}", 5)
    check_oracle(run_of(case, kernel=kernel, blocks=True))


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    graph = rmat(13, 1 << 16, features=64, classes=8)
    return store(tmp_path_factory.mktemp("residences") / "g.graph", graph)


def planned(path, memory, scratch="", **model):
    """The setting that was chosen for so much memory, and its cost."""
    settings = {"hidden": [64] * 4, "dropout": 0.5, **model}
    table = {"model": settings, "train": {"memory": memory, "scratch": scratch}}
    machine = replace(Machine(), process_bytes=0)
    given = Setting(open_graph(path), from_table(table), machine, 1, locality=False)
    case = given.case(Candidate(given.config.scheme, {}, 0, None), 1)
    return case.work.config.train.memory, predict(case)


def test_rows_stay_as_memory_has_room_for_them(path, monkeypatch):
    monkeypatch.setattr("gcnmpi.nn.slices.ROWS_AT_ONCE", 512)  # 16 blocks
    _, whole = planned(path, "all")
    _, least = planned(path, "again:3")
    before = least
    for share in (0.3, 0.6, 0.9):
        limit = int(least.memory + share * (whole.memory - least.memory))
        left, cost = planned(path, f"{limit}B")
        told = Residences.told(left)
        assert (told.again, told.first % 512) == ({3}, 0)
        assert limit - 512 * 64 * 4 < cost.memory <= limit
        assert whole.seconds < cost.seconds < before.seconds
        before = cost


def test_as_much_of_the_states_of_arcs_is_kept_as_a_rank_may_take(path):
    model = {"name": "mgn", "hidden": [16], "layers": 4}
    names = ["all", "states:1", "states:2", "least"]
    sizes = [planned(path, name, **model)[1].memory for name in names]
    assert sizes == sorted({*sizes}, reverse=True)
    for name, size in zip(names, sizes, strict=True):
        assert planned(path, f"{size}B", **model)[0] == name


def test_the_least_is_what_it_says_and_less_memory_takes_more_time(path):
    _, whole = planned(path, "all", norm="batch")
    for scratch in ("", "/tmp"):
        before = whole.seconds
        for share in (0.95, 0.9):
            left, cost = planned(path, f"{share * whole.memory:.0f}B", scratch, norm="batch")
            assert Residences.told(left).again
            assert cost.memory <= share * whole.memory
            assert cost.seconds >= before
            before = cost.seconds
        says = r"a rank needs [0-9]+MB at least"
        error = refuses(says, planned, path, "1MB", scratch, norm="batch")
        assert ("train.scratch=FOLDER" in str(error)) == (not scratch)
        least = error.hint.split("train.memory=")[1].split(",")[0]
        left, cost = planned(path, least, scratch, norm="batch")
        assert cost.memory <= int(least[:-2]) * 1e6
        assert bool(Residences.told(left).written) == ("scratch" in cost.phases) == bool(scratch)


def test_a_full_disk_is_one_clear_line(tmp_path, monkeypatch):
    run = run_of("gcn plain", written=[3], folder=tmp_path)
    disk = Scratch(tmp_path, SciPyKernel(np.float64), Phases())
    disk.place(3, np.zeros((10, 8)))
    disk.reserve()
    full = raising(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))
    monkeypatch.setattr(os, "posix_fallocate", full)
    refuses(r"has no .* GB for this rank: No space left", disk.reserve)
    monkeypatch.setattr(os, "pwrite", full)
    refuses("No space left on device", run.loss)
    refuses("cannot write to /nowhere", run_of, "sgc", written=[0], folder=Path("/nowhere"))
    refuses("no value 99", run_of, "gcn plain", again=[99])
