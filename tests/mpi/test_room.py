"""Inference and propagation say what they need, and refuse where a node has less."""

import re
from itertools import product

import numpy as np
from stored_graphs import store

from partition.importing.synthetic import sbm


def test_what_has_no_room_is_refused_on_all_ranks_unless_forced(run_cases, tmp_path):
    """The forecast is said once."""
    graph = store(tmp_path / "g.graph", sbm(20_000, 3, degree=2, features=16), 2)
    weights = {
        f"convs.{k}.lin.weight": np.ones(shape) for k, shape in ((0, (64, 16)), (1, (3, 64)))
    }
    np.savez(tmp_path / "w.npz", **weights)
    asked = list(product(("inference", "sgc"), (10**12, 10**6), (False, True)))
    paths = {"graph": graph, "weights": tmp_path / "w.npz", "out": tmp_path / "y.npy"}
    cases = [{**paths, "command": name, "free": n, "force": force} for name, n, force in asked]
    for (name, free, force), heard in zip(asked, run_cases("room", 2, cases), strict=True):
        (first, *_), (other, *_) = heard
        says = r"memory: needs 0\.\d+ GB on each of 2 ranks; .* GB free for 2 of them"
        assert re.fullmatch(says, first[0])
        assert not [line for line in other if line.startswith("memory")]
        for _, refused, there in heard:
            assert there == (force or free > 10**6)
            words = () if there else (f"{name} needs", "0.001 GB free", "--force")
            assert all(word in refused for word in words) if words else refused is None
