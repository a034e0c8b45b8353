"""The numbers by which gcnmpi.torch compares the weights of ranks."""

import gc
from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("torch", reason="PyTorch is not installed")

import torch

from gcnmpi.torch.agreement import Agreement


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
