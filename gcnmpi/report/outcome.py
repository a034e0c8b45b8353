"""What is printed at the end of a run and of inference."""

from __future__ import annotations

import sys
from pathlib import Path

from gcnmpi.inference import Inference


def print_inference(out: Path, done: Inference) -> None:
    """What was written, and which network it is of."""
    config, weights = done.config, done.weights
    graph, widths = config.graph, "-".join(map(str, weights.widths))
    loops = "added" if graph.self_loops else "as in the graph"
    settings = (
        f"{config.model.name} {widths}, normalize {graph.normalize}, direction {done.direction}, "
        f"self-loops {loops}, feature_norm {graph.feature_norm}"
    )
    if not weights.described:
        print(
            f"warning: {weights.path} does not say which network it is of; taken for {settings}, "
            "ReLU between layers",
            file=sys.stderr,
        )
    else:
        print(f"network of {weights.path}: {settings}", file=sys.stderr)
    print(f"{out}: {' × '.join(map(str, done.shape))} {done.dtype}")
