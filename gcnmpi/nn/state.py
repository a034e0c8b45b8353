"""Parameters as files of weights hold them: PyTorch Geometric's names and shapes, both ways.

A weight is stored transposed, (d_out, d_in), as PyTorch's ``Linear`` has it; other parameters keep
their shape or are reshaped (``Parameter.stored``); parameters that are parts of one array there
(``Parameter.part_of``) are joined along the last axis. ``Network.constants`` are stored too, and
zeros for ``Network.unread``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

import numpy as np

from gcnmpi.nn.network import Network
from gcnmpi.nn.operator import Parameter
from partition.errors import UserError


def to_state(network: Network, parameters: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Arrays of a file of weights from whole parameters, or their gradients."""
    parts: dict[str, list[np.ndarray]] = {}
    for name, parameter in network.parameters.items():
        parts.setdefault(parameter.part_of or name, []).append(_stored(parameter, parameters[name]))
    state = {
        name: np.ascontiguousarray(arrays[0] if len(arrays) == 1 else np.concatenate(arrays, -1))
        for name, arrays in parts.items()
    }
    state |= {name: np.array([value]) for name, value in network.constants.items()}
    return state | {name: np.zeros(shape) for name, shape in network.unread.items()}


def to_parameters(
    network: Network, state: Mapping[str, np.ndarray], called: Mapping[str, str] | None = None
) -> dict[str, np.ndarray]:
    """The inverse of :func:`to_state`.

    Constants and unread arrays may be missing, and the counters of PyTorch's batch norms be there.
    The file may call arrays otherwise, as ``called`` says. A UserError if an array is missing,
    of another shape, or none of the network's; or if a constant has another value.
    """
    groups = _groups(network)
    state = {
        name: array
        for name, array in state.items()
        if not name.endswith(_COUNTER) and name not in network.unread
    }
    for name, value in network.constants.items():
        has_value = state.pop(name, np.array([value]))
        if has_value.shape != (1,) or abs(has_value[0] - value) > 1e-6 * (1 + abs(value)):
            what = f"{in_file(name, called)} is {has_value.tolist()}"
            raise UserError(f"{what}, the network's is [{value}]")
    found: dict[str, np.ndarray] = {}
    for name, parameters in groups.items():
        shape = _joined(parameters)
        array = state.get(name)
        if array is None or array.shape != shape or array.dtype.kind != "f":
            has = "missing" if array is None else f"{array.dtype} {array.shape}"
            raise UserError(f"{in_file(name, called)} is {has}, the network's is {shape}")
        ends = np.cumsum([_shape(parameter)[-1] for parameter in parameters])[:-1]
        pieces = np.split(array, ends, axis=-1) if len(parameters) > 1 else [array]
        for parameter, piece in zip(parameters, pieces, strict=True):
            found[parameter.name] = _loaded(parameter, piece)
    if unknown := sorted(set(state) - set(groups)):
        raise UserError(f"{in_file(unknown[0], called)!r} is not a parameter of the network")
    return found


def in_file(name: str, called: Mapping[str, str] | None) -> str:
    """The name of an array in a file, or that it would have there, with the one that it has here.

    An array that is missing is called as the same one of another layer, or as others of its layer.

    >>> in_file("convs.1.bias", {"convs.0.bias": "conv1.bias"})
    'conv2.bias (convs.1.bias)'
    """
    called = called or {}
    other = called.get(name) or _would_be(name, called)
    return name if other == name else f"{other} ({name})"


def _would_be(name: str, called: Mapping[str, str]) -> str:
    match = _NUMBERED.fullmatch(name)
    if match is None:
        return name
    rest = ""
    for here, there in called.items():
        one, other = _NUMBERED.fullmatch(here), _NUMBERED.fullmatch(there)
        if one is None or other is None or one[1] != match[1]:
            continue
        number = int(other[2]) - int(one[2]) + int(match[2])
        if one[3] == match[3]:
            return f"{other[1]}{number}.{other[3]}"
        rest = rest or f"{other[1]}{number}.{match[3]}"
    return rest or name


def stored_shapes(network: Network) -> dict[str, tuple[int, ...]]:
    """Names and shapes of the arrays of a file of the network's weights, but for constants."""
    return {name: _joined(parameters) for name, parameters in _groups(network).items()}


