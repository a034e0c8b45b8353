"""Rows of a graph from arrays and files, and to them."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import torch

from gcnmpi.layout.loading import Readable, original_rows
from gcnmpi.layout.writing import write_rows
from gcnmpi.mpi.comm import agreed
from gcnmpi.options.requests import check_suffix
from gcnmpi.run.results import Rows, on_root
from gcnmpi.torch.functions import eager
from gcnmpi.torch.memory import on_host
from gcnmpi.torch.state import GraphState
from partition.errors import UserError


class OfFiles(GraphState):
    """A graph whose rows come from arrays and go to files."""

    @eager
    def load(self, array: Readable) -> torch.Tensor:
        """The own rows of an (n, …) NumPy array, such as ``numpy.load(path, mmap_mode="r")``.

        For all ranks together: each has the same array or file, and reads 1/P of it.
        """
        return self._ranks.placed(self._own_rows(array))

    def _own_rows(self, array: Readable) -> np.ndarray:
        self._ranks.together("a load")
        with agreed(self._ranks.comm):
            if len(array) != self.n:
                raise UserError(f"the array has {len(array)} rows, and the graph {self.n} vertices")
        return self._laid.rows.load(self._ranks.comm, array, self._max_bytes)

    @eager
    def write(self, h: torch.Tensor, path: str | os.PathLike) -> None:
        """Write own rows (num_own, …) of all ranks as one ``.npy``, in the order of the graph.

        For all ranks together: each writes 1/P of the file. A file of that name is replaced once
        it is complete.
        """
        self._ranks.together("a write")
        with agreed(self._ranks.comm):
            check_suffix("write", Path(path), (".npy",))
        own, rows = self._laid.plan.own, self._numbers(h)
        rows = original_rows(self._ranks.comm, own, rows, self.n, self._max_bytes)
        write_rows(self._ranks.comm, Path(path), rows, self.n)

    @eager
    def gather(self, h: torch.Tensor) -> torch.Tensor | None:
        """Own rows of all ranks as one (n, …) tensor of the host on rank 0, in the graph's order.

        For all ranks together; None on the others.
        """
        self._ranks.together("a gather")
        places = np.arange(self.num_own)
        rows = Rows(self._laid.plan.own, places, self._numbers(h), self.n)
        whole = on_root(self._ranks.comm, rows, self._max_bytes)
        return None if whole is None else torch.from_numpy(whole)

    def _numbers(self, h: torch.Tensor) -> np.ndarray:
        self._check_count(h)
        rows = h.detach().contiguous()
        if rows.dtype == torch.bfloat16:  # which NumPy has not
            rows = rows.to(self.dtype)
        return on_host(rows)
