"""A compiled network with its parameters and matrices on the ranks: it runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

import numpy as np

from gcnmpi.halo.matrix import Matrix
from gcnmpi.kernels.interface.kernel import Array, Kernel
from gcnmpi.layout.place import Place, Space
from gcnmpi.mpi.comm import slice_of
from gcnmpi.nn.binding import Binding, Run
from gcnmpi.nn.compile.buffers import gives_whole
from gcnmpi.nn.initial import initial
from gcnmpi.nn.network import Network
from gcnmpi.nn.operators.arcs import ArcInput
from gcnmpi.nn.operators.degrees import degrees_of
from gcnmpi.nn.optim import Parameters
from gcnmpi.nn.program import FEATURES, INPUT, Program, Step, products
from gcnmpi.nn.scratch import Scratch
from gcnmpi.nn.shards import fill, shapes_of
from gcnmpi.nn.slices import bind, slices_of
from gcnmpi.nn.sparse_input import SparseInput
from gcnmpi.options.config import Config
from gcnmpi.schemes.interface import Scheme
from gcnmpi.schemes.operations import SUMS, Operation, Product

PASSES = ("training", "evaluation")
Given = Callable[[str, Place], Array]


class Passes:
    """The passes of a program over some rows, with parameters that others may use too.

    Parameters
    ----------
    scheme, kernel : scheme and kernel
        The scheme says which rows they are.
    seed : int
        Of dropout.
    rows : callable
        How many rows a matrix at a place has on all ranks.
    features : array or SparseInput
        As for :class:`Model`.
    parameters, gradients : mapping of str to array
    kinds : tuple of str
        Which of ``PASSES`` it makes; memory is there for these.
    between : callable
        Called after each step of a training pass.
    arcs : callable, optional
        What is given of arcs, a row for each entry of M: see :class:`Model`; by name and place.
    scratch : Scratch, optional
        Where values are that a program writes to a file.

    Attributes
    ----------
    input : array
        H⁰, where it is kept: what is written to it is what the next pass reads.
    """

    def __init__(
        self,
        scheme: Scheme,
        kernel: Kernel,
        program: Program,
        seed: int,
        rows: Callable[[Place], int],
        features: Array | SparseInput,
        parameters: Mapping[str, Array],
        gradients: Mapping[str, Array],
        kinds: tuple[str, ...] = PASSES,
        between: Callable[[], None] = lambda: None,
        arcs: Given | None = None,
        scratch: Scratch | None = None,
    ) -> None:
        self._between = between
        given = {} if arcs is None else given_of_arcs(program, arcs)
        sparse: dict[int, SparseInput] = {}
        constants = given
        if isinstance(features, SparseInput):
            first, *dropped = program.sparse
            sparse = {first: features} | {value: features.copy() for value in dropped}
        else:
            constants = _constants(scheme, kernel, program, features, given)
            _write(scratch, {value: constants.pop(value) for value in program.stored})
        if INPUT in constants:
            self.input = constants[INPUT].array
        buffers = {"training": program.training_buffers, "evaluation": program.evaluation_buffers}
        used = {number for kind in kinds for number in buffers[kind].values()}
        slices = slices_of(scheme, program)
        memory = {
            number: Matrix(value.place, kernel.empty(slices.rows_of(value), value.width))
            if value.sliced
            else scheme.empty(value.place, value.width, value.exchanged)
            for number, value in enumerate(program.buffers)
            if number in used
        }
        kept: dict[tuple[int | None, str], object] = {}

        def binding(numbers: Mapping[int, int]) -> Binding:
            places = {value: program.values[value].place for value in numbers}
            matrices = constants | {v: memory[b].at(places[v]) for v, b in numbers.items()}
            facts = scheme, kernel, program, seed, rows
            held = {v: program.buffers[b] for v, b in numbers.items()}
            sliced = {v: buffer.first for v, buffer in held.items() if buffer.sliced}
            arrays = parameters, gradients, matrices
            return Binding(*facts, *arrays, kept, False, sparse, sliced, scratch)

        if "training" in kinds:
            training = binding(buffers["training"])
            self._forward = bind(training, program.forward, slices)
            self._backward = bind(training, program.backward, slices)
            self._logits = training.array(program.logits)
            self.output_grad = training.array(program.logits_grad)
        if "evaluation" in kinds:
            evaluation = binding(buffers["evaluation"])
            self._evaluation = bind(evaluation, program.evaluation, slices)
            self._evaluated = evaluation.array(program.outputs[-1])

    @property
    def logits(self) -> Array:
        """The memory of the logits of training passes."""
        return self._logits

    def forward(self, epoch: int) -> Array:
        """Logits of a training pass, with the dropout of an epoch (or of a step), from 1."""
        self._train(self._forward, epoch)
        return self._logits

    def backward(self, epoch: int) -> None:
        """Gradients of the loss from its gradient in ``output_grad``, after ``forward(epoch)``."""
        self._train(self._backward, epoch)

    def _train(self, steps: list[Run], epoch: int) -> None:
        for run in steps:
            run(epoch)
            self._between()

    def evaluate(self) -> Array:
        """Logits of a pass without dropout."""
        for run in self._evaluation:
            run(0)
        return self._evaluated


class Model(Passes):
    """A network on a scheme and a kernel: parameters, forward and backward pass.

    Parameters
    ----------
    scheme, kernel : scheme and kernel
    network : Network
    program : Program
        The network, compiled for the scheme.
    config : Config
        Its ``train``: the seed, and what decays.
    n : int
        Vertices of the graph.
    features : array or SparseInput
        This rank's piece of H⁰, as given by ``scheme.load``; its share where it is trained. It
        belongs to the model, which may put something else there. A sparse matrix where that is
        what the program takes.
    kinds : tuple of str
        The ``PASSES`` that it makes.
    arcs : mapping of str to array, optional
        What a network reads of arcs, by ``given`` of :class:`~gcnmpi.nn.operators.arcs.ArcInput`:
        a row for each entry of this rank's rows of M.
    scratch : Scratch, optional
        Where values are that the program writes to a file.

    Attributes
    ----------
    parameters, gradients : Parameters
        Parameters, and this rank's contribution to their gradients after ``backward``.
    """

    def __init__(
        self,
        scheme: Scheme,
        kernel: Kernel,
        network: Network,
        program: Program,
        config: Config,
        n: int,
        features: Array | SparseInput,
        kinds: tuple[str, ...] = PASSES,
        arcs: Mapping[str, Array] | None = None,
        scratch: Scratch | None = None,
    ) -> None:
        self._scheme, self._kernel, self._config, self._n = scheme, kernel, config, n
        self.network = network
        self.program = program
        own, whole = shapes_of(scheme, network, program)
        if program.trained_features:
            assert not isinstance(features, SparseInput)
            own = {FEATURES: features.shape} | own
        self.parameters = Parameters(kernel, own, whole)
        self.gradients = Parameters(kernel, own, whole)
        self.fill(self.parameters.flat, dict(self._initial()))
        if program.trained_features:
            assert not isinstance(features, SparseInput)
            kernel.copy(features, self.parameters[FEATURES])
        views = self.parameters, self.gradients
        super().__init__(
            scheme, kernel, program, config.train.seed, all_rows(scheme, n), features, *views,
            kinds, arcs=None if arcs is None else (lambda given, place: arcs[given]),
            scratch=scratch,
        )  # fmt: skip

    @property
    def widths(self) -> tuple[int, ...]:
        """Columns of H⁰ and of each layer's output; the last are the classes."""
        return self.program.widths

    @property
    def depth(self) -> int:
        """Number of layers that have an output."""
        return len(self.program.outputs)

    @property
    def place(self) -> Place:
        """Where the logits are."""
        return self.program.place

    def forward(self, epoch: int | None = None) -> Array:
        """Logits (rows, classes).

        With an epoch, from 1, that is its training pass with dropout; without, an evaluation.
        """
        return self.evaluate() if epoch is None else super().forward(epoch)

    def products(self, backward: bool) -> list[Product]:
        """The scheme's products of one training (``backward``) or evaluation pass."""
        program = self.program
        steps = (*program.forward, *program.backward) if backward else program.evaluation
        return products(program, steps, lambda place: self._scheme.block(place, 0).count)

    def penalties(self) -> dict[str, float]:
        """The L2 penalty of each parameter: its weight decay."""
        train = self._config.train
        first_only = train.weight_decay_layers == "first"
        found = {FEATURES: 0.0 if first_only else train.weight_decay}
        for name, parameter in self.network.parameters.items():
            decays = parameter.trained and (parameter.layer == 1 or not first_only)
            own = train.weight_decay_convs if name.startswith("convs.") else 0.0
            found[name] = (own or train.weight_decay) if decays else 0.0
        return found

    def whole(self, flat: Array) -> dict[str, np.ndarray]:
        """Whole parameters, or their gradients or moments, on every rank.

        Parameters
        ----------
        flat : array
            In the layout of ``parameters.flat``.

        Returns
        -------
        dict of arrays
            By the names and with the shapes of ``network.parameters``; trained features are not
            among them: see :meth:`features`.
        """
        flat = self._kernel.to_host(flat)
        found = {}
        for name, parameter in self.network.parameters.items():
            piece = flat[self.parameters.slices[name]].reshape(self.parameters[name].shape)
            if parameter.is_weight:
                k = self.program.weight_layers[name]
                piece = self._scheme.unshard(k, piece, *parameter.shape)
            found[name] = piece
        return found

    def fill(self, flat: Array, whole: Mapping[str, np.ndarray]) -> None:
        """The inverse of :meth:`whole`: parameters, or their moments, into ``flat``."""
        tools = self._scheme, self._kernel, self.network, self.program
        fill(*tools, self.parameters, flat, whole)

    def load_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Set all parameters from whole ones."""
        self.fill(self.parameters.flat, state)

    def features(self, flat: Array) -> np.ndarray:
        """This rank's piece of H⁰ (or of its gradient or moments), of trained features."""
        share = flat[self.parameters.slices[FEATURES]].reshape(self.parameters[FEATURES].shape)
        piece = self._scheme.empty(Place(0), self.widths[0]).array
        self._scheme.expand_input(share, piece)
        return self._kernel.to_host(piece)

    def fill_features(self, flat: Array, piece: np.ndarray) -> None:
        """The inverse of :meth:`features`."""
        share = flat[self.parameters.slices[FEATURES]].reshape(self.parameters[FEATURES].shape)
        self._scheme.share_input(self._kernel.from_host(piece), share)

    def _initial(self) -> Iterator[tuple[str, np.ndarray]]:
        for name, parameter in self.network.parameters.items():
            yield name, initial(parameter, self._config.train.seed, self._average)

    def _average(self, of: Callable[[np.ndarray], np.ndarray]) -> float:
        """The mean over all vertices of a function of their degree."""
        halo, block = self._scheme.halo_of(1), self._scheme.block(Place(0), 1)
        assert halo is not None, "a scheme that does not give whole rows"
        total = of(degrees_of(self._kernel, halo.pattern)).sum(keepdims=True)
        if not block.counts_rows:
            total.fill(0)
        self._scheme.reduce(total)
        return float(total[0]) / self._n


