"""Under mpirun: the examples of docs/adding-a-{kernel,network,scheme}.md, registered and trained.

Usage: examples.py FOLDER GRAPH PARTITION NAME...

FOLDER holds the examples as panels.py, cheb.py, gated.py, states.py and local.py, and the pieces of
an operator as piece-*.py; NAME is "kernel", "network" or "scheme".
"""

import importlib
import re
import sys
from pathlib import Path

import numpy as np

from gcnmpi.mpi.comm import slice_of
from gcnmpi.mpi.process import run
from gcnmpi.options.config import from_table
from gcnmpi.options.kernel import KERNELS
from gcnmpi.options.model import MATRICES, NETWORKS, ConvolutionOptions, HopsOptions
from gcnmpi.options.requests import InferRequest
from gcnmpi.options.scheme import SCHEMES
from gcnmpi.planner.machine import Machine
from gcnmpi.planner.ranking import Setting, rank_schemes
from gcnmpi.proof.verify import verify
from gcnmpi.run.inference import infer
from gcnmpi.run.problem import open_problem
from gcnmpi.run.trainer import train
from gcnmpi.run.weights import save_weights


def prepare(comm, **settings):
    table = {"dtype": "float64", "kernel": "scipy", "train": {"epochs": 5}}
    table["model"] = {"hidden": [12, 5], "dropout": 0.3}
    partition = sys.argv[3] if comm.size > 1 else None
    return open_problem(comm, Path(sys.argv[2]), partition, from_table(table | settings))


def losses(result):
    return [epoch.loss for epoch in result.epochs]


def check_kernel(comm, **own):
    expected, found = train(prepare(comm)), train(prepare(comm, **(own or {"kernel": "panels"})))
    np.testing.assert_allclose(losses(found), losses(expected), rtol=1e-12)


def check_scheme(comm):
    check_kernel(comm, scheme={"name": "local"})


def check_networks(comm):
    """All networks of the page train, are verified, planned and inferred."""
    for name, model in NETWORKS_OF_PAGE.items():
        check_network(comm, {"name": name, **model})


def check_network(comm, model):
    graph, partition = Path(sys.argv[2]), sys.argv[3] if comm.size > 1 else None
    problem = prepare(comm, model=model, train={"epochs": 40, "lr": 0.05})
    result = train(problem)
    assert result.epochs[-1].loss < 0.5 * result.epochs[0].loss
    assert result.epochs[-1].of("test", "accuracy") > 0.8
    assert result.end["bytes_sent"] == result.end["bytes_predicted"]

    for scheme in SCHEMES_OF_PAGE[model["name"]]:
        table = {"model": model, "train": {"epochs": 3}, "scheme": {"name": scheme}}
        config = from_table({"dtype": "float64", "kernel": "scipy"} | table)
        parts = partition if scheme == "p2p" else None
        assert verify(comm, graph, parts, config).ok, (model, scheme)

    setting = Setting(problem.source.stored, problem.config, Machine(), 4)
    ranked, skipped = rank_schemes(setting, 8)
    able = {"p2p"} if problem.program.needs_halo else {"p2p", "summa", "tensor3d"}
    assert {line.candidate.scheme.name for line in ranked} >= able, skipped

    # The file of weights brings the network back.
    file, out = Path(sys.argv[1]) / f"{model['name']}.npz", Path(sys.argv[1]) / "logits.npy"
    save_weights(file, problem, result.model, result.model.parameters.flat)
    config = from_table({"dtype": "float64"})
    infer(
        comm, InferRequest(graph=graph, partition=partition, config=config, weights=file, out=out)
    )
    logits = result.model.forward()
    mine = problem.scheme.original(result.model.place, logits, logits.shape[1])
    rows = slice_of(problem.source.stored.graph.n, comm.rank, comm.size)
    np.testing.assert_allclose(np.load(out)[rows], mine, rtol=1e-12)


NETWORKS_OF_PAGE = {
    "cheb": {"hidden": [12, 5], "hops": 3, "norm": "layer", "residual": "linear"},
    "gated": {"hidden": [12], "dropout": 0.2},
    "states": {"hidden": [12]},
}
SCHEMES_OF_PAGE = {"cheb": ("p2p", "tensor3d"), "gated": ("summa",), "states": ("p2p",)}


class ChebOptions(ConvolutionOptions, HopsOptions):
    """As the page has it."""


def install(folder):
    """The networks of the page, and the pieces of its operator, each in the module it names."""
    for path in sorted(folder.glob("piece-*.py")):
        text = path.read_text()
        named = re.match(r"# (gcnmpi/\S+)\.py(?:, in (\w+))?\n", text)
        module = importlib.import_module(named[1].replace("/", ".").removesuffix(".__init__"))
        before = set(vars(module))
        exec(compile(text, path, "exec"), vars(module))
        for name in set(vars(module)) - before if named[2] else ():
            setattr(getattr(module, named[2]), name, getattr(module, name))
    for name in NETWORKS_OF_PAGE:
        NETWORKS.entries[name] = f"{name}:build"
    NETWORKS.options["cheb"] = (ChebOptions,)
    NETWORKS.options["gated"] = NETWORKS.options["gcn"]
    NETWORKS.options["states"] = NETWORKS.options["mgn"]
    MATRICES.entries.update(cheb="cheb:matrix", states="states:matrix")


CHECKS = {"kernel": check_kernel, "network": check_networks, "scheme": check_scheme}


def main(comm) -> int:
    sys.path.insert(0, sys.argv[1])
    KERNELS.entries["panels"] = "panels:PanelKernel"
    SCHEMES.entries["local"] = "local:ENTRY"
    if "network" in sys.argv[4:]:
        install(Path(sys.argv[1]))
    for name in sys.argv[4:]:
        CHECKS[name](comm)
    return 0


if __name__ == "__main__":
    run(main)
