"""Write the fixtures of this folder that DGL makes, beside those of ``make_pyg.py``.

Usage: python tests/foreign/make_dgl.py   (written with torch 2.2 and DGL 2.1)

The graph is that of ``graph.npz``, both directions: DGL's GraphConv divides by the roots of the
degrees at both ends of an arc, which is the same matrix then.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dgl
import dgl.nn.pytorch as layers
import numpy as np
import torch

HERE = Path(__file__).parent
WIDTH, HIDDEN, CLASSES = 5, 6, 3


class Net(torch.nn.Module):
    """A stack as DGL's examples have it: a list called ``layers``."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList()
        for d_in, d_out in ((WIDTH, HIDDEN), (HIDDEN, CLASSES)):
            if kind == "gcn":
                layer: Any = layers.GraphConv(d_in, d_out)
            elif kind == "sage":
                layer = layers.SAGEConv(d_in, d_out, "mean")
            else:
                layer = layers.GATConv(d_in, d_out // 2 if d_out == HIDDEN else d_out, 2)
            self.layers.append(layer)

    def forward(self, graph: Any, x: torch.Tensor) -> torch.Tensor:
        """Logits; heads are concatenated in the hidden layer and averaged in the last one."""
        x = self.layers[0](graph, x).flatten(1).relu()
        x = self.layers[1](graph, x)
        return x.mean(1) if x.dim() == 3 else x


def main() -> None:
    """Write all files of DGL's networks."""
    torch.manual_seed(7)
    torch.set_default_dtype(torch.float64)
    with np.load(HERE / "graph.npz") as arrays:
        (source, target), features = arrays["edges"], arrays["features"]
    n, logits, lines = len(features), {}, []
    plain = dgl.to_bidirected(dgl.graph((source, target), num_nodes=n))
    for kind in ("gcn", "sage", "gat"):
        graph = plain if kind == "sage" else dgl.add_self_loop(dgl.remove_self_loop(plain))
        model = Net(kind)
        for parameter in model.parameters():  # biases are 0 in the beginning
            parameter.data += 0.1 * torch.randn_like(parameter)
        logits[kind] = model.eval()(graph, torch.from_numpy(features).double()).detach().numpy()
        torch.save(model.state_dict(), HERE / f"dgl-{kind}.pt")
        more = ", heads = 2, out_heads = 2" if kind == "gat" else ""
        lines.append(f'{kind} = {{name = "{kind}", hidden = [{HIDDEN}]{more}}}\n')
    (HERE / "dgl.toml").write_text("".join(lines))
    np.savez(HERE / "dgl.npz", **logits)


if __name__ == "__main__":
    main()
