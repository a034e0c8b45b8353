"""Groups of ranks that train on a mini-batch each: how large they should be, on paper.

ScaleGNN (2026) trains on the product of a 3D grid and groups: P = G·g ranks are G groups of g; each
group computes a batch of its own by the scheme, and gradients are averaged over groups before every
update. A larger group makes a batch shorter, until messages take as long as arithmetic; more groups
take more batches at once, with one more sum: of a rank's gradients, over the ranks that have the
same place in their groups. An epoch of B batches has ⌈B/G⌉ updates, each as long as a batch and
this sum. The result of an update is that of a batch G times as large: whether that needs other
learning rates is for the user to say.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from gcnmpi.planner.ranking import Candidate, Setting, candidates
from partition.errors import UserError

GRADIENT_BYTES = 8  # of a number of a gradient that is summed over ranks


@dataclass(frozen=True)
class Group:
    """Ranks that compute a mini-batch together, with the scheme that is fastest on so many.

    Attributes
    ----------
    size : int
        How many ranks.
    batch : float
        Seconds of a batch.
    numbers : int
        Gradients that a rank has: a piece of them, where weights are cut.
    memory : int
        Peak bytes of a rank.
    """

    size: int
    candidate: Candidate
    batch: float
    numbers: int
    memory: int


@dataclass(frozen=True)
class Division:
    """P ranks as so many groups of one size, and seconds of an epoch.

    ``reduce`` are the seconds of the sum of gradients over groups, of which each of the ``updates``
    has one.
    """

    group: Group
    groups: int
    updates: int
    reduce: float

    @property
    def seconds(self) -> float:
        """The seconds of an epoch: of all updates."""
        return self.updates * (self.group.batch + self.reduce)

    def record(self) -> Mapping[str, object]:
        """The figures as JSON has them."""
        candidate = self.group.candidate
        return {
            "ranks_of_a_group": self.group.size,
            "groups": self.groups,
            "scheme": candidate.scheme.name,
            "options": candidate.options,
            "batch_seconds": self.group.batch,
            "reduce_seconds": self.reduce,
            "updates": self.updates,
            "seconds": self.seconds,
            "memory": self.group.memory,
        }


class Groups:
    """Divisions of ranks into groups, for a setting with mini-batches.

    ``schemes`` are those that a group may use; None: all. A UserError if there are no batches.
    """

    def __init__(self, setting: Setting, schemes: Sequence[str] | None = None) -> None:
        if setting.batches is None:
            raise UserError(
                "groups of ranks train on a mini-batch each", "set train.batches=vertex,SIZE"
            )
        self._setting, self._schemes = setting, schemes
        self._batches = setting.batches.sampler.batches
        self.of_size = cache(self._of_size)

    def _of_size(self, size: int) -> Group | None:
        """The fastest group of so many ranks whose memory suffices; None: there is none."""
        setting = self._setting
        if size > setting.stored.manifest.n:
            return None
        best: Group | None = None
        for candidate in candidates(setting, size, schemes=self._schemes)[0]:
            try:
                cost = setting.cost(candidate, size)
            except UserError:  # of a scheme that cannot run the network
                continue
            batch = cost.seconds / self._batches
            if cost.memory <= setting.limit and (best is None or batch < best.batch):
                case = setting.case(candidate, size)
                numbers = max(map(case.parameter_numbers, case.forecast.ranks()))
                best = Group(size, candidate, batch, numbers, cost.memory)
        return best

    def divisions(self, ranks: int) -> list[Division]:
        """Every division of so many ranks into groups of one size, the fastest first."""
        found = []
        for size in (size for size in range(1, ranks + 1) if ranks % size == 0):
            if (group := self.of_size(size)) is not None:
                found.append(self._division(group, ranks // size))
        return sorted(found, key=lambda division: (division.seconds, division.groups))

    def _division(self, group: Group, groups: int) -> Division:
        setting = self._setting
        taken = min(groups, self._batches)  # others have nothing to do
        summed = GRADIENT_BYTES * group.numbers, taken, setting.ranks_per_node
        reduce = setting.machine.all_reduce_seconds(*summed, stride=group.size)
        return Division(group, groups, -(-self._batches // taken), reduce)
