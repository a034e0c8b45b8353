"""Links: positive pairs are told from negative ones by a score of each pair.

The loss of a positive with score s and its K negatives with scores z₁, …:

* bce: log(1 + exp(−s)) + mean of log(1 + exp(zₖ)), binary cross-entropy;
* softmax: −log(exp(s) / (exp(s) + Σ exp(zₖ)));
* auc: mean of (1 − s + zₖ)², which bounds 1 − AUC from above (Gao and Zhou 2015).

The loss of a step is the mean over its positives. A negative that is a pair to be learned itself
does not count where that is asked for: its part of a sum is 0, and K stays what it is.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gcnmpi.nn.decoders import with_decoder
from gcnmpi.nn.network import Network
from gcnmpi.nn.program import Program
from gcnmpi.nn.tasks.interface import Steps, Task, check_groups
from gcnmpi.options.config import Config
from gcnmpi.options.model import ModelConfig
from gcnmpi.options.scheme import SCHEMES
from gcnmpi.options.task import OF_RELATIONS, WIDTH, LinkOptions, tells_relations
from gcnmpi.options.train import batches_of
from gcnmpi.schemes.interface import Entry
from partition.errors import UserError
from partition.graph.graph import Examples
from partition.graph.manifest import Manifest
from partition.graph.relations import names_of
from partition.graph.store import StoredGraph
from partition.graph.vertex_pairs import HELD_OUT, PairSet, list_pairs, read_pairs

Losses = tuple[np.ndarray, np.ndarray, np.ndarray]
OfGroups = Callable[[np.ndarray, np.ndarray], Losses]
"""Scores (m,) of positives and (m, K) of their negatives, −∞ for those that do not count → the loss
of each positive, and its derivatives by both."""


def each_alone(scores: np.ndarray, positive: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Binary cross-entropy of pairs, in which no pair looks at another one.

    Scores (m,), and which are of positives, (m,) bool → loss of each pair, and its derivative. A
    score of −∞ does not count.
    """
    z = np.where(positive, -scores, scores)
    small = np.exp(-np.abs(z))  # it never overflows
    loss = np.maximum(z, 0) + np.log1p(small)
    slope = np.where(z > 0, 1.0, small) / (1 + small)  # σ(z)
    return loss, np.where(positive, -slope, slope)


def softmax(positives: np.ndarray, negatives: np.ndarray) -> Losses:
    """Cross-entropy of a positive among its negatives."""
    largest = np.maximum(positives, negatives.max(axis=1, initial=-np.inf))
    of_positive = np.exp(positives - largest)
    of_negatives = np.exp(negatives - largest[:, np.newaxis])
    total = of_positive + of_negatives.sum(axis=1)
    loss = np.log(total) + largest - positives
    return loss, of_positive / total - 1, of_negatives / total[:, np.newaxis]


def auc(positives: np.ndarray, negatives: np.ndarray) -> Losses:
    """Squared differences of a positive and its negatives from 1."""
    counts = np.isfinite(negatives)
    apart = np.where(counts, 1 - positives[:, np.newaxis] + np.where(counts, negatives, 0), 0.0)
    share = 1 / max(1, negatives.shape[1])
    loss, slope = share * (apart * apart).sum(axis=1), 2 * share * apart
    return loss, -slope.sum(axis=1), slope


GROUPED: dict[str, OfGroups] = {"softmax": softmax, "auc": auc}


def pairs_of(stored: StoredGraph, task: Any) -> PairSet | None:
    """The pairs that a task names; None where the folder has none that are called so."""
    if stored.pairs is not None or task.pairs not in list_pairs(stored.path):
        return stored.pairs
    return read_pairs(stored.path, task.pairs)


def with_relations(config: Config, pairs: PairSet | None) -> Config:
    """The configuration with the relations of the pairs, where its decoder tells these apart.

    Of another task, and without pairs, it stays as it is. A UserError if the pairs have more
    relations than are configured, or what is asked of them knows no relations.
    """
    task = config.task
    if not isinstance(task, LinkOptions) or task.decoder not in OF_RELATIONS or pairs is None:
        return config
    found = pairs.kinds if pairs.relations else 1
    task = replace(task, decoder_relations=task.decoder_relations or found)
    if not tells_relations(task):
        return replace(config, task=task)
    if found > task.decoder_relations:
        raise UserError(
            f"the pairs {pairs.name!r} have {found} relations, and task.decoder_relations = "
            f"{task.decoder_relations}",
            "leave it out; with 1, the decoder tells none apart",
        )
    if found == 1 and not pairs.relations:
        raise UserError(
            f"task.decoder = {task.decoder}: the pairs {pairs.name!r} have no relations",
            "import them with --columns source,relation,target",
        )
    if any(
        len(pairs.negatives.get(mask, ())) and f"{mask}_negatives" not in pairs.relations
        for mask in HELD_OUT
    ):
        raise UserError(
            f"the pairs {pairs.name!r} have negatives to validate or test on, which are of no "
            "relation",
            "leave these out (--negatives 0 of a split), or set task.decoder_relations=1",
        )
    return replace(config, task=task)


