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


def guessed(arrays: Mapping[str, np.ndarray]) -> dict[str, object] | None:
    """Keys of ``[model]`` that the names and shapes of arrays show; None without convolutions.

    Neither the activation, nor what M is, nor anything else that has no array can be seen.
    """
    for kind, needs in _KINDS:
        if all(name in arrays for name in needs):
            try:
                return _mesh(arrays) if kind == "mgn" else _shown(kind, needs[-1], arrays)
            except (IndexError, TypeError, ValueError, ZeroDivisionError):
                return None  # arrays of these names, but of shapes that no network has
    return None


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


def _mesh(arrays: Mapping[str, np.ndarray]) -> dict[str, object]:
    """The blocks of a MeshGraphNet, and the layers of its perceptrons."""
    blocks = _counted(arrays, "processor.processor_layers.{}.node_mlp.model.0.weight")
    last = "node_decoder" if "node_decoder.model.0.weight" in arrays else "edge_decoder"
    found: dict[str, object] = {
        "name": "mgn",
        "hidden": (len(arrays["node_encoder.model.0.weight"]),) * blocks,
        "mlp_layers": _counted(arrays, f"{last}.model.{{}}.weight") - 1,
    }
    if f"{last}.model.1.weight" in arrays:
        found["activation"] = "prelu"
    return found if f"{last}.model.0.bias" in arrays else found | {"bias": False}


def _of_arcs(kind: str, arrays: Mapping[str, np.ndarray]) -> dict[str, object]:
    """Keys of networks with rows of arcs."""
    found: dict[str, object] = {}
    if any(name.endswith((".lin_edge.weight", ".edge_encoder.weight")) for name in arrays):
        found["arc_features"] = True
    if any(name.endswith(".lin_beta.weight") for name in arrays):
        found["beta"] = True
    if kind == "pna":
        counts = {
            "towers": _counted(arrays, "convs.0.pre_nns.{}.0.weight"),
            "pre_layers": _counted(arrays, "convs.0.pre_nns.0.{}.weight"),
            "post_layers": _counted(arrays, "convs.0.post_nns.0.{}.weight"),
        }
        found |= {name: count for name, count in counts.items() if count > 1}
    if kind == "gatedgcn":
        root, key = arrays.get("convs.0.lin_skip.weight"), arrays["convs.0.lin_key.weight"]
        if root is None:
            found["root_weight"] = False
            root = np.empty((0, len(key)))  # whose columns the second layer has
            key = arrays.get("convs.1.lin_key.weight", root)
        if key.shape[1] > root.shape[1]:
            found["arc_features"] = True
        if "convs.0.bias" not in arrays:
            found["bias"] = False
    return found


def _shown(kind: str, of_layer: str, arrays: Mapping[str, np.ndarray]) -> dict[str, object]:
    """The keys of ``[model]`` of a stack of convolutions of some kind.

    ``of_layer`` is an array of the first one with a row for each column of its output.
    """
    prefix, rest = of_layer.split("0", 1)
    count = 1 + max(int(name.split(".")[1]) for name in arrays if name.startswith(prefix))
    layers = [arrays[name] for k in range(count) if (name := f"{prefix}{k}{rest}") in arrays]
    hidden = [len(layer) for layer in layers]
    found: dict[str, object] = {"name": kind}
    after, any_of = "lin.weight" in arrays, lambda text: any(text in name for name in arrays)
    if kind == "transformer":  # heads are seen where they are averaged
        keys = (arrays[f"convs.{k}.lin_key.weight"] for k in (0, count - 1))
        heads, out_heads = (len(key) // hidden[k] for key, k in zip(keys, (0, -1), strict=True))
        if heads > 1 and (count > 1 or after):
            found |= {"heads": heads, "concat": False}
        if out_heads > 1 and not after:
            found["out_heads"] = out_heads
    if kind in ("gat", "gatv2"):
        scores = {"gat": "att_src", "gatv2": "att"}[kind]
        first, last = (arrays.get(f"convs.{k}.{scores}", np.empty((1, 1))) for k in (0, count - 1))
        bias = arrays.get("convs.0.bias", np.empty(hidden[0]))
        found["heads"] = first.shape[1]
        if not after:
            found["out_heads"] = last.shape[1]
        if len(bias) < hidden[0] and (count > 1 or after):  # the mean of the heads
            found["concat"] = False
            hidden = [width // first.shape[1] for width in hidden]
    found["hidden"] = tuple(hidden if after else hidden[:-1])
    if after:
        several = arrays["lin.weight"].shape[-1] == sum(hidden) > hidden[-1]
        found |= {"jk": "cat"} if several else {"linear_after": True}
    if any_of("norms."):
        found["norm"] = "batch" if any_of(".running_mean") else "layer"
    if any_of("residuals."):
        found["residual"] = "linear"
    if any_of("lin_in."):
        found["linear_before"] = True
    if any_of("act.weight") or any_of("acts."):
        found["activation"] = "prelu"
    if not any(name.endswith(".bias") and "norms." not in name for name in arrays):
        found["bias"] = False
    epsilons = {float(array.reshape(-1)[0]) for name, array in arrays.items() if ".eps" in name}
    if kind in ("gin", "gine") and epsilons != {0.0} and epsilons:
        found |= {"eps": epsilons.pop()} if len(epsilons) == 1 else {"train_eps": True}
    return found | _of_arcs(kind, arrays)


# Of the first convolution of each network, the arrays; the last one has a row for each column of
# its output. The first network whose arrays are all there is meant.
_KINDS = (
    (
        "mgn",
        ("node_encoder.model.0.weight", "processor.processor_layers.0.edge_mlp.model.0.weight"),
    ),
    ("gat", ("convs.0.att_src", "convs.0.lin.weight")),
    ("gatv2", ("convs.0.att", "convs.0.lin_l.weight")),
    ("sage", ("convs.0.lin_r.weight", "convs.0.lin_l.weight")),
    ("pna", ("convs.0.pre_nns.0.0.weight", "convs.0.lin.weight")),
    ("transformer", ("convs.0.lin_key.bias", "convs.0.lin_skip.bias", "convs.0.lin_skip.weight")),
    ("gatedgcn", ("convs.0.lin_key.bias", "convs.0.lin_value.weight")),
    ("transformer", ("convs.0.lin_key.weight", "convs.0.lin_skip.weight")),  # without biases
    ("gine", ("convs.0.lin.weight", "convs.0.nn.lins.0.weight", "convs.0.nn.lins.1.weight")),
    ("gin", ("convs.0.nn.lins.0.weight", "convs.0.nn.lins.1.weight")),
    ("gcn", ("convs.0.lin.weight",)),
)
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