def all_rows(scheme: Scheme, n: int) -> Callable[[Place], int]:
    """How many rows a matrix at a place has on all ranks: vertices, or entries of M."""
    of_vertices = Space.OWN, Space.WHOLE, Space.TURNED
    return lambda place: n if place.space in of_vertices else scheme.all_rows(place.space)


def given_of_arcs(program: Program, arcs: Given) -> dict[int, Matrix]:
    """The values of a program that are given with the graph, beside H⁰, of :class:`Passes`."""
    found = {}
    for number, operator in enumerate(program.operators):
        if isinstance(operator, ArcInput):
            place = program.values[number].place
            rows = arcs(operator.given, place)
            found[number] = Matrix(place, rows, rows)
    return found


def _constants(
    scheme: Scheme,
    kernel: Kernel,
    program: Program,
    features: Array,
    given: Mapping[int, Matrix],
) -> dict[int, Matrix]:
    """The values that never change and that steps read, computed once from those given."""
    values, stay = program.values, {*program.kept, *program.stored}
    found = {INPUT: Matrix(values[INPUT].place, features), **given}
    last = {value: step for step in program.constants for value in step.values}
    for step in program.constants:
        ended = [i for i in {*step.reads} if last[i] is step and i not in stay]
        free = step.reads[0] in ended
        value = values[step.number]
        if step.instruction.operation in SUMS:
            found[step.number] = aggregate_constant(
                scheme,
                kernel,
                found[step.reads[0]],
                value.place,
                value.width,
                value.exchanged,
                overwrite=free,
                product=step.instruction.operation,
            )
        else:
            found[step.number] = _constant(scheme, kernel, program, step, found)
        for number in ended:
            del found[number]
    kept = {number: found[number] for number in stay}
    first = values[INPUT]
    if INPUT in kept and first.exchanged:
        kept[INPUT] = scheme.empty(first.place, first.width, exchanged=True)
        kernel.copy(features, kept[INPUT].array)
    return kept


