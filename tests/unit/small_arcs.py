"""Networks with rows of arcs on a small directed graph, in one process."""

import numpy as np
import scipy.sparse as sp
from one_process import WithEntries

from gcnmpi.nn.compile import KEPT, Target, compile_network
from gcnmpi.nn.describe import matrix_of, network_of
from gcnmpi.nn.model import Model
from gcnmpi.options.config import from_table
from gcnmpi.options.kernel import KERNELS

N, D, ARC_D, CLASSES = 12, 5, 3, 4
LONELY = (2, 7)  # without any arc


class SmallRun:
    """A network with initial weights: its loss, the sum of its logits times given numbers.

    ``attributes`` are the features of the arcs, ``sources`` to ``targets``; without ``arcs`` there
    are none. A ``network`` that is given is taken in place of that of the settings,
    features ``x`` in place of others. With ``blocks``, rows of vertices are in these.
    """

    def __init__(
        self,
        settings,
        kernel="scipy",
        arcs=True,
        residences=KEPT,
        network=None,
        x=None,
        disk=None,
        blocks=False,
    ):
        rng = np.random.default_rng(1)
        there = rng.random((N, N)) < 0.35
        there[list(LONELY)] = there[:, list(LONELY)] = False
        there[4, 4] = True
        self.targets, self.sources = np.nonzero(there)
        self.x = rng.normal(size=(N, D if network is None else network.widths[0]))
        self.x = self.x if x is None else x
        self.attributes = rng.normal(size=(len(self.targets), ARC_D))
        self.config = from_table({"model": settings, "dtype": "float64"})
        model = self.config.model
        self.network = network or network_of(model, D, CLASSES, ARC_D if arcs else 0)
        self.grad = rng.normal(size=(N, self.network.widths[-1]))
        _, loops = matrix_of(model) or ("none", False)
        matrix = sp.csr_array((there | np.eye(N, dtype=bool) if loops else there).astype(float))
        self.matrix = matrix
        scheme = WithEntries(matrix, KERNELS.get(kernel)(np.float64))
        target = Target(
            scheme.orders, scheme.layout, residences=residences, blocks=blocks,
            loss_over_logits=blocks,
        )  # fmt: skip
        self.program = compile_network(self.network, target, model)
        given = dict.fromkeys(("zero", "mean"), self._entries(matrix, loops))
        facts = self.program, self.config, N, self.x.copy()
        self.model = Model(scheme, scheme.kernel, self.network, *facts, arcs=given, scratch=disk)
        for name, parameter in self.network.parameters.items():
            if parameter.trained:  # away from 0, where activations have a kink
                self.model.parameters[name][...] += 0.1 * rng.normal(size=parameter.shape)

    def _entries(self, matrix, loops):
        """A row for each entry; a loop that M puts on the diagonal has the mean of the others."""
        found = np.zeros((matrix.nnz, ARC_D))
        rows = np.repeat(np.arange(N), np.diff(matrix.indptr))
        proper = self.targets != self.sources
        for entry, (i, j) in enumerate(zip(rows, matrix.indices, strict=True)):
            here = (self.targets == i) & ((self.sources == j) if i != j or not loops else proper)
            if here.any():
                found[entry] = self.attributes[here].mean(axis=0)
        return found

    def loss(self):
        """Of a training pass."""
        return float((self.model.forward(1) * self.grad).sum())

    def gradient(self):
        """Of the loss, by all parameters in a row."""
        self.loss()
        self.model.output_grad[...] = self.grad
        self.model.backward(1)
        return self.model.gradients.flat.copy()
