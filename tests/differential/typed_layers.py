"""Layers of heterogeneous graphs in PyTorch Geometric, with the arrays of this program's layers.

Each holds the parameters as this program stores them, and hands PyTorch Geometric's layer views of
them: so gradients come back to these arrays.
"""

from __future__ import annotations

import numpy as np
import torch
import torch_geometric.nn as pyg
from torch.func import functional_call

from gcnmpi.options.config import ModelConfig
from partition.graph.graph import Graph

Shapes = dict[str, tuple[int, ...]]


class TypedLayer(torch.nn.Module):
    """A layer of all types: rows of vertices of all types, arcs, the relation of each."""

    def __init__(self, graph: Graph, shapes: Shapes) -> None:
        super().__init__()
        assert graph.vertex_types is not None
        self.types, self.relations = graph.vertex_types, list(graph.relations)
        for name, shape in shapes.items():
            *above, last = name.split(".")
            module: torch.nn.Module = self
            for part in above:
                if part not in dict(module.named_children()):
                    module.add_module(part, torch.nn.Module())
                module = module.get_submodule(part)
            module.register_parameter(last, torch.nn.Parameter(torch.zeros(shape)))

    def forward(self, x: torch.Tensor, edges: torch.Tensor, kinds: torch.Tensor) -> torch.Tensor:
        """The rows of all vertices."""
        ranges = {name: self.types.range(name) for name in self.types.names}
        rows = {name: x[own.start : own.stop] for name, own in ranges.items()}
        arcs = {}
        for number, (source, name, target) in enumerate(self.relations):
            first = torch.tensor([[ranges[source].start], [ranges[target].start]])
            arcs[source, name, target] = edges[:, kinds == number] - first
        own = dict(self.named_parameters())
        found = functional_call(self.layer[0], self.arrays(own), (rows, arcs))
        for place, name in enumerate(self.types.names):
            if found.get(name) is None:
                found[name] = self.alone(own, place, rows[name])
        return torch.cat([found[name] for name in ranges])

    def into(self, name: str) -> list[int]:
        """The relations into vertices of a type."""
        return [number for number, one in enumerate(self.relations) if one.target == name]


