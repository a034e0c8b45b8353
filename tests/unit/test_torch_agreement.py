"""The numbers by which gcnmpi.torch compares weights of ranks, and a part of a graph to verify."""

import gc
from types import SimpleNamespace

import numpy as np
import pytest
from stored_graphs import graph_of

pytest.importorskip("torch", reason="PyTorch is not installed")

import torch

from gcnmpi.torch.agreement import Agreement
from gcnmpi.torch.objects import _induced, _some
from partition.graph.arc_data import ArcData


class Spoken:
    """The ranks of a run, of which one is here: what it says is kept."""

    comm = SimpleNamespace(size=2, rank=0)

    def sums(self, numbers):
        self.numbers = numbers
        return [2 * number for number in numbers]


def spoken(agreement, ranks, weights):
    loss = sum((k * weight.square()).sum() for k, weight in enumerate(weights, 1))
    agreement.sum((), loss, "mean")
    return np.array(ranks.numbers)


def weights_of(seed):
    random = torch.Generator().manual_seed(seed)
    return [torch.randn(4, generator=random).requires_grad_() for _ in range(3)]


def test_weights_at_the_addresses_of_an_earlier_model_are_compared_in_their_own_order():
    """Which address a rank gives to a tensor is its own affair."""
    ranks, earlier, later = Spoken(), weights_of(0), weights_of(1)
    expected = spoken(fresh := Agreement(ranks, ()), ranks, later)
    spoken(agreement := Agreement(ranks, ()), ranks, earlier)
    addresses = reversed(fresh._known)  # in another order than they are found in
    agreement._known = dict(zip(addresses, agreement._known.values(), strict=True))
    del earlier
    gc.collect()
    agreement._calls.clear()  # so that it compares in the next call
    np.testing.assert_array_equal(spoken(agreement, ranks, later), expected)


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
