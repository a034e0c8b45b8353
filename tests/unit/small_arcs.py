"""Networks with rows of arcs on a small directed graph, in one process."""

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from one_process import WithEntries

from gcnmpi.nn.compile import Target, compile_network
from gcnmpi.nn.describe import matrix_of, network_of
from gcnmpi.nn.model import Model
from gcnmpi.options.config import from_table
from gcnmpi.options.kernel import KERNELS
from gcnmpi.proof.passes import ArcRows, Pass, arcs_of, rows_of
from gcnmpi.proof.rules import RULES
from partition.graph.graph import Graph

N, D, ARC_D, CLASSES = 12, 5, 3, 4
LONELY = (2, 7)  # without any arc


class SmallRun:
    """A network with initial weights: its loss, the sum of its logits times given numbers.

    ``attributes`` are the features of the arcs, ``sources`` to ``targets``; without ``arcs`` there
    are none. A ``network`` that is given is taken in place of that of the settings, features ``x``
    in place of others. ``left``: ``residences``, which may need a ``disk``, and ``blocks``.
    """

    def __init__(self, settings, kernel="scipy", arcs=True, network=None, x=None, **left):
        rng = np.random.default_rng(1)
        there = rng.random((N, N)) < 0.35
        there[list(LONELY)] = there[:, list(LONELY)] = False
        there[4, 4] = True
        self.targets, self.sources = np.nonzero(there)
        drawn = rng.normal(size=(N, D if network is None else network.widths[0]))
        self.x = drawn if x is None else x
        self.attributes = rng.normal(size=(len(self.targets), ARC_D))
        self.config = from_table({"model": settings, "dtype": "float64"})
        model = self.config.model
        self.network = network or network_of(model, D, CLASSES, ARC_D if arcs else 0)
        self.grad = rng.normal(size=(N, self.network.widths[-1]))
        _, loops = matrix_of(model) or ("none", False)
        self.matrix = sp.csr_array((there | (loops & np.eye(N, dtype=bool))).astype(float))
        scheme = WithEntries(self.matrix, KERNELS.get(kernel)(np.float64))
        disk, blocks = left.pop("disk", None), left.get("blocks", False)
        target = Target(scheme.orders, scheme.layout, loss_over_logits=blocks, **left)
        self.program = compile_network(self.network, target, model)
        given = dict.fromkeys(("zero", "mean"), self._entries(self.matrix, loops))
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


def of_oracle(run):
    """Loss, gradient and moments of a training pass with its dropout, by the rules of operators."""
    order = np.lexsort((run.targets, run.sources))
    starts = np.searchsorted(run.sources[order], np.arange(N + 1))
    graph = Graph(starts, run.targets[order].astype(np.int32))
    _, loops = matrix_of(run.config.model) or ("none", False)
    arcs = ArcRows.of(graph, "in", loops, run.attributes[order])
    weights = {name: run.model.parameters[name].copy() for name in run.network.parameters}
    facts = run.matrix, arcs, run.config.train.seed, 1, {}
    values, backwards, spaces = [run.x], [None], ["vertices"]
    for operator in run.network.operators[1:]:
        given = [spaces[i] for i in operator.inputs]
        spaces.append(rows_of(operator, given))
        keys = arcs.keys if spaces[-1] == "arcs" else None
        state = replace(Pass(*facts, keys=keys), arcs=arcs_of(operator, arcs, [*given, spaces[-1]]))
        inputs = [values[i] for i in operator.inputs]
        value, backward = RULES[type(operator)](operator, inputs, weights, state)
        values.append(value)
        backwards.append(backward)
    grads = [*(0 * value for value in values[:-1]), run.grad]
    gradient = {name: 0 * array for name, array in weights.items()}
    for number in range(len(values) - 1, 0, -1):
        shares, of_parameters = backwards[number](grads[number])
        for source, share in zip(run.network.operators[number].inputs, shares, strict=True):
            grads[source] = grads[source] + share
        for name, share in of_parameters.items():
            gradient[name] = gradient[name] + share
    return float((values[-1] * run.grad).sum()), gradient, facts[-1]


def check_oracle(run):
    """Fail unless a training pass gives what the oracle does."""
    run.model.gradients.flat[...] = np.nan  # of which nothing must be left
    loss, gradient, moments = of_oracle(run)
    assert run.loss() == pytest.approx(loss, rel=1e-12)
    for name, array in moments.items():
        np.testing.assert_allclose(run.model.parameters[name], array, rtol=1e-12, err_msg=name)
    run.gradient()
    for name, parameter in run.network.parameters.items():
        if parameter.trained:
            found = run.model.gradients[name]
            np.testing.assert_allclose(found, gradient[name], 1e-10, 1e-11, err_msg=name)
