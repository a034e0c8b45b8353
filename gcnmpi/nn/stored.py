"""Parameters as a file of weights has them: under the names and in the shapes of other programs.

The table is the network itself: ``Parameter.stored`` and ``Parameter.part_of``.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from gcnmpi.nn.network import Network
from gcnmpi.nn.operators import Parameter
from partition.errors import UserError


def to_stored(network: Network, arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The arrays of a file of weights from whole parameters, or their gradients."""
    parts: dict[str, list[np.ndarray]] = {}
    for name, parameter in network.parameters.items():
        array = arrays[name]
        if parameter.stored is not None:
            array = array.T if parameter.is_weight else array.reshape(parameter.stored)
        parts.setdefault(parameter.part_of or name, []).append(array)
    state = {name: np.ascontiguousarray(np.concatenate(p, -1)) for name, p in parts.items()}
    return state | {name: np.array([value]) for name, value in network.constants.items()}


def from_stored(network: Network, state: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The inverse of :func:`to_stored`.

    Files of PyTorch Geometric may hold ``num_batches_tracked`` of batch norms, which says nothing.

    Raises
    ------
    UserError
        If an array is missing, not one of the network's, or of another shape.
    """
    expected = stored_shapes(network)
    given = {name: array for name, array in state.items() if not name.endswith(_COUNTER)}
    for name in [*expected, *given]:
        found = given[name].shape if name in given else "missing"
        wanted = expected.get(name, "not among them")
        optional = name in network.constants and name not in given
        if found != wanted and not optional:
            raise UserError(f"{name} is {found}, the network's is {wanted}", _hint(expected))
        if name in given and given[name].dtype.kind != "f":
            raise UserError(f"{name} is not an array of floating-point numbers")
    for name, value in network.constants.items():
        if name in given and float(given[name][0]) != value:
            raise UserError(f"{name} is {float(given[name][0])}, the network's is {value}")
    arrays, done = {}, dict.fromkeys(given, 0)
    for name, p in network.parameters.items():
        whole = p.part_of or name
        array = given[whole]
        if p.part_of:
            start = done[whole]
            done[whole] = start + _stored_shape(p)[-1]
            array = array[..., start : done[whole]]
        array = array.T if p.is_weight and p.stored is not None else array.reshape(p.shape)
        arrays[name] = np.ascontiguousarray(array)
    return arrays


def stored_shapes(network: Network) -> dict[str, tuple[int, ...]]:
    """Name and shape of every array of a file of weights."""
    shapes: dict[str, tuple[int, ...]] = {}
    for name, parameter in network.parameters.items():
        whole, shape = parameter.part_of or name, _stored_shape(parameter)
        before = shapes[whole][-1] if whole in shapes else 0
        shapes[whole] = (*shape[:-1], before + shape[-1])
    return shapes | dict.fromkeys(network.constants, (1,))


def _stored_shape(parameter: Parameter) -> tuple[int, ...]:
    return parameter.shape if parameter.stored is None else parameter.stored


def _hint(expected: Mapping[str, tuple[int, ...]]) -> str:
    shown = ", ".join(f"{name} {shape}" for name, shape in list(expected.items())[:4])
    return f"expected are {shown}{' and so on' * (len(expected) > 4)}"


_COUNTER = ".num_batches_tracked"
