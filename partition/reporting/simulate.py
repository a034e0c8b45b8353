"""The cost of mini-batches under a partition: the distribution of their volume, by drawing many."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from partition.errors import UserError
from partition.graph import sampling
from partition.graph.graph import training_rows
from partition.graph.metrics import draw_batch, kept_pairs, measure_batch, observe, rows_within
from partition.graph.store import member, open_graph, read_partition

FIGURES = ("volume", "max_send", "max_recv", "messages", "max_send_messages")
ITEMSIZE = 4  # bytes of a number of the features, in a run in float32
QUANTILES = {"min": 0.0, "q05": 0.05, "median": 0.5, "q95": 0.95, "max": 1.0}


@dataclass(frozen=True)
class MiniBatches:
    """The mini-batches that a simulation draws.

    Attributes
    ----------
    sampler : vertex|neighbor|labor
        vertex: the subgraph that uniformly drawn vertices induce; neighbor, labor: seed vertices
        and some neighbours of each, layer by layer.
    batch : NUMBER|SHARE%
        Vertices in a mini-batch (neighbor: seeds), or their share of all vertices.
    fanouts : F,F…
        neighbor, labor: neighbours per vertex for each layer, that of the seeds first; -1: all.
        [default: 10,10]
    batches
        Number of mini-batches.
    seed
        Seed of the mini-batches.
    as_trained
        The batches of a run with this train.seed, in their order; neighbor and labor draw seeds
        among the training vertices.
    cache_mb
        With --as-trained: MB of input rows of others that each part keeps, as train.cache_mb.
    relations
        Those of networks that tell relations apart: neighbours are drawn from the arcs of each
        relation.
    fanouts_of : NAME=F,F…
        neighbor, labor: the same, with fan-outs of this relation; may be repeated.
    """

    sampler: str = "vertex"
    batch: str | int = "6%"
    fanouts: str = ""
    batches: int = 1000
    seed: int = 0
    as_trained: bool = False
    cache_mb: float = 0.0
    relations: bool = False
    fanouts_of: tuple[str, ...] = ()

    def check(self) -> None:
        """Refuse options that contradict each other."""
        layered = sampling.SAMPLERS.get(self.sampler).layered
        if self.batches < 1:
            raise UserError(f"{self.batches} batches: draw at least one")
        if self.cache_mb and not (self.as_trained and layered and self.cache_mb > 0):
            raise UserError(
                "--cache-mb: rows are kept in runs, for batches of seeds",
                "a positive number, with --as-trained, and --sampler neighbor or labor",
            )
        if self.fanouts_of and not layered:
            raise UserError(
                f"--fanouts-of: --sampler {self.sampler} draws no neighbours",
                "--sampler neighbor or labor",
            )


def simulate(
    path: str | os.PathLike[str],
    names: Sequence[str],
    *,
    direction: str | None = None,
    **options: Any,
) -> dict[str, object]:
    """Draw mini-batches, the same for all partitions, and count what each exchanges.

    The partitions are compared with the first one. ``options`` are fields of :class:`MiniBatches`.
    Every batch is an independent draw, and none is one that a stochastic hypergraph was made of.
    With ``as_trained`` they are the batches of a run with this seed, from its first epoch on, as it
    counts them; then each part may keep ``cache_mb`` MB (2²⁰ bytes) of input rows of others, in
    float32. With ``relations`` they are those of networks that tell relations apart: every arc is
    an entry, and neighbours are drawn from those of each relation.

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
    stored, wanted = open_graph(path), MiniBatches(**options)
    direction = stored.direction(direction)
    wanted.check()
    if not names:
        raise UserError("no partition is named", "gcn-partition list shows what there is")
    relations = stored.graph.relations if wanted.relations or wanted.fanouts_of else ()
    if (wanted.relations or wanted.fanouts_of) and not relations:
        raise UserError(f"{path} has no relations", "leave out --relations and --fanouts-of")
    graph = stored.graph if relations else stored.merged
    seeds = None
    if wanted.as_trained and sampling.SAMPLERS.get(wanted.sampler).layered:
        trained = training_rows(graph)
        seeds = np.arange(graph.n) if trained is None else np.flatnonzero(trained)
    stream = sampling.TRAINING if wanted.as_trained else sampling.SIMULATION
    seed, many = sampling.stream_seed(wanted.seed, stream), graph.n if seeds is None else len(seeds)
    sampler = sampling.make_sampler(wanted.sampler, many, wanted.batch, seed, wanted.fanouts)
    fanouts = ";".join(wanted.fanouts_of)
    sampler = sampling.by_relation(sampler, graph.n, relations, fanouts, "--fanouts-of")
    partitions = [read_partition(path, member(path, name)) for name in dict.fromkeys(names)]

    side = sampling.sides(graph, direction, sampler.side, bool(relations))
    sizes = stored.manifest.inputs, stored.manifest.feature_entries, graph.n, ITEMSIZE
    most = rows_within(wanted.cache_mb, *sizes)
    seen = observe(sampler, side, seeds) if most else []
    kept = [kept_pairs(seen, one.parts, one.k, most) if most else None for one in partitions]
    figures = np.zeros((len(partitions), len(FIGURES), wanted.batches), np.int64)
    entries = 0
    for number in range(wanted.batches):
        # The first batches of epochs are independent draws of whole size; a run counts from 1.
        place = (number, 0)
        if wanted.as_trained:
            epoch, batch = divmod(number, sampler.batches)
            place = (epoch + 1, batch)
        drawn = draw_batch(sampler, side, *place, seeds)
        entries += sum(len(pattern.rows) for pattern in drawn.patterns)
        for counted, partition, rows in zip(figures, partitions, kept, strict=True):
            for layer in measure_batch(drawn, partition.parts, partition.k, direction, rows):
                counted[:, number] += (
                    layer.volume, max(layer.send_rows), max(layer.recv_rows),
                    layer.messages, max(layer.send_messages),
                )  # fmt: skip
    described = []
    for partition, counted in zip(partitions, figures, strict=True):
        facts = {key: getattr(partition, key) for key in ("name", "model", "k")}
        facts |= {key: _spread(counted[i]) for i, key in enumerate(FIGURES)}
        described.append(facts | _relative(counted[0], figures[0][0], partition is partitions[0]))
    facts = {key: asdict(wanted)[key] for key in ("sampler", "batches", "seed")}
    return facts | {
        "batch": sampler.size,
        "fanouts": list(sampler.fanouts),
        "direction": direction,
        "entries": entries / wanted.batches,
        "relations": bool(relations),
        "partitions": described,
    }


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
