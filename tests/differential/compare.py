"""The program against PyTorch Geometric: loss, gradients and logits, same weights in.

Usage: python tests/differential/compare.py [layers|links|temporal …] [--only CASE] [--ranks 1,2,4]

Torch, torch_geometric (and torch_geometric_temporal) have to be installed; they are no dependency.
Compared is the program on so many ranks, or the oracle in place of 0. Float64; the exit code is 1
if anything is further apart than 1e-10, relative to the largest entry of its array.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
import numpy as np

try:
    import layers
    import links
    import temporal
    from layers import partition
except ImportError as error:
    sys.exit(print(f"skipped: {error}"))

from gcnmpi.mpi.launch import local_launcher
from gcnmpi.nn.state import to_state
from gcnmpi.proof import oracle
from partition.graph.store import open_graph

TOLERANCE = 1e-10
# A module has CASES by name; graphs(scratch) makes folders; problem(folder, graph, name) is a case,
# or None; of_oracle(problem, weights) and judge(graph, problem, weights) compute its results.
PARTS: dict[str, Any] = {"layers": layers, "links": links, "temporal": temporal}


@click.command()
@click.argument("parts", nargs=-1, type=click.Choice(PARTS))
@click.option("--only", multiple=True, default=[""], help="Cases whose name begins so.")
@click.option("--ranks", default="1,2,4", help="0: the oracle.")
def main(parts: tuple[str, ...], only: tuple[str, ...], ranks: str) -> None:
    """Compare all cases on each graph."""
    counts, found = [*map(int, ranks.split(","))], []
    with tempfile.TemporaryDirectory() as scratch:
        for part in [PARTS[name] for name in parts or PARTS]:
            for folder in part.graphs(Path(scratch)):
                for count in counts:
                    if count > 1:
                        partition("add", folder, "--model", "rp", "-k", count)
                found.append(agree(part, folder, only, counts))
    sys.exit(0 if all(found) else 1)


def agree(part: Any, folder: Path, only: tuple[str, ...], counts: list[int]) -> bool:
    """Whether all cases of a graph do; a line for each says how far they are apart."""
    graph = open_graph(folder).graph
    names = [name for name in part.CASES if name.startswith(only)]
    problems = {name: part.problem(folder, graph, name) for name in names}
    problems = {name: problem for name, problem in problems.items() if problem is not None}
    weights = {name: weights_of(problem) for name, problem in problems.items()}
    found = {
        count: of_engine(count, folder, problems, weights)
        if count
        else {name: part.of_oracle(problems[name], weights[name]) for name in problems}
        for count in counts
    }
    worst = 0.0
    for name, problem in problems.items():
        expected, told = part.judge(graph, problem, weights[name]), ""
        for count in counts:
            apart, where = max(compare(network_of(problem), found[count][name], expected))
            worst, told = max(worst, apart), f"{told}  {count}: {apart:.1e} ({where})"
        click.echo(f"{folder.stem} {name:20}{told}")
    return worst <= TOLERANCE


def network_of(problem: Any) -> Any:
    """The operators and parameters."""
    return getattr(problem, "rows", problem).network


def weights_of(problem: Any) -> oracle.Weights:
    """Initial parameters, away from 0, where biases and slopes begin."""
    random, weights = np.random.default_rng(7), getattr(problem, "rows", problem).initial()
    for name, p in network_of(problem).parameters.items():
        if p.trained:
            weights[name] = weights[name] + 0.05 * random.standard_normal(p.shape)
    return weights


def of_engine(
    ranks: int, graph: Path, problems: dict[str, Any], weights: dict[str, oracle.Weights]
) -> dict[str, dict[str, Any]]:
    """Loss, gradient and logits of the distributed program, all cases in one launch."""
    found = {}
    with tempfile.TemporaryDirectory() as scratch:
        folders = {name: Path(scratch, str(number)) for number, name in enumerate(problems)}
        for name, folder in folders.items():
            folder.mkdir()
            (folder / "config.json").write_text(json.dumps(asdict(problems[name].config)))
            np.savez(folder / "weights.npz", **weights[name])
        program = Path(__file__).with_name("engine.py")
        words = [*local_launcher(), "-n", ranks, sys.executable, program, graph, *folders.values()]
        subprocess.run(list(map(str, words)), check=True)
        for name, folder in folders.items():
            with np.load(folder / "results.npz") as arrays:
                gradient = {n[9:]: arrays[n] for n in arrays if n.startswith("gradient ")}
                found[name] = {n: arrays[n] for n in ("loss", "logits")} | {"gradient": gradient}
    return found


def compare(
    network: Any, found: dict[str, Any], expected: dict[str, Any]
) -> Iterator[tuple[float, str]]:
    """How far each result is from PyTorch Geometric's."""
    yield distance(found["loss"], expected["loss"]), "loss"
    zeros = {name: np.zeros(p.shape) for name, p in network.parameters.items()}
    stored = to_state(network, zeros | found["gradient"])
    floor = max(np.abs(array).max() for array in expected["gradient"].values())
    for name, array in expected["gradient"].items():
        # A bias before a batch norm has no gradient but for rounding errors.
        yield distance(stored[name], array, 1e-3 * floor), f"gradient of {name}"
    yield distance(found["logits"], expected["logits"]), "logits"


def distance(found: Any, expected: Any, floor: float = 0.0) -> float:
    """Largest difference relative to the largest entry."""
    size = max(float(np.abs(expected).max()), floor)
    return float(np.abs(np.asarray(found) - expected).max()) / (size or 1.0)


if __name__ == "__main__":
    main()
