"""A rank's part of a graph, in PyTorch's tensors, and what brings in the rows of other ranks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property, partial
from typing import overload

import numpy as np
import torch

from gcnmpi.core.volume import Volume
from gcnmpi.halo.plan import Plan
from gcnmpi.mpi.comm import Comm, agreed
from gcnmpi.nn.metrics.scored import Scored
from gcnmpi.options.task import METRICS, METRICS_OF
from gcnmpi.torch.agreement import GradientSum, broadcast, check_weights
from gcnmpi.torch.alone import warned
from gcnmpi.torch.batches import Batching
from gcnmpi.torch.collective import NORMS, BatchNorm, Collective, RowNorm
from gcnmpi.torch.files import OfFiles
from gcnmpi.torch.functions import check_probability, dropout, eager, linear
from gcnmpi.torch.memory import on_host
from gcnmpi.torch.moves import Fetched
from gcnmpi.torch.pairs import OfPairs
from gcnmpi.torch.run import Runs
from gcnmpi.torch.samples import OfSamples
from gcnmpi.torch.typed import OfTypes
from partition.errors import unknown_name


class Graph(Runs, OfFiles, OfPairs, OfSamples, OfTypes):
    """This rank's part of a graph, as :func:`gcnmpi.torch.open` gives it.

    This rank owns ``num_own`` vertices; its rows of M have entries for ``num_halo`` vertices of
    other ranks besides. Own rows lie in an order of the rank's own. Methods that are said to be for
    all ranks together must be called by all of them, in the same order.

    Attributes
    ----------
    x : (num_own, d) tensor, or None
        Features of the own vertices.
    y : (num_own,) int64 or (num_own, c) tensor, or None
        Their classes, −1 where unknown; where the graph has no classes, its targets, NaN where
        unknown.
    train_mask, val_mask, test_mask : (num_own,) bool tensor, or None
        Without a training mask in the graph, all vertices with a class.
    ids, halo_ids : (num_own,) and (num_halo,) int64 tensors
        Numbers of the own vertices in the graph, and of those of the halo.
    n : int
        Vertices of all ranks.
    num_own, num_halo, num_features, num_classes : int
    rank, size : int
        The number of this rank, and how many there are.
    graphs : (num_own,) int64 tensor, or None
        Of a ``Batch`` or a list of graphs: which of them a row belongs to.
    num_graphs : int
        How many they are.
    graph_y : (num_graphs, …) tensor, or None
        Their classes or numbers, where ``y`` of the batch has a row for each; on all ranks.
    dtype : torch.dtype
    device : torch.device
        Of all these tensors, and of what methods take and give: ``net.to(g.device)``.
    """

    @cached_property
    def collective(self) -> Collective:
        """Sums, means, maxima and softmaxes over all rows of all ranks."""
        return Collective(self._ranks)

    @cached_property
    def batches(self) -> Batching:
        """Mini-batches: ``for batch in g.batches("neighbor", 1024, [10, 5], epoch=epoch)``."""
        return Batching(self)

    @cached_property
    def _sum_gradients(self) -> GradientSum:
        return GradientSum(self._ranks.every)

    def __repr__(self) -> str:
        name, rank = self._stored.manifest.name, f"rank {self.rank} of {self.size}"
        rows = f"{self.num_own} own rows, {self.num_halo} of others"
        return f"<{name}: {self.n} vertices; {rank}: {rows}, {self._laid.valued.nnz} entries>"

    @property
    def plan(self) -> Plan:
        """Which rows travel in an exchange, as NumPy arrays: for exchanges of other programs."""
        return self._laid.plan

    # Rows of other ranks.

    @overload
    def expand(self, h: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]: ...
    @overload
    def expand(self, h: torch.Tensor) -> torch.Tensor: ...
    @eager
    def expand(
        self, h: torch.Tensor | Mapping[str, torch.Tensor]
    ) -> torch.Tensor | dict[str, torch.Tensor]:
        """Own rows (num_own, …) → own and halo rows (num_own + num_halo, …); differentiable.

        For all ranks together. One exchange; its gradient is one, too, in which what ranks compute
        for each other's rows is added in rank order. A rank alone gets ``h`` itself. Of a
        dictionary, rows of each type that it names: ``g["paper"]`` says which; one exchange for
        all that have one width.
        """
        if isinstance(h, Mapping):
            return self._expand_types(h)
        self._check_count(h)
        self._ranks.check(h)
        return self._moves.expanded(h)

    @eager
    def aggregate(self, h: torch.Tensor) -> torch.Tensor:
        """M·h, own rows (num_own, …) → own rows; differentiable.

        For all ranks together. By the native kernel, while rows of others are on their way.
        """
        self._check_count(h)
        product = self._moves.of(h).aggregate
        forth, back = (partial(product, transposed=transposed) for transposed in (False, True))
        return linear(self._ranks, h, forth, back)

    def rows_of(self, ids: torch.Tensor) -> Fetched:
        """The plan that brings rows of any vertices here, to be used often.

        For all ranks together.

        Parameters
        ----------
        ids : (…) int64 tensor
            Numbers of vertices in the graph: others on each rank, in any order, repeated or none.

        Returns
        -------
        Fetched
            A function of own rows (num_own, …): ``fetched(h)`` is ``g.fetch(h, ids)``.

        Raises
        ------
        UserError
            On all ranks, if one is not a vertex.
        """
        return Fetched(self._ranks, self._laid, self._moves, ids, self._max_bytes)

    def fetch(self, h: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
        """Rows of any vertices, (*ids.shape, …), of own rows h (num_own, …); differentiable.

        For all ranks together: the ranks tell each other what they need, and one exchange brings
        it, each row once for a rank. Where the same ids are needed again, keep :meth:`rows_of`.
        """
        return self.rows_of(ids)(h)

    # Training.

    @eager
    def all_reduce_gradients(self, model: torch.nn.Module | Iterable[torch.nn.Parameter]) -> None:
        """Sum the gradients of a model's parameters over ranks: after ``backward``, before a step.

        For all ranks together. One reduction of one buffer, in float64.
        """
        if isinstance(model, torch.nn.Module):
            model = model.parameters()
        self._agreement.tell_of_own_loss()
        self._sum_gradients(model)
        self._agreement.summed = True

    @eager
    def broadcast(self, model: torch.nn.Module) -> None:
        """Give all ranks the parameters and buffers of rank 0's model.

        For all ranks together. Not needed where all have made the model from the same seed.
        """
        self._ranks.every.together("a broadcast")
        broadcast(self._ranks.every, [*model.parameters(), *model.buffers()])

    @eager
    def check(self, model: torch.nn.Module) -> list[str]:
        """Whether a model is one that trains the same on every number of ranks.

        For all ranks together.

        Returns
        -------
        list of str
            A line for each module that sees the rows of one rank where it should see those of all,
            or draws random numbers of its own, with what to use instead. Rank 0 warns of them.

        Raises
        ------
        UserError
            On all ranks, if they have not the same bits in all parameters and buffers.
        """
        self._ranks.every.together("a check")
        check_weights(self._ranks.every, model)
        return warned(model, self.rank)

    @eager
    def dropout(
        self, h: torch.Tensor, p: float, epoch: int, layer: int, training: bool = True,
        sample: int = 0,
    ) -> torch.Tensor:  # fmt: skip
        """Dropout whose masks are the same for every number of ranks; differentiable.

        They depend on (seed, epoch, layer, sample, vertex, column) only, and are those of
        ``gcnmpi train``. Nothing is sent.

        Parameters
        ----------
        h : (num_own, …) or (num_own + num_halo, …) tensor
            Own rows, or own and halo rows, which get the masks that their owners give them.
        epoch, layer : int
            What tells the masks of a run apart.
        sample : int
            Those of several samples of one step: the place among these, of all groups.
        """
        check_probability(p)
        if not training or not p:
            return h
        self._check_count(h, halo=True)
        vertices = self._vertices[: len(h)]
        if sample:
            vertices = vertices + sample * self.n
        keys = self._ranks.kernel.row_keys(self._seed, epoch, layer, vertices)
        return dropout(self._ranks, h, p, keys)

    def batch_norm(
        self,
        width: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
    ) -> BatchNorm:
        """A ``torch.nn.BatchNorm1d`` with exact moments over the rows of all ranks."""
        return BatchNorm(self._ranks.every, width, eps, momentum, affine, self.dtype)

    def norm(self, kind: str, width: int, eps: float = 1e-5) -> RowNorm:
        """A norm of PyTorch Geometric with the moments of all rows of all ranks.

        "graph", "pair", "mean" and "layer": its GraphNorm, PairNorm, MeanSubtractionNorm and
        ``LayerNorm(mode="graph")``.
        """
        if kind not in NORMS:
            raise ValueError(f"norm is one of {', '.join(NORMS)}, not {kind!r}")
        return RowNorm(self.collective, kind, width, eps, self.dtype)

    # Results.

    @eager
    def metrics(
        self, logits: torch.Tensor, names: Iterable[str] = ("accuracy",)
    ) -> dict[str, float | None]:
        """Metrics over all ranks, in each mask: {"train_accuracy": …}; None where not defined.

        For all ranks together.

        Parameters
        ----------
        logits : (num_own, c) tensor
            Output for the own rows.
        names : iterable of str
            Of ``accuracy``, ``f1_micro``, ``f1_macro``, ``roc_auc``, ``average_precision``; for
            targets that are numbers ``mae``, ``rmse``, ``r2``: see docs/tasks.md.
        """
        if self.y is None:
            raise ValueError("the graph has no labels to compare with")
        names, labels = list(names), on_host(self.y)
        self._ranks.together("metrics")
        with agreed(self._ranks.comm):
            _check_names(names, labels)
        self._check_count(logits)
        scores = on_host(self._ranks.taken(logits))
        self._agreement.sum((), logits, "metrics")
        masks = {name: on_host(mask) for name, mask in self.masks.items()}
        return _scored_in(self._ranks.comm, names, scores, labels, masks)

    @property
    def traffic(self) -> Volume:
        """Bytes sent and received, and messages sent, by this rank in exchanges of rows so far.

        Exchanges while the graph was opened are among them.
        """
        traffic = self._ranks.runtime.traffic
        return traffic["setup"] + traffic["train"]

    @cached_property
    def _vertices(self) -> np.ndarray:
        """The vertices of own and halo rows, where the kernel reads them."""
        plan = self._laid.plan
        vertices: np.ndarray = self._ranks.kernel.resident(
            np.concatenate((plan.own, plan.halo)), np.uint64
        )
        return vertices


def _check_names(names: Sequence[str], labels: np.ndarray) -> None:
    """Raise a UserError for a name that is no metric of such labels: classes, or numbers."""
    tasks = ("classes",) if labels.ndim == 1 else ("labels", "regression")
    known = [metric for task in tasks for metric in METRICS_OF[task]]
    for name in names:
        if name not in known:
            raise unknown_name("metric", name, known)


def _scored_in(
    comm: Comm,
    names: Sequence[str],
    scores: np.ndarray,
    labels: np.ndarray,
    masks: Mapping[str, np.ndarray],
) -> dict[str, float | None]:
    """Metrics by ``mask_name``; None where not defined. All ranks call it together.

    Parameters
    ----------
    scores : (rows, columns)
        Output for this rank's rows.
    labels : (rows,) integers, −1 where unknown; or (rows, columns) numbers
    masks : mapping of str to (rows,) bool
    """
    found: dict[str, float | None] = {}
    of_classes = labels.ndim == 1
    for mask, chosen in masks.items():
        rows = chosen & (labels >= 0) if of_classes else chosen
        some = labels[rows].astype(np.int32) if of_classes else labels[rows]
        scored = Scored(scores[rows], some)
        for name in names:
            metric: Callable[..., float | None] = METRICS.get(name)
            value = metric(comm, scored)
            good = value is not None and np.isfinite(value)
            found[f"{mask}_{name}"] = value if good else None
    return found
