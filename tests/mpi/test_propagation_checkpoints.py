"""An interrupted propagation goes on where it was, and gives the same bits."""

import pytest
from stored_graphs import store

from partition.importing.synthetic import sbm
from partition.pipeline.adding import add_partition


def test_the_bits_are_those_of_a_run_that_was_not_interrupted(run_cases, tmp_path):
    """A checkpoint of something else is refused on all ranks, a damaged one passed over."""
    for name, seed in (("symmetric", 0), ("other", 1)):
        store(tmp_path / f"{name}.graph", sbm(61, 3, degree=4, features=1, seed=seed))
        for model, part in (("rp", "p3"), ("block", "q")):
            add_partition(tmp_path / f"{name}.graph", model, 3, name=part)
    (found,) = run_cases("resumed", 3, [tmp_path])
    assert len(found["methods"]) == 5
    for name, (same, kept, said) in found["methods"].items():
        assert (same, kept) == (True, 2), name  # the newest, and the one before
        assert any(line.startswith("going on from ") for line in said), name
    for title, words in {
        "option": "made with damping 0.85, this run has 0.5",
        "method": "is of pagerank",
        "matrix": "made with graph.direction in, this run has out",
        "dtype": "made with dtype float64, this run has float32",
        "graph": "is of another graph",
        "rounding": "--force to go on with other rounding",
        "partition": "made with partition",
    }.items():
        assert all(words in said for said in found["refused"][title]), title
    warnings, total = found["forced"]
    assert "differs in rounding" in warnings[-1]
    assert total == pytest.approx(1, abs=1e-9)
    same, warnings, left = found["damaged"]
    assert (same, left) == (True, [])
    assert any("x.npy was changed; going on from the one before it" in text for text in warnings)
    assert all("no readable manifest" in said for said in found["all damaged"])
