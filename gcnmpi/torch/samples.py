"""Samples of a graph folder for modules of PyTorch: own rows of steps, and a group's share of them.

The order of samples, and which of them a group has of a step, is as in ``gcnmpi train``: see
:mod:`gcnmpi.run.samples.step`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch

from gcnmpi.mpi.comm import agreed
from gcnmpi.nn.tasks.samples import Scales
from gcnmpi.run.samples.reading import ScaledSteps
from gcnmpi.run.samples.step import shuffled
from gcnmpi.torch.memory import on_host
from gcnmpi.torch.ranks import OfThisProcess, Ranks
from gcnmpi.torch.state import GraphState
from partition.errors import UserError
from partition.graph.graph import MASKS
from partition.graph.samples import SampleSet, read_samples


class Samples(OfThisProcess):
    """Samples of the graph folder, as :meth:`Graph.samples` gives them.

    A sample ends with a step t, the last one that the network reads. Reading is a rank's own
    matter: nothing is sent.

    Attributes
    ----------
    set : SampleSet
        As the folder has it.
    columns, target_columns : int
        Of states and of targets; 0: later states are predicted.
    """

    def __init__(
        self,
        ranks: Ranks,
        found: SampleSet,
        ids: np.ndarray,
        seed: int,
        reach: tuple[int, int],
        standardize: bool,
    ) -> None:
        self._ranks, self.set, self._seed, self._reach = ranks, found, seed, reach
        self.columns, self.target_columns = found.columns, found.target_columns
        scales = Scales.of(found)
        how = ids, ranks.kernel.dtype, scales if standardize else scales.plain
        kinds = ["states"] if found.targets is None else ["states", "targets"]
        self._steps = {kind: ScaledSteps(found, kind, *how) for kind in kinds}

    def states(self, steps: int | Sequence[int]) -> torch.Tensor:
        """Own rows (num_own, columns) of a step; (num_own, steps, columns) of several ones.

        NaN where unknown: ``torch.nan_to_num`` puts the mean there.
        """
        return self._rows("states", steps)

    def targets(self, steps: int | Sequence[int]) -> torch.Tensor:
        """The same of targets; a ValueError where there are none of their own."""
        if "targets" not in self._steps:
            raise ValueError(
                f"the samples {self.set.name!r} have no targets: later states are predicted, "
                "states(t + 1)"
            )
        return self._rows("targets", steps)

    def scales(self, kind: str = "states") -> tuple[torch.Tensor, torch.Tensor]:
        """Mean and deviation of each column: numbers were less the one and over the other."""
        of = self._steps[kind]
        dtype = getattr(torch, self._ranks.kernel.dtype.name)
        how = {"dtype": dtype, "device": self._ranks.memory.device}
        return torch.tensor(of.mean, **how), torch.tensor(of.deviation, **how)

    def anchors(self, mask: str) -> list[int]:
        """The last step of each sample of "train", "val" or "test", in their order."""
        if mask not in MASKS:
            raise ValueError(f"samples are of {', '.join(MASKS)}, not of {mask!r}")
        found: list[int] = self.set.anchors(mask, *self._reach).tolist()
        return found

    def mine(self, mask: str, batch: int, epoch: int | None = None) -> Iterator[list[int]]:
        """The samples of each step that this group computes: their last steps.

        All groups have as many steps, and ``batch`` samples in each together. With ``epoch``, from
        1, they come in the order in which ``gcnmpi train`` takes them, and those that are left over
        wait for another epoch. Without it, they come in their own order, and the last step has
        fewer: for some groups none.

        Parameters
        ----------
        batch : int
            A multiple of the number of groups.

        Raises
        ------
        ValueError
            If the groups cannot share the samples of a step, or there are too few for one.
        """
        group, groups = _group_of(self._ranks)
        anchors = np.array(self.anchors(mask), np.int64)
        if batch < 1 or batch % groups:
            raise ValueError(f"{groups} groups cannot share the {batch} samples of a step evenly")
        whole = len(anchors) if epoch is None else len(anchors) // batch * batch
        if epoch is not None:
            if not whole:
                raise ValueError(f"{mask} has {len(anchors)} samples: fewer than a step takes")
            anchors = shuffled(anchors, self._seed, epoch)
        count = batch // groups
        for start in range(0, whole, batch):
            yield anchors[start : start + batch][group * count :][:count].tolist()

    def _rows(self, kind: str, steps: int | Sequence[int]) -> torch.Tensor:
        of = self._steps[kind]
        for step in [steps] if isinstance(steps, int) else steps:
            if not 0 <= step < self.set.steps:
                raise IndexError(f"there is no step {step} among {self.set.steps}")
        if isinstance(steps, int):
            return self._ranks.placed(of.read(steps))
        rows = [of.read(step) for step in steps]
        if not rows:
            return self._nothing(kind)
        return self._ranks.placed(np.stack(rows, axis=1))

    def _nothing(self, kind: str) -> torch.Tensor:
        """No sample of anything."""
        of_none = self._steps[kind].read(0)
        return self._ranks.placed(of_none)[:, None][:, :0]


class OfSamples(GraphState):
    """A graph with ``samples``."""

    @property
    def group(self) -> int:
        """The number of this rank's group; each has the graph."""
        return _group_of(self._ranks)[0]

    @property
    def groups(self) -> int:
        """How many groups of ranks there are."""
        return _group_of(self._ranks)[1]

    def samples(
        self, name: str, *, history: int = 1, leads: int = 1, standardize: bool = True
    ) -> Samples:
        """The samples of a name in the graph folder; for all ranks of all groups together.

        Parameters
        ----------
        name : str
            As ``gcn-partition samples --name`` has called them.
        history, leads : int
            States that a network reads, and that it predicts after them: a sample has all of them
            within one range of its mask. Samples with targets have no leads.
        standardize : bool
            Numbers are less the mean of their column and over its deviation, of training steps.

        Raises
        ------
        UserError
            On all ranks, if there are none of that name.
        """
        ranks = self._ranks
        ranks.every.together("samples", history, leads)
        with agreed(ranks.every.comm):
            if history < 1 or leads < 1:
                raise UserError("history and leads of samples are 1 or more")
            found = read_samples(self._opened.source.stored.path, name)
            reach = history, 0 if found.targets is not None else leads
            return Samples(ranks, found, on_host(self.ids), self._seed, reach, standardize)
        raise AssertionError("an error of a rank is raised on all")


def _group_of(ranks: Ranks) -> tuple[int, int]:
    """The number of a rank's group, and how many there are."""
    here, every = ranks.comm, ranks.every.comm
    return every.rank // here.size, every.size // here.size
