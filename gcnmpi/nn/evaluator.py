"""One evaluation of a network with given weights, in the memory that a layer needs.

A :class:`~gcnmpi.nn.model.Model` keeps all matrices of a pass, for the next epoch. Here each is
made when it is written and freed after its last reading, as :mod:`gcnmpi.nn.compile.lifetimes`
says.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from gcnmpi.halo.matrix import Matrix
from gcnmpi.kernels.interface.kernel import Array, Kernel
from gcnmpi.layout.place import Place
from gcnmpi.nn.binding import Binding
from gcnmpi.nn.compile.lifetimes import gathers_features, lifetimes
from gcnmpi.nn.model import all_rows, given_of_arcs
from gcnmpi.nn.network import Network
from gcnmpi.nn.optim import Parameters
from gcnmpi.nn.program import INPUT, Program
from gcnmpi.nn.shards import fill, shapes_of
from gcnmpi.nn.sparse_input import SparseInput
from gcnmpi.schemes.interface import Scheme


def evaluate(
    scheme: Scheme,
    kernel: Kernel,
    network: Network,
    program: Program,
    n: int,
    weights: Mapping[str, np.ndarray],
    features: list[Array | SparseInput],
    depth: int,
    arcs: Mapping[str, Array],
) -> Matrix:
    """The output of layer ``depth``, from 1; of the last one, the logits.

    Parameters
    ----------
    program : Program
        Compiled without training.
    n : int
        Vertices of the graph.
    weights : mapping of str to array
        Whole parameters by name.
    features : list of one array or SparseInput
        This rank's piece of H⁰. It is taken out of the list, and freed when it is read no more.
    arcs : mapping of str to array
        What the network reads of arcs: see :class:`~gcnmpi.nn.model.Model`.
    """
    parameters = Parameters(kernel, *shapes_of(scheme, network, program))
    fill(scheme, kernel, network, program, parameters, parameters.flat, weights)
    moments = lifetimes(program, depth, scheme.layout, scheme.whole_rows)
    given = features.pop()
    live = given_of_arcs(program, lambda given, place: arcs[given])
    sparse: dict[int, SparseInput] = {}
    if isinstance(given, SparseInput):
        sparse[INPUT] = given
    else:
        gathered = gathers_features(program, moments)
        live[INPUT] = _features(scheme, kernel, program, given, gathered)
    del given
    for moment in moments:
        value = program.values[moment.writes]
        if moment.over is not None:
            live[moment.writes] = live[moment.over].at(value.place)
        else:
            live[moment.writes] = scheme.empty(value.place, value.width, moment.gathered)
        facts = scheme, kernel, program, 0, all_rows(scheme, n)
        binding = Binding(*facts, parameters, {}, live, {}, True, sparse)
        moment.step.bind(binding)(0)
        del binding
        scheme.release()
        for ended in moment.ended:
            live.pop(ended, None)
            sparse.pop(ended, None)
    return live[program.outputs[depth - 1]]


def _features(
    scheme: Scheme, kernel: Kernel, program: Program, array: Array, gathered: bool
) -> Matrix:
    if not gathered:
        return Matrix(Place(0), array)
    matrix = scheme.empty(Place(0), program.values[INPUT].width, exchanged=True)
    kernel.copy(array, matrix.array)
    return matrix
