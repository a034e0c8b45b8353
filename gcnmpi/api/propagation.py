"""Propagation from Python: PageRank, labels, spectra and embeddings of a graph."""

from __future__ import annotations

import os
import warnings
from pathlib import Path

import numpy as np

from gcnmpi.api.graph import Graph
from gcnmpi.api.ranks import ranks_of
from gcnmpi.api.settings import Settings, file_or_keys
from gcnmpi.api.training import ALIKE, path_of
from gcnmpi.mpi.comm import Comm, agreed, check_same
from gcnmpi.mpi.watch import watchdog
from gcnmpi.options.config import keys
from gcnmpi.options.outputs import check_distinct, check_suffix
from gcnmpi.propagation.running import propagate as run
from gcnmpi.propagation.settings import asked_for
from gcnmpi.run.claims import Claims


def propagate(
    graph: Graph | str | os.PathLike,
    method: str,
    /,
    *,
    partition: str | None = None,
    out: str | os.PathLike | None = None,
    config: Settings = None,
    force: bool = False,
    comm: Comm | None = None,
    **settings: object,
) -> np.ndarray | dict[str, np.ndarray] | None:
    """Compute a method on a graph, as ``gcnmpi propagate``: a row for each vertex.

    All ranks call it with the same arguments.

    Parameters
    ----------
    graph : Graph or path
    method : str
        "pagerank", "label-propagation", "correct-and-smooth", "sgc", "sign", "appnp",
        "laplacian-eigenvectors", "embed", "components" or "core-numbers".
    partition : str, optional
        Into as many parts as there are ranks; one rank needs none.
    out : path, optional
        File to write: ``.npy``, ``.npz``, ``.csv`` or ``.parquet``; without it, rank 0 gets the
        arrays.
    config : path or mapping, optional
        A TOML file, or keys with their values.
    force : bool
        Start although a node has less memory than was forecast; go on from a checkpoint of another
        partition, with other rounding.
    comm : communicator of mpi4py, optional
    **settings
        Options of the method, such as ``damping=0.9``, and keys of the configuration with a "_"
        for the dot, such as ``scheme_name="bcast"``.

    Returns
    -------
    array, dict of str to array, or None
        On rank 0, unless ``out`` is given: (n,) or (n, width); of "laplacian-eigenvectors",
        "values" and "vectors".

    Raises
    ------
    UserError
        On all ranks, for whatever ``gcnmpi propagate`` refuses.
    """
    ranks, path = ranks_of(comm), path_of(graph)
    with agreed(ranks):
        target = None if out is None else Path(out)
        file, values = file_or_keys(config)
        names = {name.replace(".", "_"): name for name, _, _ in keys()}
        values |= {names.get(word, word): value for word, value in settings.items()}
        asked = asked_for(method, (), file, values)
        if target is not None:
            check_suffix("out", target, asked.method.suffixes)
        check_distinct({"graph": path, "out": target, **asked.files})
    same = {
        "configuration": asked.config, "options": asked.options, "partition": partition,
        "out": target, "method": method,
    }  # fmt: skip
    timeout = asked.config.comm.timeout
    with watchdog(timeout, ranks.rank), Claims(ranks, "gcnmpi.propagate") as claims:
        check_same(ranks, same, ALIKE)
        claims.graph(path, partition)
        if asked.checkpoints is not None:
            claims.folder(asked.checkpoints[0])
        done = run(ranks, path, partition, asked, target, force=force)
    if ranks.rank == 0:
        notes = [note for note in done.outcome.notes if note.startswith("warning: ")]
        for text in (*done.warnings, *(note.removeprefix("warning: ") for note in notes)):
            warnings.warn(text, stacklevel=2)
    if done.values is None or not done.outcome.arrays:
        return done.values
    return {done.outcome.name: done.values, **done.outcome.arrays}
