"""Memory that partitioning takes: what ``--memory`` chooses by."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
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

    def kept(self, max_net: int) -> int:
        """Arcs in the columns of at most ``max_net`` entries; 0: in all."""
        return int((self.nets[self.nets <= max_net] - 1).sum()) if max_net > 0 else self.nnz


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
    graph: Graph,
    model: str,
    k: int,
    memory: float,
    recipe: Recipe | None = None,
    *,
    tool: str | None = None,
    refine: Objective | None = None,
    options: Settings | None = None,
) -> _Choice:
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
    recipe = recipe or Recipe()
    constraints, nodes = len(recipe.constraints), recipe.ranks_per_node is not None
    pins = row_sizes(graph, REVERSED[recipe.direction])
    sizes = Sizes(graph.n, graph.nnz, pins, graph.indices.itemsize, k)
    given = dict(options or {})
    tried: list[_Choice] = []
    for name, backend, settings in _ways(graph, model, tool, given):
        stages = forecast(sizes, backend, settings, model, refine is not None, constraints, nodes)
        choice = _Choice(name, settings, stages)
        if choice.peak <= memory:
            return choice
        tried.append(choice)
    if not tried:
        what = f"the tool {tool or MODELS[model].tools[0]!r}"
        raise UserError(unknown.format(what), "choose another one")
    least = min(tried, key=lambda choice: (choice.peak, sum(choice.stages.values())))
    asked = f"--model {model}" + ("" if refine is None else ", refined,")
    max_net = least.options.get("max_net", 0)
    way = f"the tool {least.tool}" + (f" and max_net={max_net}" if max_net else "")
    takes = f"{asked} takes {least.peak / 1e9:.2f} GB with {way}"
    raise UserError(
        f"--memory {memory / 1e9:.3g}GB is too little: {takes}",
        _hint(sizes, least, model, memory, tool is None, "max_net" in given),
    )


def forecast(
    sizes: Sizes,
    backend: Tool,
    options: Settings,
    model: str,
    refine: bool = False,
    constraints: int = 1,
    nodes: bool = False,
) -> dict[str, float]:
    """Bytes that all processes take together, in each stage, with all options of model and tool.

    So many ``constraints`` are balanced at once; with ``nodes``, nodes are partitioned first, and
    then their parts.
    """
    n, nnz, item = sizes.n, sizes.nnz, sizes.itemsize
    mapped = item * nnz + 8 * n
    ours = _PROGRAM + _PER_VERTEX * n
    stages = {}
    if backend.distribution is not None:
        assert backend.memory is not None
        entries = sizes.kept(int(options.get("max_net", 0)))
        pins = 2 * entries if model == "gp" else nnz + n
        piece = min(PIECE, 2 * nnz) * (_PER_ENTRY_OF_PIECE + (_SHIFTED if model == "hp" else 0))
        stages["model"] = ours + mapped + item * pins + piece
        shown = 2 * entries if model == "gp" else entries + n
        if nodes:
            stages["nodes"] = ours + 40 * shown
        stages["tool"] = ours + _PROGRAM + backend.memory(options, n, shown)
        stages["tool"] += item * pins if nodes else 0  # which are looked at here, too
        if constraints > 1:
            stages["balance"] = ours + mapped + 2 * item * nnz + piece
    if refine:
        stages["refinement"] = ours + _COMPILED + mapped + refinement_bytes(sizes)
    # Pairs of parts and parts themselves have more entries than the average ones.
    pair, part = 2 * nnz // sizes.k**2, 2 * nnz // sizes.k
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


def _ways(
    graph: Graph, model: str, tool: str | None, given: Settings
) -> Iterator[tuple[str, Tool, Settings]]:
    """Tools and all their options, in the order of preference."""
    for max_net, name in product((None, *NETS), [tool] if tool else MODELS[model].tools):
        try:
            backend = TOOLS.get(name)
        except UserError:  # it is not installed
            continue
        accepted = {**MODELS[model].options, **backend.options}
        options = given | ({} if max_net is None else {"max_net": max_net})
        known = backend.memory is not None or backend.distribution is None
        more = max_net is None or ("max_net" not in given and "max_net" in accepted)
        # The given options may be those of another tool.
        if known and more and (tool is not None or options.keys() <= accepted.keys()):
            yield name, backend, all_options(graph, model, name, backend, options)


def _hint(
    sizes: Sizes, least: _Choice, model: str, memory: float, any_tool: bool, max_net: bool
) -> str:
    """Other options that would fit, where the tool is open, or ``max_net`` is given."""
    enough = f"give --memory {least.peak / 1e9 + 0.01:.2f}GB"
    others = {stage: size for stage, size in least.stages.items() if stage != "refinement"}
    if max(others.values()) <= memory:
        return f"leave --refine out, or {enough}"
    random = forecast(sizes, TOOLS.get("random"), {}, "rp", "refinement" in least.stages)
    if max(random.values()) > memory:
        return enough
    if max_net or not any_tool:
        return f"leave {'max_net' if any_tool else '--tool'} out, or {enough}"
    other = "--model gp" if model == "hp" else "--model rp, refined,"
    return f"{other} takes less; or {enough}"
