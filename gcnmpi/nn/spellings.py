"""Names of other programs for the arrays of a file of weights, and what they hold otherwise.

:mod:`gcnmpi.nn.state` has the names: those of PyTorch Geometric's layers in a stack called
``convs``. Here are those of its other versions, of DGL, and of modules that users write; a table of
the names within a convolution, and one of the parts beside it. A name that is in neither stays.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Spelled:
    """Arrays under the names of :mod:`gcnmpi.nn.state`."""

    arrays: Mapping[str, np.ndarray]
    called: Mapping[str, str]  # what each is called in the file


def spelled(state: Mapping[str, np.ndarray]) -> Spelled:
    """The arrays of a file under the names of :mod:`gcnmpi.nn.state`.

    Which parts are a stack of convolutions is seen from the names of their arrays; stacks may be
    numbered from 1.
    """
    names = {name: name for name in state if not name.endswith(".num_batches_tracked")}
    for wrapper in WRAPPERS:
        if names and all(name.startswith(wrapper) for name in names.values()):
            names = {old: name.removeprefix(wrapper) for old, name in names.items()}
    stacks = {stack for old, name in names.items() if (stack := _conv_stack(name, state[old]))}
    if len(stacks) != 1:
        return Spelled({name: state[old] for old, name in names.items()}, _called(names))
    (stack,) = stacks
    within = [match for name in names.values() if (match := _numbered(name)) and match[1] == stack]
    # A list of modules counts from 0; names such as "conv1" may begin at 1.
    first = 0 if stack.endswith(".") else min(1, *(int(match[2]) for match in within))
    others = dict(STACKS)
    if any(match[3] == "weight1" for match in within):  # GCNII has linear layers around its stack
        others["residuals"] = ("residuals.",)
    found: dict[str, np.ndarray] = {}
    called: dict[str, str] = {}
    for old, name in names.items():
        if _repeated(old, state):
            continue
        new, array = _within(name, state[old], stack, first, others)
        found[new], called[new] = array, old
    found = _torch_norms(found, called)
    return Spelled(_sequential(found, called), called)


def fitted(state: Spelled, shapes: Mapping[str, tuple[int, ...]]) -> Spelled:
    """The arrays that depend on the network: shared, averaged, or known to be 0.

    Parameters
    ----------
    shapes : mapping of str to tuple of int
        Shape of each array in a file of the network's weights.

    Notes
    -----
    * PyTorch Geometric's ``BasicGNN`` has one PReLU, ``act.weight``, for all layers.
    * DGL's ``GATConv`` adds its bias, and a residual, to each head before they are averaged: the
      mean of (y + b) is the mean of y and that of b.
    * A convolution that has a residual of its own gives one bias to both.
    """
    found, called = dict(state.arrays), dict(state.called)
    slopes = [name for name in shapes if re.fullmatch(r"acts\.\d+\.weight", name)]
    if "act.weight" in found and not any(name in found for name in slopes):
        shared, of = found.pop("act.weight"), called.pop("act.weight")
        found |= dict.fromkeys(slopes, shared)
        called |= dict.fromkeys(slopes, of)
    for name, array in list(found.items()):
        wanted = shapes.get(name)
        if called.get(name, "").endswith(AVERAGED) and wanted and array.ndim == len(wanted):
            heads = len(array) // max(1, wanted[0])
            if heads > 1 and array.shape == (heads * wanted[0], *wanted[1:]):
                found[name] = array.reshape(heads, *wanted).mean(axis=0, dtype=np.float64)
    for name, shape in shapes.items():
        match = re.fullmatch(r"(convs|residuals)\.(\d+)\.bias", name)
        if not match or name in found:
            continue
        other = {"convs": "residuals", "residuals": "convs"}[match[1]]
        own = called.get(f"residuals.{match[2]}.weight", "").endswith(OWN_RESIDUALS)
        if own and f"{other}.{match[2]}.bias" in found:
            found[name] = np.zeros(shape, np.float32)
    return Spelled(found, called)


def has_split_towers(arrays: Mapping[str, np.ndarray], features: int) -> bool:
    """Whether the towers of a PNAConv read columns of their own (``divide_input``).

    ``features`` are the columns of the graph's features; 0: not known.
    """
    towers, width = _counted(arrays, "convs.0.pre_nns.{}.0.weight"), features
    if "lin_in.weight" in arrays:
        width = len(arrays["lin_in.weight"])
    for k in range(_counted(arrays, "convs.{}.pre_nns.0.0.weight")):
        own = len(arrays[f"convs.{k}.pre_nns.0.0.weight"])
        if towers > 1 and own * towers == width:
            return True
        width = len(arrays.get(f"convs.{k}.lin.weight", ()))
    return False


def _counted(arrays: Mapping[str, np.ndarray], name: str) -> int:
    """How many matrices there are whose name has a number in place of {}, such as 0, 2, 4."""
    before, after = name.split("{}")
    pattern = re.compile(rf"{re.escape(before)}\d+{re.escape(after)}")
    return sum(array.ndim == 2 and bool(pattern.fullmatch(n)) for n, array in arrays.items())


WRAPPERS = ("module.", "_orig_mod.", "model.", "gnn.")
# Within a convolution: name → name here. Also how convolutions are told from other parts.
OF_CONVOLUTIONS = {
    "lin.weight": "lin.weight",
    "lin_src.weight": "lin.weight",  # GATConv of PyTorch Geometric 2.3
    "lin_l.weight": "lin_l.weight",
    "lin_r.weight": "lin_r.weight",
    "att_src": "att_src",
    "att": "att",
    "nn.lins.0.weight": "nn.lins.0.weight",
    "nn.0.weight": "nn.0.weight",
    "weight1": "weight1",
    "lin_key.weight": "lin_key.weight",
    "pre_nns.0.0.weight": "pre_nns.0.0.weight",
    "fc.weight": "lin.weight",  # DGL: GATConv
    "attn_l": "att_src",
    "attn_r": "att_dst",
    "fc_neigh.weight": "lin_l.weight",  # DGL: SAGEConv
    "fc_self.weight": "lin_r.weight",
    "fc_self.bias": "lin_l.bias",
}
RESIDUALS = {
    "res.weight": "weight",  # GATConv and GATv2Conv with residual=True
    "res_fc.weight": "weight",  # the same of DGL
    "res_fc.bias": "bias",
}
OWN_RESIDUALS = tuple(f".{name}" for name in RESIDUALS)
AVERAGED = (".bias", ".res_fc.weight", ".res_fc.bias")
# Stacks whose ``weight`` is that of a GraphConv of DGL, (d_in, d_out), and not of a Linear.
GRAPH_CONVS = ("convs.", "conv", "layers.", "layer", "gcn_layers.", "local_convs.")
STACKS: dict[str, tuple[str, ...]] = {
    "norms": ("norms.", "norm", "bns.", "bn", "batch_norms.", "lns.", "ln", "layer_norms."),
    "residuals": ("residuals.", "skips.", "lins."),
}
PARTS: dict[str, tuple[str, ...]] = {"lin": ("pred_local.", "classifier.")}


def _numbered(name: str) -> re.Match[str] | None:
    return re.fullmatch(r"(\D*?)(0|[1-9]\d{0,8})\.(.+)", name)


def _conv_stack(name: str, array: np.ndarray) -> str | None:
    """The stack of convolutions that a name shows, as what stands before the number."""
    match = _numbered(name)
    if match is None:
        return None
    plain = match[3] == "weight" and array.ndim == 2 and match[1] in GRAPH_CONVS
    return match[1] if match[3] in OF_CONVOLUTIONS or plain else None


def _repeated(name: str, state: Mapping[str, np.ndarray]) -> bool:
    """Whether it is another one's second name, as in GATConv of PyTorch Geometric 2.3."""
    other = state.get(name.replace(".lin_dst.", ".lin_src."))
    return ".lin_dst." in name and other is not None and np.array_equal(state[name], other)


