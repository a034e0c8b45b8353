"""Commands that learn and compute on a graph: train, infer, evaluate, score, verify, propagate."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from gcnmpi.cli.common import (
    Job,
    Json,
    Quiet,
    Words,
    job,
    tables_option,
    telling,
    training_job,
    verb,
)
from gcnmpi.mpi.watch import EXIT_REQUEUE
from gcnmpi.options.config import keys
from gcnmpi.options.requests import (
    EvaluateRequest,
    InferRequest,
    Request,
    ScoreRequest,
    TrainRequest,
    VerifyRequest,
)
from gcnmpi.options.settings import Key, keys_of
from gcnmpi.propagation.methods import METHODS
from partition.commands import Assignments, command

if TYPE_CHECKING:
    from gcnmpi.mpi.comm import Comm
    from gcnmpi.run.claims import Claims, Guard
    from gcnmpi.run.problem import Problem
    from gcnmpi.run.record import Epoch


@verb
def train(request: TrainRequest, *, quiet: Quiet = False) -> Job:
    """Train on GRAPH and write the record of the run.

    The record is DIR/run.jsonl. Without --config and --set: a GCN with one hidden layer of 16, 200
    epochs of Adam.

    After gcnmpi stop DIR or SIGUSR1, the run finishes its epoch, writes a checkpoint and ends with
    exit code 75. The same command then continues from the checkpoint. After Ctrl-C, Open MPI's
    mpirun leaves half a second: what is kept is the state after the last epoch.
    """

    def call(comm: Comm, guard: Guard) -> int:
        from gcnmpi.report.progress import Progress, print_trained, print_warnings
        from gcnmpi.run.trainer import train_run

        began, machine = time.monotonic(), list[str]()

        @contextlib.contextmanager
        def progress(problem: Problem) -> Iterator[Callable[[Epoch], None]]:
            machine.extend(problem.machine)
            if quiet and comm.rank == 0:
                print_warnings(problem.warnings)
            hidden, folders = quiet or comm.rank != 0, guard.claims.folders
            with Progress(problem, hidden, guard.moved, folders=folders) as shown:
                yield shown.epoch

        done = train_run(comm, request, guard, progress)
        if comm.rank == 0:
            print_trained(request, done, time.monotonic() - began, quiet=quiet)
            print_warnings(() if quiet else machine)
        return EXIT_REQUEUE if done.stopped else 0

    return training_job(request.config, call)


@verb
def verify(request: VerifyRequest, *, as_json: Json = False) -> Job:
    """Check that a run on GRAPH equals one serial process.

    The exit code is 1 if it does not. Trains up to 20 epochs on all ranks, and serially with SciPy
    on rank 0. It compares loss curves and weights, checks the gradient by finite differences and
    the products by the dot test, and compares counted with predicted bytes. Rank 0 holds the whole
    graph. It computes in float64, unless --set dtype=float32 selects float32 and larger tolerances.
    """

    def call(comm: Comm, claims: Claims) -> int:
        from gcnmpi.proof.verify import verify as run
        from gcnmpi.report.checks import print_checks

        where = request.graph, request.partition, request.config
        found = run(comm, *where, moved=claims.moved)
        if comm.rank == 0:
            print_checks(found, as_json)
        return 0 if found.ok else 1

    return _job(request, call)


@verb
def infer(request: InferRequest) -> Job:
    """Exact full-graph inference on GRAPH with trained weights.

    W is a file of --save-weights, or the state dict of a PyTorch Geometric or DGL module, whose
    network --network describes; no code of it is run. Y.npy gets one row per vertex, in the order
    of the graph; with --samples, (samples, vertices, columns). The memory that is needed is
    forecast, and refused before the start if a node has less.
    """

    def call(comm: Comm, claims: Claims) -> Callable[[], None]:
        from gcnmpi.report.progress import print_inference
        from gcnmpi.run.inference import infer as run
        from gcnmpi.run.samples.inference import infer_samples

        if request.samples is not None:
            done = infer_samples(comm, request, request.samples, telling(comm)).done
        else:
            done = run(comm, request, telling(comm))
        return lambda: print_inference(request.out, done)

    return _job(request, call)


@verb
def evaluate(request: EvaluateRequest, *, as_json: Json = False) -> Job:
    """Metrics of trained weights on GRAPH.

    They are of its masks, or of the pairs that were held out. The task is that of the weights;
    --set task.metrics=… asks for other metrics than its first one.
    """

    def call(comm: Comm, claims: Claims) -> Callable[[], None]:
        from gcnmpi.report.progress import print_metrics
        from gcnmpi.run.inference import evaluate_weights

        found, warnings = evaluate_weights(comm, request)
        return lambda: print_metrics(found, warnings, as_json)

    return _job(request, call)


@verb
def score(request: ScoreRequest) -> Job:
    """Score pairs of vertices, or find their best partners.

    Partners of a vertex of GRAPH are found among all others. Both are exact, and the same for any
    number of ranks. Scores are in the order of the pairs. A vertex is no partner of itself, nor of
    one that it has an arc with. Memory does not grow with the number of scores; rank 0 holds the
    table of partners.

    Examples
    --------
    gcnmpi score G.graph --weights W.npz --pairs pairs.csv --out scores.npy
    gcnmpi score kg.graph --weights W.npz --pairs asked.tsv --columns source,relation,target
        --out scores.npy
    gcnmpi score G.graph --weights W.npz --top 10 --vertices 0,5,9 --out partners.csv
    gcnmpi score kg.graph --weights W.npz --top 10 --relation likes --out partners.csv
    """

    def call(comm: Comm, claims: Claims) -> Callable[[], None]:
        from gcnmpi.report.progress import print_inference
        from gcnmpi.run.links.asked import score_pairs, top_partners

        if request.top is None:
            done = score_pairs(comm, request, telling(comm))
        else:
            done, _ = top_partners(comm, request, telling(comm))
        return lambda: print_inference(request.out, done)

    return _job(request, call)


def _method_keys() -> list[str]:
    """The options of all methods, and the keys of the configuration."""
    return list(dict.fromkeys([*(k for n in METHODS for k in _options(n)), *keys()]))


def _options(method: str) -> Mapping[str, Key]:
    return keys_of(METHODS.get(method).options)


def options_of_methods() -> dict[str, dict[str, str]]:
    """The options of every method, with their defaults, and what they mean."""
    return {
        name: {f"{one.name} = {json.dumps(one.default)}": one.meaning for one in found.values()}
        for name in METHODS
        if (found := _options(name))
    }


@dataclasses.dataclass(frozen=True)
class _MethodWords(Words):
    """--set takes options of methods, too."""

    settings: Annotated[tuple[str, ...], {"cls": Assignments, "keys": _method_keys}] = ()


@command
def propagate(
    graph: Path,
    method: str,
    *,
    words: _MethodWords,
    partition: str | None = None,
    split: int | None = None,
    out: Path,
    force: bool = False,
    quiet: Quiet = False,
) -> Job:
    """PageRank, label propagation, spectra, embeddings of GRAPH.

    METHOD gives a row for each vertex, in the order of the graph. Methods are METHODS.

    --set takes the options of the method, such as damping=0.9, and keys of the configuration, such
    as scheme.name=bcast or dtype=float64. --methods lists the options of all methods;
    docs/propagation.md describes them.

    Parameters
    ----------
    partition : NAME
        Partition into as many parts as there are ranks; one rank needs none.
    split : K
        Split of the masks, from 0: the key train.split.
    out : FILE
        File to write, one row per vertex: .npy, .npz, .csv or .parquet.
    force
        Start although the forecast needs more memory; go on from a checkpoint of another
        partition, with other rounding.
    """
    from gcnmpi.propagation.settings import PropagateRequest

    options = {"graph": graph, "partition": partition, "split": split, "out": out, "force": force}
    request = words.request(PropagateRequest, method=method, **options)

    def call(comm: Comm, claims: Claims) -> Callable[[], None]:
        from gcnmpi.propagation.running import propagate as run
        from gcnmpi.report.progress import print_propagated

        if request.checkpoints is not None:
            claims.folder(request.checkpoints[0])
        done = run(comm, request, telling(comm, quiet))
        return lambda: print_propagated(out, done, quiet=quiet)

    return _job(request, call)


assert propagate.help is not None
propagate.help = propagate.help.replace("METHODS", ", ".join(METHODS))
tables_option("--methods", "Print the options of every method.", options_of_methods)(propagate)


def _job(request: Request, call: Callable[[Comm, Claims], int | Callable[[], None]]) -> Job:
    return job(request.config, call, request.graph, request.partition)
