"""Forecasts of the memory that each stage of making a partition takes, and the choice by them."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import product

import numpy as np

from partition.backends import TOOLS, Tool
from partition.backends.catalogue import MODELS, all_options
from partition.errors import UserError
from partition.graph.aggregation import PIECE
from partition.graph.graph import REVERSED, Graph, row_sizes
from partition.graph.metrics import AT_ONCE
from partition.pipeline.balance import Recipe
from partition.refinement.objective import Objective, cells
from partition.registry import Settings

MODELS_KNOWN = ("rp", "block", "gp", "hp")
_PROGRAM = 110e6  # Python and its libraries; of the tool's process, too
_COMPILED = 170e6  # what the compiler behind the refinement adds
_PER_VERTEX = 60  # weights, parts, places of rows
_PER_ENTRY_OF_PIECE = 24  # of a pattern that is made in pieces
_SHIFTED = 24  # more where entries are put at their places one by one
_CHUNK, _PER_ENTRY_OF_CHUNK = 1 << 22, 64  # of an exchange of rows that is measured
_COVER = 140  # for each entry whose cover is computed at once
_CUT = 24  # for each entry of the part whose covers are computed
# What is left out of a model that does not fit otherwise: rows that more rows need than so many.
NETS = (1000, 300, 100, 30)


@dataclass(frozen=True)
class Sizes:
    """The sizes that forecasts depend on.

    ``nets``, (n,) int64, are the entries of each column of M with its full diagonal, ``itemsize``
    the bytes of a vertex number.
    """

    n: int
    nnz: int
    nets: np.ndarray
    itemsize: int
    k: int


@dataclass(frozen=True)
class _Choice:
    """A tool with all its options, and what it takes: stage → bytes."""

    tool: str
    options: Settings
    stages: Mapping[str, float]

    @property
    def peak(self) -> float:
        """Bytes of the stage that takes most."""
        return max(self.stages.values())

    def __str__(self) -> str:
        parts = ", ".join(f"{name} {size / 1e9:.2f}" for name, size in self.stages.items())
        return f"{self.peak / 1e9:.2f} GB at most: {parts}"


def within(
    graph: Graph, model: str, k: int, memory: float, recipe: Recipe | None = None,
    *, tool: str | None = None, refine: Objective | None = None, options: Settings | None = None,
) -> _Choice:  # fmt: skip
    """The first way to make a partition that fits: the tool asked for, with what was given.

    Whatever is left open is tried in this order: the tools of the model, with all rows of H; the
    same with rows left out that more rows of M need than ``NETS`` says. ``memory`` is in bytes, of
    all processes together; ``refine`` is the objective of a refinement that follows. If none fits,
    the error says what would.
    """
    mixed = refine is not None and refine.exchange == "mixed"
    unknown = "--memory: it is not known how much {} takes"
    if model not in MODELS_KNOWN or mixed:
        what = f"--model {model}" + (", refined for a mixed exchange," if mixed else "")
        known = f"models with a forecast: {', '.join(MODELS_KNOWN)}"
        raise UserError(unknown.format(what), known)
    recipe, given, tried = recipe or Recipe(), dict(options or {}), list[_Choice]()
    pins = row_sizes(graph, REVERSED[recipe.direction])
    sizes = (graph.n, graph.nnz, pins, graph.indices.itemsize, k)
    several, nodes = len(recipe.constraints) > 1, recipe.ranks_per_node is not None
    case = _Case(*sizes, model, refine is not None, several, nodes)
    for max_net, name in product((None, *NETS), [tool] if tool else MODELS[model].tools):
        try:
            backend = TOOLS.get(name)
        except UserError:  # it is not installed
            continue
        accepted = {**MODELS[model].options, **backend.options}
        asked = given | ({} if max_net is None else {"max_net": max_net})
        more = max_net is None or ("max_net" not in given and "max_net" in accepted)
        # The given options may be those of another tool.
        more &= tool is not None or asked.keys() <= accepted.keys()
        if not more or (backend.memory is None and backend.distribution is not None):
            continue
        settings = all_options(graph, model, name, backend, asked)
        tried.append(_Choice(name, settings, case.forecast(backend, settings)))
        if tried[-1].peak <= memory:
            return tried[-1]
    if not tried:
        what = f"the tool {tool or MODELS[model].tools[0]!r}"
        raise UserError(unknown.format(what), "choose another one")
    least = min(tried, key=lambda choice: (choice.peak, sum(choice.stages.values())))
    way = f"the tool {least.tool}"
    if least.options.get("max_net", 0):
        way += f" and max_net={least.options['max_net']}"
    takes = f"--model {model}{', refined,' if refine else ''} takes {least.peak / 1e9:.2f} GB"
    raise UserError(
        f"--memory {memory / 1e9:.3g}GB is too little: {takes} with {way}",
        _hint(case, least, memory, tool is None, "max_net" in given),
    )


@dataclass(frozen=True)
class _Case(Sizes):
    """Sizes, and the request: ``several`` weights are balanced, ``nodes`` partitioned first."""

    model: str
    refine: bool
    several: bool
    nodes: bool

    def forecast(self, backend: Tool, options: Settings) -> dict[str, float]:
        """Bytes that all processes take together, in each stage, with all options."""
        n, nnz, item, gp = self.n, self.nnz, self.itemsize, self.model == "gp"
        mapped = item * nnz + 8 * n
        ours = _PROGRAM + _PER_VERTEX * n
        stages = {}
        if backend.distribution is not None:
            assert backend.memory is not None
            most = int(options.get("max_net", 0))  # entries of a column; 0: any number
            entries = int((self.nets[self.nets <= most] - 1).sum()) if most > 0 else nnz
            pins = 2 * entries if gp else nnz + n
            shifted = _SHIFTED if self.model == "hp" else 0
            piece = min(PIECE, 2 * nnz) * (_PER_ENTRY_OF_PIECE + shifted)
            stages["model"] = ours + mapped + item * pins + piece
            shown = 2 * entries if gp else entries + n
            if self.nodes:
                stages["nodes"] = ours + 40 * shown
            stages["tool"] = ours + _PROGRAM + backend.memory(options, n, shown)
            stages["tool"] += item * pins if self.nodes else 0  # which are looked at here, too
            if self.several:
                stages["balance"] = ours + mapped + 2 * item * nnz + piece
        if self.refine:
            stages["refinement"] = ours + _COMPILED + mapped + refinement_bytes(self)
        # Pairs of parts and parts themselves have more entries than the average ones.
        pair, part = 2 * nnz // self.k**2, 2 * nnz // self.k
        rows = _PER_ENTRY_OF_CHUNK * min(_CHUNK, nnz) + _PER_ENTRY_OF_PIECE * min(PIECE, nnz)
        covers = _COVER * min(nnz, max(AT_ONCE, pair)) + _CUT * min(nnz, max(AT_ONCE, part))
        stages["measuring"] = ours + mapped + max(rows, covers)
        return stages


def refinement_bytes(sizes: Sizes) -> float:
    """Bytes of the levels of a refinement for an exchange of rows."""
    pins = sizes.nnz + sizes.n
    level = 8 * pins + 4 * int(cells(sizes.nets, sizes.k).sum())
    # The next level is made beside it, of as many pins at worst.
    return level + 28 * pins + 120 * sizes.n


def _hint(case: _Case, least: _Choice, memory: float, any_tool: bool, max_net: bool) -> str:
    """Other options that would fit, where the tool is open, or ``max_net`` is given."""
    enough = f"give --memory {least.peak / 1e9 + 0.01:.2f}GB"
    if max(size for stage, size in least.stages.items() if stage != "refinement") <= memory:
        return f"leave --refine out, or {enough}"
    if max(replace(case, model="rp").forecast(TOOLS.get("random"), {}).values()) > memory:
        return enough
    if max_net or not any_tool:
        return f"leave {'max_net' if any_tool else '--tool'} out, or {enough}"
    other = "--model gp" if case.model == "hp" else "--model rp, refined,"
    return f"{other} takes less; or {enough}"
