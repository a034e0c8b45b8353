"""A part of a graph, on which gcnmpi.torch.verify compares a module."""

import numpy as np
import pytest
from stored_graphs import graph_of

pytest.importorskip("torch", reason="PyTorch is not installed")

from gcnmpi.torch.objects import _induced, _some
from partition.graph.arc_data import ArcData


@pytest.mark.parametrize("count", [1, 20, 60, 100])
def test_a_part_has_all_arcs_among_its_vertices(count):
    random, n = np.random.default_rng(0), 60
    dense = random.random((n, n)) * (random.random((n, n)) < 0.05)
    arcs = np.count_nonzero(dense)
    graph = graph_of(
        dense,
        features=random.random((n, 3)).astype(np.float32),
        labels=random.integers(0, 3, n).astype(np.int32),
        masks={"train": np.arange(n) < 30, "val": np.arange(n) >= 30},
        arc_data=ArcData(np.arange(arcs, dtype=np.float32)[:, None]),
    )
    chosen = _some(graph, count)
    assert len(chosen) == min(n, count)
    assert (np.diff(chosen) > 0).all()
    found = _induced(graph, chosen)
    part, numbers = np.zeros((2, len(chosen), len(chosen)))
    part[tuple(found["edge_index"])] = found["edge_weight"]
    numbers[tuple(found["edge_index"])] = found["arc_features"][:, 0] + 1
    whole = np.zeros((n, n))
    whole[np.nonzero(dense)] = np.arange(arcs) + 1
    np.testing.assert_array_equal(part, dense[np.ix_(chosen, chosen)])
    np.testing.assert_array_equal(numbers, whole[np.ix_(chosen, chosen)])
    np.testing.assert_array_equal(found["x"], graph.features[chosen])
    np.testing.assert_array_equal(found["y"], graph.labels[chosen])
    assert ("train_mask" in found) == bool((chosen < 30).any())