def ends_of(
    build: Callable[[int, int, int], Network], state: Mapping[str, np.ndarray]
) -> tuple[int, int, int] | None:
    """Widths of features, logits and features of arcs that the arrays of a file of weights show.

    None if they do not show the first two; 0 where they do not show the third. An array that is
    missing, or has another number of axes, shows nothing. The network is built for given widths.
    """
    # Each axis is a sum of multiples of the widths, which are its digits in a large base.
    widths = [_DIVISIBLE * _BASE**place for place in (1, 2, 3)]
    axes: list[tuple[int, int]] = []
    for name, parameters in _groups(build(widths[0], widths[1], widths[2])).items():
        shape = _joined(parameters)
        if name in state and len(state[name].shape) == len(shape):
            axes += zip(shape, state[name].shape, strict=True)
    found: dict[int, int] = {}
    # An array with one unknown width shows it; with it, others have one unknown less.
    for _ in widths:
        for wanted, has in axes:
            digits = [wanted // _BASE**place % _BASE for place in range(4)]
            left = (has - digits[0]) * _DIVISIBLE
            left -= sum(digits[place] * width for place, width in found.items())
            unknown = [place for place in (1, 2, 3) if digits[place] and place not in found]
            if len(unknown) == 1:
                found[unknown[0]] = left // digits[unknown[0]]
    return (found[1], found[2], found.get(3, 0)) if {1, 2} <= found.keys() else None


def from_gcn(
    state: Mapping[str, np.ndarray], called: Mapping[str, str] | None = None
) -> dict[str, np.ndarray]:
    """Arrays of any stack of GCNConv layers, under the names of PyTorch Geometric's ``GCN``.

    Accepts what a ``state_dict`` of GCNConv layers holds and nothing else: for each layer
    ``NAMEk.lin.weight`` and, for all or none, ``NAMEk.bias``, with one NAME (such as ``convs.`` or
    ``conv``) and numbers k that leave none out. ``called``: as of :func:`to_parameters`. A
    UserError if a name or shape does not fit a stack of GCNConv layers, or one is missing.
    """
    found: dict[int, dict[str, np.ndarray]] = {}
    stacks = set()
    for name, array in state.items():
        match = re.fullmatch(r"(\D*)(0|[1-9]\d{0,8})\.(lin\.weight|bias)", name)
        kind = match[3] if match else ""
        if not match or array.ndim != (1 if kind == "bias" else 2) or array.dtype.kind != "f":
            raise UserError(
                f"{in_file(name, called)!r} is not a weight of a GCNConv layer",
                "those are convs.0.lin.weight (d_out, d_in), convs.0.bias (d_out) and so on",
            )
        stacks.add(match[1])
        found.setdefault(int(match[2]), {})[kind] = array
    if len(stacks) > 1:
        one, other, *_ = sorted(stacks)
        raise UserError(f"the weights are of two stacks of layers: {one!r} and {other!r}")
    arrays: dict[str, np.ndarray] = {}
    width = None
    first = 0 if 0 in found else 1
    for k, number in enumerate(range(first, first + len(found))):
        layer = found.get(number, {})
        if "lin.weight" not in layer:
            what = "has a bias but no weight" if layer else "is missing"
            raise UserError(f"layer {number} of the weights {what}")
        d_out, d_in = layer["lin.weight"].shape
        bias = layer.get("bias")
        if width not in (None, d_in) or (bias is not None and bias.shape != (d_out,)):
            raise UserError(f"the shapes of layer {number} of the weights do not fit")
        arrays |= {f"convs.{k}.{kind}": array for kind, array in layer.items()}
        width = d_out
    if not arrays or len({f"convs.{k}.bias" in arrays for k in range(len(found))}) > 1:
        raise UserError("the weights hold no GCNConv layers, or only some have a bias")
    return arrays


def _stored(parameter: Parameter, array: np.ndarray) -> np.ndarray:
    if parameter.stored is None:
        return array
    return (array.T if _transposed(parameter) else array).reshape(parameter.stored)


def _loaded(parameter: Parameter, array: np.ndarray) -> np.ndarray:
    if not _transposed(parameter):
        return np.ascontiguousarray(array).reshape(parameter.shape)
    return np.ascontiguousarray(array.reshape(parameter.shape[::-1]).T)


def _transposed(parameter: Parameter) -> bool:
    """Whether a file has a weight the other way round; others have the same numbers in a row.

    As one of a convolution of PyTorch it may have further axes, of length 1.
    """
    first, rest = (parameter.stored or ())[:2], (parameter.stored or ())[2:]
    return parameter.is_weight and first == parameter.shape[::-1] and set(rest) <= {1}


def _shape(parameter: Parameter) -> tuple[int, ...]:
    return parameter.stored or parameter.shape


def _joined(parameters: list[Parameter]) -> tuple[int, ...]:
    """The shape of the array that holds them."""
    shapes = [_shape(parameter) for parameter in parameters]
    return (*shapes[0][:-1], sum(shape[-1] for shape in shapes))


def _groups(network: Network) -> dict[str, list[Parameter]]:
    """The parameters of each array of a file of weights."""
    groups: dict[str, list[Parameter]] = {}
    for parameter in network.parameters.values():
        groups.setdefault(parameter.part_of or parameter.name, []).append(parameter)
    return groups


# Above all widths, so that sums have digits of their own; and divided by small numbers of towers.
_BASE, _DIVISIBLE = 1 << 60, 720_720
_NUMBERED = re.compile(r"(\D*?)(0|[1-9]\d{0,8})\.(.+)")  # "convs.", "1", "lin.weight"
_COUNTER = ".num_batches_tracked"
