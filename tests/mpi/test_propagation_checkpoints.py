"""An interrupted propagation goes on where it was, and gives the same bits."""

import numpy as np
import pytest
from stored_graphs import store

from partition.importing.synthetic import sbm
from partition.pipeline.adding import add_partition

METHODS = (
    "pagerank", "laplacian-eigenvectors", "prone, power iterations", "prone, filter", "randsvd",
)  # fmt: skip
RANKS = (1, 3)


@pytest.fixture(scope="module", params=RANKS)
def found(request, run_cases, tmp_path_factory):
    folder, k = tmp_path_factory.mktemp("interrupted"), request.param
    for name, seed in (("symmetric", 0), ("other", 1)):
        store(folder / f"{name}.graph", sbm(61, 3, degree=4, features=1, seed=seed))
        if k > 1:
            add_partition(folder / f"{name}.graph", "rp", k, name=f"p{k}")
            add_partition(folder / f"{name}.graph", "block", k, name="q")
    return k, *run_cases("resumed", k, [folder])


@pytest.mark.parametrize("name", METHODS)
def test_the_bits_are_those_of_a_run_that_was_not_interrupted(found, name):
    same, kept, said = found[1]["methods"][name]
    assert same
    assert kept == 2  # the newest, and the one before
    assert any(line.startswith("going on from ") for line in said)


def test_a_checkpoint_of_something_else_is_refused_on_all_ranks(found):
    k, results = found
    for title, words in {
        "option": "made with damping 0.85, this run has 0.5",
        "method": "is of pagerank",
        "matrix": "made with graph.direction in, this run has out",
        "dtype": "made with dtype float64, this run has float32",
        "graph": "is of another graph",
        "rounding": "--force to go on with other rounding",
        "partition": "made with partition",
    }.items():
        if title == "partition" and k == 1:
            continue
        assert len(results["refused"][title]) == k
        assert all(words in said for said in results["refused"][title]), title
    assert "differs in rounding" in results["forced"][0][-1]
    np.testing.assert_allclose(results["forced"][1], 1, atol=1e-9)


def test_a_damaged_checkpoint_is_passed_over(found):
    results = found[1]
    same, warnings, left = results["damaged"]
    assert same
    assert not left
    assert any("x.npy was changed; going on from the one before it" in text for text in warnings)
    assert all("no readable manifest" in said for said in results["all damaged"])
