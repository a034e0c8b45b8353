"""Inference and propagation say what they need, and refuse where a node has less."""

import re
from itertools import product

import numpy as np
import pytest
from stored_graphs import store

from partition.graph.graph import Graph

N, WIDTHS = 20_000, (16, 64, 3)
COMMANDS = ("inference", "sgc")


@pytest.fixture(scope="module")
def said(run_cases, tmp_path_factory):
    """The words and the refusal that each of two ranks heard, by (command, free bytes, forced)."""
    root, random = tmp_path_factory.mktemp("room"), np.random.default_rng(1)
    target = random.integers(0, N, (N, 2)).astype(np.int32)
    target.sort(axis=1)
    target[:, 1] = np.where(target[:, 0] == target[:, 1], (target[:, 1] + 1) % N, target[:, 1])
    target.sort(axis=1)
    features = random.standard_normal((N, WIDTHS[0])).astype(np.float32)
    graph = Graph(np.arange(0, 2 * N + 1, 2), target.reshape(-1), features=features)
    store(root / "g.graph", graph, 2)
    weights = {
        f"convs.{k}.lin.weight": random.standard_normal((WIDTHS[k + 1], WIDTHS[k])) for k in (0, 1)
    }
    np.savez(root / "w.npz", **weights)
    asked = list(product(COMMANDS, (10**12, 10**6), (False, True)))
    paths = {"graph": root / "g.graph", "weights": root / "w.npz", "out": root / "y.npy"}
    cases = [
        {**paths, "command": name, "free": free, "force": force} for name, free, force in asked
    ]
    return dict(zip(asked, run_cases("room", 2, cases), strict=True))


def test_the_forecast_is_said_once(said):
    for heard, other in said.values():
        assert re.fullmatch(
            r"memory: needs 0\.\d+ GB on each of 2 ranks; .* GB free for 2 of them", heard[0][0]
        )
        assert not [line for line in other[0] if line.startswith("memory")]


@pytest.mark.parametrize("name", COMMANDS)
def test_what_has_room_is_computed(said, name):
    assert [(refused, there) for _, refused, there in said[name, 10**12, False]] == [
        (None, True)
    ] * 2


@pytest.mark.parametrize("name", COMMANDS)
def test_what_has_none_is_refused_on_all_ranks_unless_forced(said, name):
    for _, refused, there in said[name, 10**6, False]:
        assert f"{name} needs" in refused
        assert "0.001 GB free" in refused
        assert "--force" in refused
        assert not there
    assert [(refused, there) for _, refused, there in said[name, 10**6, True]] == [(None, True)] * 2
