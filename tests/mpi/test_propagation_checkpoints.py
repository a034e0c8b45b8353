"""An interrupted propagation goes on where it was, and gives the same bits."""

import numpy as np
import pytest
from stored_graphs import store

from partition.importing.synthetic import sbm
from partition.pipeline.adding import add_partition

METHODS = (
    "pagerank", "laplacian-eigenvectors", "prone, power iterations", "prone, filter", "randsvd",
)  # fmt: skip


@pytest.fixture(scope="module")
def found(run_cases, tmp_path_factory):
    folder = tmp_path_factory.mktemp("interrupted")
    for name, seed in (("symmetric", 0), ("other", 1)):
        store(folder / f"{name}.graph", sbm(61, 3, degree=4, features=1, seed=seed))
        add_partition(folder / f"{name}.graph", "rp", 3, name="p3")
        add_partition(folder / f"{name}.graph", "block", 3, name="q")
    return run_cases("resumed", 3, [folder])[0]


@pytest.mark.parametrize("name", METHODS)
def test_the_bits_are_those_of_a_run_that_was_not_interrupted(found, name):
    same, kept, said = found["methods"][name]
    assert same
    assert kept == 2  # the newest, and the one before
    assert any(line.startswith("going on from ") for line in said)


def test_a_checkpoint_of_something_else_is_refused_on_all_ranks(found):
    for title, words in {
        "option": "made with damping 0.85, this run has 0.5",
        "method": "is of pagerank",
        "matrix": "made with graph.direction in, this run has out",
        "dtype": "made with dtype float64, this run has float32",
        "graph": "is of another graph",
        "rounding": "--force to go on with other rounding",
        "partition": "made with partition",
    }.items():
        assert len(found["refused"][title]) == 3
        assert all(words in said for said in found["refused"][title]), title
    assert "differs in rounding" in found["forced"][0][-1]
    np.testing.assert_allclose(found["forced"][1], 1, atol=1e-9)


def test_a_damaged_checkpoint_is_passed_over(found):
    same, warnings, left = found["damaged"]
    assert same
    assert not left
    assert any("x.npy was changed; going on from the one before it" in text for text in warnings)
    assert all("no readable manifest" in said for said in found["all damaged"])
