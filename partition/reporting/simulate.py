"""The cost of mini-batches under a partition: the distribution of their volume, by drawing many."""

from __future__ import annotations

import os
from collections.abc import Sequence

import numpy as np

from partition.errors import UserError
from partition.graph import sampling
from partition.graph.graph import training_rows
from partition.graph.metrics import draw_batch, kept_pairs, measure_batch, observe, rows_within
from partition.graph.sampling import SAMPLERS, by_relation
from partition.graph.store import member, open_graph, read_partition

FIGURES = ("volume", "max_send", "max_recv", "messages", "max_send_messages")
ITEMSIZE = 4  # bytes of a number of the features, in a run in float32
QUANTILES = {"min": 0.0, "q05": 0.05, "median": 0.5, "q95": 0.95, "max": 1.0}


def simulate(
    path: str | os.PathLike[str],
    names: Sequence[str],
    *,
    sampler: str = "vertex",
    batch: int | str = "6%",
    fanouts: str = "",
    batches: int = 1000,
    seed: int = 0,
    direction: str | None = None,
    as_trained: bool = False,
    cache_mb: float = 0.0,
    relations: bool = False,
    fanouts_of: Sequence[str] = (),
) -> dict[str, object]:
    """Draw mini-batches, the same for all partitions, and count what each exchanges.

    The partitions are compared with the first one. For ``sampler``, ``batch``, ``fanouts`` and
    ``seed`` see :func:`partition.graph.sampling.make_sampler`. Every batch is an independent draw,
    and none is one that a stochastic hypergraph was made of. With ``as_trained`` they are the
    batches of a run with this seed, from its first epoch on, as it counts them; then each part may
    keep ``cache_mb`` MB (2²⁰ bytes) of input rows of others, in float32. With ``relations`` they
    are those of networks that tell relations apart: every arc is an entry, and neighbours are drawn
    from those of each relation; ``fanouts_of``, such as "writes=15,10", are fan-outs of some.

    Returns
    -------
    dict
        ``sampler``, ``batch`` (vertices), ``batches``, ``seed``, ``direction``, ``entries`` (mean
        number of entries of M in a batch, without its diagonal, or of arcs), ``relations`` (whether
        they are told apart) and ``partitions``, a list of dict with ``name``, ``model``, ``k``; for
        each of ``FIGURES``, which count rows and messages of one expand of every distinct pattern
        of the batch, ``mean``, ``sd`` and quantiles; ``relative_volume``, the mean volume over that
        of the first partition, and ``relative_error``, its standard error over batches (None for
        the first, and over 0).
    """
    stored = open_graph(path)
    direction = stored.direction(direction)
    if batches < 1:
        raise UserError(f"{batches} batches: draw at least one")
    if not names:
        raise UserError("no partition is named", "gcn-partition list shows what there is")
    if cache_mb and not (as_trained and SAMPLERS.get(sampler).layered):
        raise UserError(
            "rows are kept in runs, for batches of seeds",
            "add --as-trained, with --sampler neighbor or labor",
        )
    told_apart = stored.graph.relations if relations or fanouts_of else ()
    if (relations or fanouts_of) and not told_apart:
        raise UserError(f"{path} has no relations", "leave out --relations and --fanouts-of")
    if fanouts_of and not SAMPLERS.get(sampler).layered:
        raise UserError(
            f"--fanouts-of: --sampler {sampler} draws no neighbours", "--sampler neighbor or labor"
        )
    graph = stored.graph if told_apart else stored.merged
    seeds = None
    if as_trained and SAMPLERS.get(sampler).layered:
        trained = training_rows(graph)
        seeds = np.arange(graph.n) if trained is None else np.flatnonzero(trained)
    own = sampling.stream_seed(seed, sampling.TRAINING if as_trained else sampling.SIMULATION)
    many = graph.n if seeds is None else len(seeds)
    drawn = by_relation(
        sampling.make_sampler(sampler, many, batch, own, fanouts),
        graph.n, told_apart, ";".join(fanouts_of), "--fanouts-of",
    )  # fmt: skip
    partitions = [read_partition(path, member(path, name)) for name in dict.fromkeys(names)]

    parts = [(partition.parts, partition.k) for partition in partitions]
    manifest = stored.manifest
    sizes = manifest.inputs, manifest.feature_entries, graph.n, ITEMSIZE
    kept = rows_within(cache_mb, *sizes)
    side = sampling.sides(graph, direction, drawn.side, bool(told_apart))
    entries, figures = draw(side, drawn, parts, batches, direction, as_trained, seeds, kept)
    rows = []
    for partition, counted in zip(partitions, figures, strict=True):
        facts = {key: getattr(partition, key) for key in ("name", "model", "k")}
        facts |= {key: _spread(counted[i]) for i, key in enumerate(FIGURES)}
        rows.append(facts | _relative(counted[0], figures[0][0], partition is partitions[0]))
    facts = {"sampler": sampler, "batch": drawn.size, "fanouts": list(drawn.fanouts)}
    facts |= {"batches": batches, "seed": seed, "direction": direction, "entries": entries}
    facts |= {"relations": bool(told_apart)}
    return facts | {"partitions": rows}


