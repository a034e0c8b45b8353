"""Epochs as CUDA graphs on a GPU: every network that can be one."""

import json

import pytest
from axes import NETWORKS, VARIANTS, settings_of

ALL = [*NETWORKS, *VARIANTS]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_graphs_give_the_curve_of_launches(mpirun, schemes_folder, dtype):
    cases = [[*settings_of(name), f"dtype={dtype}"] for name in ALL]
    words = ["repeat_epochs.py", schemes_folder / "directed.graph", json.dumps(cases)]
    done = mpirun(1, *words, timeout=300)
    found = dict(zip(ALL, json.loads(done.stdout), strict=True))
    captured = {name: case for name, case in found.items() if case["why"] is None}
    assert len(captured) > len(ALL) / 2
    for name, case in captured.items():
        assert case["said"] is None, name
        assert case["from_host"] < (1e-3 if dtype == "float32" else 1e-9), name
        # To the bit, unless cuBLAS chooses another algorithm in a graph.
        assert case["same"] or case["apart"] < (1e-5 if dtype == "float32" else 1e-12), name