def _within(
    name: str,
    array: np.ndarray,
    stack: str,
    first: int,
    stacks: Mapping[str, tuple[str, ...]],
) -> tuple[str, np.ndarray]:
    """The name here, and the array as it is stored here."""
    match = _numbered(name)
    if match is None:
        for here, others in PARTS.items():
            for other in others:
                if name.startswith(other):
                    return f"{here}.{name.removeprefix(other)}", array
        return name, array
    k = int(match[2]) - first
    if match[1] != stack:
        for here, others in stacks.items():
            if match[1] in others:
                return f"{here}.{k}.{match[3]}", array
        return name, array
    if match[3] in RESIDUALS:
        return f"residuals.{k}.{RESIDUALS[match[3]]}", array
    if match[3] == "weight" and array.ndim == 2:
        return f"convs.{k}.lin.weight", np.ascontiguousarray(array.T)
    return f"convs.{k}.{OF_CONVOLUTIONS.get(match[3], match[3])}", array


def _torch_norms(found: dict[str, np.ndarray], called: dict[str, str]) -> dict[str, np.ndarray]:
    """``torch.nn.BatchNorm1d`` as PyTorch Geometric's BatchNorm, which holds one as ``module``."""
    plain = {
        match[1]
        for name in found
        if (match := re.fullmatch(r"(norms\.\d+\.|convs\.\d+\.nn\.norms\.\d+\.)running_mean", name))
    }
    new = {name: name for name in found}
    for name in found:
        for prefix in plain:
            if name.startswith(prefix):
                new[name] = f"{prefix}module.{name.removeprefix(prefix)}"
    return _renamed(found, called, new)


def _sequential(found: dict[str, np.ndarray], called: dict[str, str]) -> dict[str, np.ndarray]:
    """The ``Sequential`` of a GINConv as PyTorch Geometric's MLP: two linear layers, and a norm."""
    new = {name: name for name in found}
    linears: dict[str, list[int]] = {}
    for name, array in found.items():
        match = re.fullmatch(r"(convs\.\d+\.nn\.)(\d+)\.weight", name)
        if match and array.ndim == 2:
            linears.setdefault(match[1], []).append(int(match[2]))
    for name in found:
        match = re.fullmatch(r"(convs\.\d+\.nn\.)(\d+)\.(.+)", name)
        if match is None or match[1] not in linears:
            continue
        at = sorted(linears[match[1]])
        if int(match[2]) in at:
            new[name] = f"{match[1]}lins.{at.index(int(match[2]))}.{match[3]}"
        elif f"{match[1]}{match[2]}.running_mean" in found:
            new[name] = f"{match[1]}norms.0.module.{match[3]}"
        elif found[name].shape == (1,):
            new[name] = f"{match[1]}act.{match[3]}"
        else:
            new[name] = f"{match[1]}norms.0.{match[3]}"
    return _renamed(found, called, new)


def _renamed(
    found: dict[str, np.ndarray], called: dict[str, str], new: Mapping[str, str]
) -> dict[str, np.ndarray]:
    names = {new[name]: called[name] for name in found}
    called.clear()
    called.update(names)
    return {new[name]: array for name, array in found.items()}


def _called(names: Mapping[str, str]) -> dict[str, str]:
    return {name: old for old, name in names.items()}