class Hetero(TypedLayer):
    """``HeteroConv``: what its relations give to a vertex itself is shared out among them."""

    def __init__(self, graph: Graph, model: ModelConfig, d_in: int, width: int, last: bool) -> None:
        count, types, kind = len(graph.relations), len(graph.schema.types), model.convolution
        sage = kind == "sage"
        heads, concat = (model.out_heads, False) if last else (model.heads, model.concat)
        columns = width if concat else heads * width
        shapes: Shapes = {"bias": (types, width)}
        if sage:
            if model.root_weight:
                shapes["lin_r.weight"] = types, d_in, width
            self.kinds = model.aggregation.split("+")
            shapes["lin_l.weight"] = count, len(self.kinds) * d_in, width
        else:
            self.ends = {"gat": ("lin_src", "lin_dst"), "gatv2": ("lin_l", "lin_r")}[kind]
            self.vectors = {"gat": ("att_src", "att_dst"), "gatv2": ("att",)}[kind]
            for end in self.ends:
                shapes[f"{end}.weight"] = count, d_in, columns
                if kind == "gatv2":
                    shapes[f"{end}.bias"] = count, columns
            shapes |= dict.fromkeys(self.vectors, (count, columns))
        super().__init__(graph, shapes)
        self.sage, self.heads, self.root = sage, heads, model.root_weight
        self.joined = model.relation_reduction
        given = (d_in, d_in), width // heads if concat and not sage else width

        def made() -> torch.nn.Module:
            if sage:
                aggr = self.kinds if self.kinds[1:] else self.kinds[0]
                return pyg.SAGEConv(*given, aggr, root_weight=model.root_weight)
            slope = {"negative_slope": model.negative_slope, "add_self_loops": False}
            layer = pyg.GATConv if kind == "gat" else pyg.GATv2Conv
            return layer(*given, heads, concat, **slope)

        self.layer = [pyg.HeteroConv({tuple(r): made() for r in self.relations}, self.joined)]

    def arrays(self, own: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """The arrays of PyTorch Geometric's layer."""
        found = {}
        for number, one in enumerate(self.relations):
            at = f"convs.<{'___'.join(one)}>."
            place = self.types.names.index(one.target)
            several = len(self.into(one.target)) if self.joined == "sum" else 1
            bias = own["bias"][place] / several
            if self.sage:
                found[f"{at}lin_l.weight"] = own["lin_l.weight"][number].T
                found[f"{at}lin_l.bias"] = bias
                if self.root:
                    found[f"{at}lin_r.weight"] = own["lin_r.weight"][place].T / several
                continue
            found[f"{at}bias"] = bias
            for end in self.ends:
                found[f"{at}{end}.weight"] = own[f"{end}.weight"][number].T
                if f"{end}.bias" in own:
                    found[f"{at}{end}.bias"] = own[f"{end}.bias"][number]
            for vector in self.vectors:
                found[f"{at}{vector}"] = own[vector][number].reshape(1, self.heads, -1)
        return found

    def alone(self, own: dict[str, torch.Tensor], place: int, x: torch.Tensor) -> torch.Tensor:
        """A type without a relation into it has what it gives to itself."""
        y = own["bias"][place].expand(len(x), -1)
        return y + x @ own["lin_r.weight"][place] if self.sage and self.root else y


class Hgt(TypedLayer):
    """``HGTConv``, whose matrices of keys are those of queries the other way round."""

    def __init__(self, graph: Graph, model: ModelConfig, d_in: int, width: int, last: bool) -> None:
        count, types = len(graph.relations), len(graph.schema.types)
        heads = model.out_heads if last else model.heads
        each = (heads, width // heads, width // heads) if heads > 1 else (width, width)
        shapes: Shapes = {f"{n}_rel.weight": (count, *each) for n in "qv"}
        for name in ("k_lin", "v_lin", "q_lin", "out_lin"):
            inner = width if name == "out_lin" else d_in
            shapes |= {f"{name}.weight": (types, inner, width), f"{name}.bias": (types, width)}
        shapes["p_rel"] = count, heads
        if d_in == width:
            shapes["skip"] = types, 1
        super().__init__(graph, shapes)
        self.heads, self.skips = heads, d_in == width
        metadata = list(graph.schema.types), [tuple(r) for r in self.relations]
        self.layer = [pyg.HGTConv(dict.fromkeys(metadata[0], d_in), width, metadata, heads)]

    def arrays(self, own: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """The arrays of PyTorch Geometric's layer, in whose ``k_rel`` heads come first."""
        found, count = {}, len(self.relations)
        for place, name in enumerate(self.types.names):
            for end, dim in (("weight", 1), ("bias", 0)):
                parts = [own[f"{part}_lin.{end}"][place] for part in "kqv"]
                joined = torch.cat(parts, dim)
                found[f"kqv_lin.lins.{name}.{end}"] = joined.T if dim else joined
                last = own[f"out_lin.{end}"][place]
                found[f"out_lin.lins.{name}.{end}"] = last.T if dim else last
            if self.skips:
                found[f"skip.{name}"] = own["skip"][place]
        for ours, theirs in (("q", "k"), ("v", "v")):
            weights = own[f"{ours}_rel.weight"]
            weights = weights.reshape(count, self.heads, *weights.shape[-2:]).transpose(0, 1)
            weights = weights.reshape(-1, *weights.shape[-2:])
            found[f"{theirs}_rel.weight"] = weights.transpose(1, 2) if ours == "q" else weights
        for number, one in enumerate(self.relations):
            found[f"p_rel.{'__'.join(one)}"] = own["p_rel"][number : number + 1]
        return found

    def alone(self, own: dict[str, torch.Tensor], place: int, x: torch.Tensor) -> torch.Tensor:
        """A type without a relation into it has messages of 0."""
        y = own["out_lin.bias"][place].expand(len(x), -1)
        gate = own["skip"][place].sigmoid() if self.skips else 1
        return gate * y + (1 - gate) * x if self.skips else y


class CompGcn(torch.nn.Module):
    """One layer of CompGCN (Vashishth et al. 2020) with a message of every arc, from its formula.

    PyTorch Geometric has none. The vectors of relations are the network's, and what is left of them
    for the next layer is what ``vectors`` gives.
    """

    def __init__(self, graph: Graph, model: ModelConfig, d_in: int, width: int, last: bool) -> None:
        super().__init__()
        assert graph.vertex_types is not None
        names, self.composition = [one.name for one in graph.relations], model.composition
        self.back = torch.tensor([n.startswith("rev_") and n[4:] in names for n in names])
        self.types = torch.tensor(graph.vertex_types.of(np.arange(graph.n)))
        weights = {False: "w_out", True: "w_in"}
        self.ways = {way: weights[way] for way in set(self.back.tolist())}
        shapes: Shapes = {"loop_rel": (len(graph.schema.types), d_in), "w_loop": (d_in, width)}
        shapes |= dict.fromkeys(self.ways.values(), (d_in, width))
        shapes["bias"] = (width,)
        if not last:
            shapes["w_rel"] = d_in, width
        for name, shape in shapes.items():
            self.register_parameter(name, torch.nn.Parameter(torch.zeros(shape)))

    def forward(
        self, x: torch.Tensor, edges: torch.Tensor, kinds: torch.Tensor, z: torch.Tensor
    ) -> torch.Tensor:
        """The rows of all vertices."""
        y = self._composed(x, self.loop_rel[self.types]) @ self.w_loop + self.bias
        for way, name in self.ways.items():
            some = self.back[kinds] == way
            (source, target), of_arcs = edges[:, some], z[kinds[some]]
            messages = self._composed(x[source], of_arcs) @ getattr(self, name)
            sums = torch.zeros_like(y).index_add(0, target, messages)
            y = y + sums / torch.bincount(target, minlength=len(x)).clamp(min=1)[:, None]
        return y

    def vectors(self, z: torch.Tensor) -> torch.Tensor:
        """The vectors of relations for the next layer."""
        return z @ self.w_rel

    def _composed(self, x: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
        return x - z if self.composition == "sub" else x * z


class Rgat(pyg.RGATConv):
    """``RGATConv`` without the parameters of its other modes, and with our names of bases."""

    def __init__(self, *given: int, **options: object) -> None:
        super().__init__(*given, **options)
        for name in ("w", "l1", "b1", "l2", "b2"):
            self.register_parameter(name, None)
        if self.num_bases is not None:
            self.weight, self.comp = self.basis, self.att
            del self.basis, self.att

    def forward(self, *given: torch.Tensor) -> torch.Tensor:
        """As PyTorch Geometric's, which reads bases by its own names."""
        if self.num_bases is not None:
            vars(self).update(basis=self.weight, att=self.comp)
        return super().forward(*given)
