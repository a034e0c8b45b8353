"""The output files of a command, and checks of them that need only the command line."""

from __future__ import annotations

import datetime
import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from gcnmpi.options.config import Config
from partition.errors import UserError
from partition.registry import Registry

# The formats that inference writes beside .npy, by suffix.
RESULT_WRITERS = Registry(
    "format of results",
    {
        ".npz": "gcnmpi.run.results:write_npz",
        ".csv": "gcnmpi.run.results:write_csv",
        ".parquet": "gcnmpi.run.results:write_parquet",
    },
)
RESULTS = (".npy", *RESULT_WRITERS)
TABLES = (".npz", ".csv", ".parquet")  # of several columns
WEIGHTS = (".npz",)
RUN_VARIABLE = "GCNMPI_RUN"  # of the environment: the folder of the run that a job is for
# In the folder of a run.
LAST_WEIGHTS, BEST_WEIGHTS = "weights.npz", "best.npz"
NETWORK = "network.py"  # the user's own network, if it is one


@dataclass(frozen=True)
class Training:
    """A training run, as ``gcnmpi train`` is asked for it.

    Attributes
    ----------
    out : path or None
        Folder of the run; None: a new one.
    weights, best : path or None
        Files of the last and of the best weights.
    resume : str
        As :func:`gcnmpi.run.checkpoint.find` takes it.
    keeps : bool
        Whether the last and the best weights are written to the folder of the run, too.
    logs : tuple of str
        Logs of the epochs that are written to the folder of the run, by name.
    """

    graph: Path
    partition: str | None
    config: Config
    out: Path | None
    weights: Path | None
    best: Path | None
    resume: str
    keeps: bool = False
    logs: tuple[str, ...] = ()


@dataclass(frozen=True)
class Inferring:
    """An inference, as ``gcnmpi infer`` is asked for it.

    Attributes
    ----------
    config : Config
        How to compute. Network, matrix and task are those of the weights, where the file says so:
        see :func:`gcnmpi.run.weights.as_trained`.
    weights : path
        ``.npz`` of ``train --save-weights``, or a file of another program: see
        :func:`gcnmpi.run.weights.read_weights`. Features that were trained are beside it.
    out : path or None
        File to write, (n, width) of the run's dtype, or (n,) int64 for classes: an array
        (``.npy``), the array ``values`` (``.npz``), a line a vertex with commas (``.csv``), or
        columns (``.parquet``): see :mod:`gcnmpi.run.results`. Tables have the names of classes,
        where the graph knows them; an ``.npz`` has them beside their numbers, in ``class_names``.
        None: rank 0 gets the array.
    given : collection of str
        Keys of the configuration that the user gave, which the weights may not contradict.
    what : {"logits", "probabilities", "embeddings", "classes"}
        Without ``layer``: logits; their softmax, of several labels their sigmoid; the output of the
        layer before; or the column of the largest logit.
    layer : int or None
        This layer, from 1; None: the last one, or that before it for "embeddings".
    rows : path, array of vertices or of arcs, or None
        Only these are wanted, in this order: see :mod:`gcnmpi.run.vertices`.
    force : bool
        Start although a node has less memory than was forecast.
    """

    graph: Path
    partition: str | None
    config: Config
    weights: Path
    out: Path | None = None
    given: Collection[str] = ()
    what: str = "logits"
    layer: int | None = None
    rows: Path | np.ndarray | None = None
    force: bool = False


@dataclass(frozen=True)
class Scoring:
    """Scores of pairs of vertices, or best partners, as ``gcnmpi score`` is asked for them.

    Attributes
    ----------
    inferring : Inferring
        The weights, which give the rows of vertices, and the file to write. Of pairs, it gets a
        number for each, in their order. Of partners, a line for each vertex and partner.
    pairs : path, str, (m, 2) array, or None
        The file of pairs, or the name of a set of them in the folder.
    of : str
        Which pairs of such a set: "train", "val" or "test"; "": of a file, or those of "test".
    top : int
        How many partners each vertex is to get; 0: pairs are scored.
    vertices : path, str or array
        The vertices that get partners, as :func:`gcnmpi.run.vertices.picked_vertices` takes them;
        or their names with commas between them; or "all".
    with_arcs : bool
        Whether a partner may be one that the vertex has an arc with.
    columns : str, optional
        Meaning of the columns of a file of pairs: "source,relation,target".
    relation : str, optional
        That of the partners: its name, or "source,name,target"; a number where it has no name.
    """

    inferring: Inferring
    pairs: str | os.PathLike | np.ndarray | None = None
    of: str = ""
    top: int = 0
    vertices: str | os.PathLike | np.ndarray = "all"
    with_arcs: bool = False
    columns: str | None = None
    relation: str | None = None


def check_training_files(asked: Training, config_file: Path | None = None) -> None:
    """Raise a UserError for mistakes in what training is asked for that need no file to be read."""
    files = {"--save-weights": asked.weights, "--save-best": asked.best}
    for option, path in files.items():
        check_suffix(option, path, WEIGHTS)
    check_distinct({"GRAPH": asked.graph, "--config": config_file, "--out": asked.out, **files})


def check_suffix(option: str, path: Path | None, suffixes: Sequence[str]) -> None:
    """Raise a UserError unless a file has one of the suffixes that can be written."""
    if path is not None and path.suffix not in suffixes:
        raise UserError(
            f"{option} {path}: the name ends in {path.suffix or 'no suffix'}, "
            f"written are {', '.join(suffixes)}",
            f"such as {option} {_replaced(path, suffixes)}",
        )


def _replaced(path: Path, suffixes: Sequence[str]) -> Path:
    """The path with the first of the suffixes, which it may have under another: x.npy.gz."""
    inner = path.with_suffix("")
    return inner if inner.suffix in suffixes else path.with_suffix(suffixes[0])


def check_distinct(paths: Mapping[str, Path | None]) -> None:
    """Raise a UserError if two options name the same file, under whatever name."""
    seen: dict[str, str] = {}
    for option, path in paths.items():
        if path is None:
            continue
        real = os.path.realpath(path)
        if real in seen:
            raise UserError(f"{seen[real]} and {option} name the same file: {path}")
        seen[real] = option


def run_name(graph: Path, partition: str | None) -> str:
    """Default name of the folder of a run."""
    # Only one process uses it, so clocks need not agree.
    date = datetime.datetime.now().strftime("%Y%m%d-%H%M%S")
    return f"{graph.name.removesuffix('.graph')}-{partition or 'serial'}-{date}"


def job_folder(out: Path | None) -> Path | None:
    """Folder of a run in a program of the user's; None: a new one.

    A program that ``gcnmpi submit`` has started finds that of its job in the environment. A
    UserError if it names another: nobody would look for the end of the run there.
    """
    given = os.environ.get(RUN_VARIABLE)
    if not given:
        return out
    if out is not None and os.path.realpath(out) != os.path.realpath(given):
        raise UserError(
            f"the folder of the run is {out}, and the job looks for it in {given}",
            f"None as the folder takes that of the job; or submit --out {out}",
        )
    return Path(given)


def features_path(weights: str | os.PathLike) -> Path:
    """Where the trained features are kept that belong to a file of weights."""
    return Path(weights).with_suffix(".features.npy")