def draw(
    side: sampling.Side,
    sampler: sampling.Sampler,
    partitions: Sequence[tuple[np.ndarray, int]],
    batches: int,
    direction: str,
    as_trained: bool = False,
    seeds: np.ndarray | None = None,
    kept_rows: int = 0,
) -> tuple[float, np.ndarray]:
    """Count ``batches`` mini-batches of the sampler's ``side`` of a graph under each (parts, k).

    With ``as_trained`` they are those of a run, in their order; otherwise independent draws of
    whole size. The sampler draws seeds among the vertices ``seeds``; each part keeps so many input
    rows of others. Returns the mean number of entries of M in a batch, and the figures,
    (partitions, len(FIGURES), batches) int64.
    """
    figures = np.zeros((len(partitions), len(FIGURES), batches), np.int64)
    kept: list[np.ndarray | None] = [None] * len(partitions)
    if kept_rows:
        seen = observe(sampler, side, seeds)
        kept = [kept_pairs(seen, parts, k, kept_rows) for parts, k in partitions]
    entries = 0
    for number in range(batches):
        # The first batches of epochs are independent draws of whole size.
        epoch, batch = divmod(number, sampler.batches) if as_trained else (number, 0)
        place = (epoch + as_trained, batch)  # a run counts its epochs from 1
        drawn = draw_batch(sampler, side, *place, seeds)
        entries += sum(len(pattern.rows) for pattern in drawn.patterns)
        for counted, (parts, k), rows in zip(figures, partitions, kept, strict=True):
            for layer in measure_batch(drawn, parts, k, direction, rows):
                counted[:, number] += (
                    layer.volume, max(layer.send_rows), max(layer.recv_rows),
                    layer.messages, max(layer.send_messages),
                )  # fmt: skip
    return entries / batches, figures


def _spread(values: np.ndarray) -> dict[str, float]:
    facts = {"mean": float(values.mean()), "sd": float(values.std(ddof=min(1, len(values) - 1)))}
    quantiles = np.quantile(values, list(QUANTILES.values()))
    return facts | dict(zip(QUANTILES, quantiles.tolist(), strict=True))


def _relative(volume: np.ndarray, first: np.ndarray, same: bool) -> dict[str, float | None]:
    """Ratio of the mean volumes, and its standard error: both see the same batches."""
    mean = first.mean()
    if same or mean == 0:
        return {"relative_volume": 1.0 if same else None, "relative_error": None}
    ratio = volume.mean() / mean
    # The first-order (delta) variance of a ratio of paired means.
    error = np.sqrt(((volume - ratio * first) ** 2).sum()) / len(volume) / mean
    return {"relative_volume": float(ratio), "relative_error": float(error)}
