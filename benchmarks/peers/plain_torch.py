"""PyTorch alone, with M as a sparse CSR tensor; tuned: told that M is its own transpose."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch

from peers.task import Case, Contestant, Stack, open_task, training


def train(case: Case, is_tuned: bool) -> Contestant:
    """A GCN; tuned, it keeps M·H⁰ where the case says so."""
    task = open_task(case, normalize="sym")
    m, values = task.matrix, task.matrix.data.astype(np.float32)
    indices = [torch.from_numpy(part.astype(np.int32)) for part in (m.indptr, m.indices)]
    matrix = torch.sparse_csr_tensor(*indices, torch.from_numpy(values), m.shape)

    class Symmetric(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            return matrix @ x

        @staticmethod
        def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
            return matrix @ grad

    aggregate = Symmetric.apply if is_tuned else lambda x: matrix @ x
    makers = {"gcn": lambda model, d_in, width, last: Layer(d_in, width, aggregate)}
    network = Stack(task, makers, lambda layer, x: layer(x))
    network.load_state_dict(task.state)
    if is_tuned and task.config.model.cache_input:
        task = replace(task, x=matrix @ task.x)
        network.convs[0].aggregate = lambda x: x
    return training(task, network, network)


class Layer(torch.nn.Module):
    """The layer's output, M·(x·W) + b."""

    def __init__(self, d_in: int, width: int, aggregate: Callable) -> None:
        super().__init__()
        self.lin, self.aggregate = torch.nn.Linear(d_in, width, bias=False), aggregate
        self.bias = torch.nn.Parameter(torch.zeros(width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The output of the layer, (rows, width)."""
        return self.aggregate(self.lin(x)) + self.bias


untuned = partial(train, is_tuned=False)
tuned = partial(train, is_tuned=True)