@dataclass(frozen=True)
class Pairs:
    """The pairs that a task learns to tell from others."""

    path: object
    pairs: PairSet

    def has(self, mask: str, among: range | None = None) -> bool:
        """Whether there are positives of a mask."""
        return len(self.pairs.positives[mask]) > 0

    def nothing_to_validate(self) -> UserError:
        """The error that there are no positives to validate on."""
        return UserError(
            f"the pairs {self.pairs.name!r} of {self.path} have none to validate on",
            f"make pairs that do: gcn-partition pairs {self.path} --split 0.85,0.05,0.10",
        )


class Links(Task):
    """Pairs of vertices are told from others; the arcs of those held out are not in M."""

    work = "gcnmpi.run.links.step:LinkWork"
    forecast = "gcnmpi.planner.links:LinkEpochs"
    of_weights = "gcnmpi.run.links.evaluation:of_weights"
    serial = "gcnmpi.proof.links:of_links"
    scores_pairs = True

    def examples(self, stored: StoredGraph, options: LinkOptions) -> Pairs:
        """The pairs that are named; a UserError if there are none to train on."""
        found = Pairs(stored.path, stored.pairs or read_pairs(stored.path, options.pairs))
        if not found.has("train"):
            raise UserError(f"{stored.path}: the pairs {options.pairs!r} have none to train on")
        return found

    def ends(self, options: LinkOptions, model: ModelConfig, manifest: Manifest) -> tuple[int, int]:
        """Features of the graph, and columns of a vertex's row."""
        hidden: tuple[int, ...] = getattr(model, "hidden", ())
        return manifest.inputs, options.width or (WIDTH, *hidden)[-1]

    def read(self, stored: StoredGraph, options: LinkOptions) -> StoredGraph:
        """The folder with the pairs, whose held-out arcs leave M; without a name, as it is."""
        if not options.pairs:
            return stored
        pairs, manifest = read_pairs(stored.path, options.pairs), stored.manifest
        if pairs.directed:  # an arc leaves M, and the one that leads back does not
            manifest = replace(manifest, symmetric_pattern=False, symmetric_values=False)
        return replace(stored, manifest=manifest, pairs=pairs)

    def resolve(self, config: Config, stored: StoredGraph) -> Config:
        """The relations that the decoder tells apart are those of the pairs."""
        return with_relations(config, pairs_of(stored, config.task))

    def for_weights(
        self, config: Config, stored: StoredGraph, given: Container[str], facts: Mapping[str, Any]
    ) -> tuple[Config, int]:
        """The arcs of the pairs that M was without in training leave it, unless others are named.

        A UserError if the folder has other pairs only.
        """
        task: Any = config.task
        if "task.pairs" not in given:
            name, sets = facts["pairs"] or task.pairs, list_pairs(stored.path)
            if sets and name not in sets:
                raise UserError(
                    f"{stored.path} has no pairs {name!r}, whose held-out arcs M was without in "
                    "training",
                    f"--set task.pairs=NAME names others: {', '.join(sets)}",
                )
            config = replace(config, task=replace(task, pairs=name if sets else ""))
        return config, stored.manifest.inputs

    def relation_names(self, stored: StoredGraph, options: LinkOptions) -> tuple[str, ...]:
        """The relations that the decoder distinguishes."""
        if not tells_relations(options):
            return ()
        pairs = pairs_of(stored, options)
        return names_of(stored.graph.relations) or (pairs.relation_names if pairs else ())

    def network(self, network: Network, options: LinkOptions) -> Network:
        """With the decoder behind it."""
        return with_decoder(network, options)

    def steps(self, options: Any) -> Steps:
        """Arcs may leave M; decoders read the logits again."""
        return Steps(matrix=options.supervise < 1, over_logits=False)

    def learned(self, examples: Examples) -> tuple[float, int]:
        """No row of the output is an example."""
        return 0.0, super().learned(examples)[1]

    def check(self, config: Config, entry: Entry, program: Program) -> None:
        """Pairs are scored by rows, on ranks that ask for rows of others."""
        if not entry.asks_for_rows:
            able = [name for name in SCHEMES if SCHEMES.get(name).asks_for_rows]
            raise UserError(
                f"task.name = links: scheme {config.scheme.name!r} does not score pairs",
                f"use scheme.name = {' or '.join(able)}",
            )
        if batches_of(config.train) is not None:
            raise UserError(
                "train.batches: a step of task.name = links takes all vertices",
                "leave train.batches out; task.batch is the number of pairs of a step",
            )
        masks = self.steps(config.task).matrix
        if masks and program.needs_entries:
            raise UserError(
                f"task.supervise: model {config.model.name!r} has rows of arcs, and arcs leave M "
                "in each step",
                "leave task.supervise out",
            )
        if masks and config.model.train_features:
            raise UserError(
                "task.supervise: features that are trained need the same M in every step",
                "leave task.supervise out, or use task.batch",
            )
        check_groups(config)


TASK = Links()
