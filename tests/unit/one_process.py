"""A scheme of one process, for tests of what is above it."""

import numpy as np

from gcnmpi.core.timing import Phases
from gcnmpi.halo.matrix import Matrix
from gcnmpi.halo.patterns import Patterns
from gcnmpi.layout.entries import entry_keys
from gcnmpi.layout.place import Block, Incidence, Space
from gcnmpi.nn.compile import Target, compile_network
from gcnmpi.nn.describe import network_of
from gcnmpi.nn.model import Model
from gcnmpi.options.config import from_table

ORDERS = ("combine", "aggregate")


class OneProcess:
    """No communication, and no halo; it notes which aggregations and matrices it is asked for."""

    orders = ORDERS
    sharded = False

    def __init__(self, matrix, kernel):
        self.matrix, self.kernel = matrix, kernel
        self.asked, self.made = [], []

    layout = staticmethod(lambda place: None)
    release = staticmethod(lambda: None)
    weight_shape = staticmethod(lambda k, d_in, d_out: (d_in, d_out))
    shard = staticmethod(lambda k, weight: weight)
    unshard = staticmethod(lambda k, piece, d_in, d_out: piece)

    def halo_of(self, k):
        return self.halo

    def ids(self, place):
        return np.arange(self.matrix.shape[0])

    def block(self, place, width):
        return Block.of(self.ids(place), slice(0, width))

    def empty(self, place, width, exchanged=False):
        self.made.append((width, exchanged))
        array = np.full((len(self.ids(place)), width), np.nan)
        return Matrix(place, array, array)  # with the room for a halo of no rows

    def aggregate(self, k, x, out, epilogue=None):
        self.asked.append(("aggregate", k, x.array.shape[1]))
        out[...] = self.matrix @ x.array
        self.kernel.follow(out, epilogue)

    def aggregate_t(self, k, x, out, epilogue=None):
        out[...] = self.matrix.T @ x.array
        self.kernel.follow(out, epilogue)

    def combine(self, k, product):
        self.kernel.gemm_then(product)

    def weight_grad(self, k, x, grad, out, sums=None):
        self.kernel.gemm(x, grad, out, ta=True)
        if sums is not None:
            self.column_sum(k, grad, sums)

    def column_sum(self, k, grad, out):
        self.kernel.column_sum(grad, out)

    def expand_input(self, share, out):
        out[...] = share

    share_input = expand_input


class AloneHalo:
    """Of one rank: neighbours' rows are its own."""

    alone = True

    def __init__(self, matrix, kernel):
        self.ids, self.phases = np.arange(matrix.shape[0]), Phases()
        self.kernel, self.patterns = kernel, Patterns(kernel, matrix, self.ids)
        self.pattern = self.patterns.of(Incidence.ARCS)
        self.gradients = {}

    def expand(self, x):
        return x.whole

    def gradient(self, place, width):
        array = self.gradients.setdefault(width, np.full((len(self.ids), width), np.nan))
        return Matrix(place, array, array)

    def fold(self, gradient, out):
        self.kernel.copy(gradient.whole, out)


class WithEntries(OneProcess):
    """The same with rows of arcs."""

    whole_rows = True

    def __init__(self, matrix, kernel):
        super().__init__(matrix, kernel)
        self.halo, self.all_rows = AloneHalo(matrix, kernel), lambda space: matrix.nnz
        targets = np.repeat(self.halo.ids, np.diff(matrix.indptr))
        self.keys = dict.fromkeys((Space.OWN, Space.WHOLE), self.halo.ids)
        self.keys[Space.ENTRIES] = entry_keys(targets, matrix.indices, 0 * targets)

    def ids(self, place):
        return self.keys[place.space]

    def row_sum(self, k, sums):
        return sums

    def reduce(self, contributions):
        pass


class LossScheme:
    """All that a loss needs of a scheme of one rank.

    As rows might be cut, the loss of classes takes all its passes.
    """

    whole_rows = False

    def __init__(self, kernel, shape):
        self._block = Block.of(np.arange(shape[0]), slice(0, shape[1]))
        self.row_max = lambda k, x: kernel.row_max(x)
        self.row_sum = lambda k, sums: sums
        self.row_pick = lambda k, x, columns, width: kernel.pick(x, columns)
        self.block = lambda place, width: self._block
        self.reduce = lambda contributions: None


def program_of(
    settings, features=6, classes=3, orders=ORDERS, layout=lambda place: None, whole_rows=True
):
    """The program of what ``[model]`` says."""
    model = from_table({"model": settings}).model
    network = network_of(model, features, classes)
    return compile_network(network, Target(orders, layout, whole_rows), model)


def model_of(scheme, kernel, settings, features, classes=3):
    """A model in one process; ``features`` may be overwritten."""
    config = from_table({"model": settings, "dtype": "float64"})
    network = network_of(config.model, features.shape[1], classes)
    program = compile_network(network, Target(scheme.orders, scheme.layout), config.model)
    return Model(scheme, kernel, network, program, config, len(features), features)
