"""Types of vertices and relations of a graph, as PyTorch Geometric's ``HeteroData`` has them.

Rows of a type are numbered by themselves: the own ones as they follow each other among the rank's
own, then those of the halo, likewise.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from itertools import accumulate
from typing import overload

import numpy as np
import torch

from gcnmpi.halo.plan import Plan, plan_of
from gcnmpi.torch.functions import eager
from gcnmpi.torch.memory import on_host
from gcnmpi.torch.moves import RowMoves
from gcnmpi.torch.ranks import OfThisProcess
from gcnmpi.torch.state import GraphState
from partition.errors import UserError
from partition.graph.relations import Relation, place_of

Rows = Mapping[str, torch.Tensor]
"""Rows of each type."""


class OfType(OfThisProcess):
    """This rank's vertices of one type, ``g["paper"]``.

    Attributes
    ----------
    rows : (num_own,) int64 tensor
        Which of the graph's own rows they are.
    ids, halo_ids : (num_own,) and (num_halo,) int64 tensors
        Their numbers within the type, and those of rows of the halo.
    num_own, num_halo : int
    """

    def __init__(self, g: OfTypes, columns: slice, own: range) -> None:
        self._g, self._columns = g, columns
        in_type = [(ids >= own.start) & (ids < own.stop) for ids in (g.ids, g.halo_ids)]
        self.rows, self._halo_rows = (torch.nonzero(some)[:, 0] for some in in_type)
        self.ids, self.halo_ids = (
            g.ids[self.rows] - own.start,
            g.halo_ids[self._halo_rows] - own.start,
        )
        self.num_own, self.num_halo = len(self.rows), len(self._halo_rows)

    @cached_property
    def x(self) -> torch.Tensor | None:
        """(num_own, d) features of the type; None where it has none."""
        x = self._g.x
        return None if x is None or self._columns == slice(0) else x[self.rows, self._columns]

    @property
    def y(self) -> torch.Tensor | None:
        """(num_own, …): classes, −1 where unknown, or targets, NaN where unknown."""
        return None if self._g.y is None else self._g.y[self.rows]

    @property
    def masks(self) -> Mapping[str, torch.Tensor]:
        """The masks that there are, (num_own,) bool: "train", "val", "test"."""
        return {name: mask[self.rows] for name, mask in self._g.masks.items()}

    @property
    def train_mask(self) -> torch.Tensor | None:
        """(num_own,) bool: vertices that train."""
        return self.masks.get("train")

    @property
    def val_mask(self) -> torch.Tensor | None:
        """(num_own,) bool: vertices of the validation mask."""
        return self.masks.get("val")

    @property
    def test_mask(self) -> torch.Tensor | None:
        """(num_own,) bool: vertices of the test mask."""
        return self.masks.get("test")


class OfRelation(OfThisProcess):
    """The arcs of one relation into own vertices, ``g["author", "writes", "paper"]``."""

    def __init__(self, g: OfTypes, number: int) -> None:
        self._g, self._number = g, number

    @cached_property
    def edge_index(self) -> torch.Tensor:
        """(2, arcs) int64: sources among own rows of their type, then those of the halo; targets.

        These are numbers of rows within types, as ``expand`` of a dictionary gives them. The first
        one that is asked for is for all ranks together, as ``typed_edges`` is.
        """
        pairs, kinds = self._g.typed_edges
        return self._g._places[pairs[:, kinds == self._number]]


class OfTypes(GraphState):
    """A graph with types of vertices and relations."""

    @overload
    def __getitem__(self, key: str) -> OfType: ...
    @overload
    def __getitem__(self, key: tuple[str, str, str]) -> OfRelation: ...
    def __getitem__(self, key: str | tuple[str, str, str]) -> OfType | OfRelation:
        """Vertices of a type, or arcs of a relation; a UserError if there are none of that name."""
        if isinstance(key, tuple):
            relations = self._stored.manifest.schema.relations
            return self._relations[relations[place_of(",".join(key), relations, "the graph")]]
        types = self._stored.graph.vertex_types
        if types is None:
            raise UserError("the graph has no types of vertices", "g.x has the rows of all")
        types.range(key)
        return self._types[key]

    @cached_property
    @eager
    def typed_edges(self) -> tuple[torch.Tensor, torch.Tensor]:
        """(2, arcs) and (arcs,) int64: ends as in ``edge_index``, of parallel arcs too; relations.

        The first time it is for all ranks together.
        """
        if not self._stored.manifest.relations:
            raise ValueError("the graph has no relations")
        return self._typed_arcs()

    @property
    def x_dict(self) -> dict[str, torch.Tensor]:
        """Features of own vertices of each type that has some."""
        found = {name: of.x for name, of in self._types.items()}
        return {name: x for name, x in found.items() if x is not None}

    @property
    def edge_index_dict(self) -> dict[tuple[str, str, str], torch.Tensor]:
        """The arcs of each relation; the first time for all ranks together."""
        found = self._relations.items()
        return {(one.source, one.name, one.target): of.edge_index for one, of in found}

    def own(self, h: Rows) -> dict[str, torch.Tensor]:
        """Rows [own | halo] of types → the own ones."""
        return {name: rows[: self[name].num_own] for name, rows in h.items()}

    def _expand_types(self, h: Rows) -> dict[str, torch.Tensor]:
        """Own rows of types → [own | halo] rows; one exchange for all types of one width.

        For all ranks together, with the same types.
        """
        names = [name for name in self._types if name in h]
        if len(names) < len(h):
            self[next(name for name in h if name not in self._types)]
        for name in names:
            if h[name].ndim == 0 or len(h[name]) != self[name].num_own:
                raise ValueError(
                    f"{self[name].num_own} own rows of type {name!r} are wanted on rank "
                    f"{self._ranks.comm.rank}, not a tensor {tuple(h[name].shape)}"
                )
        if self._ranks.comm.size == 1:
            return dict(h)
        alike: dict[tuple[object, ...], list[str]] = {}
        for name in names:
            alike.setdefault((h[name].shape[1:], h[name].dtype), []).append(name)
        found: dict[str, torch.Tensor] = {}
        for some in alike.values():
            found |= self._expanded(tuple(some), h)
        return {name: found[name] for name in h}

    def _expanded(self, names: tuple[str, ...], h: Rows) -> dict[str, torch.Tensor]:
        if names not in self._plans:
            self._plans[names] = self._moves.for_plan(self._plan_of(names))
        rows = torch.cat([h[name] for name in names])
        self._ranks.check(rows)
        whole = self._plans[names].expanded(rows)
        halo, found, first = whole[len(rows) :], {}, 0
        of_halo = torch.cat([self[name]._halo_rows for name in names]).argsort().argsort()
        for name in names:
            of = self[name]
            own, of_type = whole[first : first + of.num_own], of_halo[: of.num_halo]
            found[name] = torch.cat((own, halo[of_type]))
            first, of_halo = first + of.num_own, of_halo[of.num_halo :]
        return found

    def _plan_of(self, names: tuple[str, ...]) -> Plan:
        """The part of the plan that is about vertices of some types, these one after the other."""
        plan, size = self._laid.plan, self._ranks.comm.size
        rows = on_host(torch.cat([self[name].rows for name in names]))
        place = np.full(plan.nown, -1)
        place[rows] = np.arange(len(rows))
        halo = on_host(torch.cat([self[name]._halo_rows for name in names]).sort().values)
        owners = np.repeat(plan.recv_peers, np.diff(plan.recv_offsets))[halo]
        sent = place[plan.send_rows]
        asking = np.repeat(plan.send_peers, np.diff(plan.send_offsets))[sent >= 0]
        counts = np.bincount(asking, minlength=size)
        return plan_of(plan.own[rows], plan.halo[halo], owners, sent[sent >= 0], counts)

    @cached_property
    def _plans(self) -> dict[tuple[str, ...], RowMoves]:
        return {}

    @cached_property
    def _types(self) -> dict[str, OfType]:
        types, manifest = self._stored.graph.vertex_types, self._stored.manifest
        if types is None:
            return {}
        widths = manifest.type_features
        firsts = dict(zip(widths, accumulate(widths.values(), initial=0), strict=False))
        columns = {
            name: slice(firsts[name], firsts[name] + width) for name, width in widths.items()
        }
        other = slice(0) if widths else slice(None)  # none, or those of all types
        return {
            name: OfType(self, columns.get(name, other), types.range(name)) for name in types.names
        }

    @cached_property
    def _relations(self) -> dict[Relation, OfRelation]:
        relations = self._stored.manifest.schema.relations
        return {one: OfRelation(self, number) for number, one in enumerate(relations)}

    @cached_property
    def _places(self) -> torch.Tensor:
        """The number within its type of each own row, and of each row of the halo."""
        own, halo = torch.empty_like(self.ids), torch.empty_like(self.halo_ids)
        for of in self._types.values():
            own[of.rows] = torch.arange(of.num_own, device=own.device)
            halo[of._halo_rows] = of.num_own + torch.arange(of.num_halo, device=own.device)
        return torch.cat((own, halo))