def _write(scratch: Scratch | None, constants: Mapping[int, Matrix]) -> None:
    """Write values that never change, once."""
    for value, matrix in constants.items():
        assert scratch is not None, "a program that writes values has a file"
        scratch.place(value, matrix.array)
        scratch.write(value, matrix.array)
        scratch.wait(value)


def _constant(
    scheme: Scheme, kernel: Kernel, program: Program, step: Step, found: Mapping[int, Matrix]
) -> Matrix:
    """The value that a step which is no product makes of values that were found."""
    before, after = (program.values[i] for i in (step.reads[0], step.number))
    matrices = {i: found[i] for i in step.reads}
    copied = step.instruction.gathers and not gives_whole(step, program.values)
    if copied:
        x = scheme.empty(before.place, before.width, exchanged=True)
        kernel.copy(found[step.reads[0]].array, x.array)
        matrices[step.reads[0]] = x
    matrices[step.number] = scheme.empty(after.place, after.width, after.exchanged)
    binding = Binding(scheme, kernel, program, 0, lambda place: 0, {}, {}, matrices, {})
    step.bind(binding)(0)
    scheme.release()
    return matrices[step.number]


def aggregate_constant(
    scheme: Scheme,
    kernel: Kernel,
    x: Matrix,
    place: Place,
    width: int,
    exchanged: bool,
    overwrite: bool,
    product: Operation = Operation.AGGREGATE,
) -> Matrix:
    """M·x, which is made once; a wide x is overwritten with it where it may be and has its shape.

    Or Mᵀ·x, as ``product`` says.
    Some columns at a time, so that what the product takes beside its result (halos, partial sums,
    buffers of MPI) is small against it. On all ranks together x has ``width`` columns.
    """
    pieces, k = input_pieces(width), place.layer
    transposed = product is Operation.AGGREGATE_T
    multiply = scheme.aggregate_t if transposed else scheme.aggregate
    if pieces == 1:
        result = scheme.empty(place, width, exchanged)
        multiply(k, replace(x, spent=overwrite), result.array)
        scheme.release()
        return result
    rows, columns = scheme.block(place, width).count, x.array.shape[1]
    result = x.at(place)
    if not overwrite or rows != len(x.array) or exchanged:
        result = scheme.empty(place, width, exchanged)
    for number in range(pieces):
        some = slice_of(columns, number, pieces)
        count = some.stop - some.start
        part, out = kernel.empty(len(x.array), count), kernel.empty(rows, count)
        kernel.copy(x.array[:, some], part)
        multiply(k, Matrix(x.place, part, spent=True), out)
        scheme.release()
        kernel.copy(out, result.array[:, some])
    return result


def input_pieces(width: int) -> int:
    """In how many pieces of columns M·H⁰ is made: at most 16, of at least 64 columns."""
    return max(1, min(16, width // 64))
