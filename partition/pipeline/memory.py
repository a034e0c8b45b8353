"""Seconds of partitioning and of exchanges: the estimates that ``--model auto`` goes by."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from partition.backends import TOOLS, Tool
from partition.backends.catalogue import MODELS, all_options
from partition.errors import UserError
from partition.graph.aggregation import PIECE
from partition.graph.graph import REVERSED, Graph, row_sizes
from partition.graph.metrics import AT_ONCE, Metrics
from partition.pipeline.recipe import Recipe
from partition.refinement.objective import Objective, cells, sweeps_for
from partition.registry import Settings

ENTRY, NUMBER = 2e-9, 2e-10  # seconds of a core of an ordinary server


@dataclass(frozen=True)
class Network:
    """The cost of a message: α seconds and β seconds a byte, for float32 rows of ``width``.

    The defaults are those of a good cluster network: half a microsecond, which is what it takes to
    hand over one of many messages that travel at the same time, and 10 GB/s. An entry of M takes
    ``ENTRY`` seconds, and ``NUMBER`` more a column.
    """

    alpha: float = 5e-7
    beta: float = 1e-10
    width: int = 64

    def seconds(self, metrics: Metrics) -> float:
        """Predicted time of an expand: α·messages + β·bytes of the rank that sends longest."""
        messages = np.asarray(metrics.send_messages, np.float64)
        sent = np.asarray(metrics.send_rows, np.float64) * (4 * self.width)
        return float((self.alpha * messages + self.beta * sent).max())

    def bytes_seconds(self, rows: int) -> float:
        """The seconds of so many rows, messages aside."""
        return self.beta * 4 * self.width * rows

    def mixed_seconds(self, rows: Metrics, mixed: Metrics) -> float:
        """The same of a mixed exchange, and of what the busiest part multiplies more for it."""
        more = max(0, max(mixed.work) - max(rows.work))
        return self.seconds(mixed) + more * (ENTRY + self.width * NUMBER)


@dataclass(frozen=True)
class Facts:
    """The features of a graph, of k and of the first partition that decide what is tried.

    Attributes
    ----------
    pins : float
        Entries and rows of M.
    cut : float
        Rows that the first partition sends for each vertex: few where the graph has locality.
    directed : bool
        Whether the pattern of M is not symmetric.
    """

    pins: float
    k: int
    cut: float = 1.0
    directed: bool = False

    @property
    def bisections(self) -> float:
        """How often a part would have to be halved for k of them."""
        return math.log2(max(self.k, 2))

    @property
    def work(self) -> float:
        """Pins times bisections: what the time of a multilevel tool is proportional to."""
        return self.pins * self.bisections

    @property
    def spread(self) -> float:
        """Rows sent for each vertex and bisection: few where the graph has locality."""
        return self.cut / self.bisections

    @property
    def locality(self) -> float:
        """The share of that time for a graph that shrinks quickly when it is coarsened."""
        return min(1.0, max(0.17, (self.spread / 0.15) ** 2))

    @property
    def is_web(self) -> bool:
        """Arcs with a direction, and locality: web graphs, of which METIS sees too little."""
        return self.directed and self.spread < LOCAL

    @property
    def guided(self) -> float:
        """How much a better edge cut is worth, from 0 to 1."""
        return 0.2 if self.spread > SHAPELESS or self.is_web else 1.0


# Facts.spread: less where a graph has locality; less on roads and meshes, where partitions differ
# from seed to seed; more where hardly any start is better than another one, once it is refined.
LOCAL, SCATTERED, SHAPELESS = 0.1, 0.025, 0.5
MANY = 64  # parts, from which on the time of KaMinPar's thorough presets grows with k
# By how much refinement is expected to gain where it gets e times as long; the effort that it
# needs at least, and the share of the time; and the effort beyond which it gains nothing.
REFINING, FEWEST, KEPT, MOST = 0.03, 0.04, 0.4, 4.0


@dataclass(frozen=True)
class Candidate:
    """A way to partition, the seconds it takes, and what it is expected to gain.

    Seconds were measured on a core, and are meant to be too long rather than too short; gains are
    those of partitions that were refined, on the graphs of ``docs/partitioning.md``. So the same
    command tries the same wherever it runs.

    Attributes
    ----------
    seconds : callable
        From facts, as ``gain``.
    gain : callable
        By how much the best partition is expected to get better, as a fraction.
    tool : str, optional
        One of the model's tools; default: its first.
    seed : int
        Added to the seed asked for.
    """

    name: str
    model: str
    seconds: Callable[[Facts], float]
    gain: Callable[[Facts], float] = lambda facts: 1.0
    tool: str | None = None
    options: Settings = field(default_factory=dict)
    seed: int = 0


def _again(candidate: Candidate, seeds: Sequence[int]) -> list[Candidate]:
    """The same with other seeds, each of which is expected to gain less than the one before.

    On roads and meshes messages and the busiest part differ by a fifth from seed to seed.
    """

    def gain(i: int) -> Callable[[Facts], float]:
        return lambda facts: (0.04 if facts.spread < SCATTERED else 0.006) / i

    return [
        replace(candidate, name=f"{candidate.name}+{seed}", gain=gain(i), seed=seed)
        for i, seed in enumerate(seeds, 1)
    ]


_GP = Candidate(
    "gp", "gp", lambda facts: 0.3 + 0.3e-6 * facts.work * min(1.0, 0.3 + 1.4 * facts.spread)
)
_GP_VOL = Candidate(
    "gp-vol", "gp", lambda facts: 0.3 + 0.15e-6 * facts.pins * facts.k * facts.locality,
    lambda facts: 0.02 * facts.guided, options={"objective": "vol"},
)  # fmt: skip
_KAMINPAR = Candidate(
    "kaminpar", "gp",
    lambda facts: 0.3 + 0.6e-6 * facts.work * max(0.4, facts.locality)
    + 0.18e-6 * facts.pins * max(0, facts.k - MANY),
    lambda facts: 0.03 * facts.guided, "kaminpar", {"preset": "strong"},
)  # fmt: skip
_KAMINPAR_LARGEK = Candidate(
    "kaminpar-largek", "gp", lambda facts: 0.3 + 0.15e-6 * facts.work,
    lambda facts: 0.03 if facts.k > MANY else 0.0, "kaminpar", {"preset": "largek"},
)  # fmt: skip
# With one thread the default preset, too, makes the same parts again.
_HP = Candidate(
    "hp", "hp", lambda facts: 0.5 + 5e-6 * facts.work * facts.locality,
    lambda facts: 0.3 if facts.is_web else 0.05, options={"preset": "default", "threads": 1},
)  # fmt: skip
_HP_QUALITY = Candidate(
    "hp-quality", "hp", lambda facts: 0.5 + 14e-6 * facts.work * facts.locality,
    lambda facts: 0.02, options={"preset": "deterministic-quality"},
)  # fmt: skip
_MG = Candidate(
    "mg", "mg", lambda facts: 0.5 + 3e-6 * facts.work * facts.locality,
    lambda facts: 0.3 if facts.is_web else 0.01,
)  # fmt: skip
# The first one is always made, and shows the locality of the graph.
CANDIDATES = (
    _GP, _KAMINPAR, _KAMINPAR_LARGEK, _GP_VOL, _HP, _HP_QUALITY, _MG,
    *_again(_KAMINPAR, (1, 2, 3, 4)),
    *_again(_GP_VOL, (2, 3)),  # METIS takes 1 for 0
    *_again(_HP, (1, 2, 3, 4)),
)  # fmt: skip


@dataclass(frozen=True)
class Cost:
    """Seconds of a refinement: some whatever its effort, and those of an effort of 1."""

    fixed: float
    full: float

    def seconds(self, effort: float) -> float:
        """The time of a refinement with that effort."""
        return self.fixed + self.full * effort

    def effort(self, seconds: float) -> float:
        """The effort that there is time for, at most 1."""
        return min(1.0, (seconds - self.fixed) / self.full)


def refinement_cost(facts: Facts, exchange: str) -> Cost:
    """The cost of a refinement for an exchange, whose rows the facts have.

    It makes fewer sweeps over large graphs, and they visit what is near the cut; for the mixed
    exchange it is slower, but only looks at so many entries.
    """
    sweeps = max(3, sweeps_for(int(facts.pins)))  # the fit is to three at least
    visits = sweeps * facts.work
    if exchange == "rows":
        return Cost(0.2 + 1e-6 * facts.pins, 0.16e-6 * visits * min(1.0, 0.1 + 1.6 * facts.spread))
    many, most = facts.bisections / 4, 45 + 6e-6 * facts.pins
    full = 0.34e-6 * visits * max(1.0, many) * min(1.0, 0.1 + 8 * facts.spread)
    return Cost(0.3 + 2.5e-6 * facts.pins, min(full, most * many))


def schedule(
    facts: Facts, seconds: float, costs: Sequence[Cost], among: Sequence[Candidate]
) -> list[Candidate]:
    """The candidates to try beside the first one, by expected gain per second, by facts alone.

    Time is as well spent on refinements, whose ``costs`` these are: a candidate is left out if it
    is expected to gain less than what refinement would lose of the ``seconds`` that are left.
    """
    full = sum(cost.full for cost in costs)
    fixed = sum(cost.fixed for cost in costs)
    left, least = seconds - fixed, max(FEWEST * full, KEPT * seconds - fixed)
    tried: list[Candidate] = []
    for candidate in sorted(among, key=lambda c: -c.gain(facts) / c.seconds(facts)):
        after = left - candidate.seconds(facts)
        if after < least:
            continue
        lost = REFINING * math.log(min(left, MOST * full) / min(after, MOST * full))
        if candidate.gain(facts) > lost:
            tried.append(candidate)
            left = after
    return tried


def check_network(network: Network) -> None:
    """A UserError unless α, β ≥ 0 and the width ≥ 1."""
    for name in ("alpha", "beta"):
        if not 0 <= getattr(network, name) < math.inf:
            raise UserError(f"{name} = {getattr(network, name)}: seconds are positive")
    if network.width < 1:
        raise UserError(f"width = {network.width}: a row has at least one column")


MODELS_KNOWN = ("rp", "block", "gp", "hp")
PROGRAM = 110e6  # Python and its libraries; of the tool's process, too
COMPILED = 170e6  # what the compiler behind the refinement adds
PER_VERTEX = 60  # weights, parts, places of rows
PER_ENTRY_OF_PIECE = 24  # of a pattern that is made in pieces
SHIFTED = 24  # more where entries are put at their places one by one
CHUNK, PER_ENTRY_OF_CHUNK = 1 << 22, 64  # of an exchange of rows that is measured
COVER = 140  # for each entry whose cover is computed at once
CUT = 24  # for each entry of the part whose covers are computed
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
class Choice:
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
) -> Choice:
    """The first way to make a partition that fits: the tool asked for, with what was given.

    Whatever is left open is tried in this order: the tools of the model, with all rows of H; the
    same with rows left out that more rows of M need than ``NETS`` says. ``memory`` is in bytes, of
    all processes together; ``refine`` is the objective of a refinement that follows. If none fits,
    the error says what would.
    """
    mixed = refine is not None and refine.exchange == "mixed"
    if model not in MODELS_KNOWN or mixed:
        what = f"--model {model}" + (", refined for a mixed exchange," if mixed else "")
        raise UserError(
            f"--memory: it is not known how much {what} takes",
            f"models with a forecast: {', '.join(MODELS_KNOWN)}",
        )
    recipe = recipe or Recipe()
    constraints, nodes = len(recipe.constraints), recipe.ranks_per_node is not None
    pins = row_sizes(graph, REVERSED[recipe.direction])
    sizes = Sizes(graph.n, graph.nnz, pins, graph.indices.itemsize, k)
    given = dict(options or {})
    tried: list[Choice] = []
    for name, backend, settings in _ways(graph, model, tool, given):
        stages = forecast(sizes, backend, settings, model, refine is not None, constraints, nodes)
        choice = Choice(name, settings, stages)
        if choice.peak <= memory:
            return choice
        tried.append(choice)
    if not tried:
        raise UserError(
            f"--memory: it is not known how much the tool {tool or MODELS[model].tools[0]!r} takes",
            "choose another one",
        )
    least = min(tried, key=lambda choice: (choice.peak, sum(choice.stages.values())))
    asked = f"--model {model}" + ("" if refine is None else ", refined,")
    raise UserError(
        f"--memory {memory / 1e9:.3g}GB is too little: {asked} takes {least.peak / 1e9:.2f} GB "
        f"with {_said(least)}",
        _hint(sizes, least, model, memory, tool, given),
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
    ours = PROGRAM + PER_VERTEX * n
    stages = {}
    if backend.distribution is not None:
        assert backend.memory is not None
        entries = sizes.kept(int(options.get("max_net", 0)))
        pins = 2 * entries if model == "gp" else nnz + n
        piece = min(PIECE, 2 * nnz) * (PER_ENTRY_OF_PIECE + (SHIFTED if model == "hp" else 0))
        stages["model"] = ours + mapped + item * pins + piece
        shown = 2 * entries if model == "gp" else entries + n
        if nodes:
            stages["nodes"] = ours + 40 * shown
        stages["tool"] = ours + PROGRAM + backend.memory(options, n, shown)
        stages["tool"] += item * pins if nodes else 0  # which are looked at here, too
        if constraints > 1:
            stages["balance"] = ours + mapped + 2 * item * nnz + piece
    if refine:
        stages["refinement"] = ours + COMPILED + mapped + refinement_bytes(sizes)
    # Pairs of parts and parts themselves have more entries than the average ones.
    pair, part = 2 * nnz // sizes.k**2, 2 * nnz // sizes.k
    rows = PER_ENTRY_OF_CHUNK * min(CHUNK, nnz) + PER_ENTRY_OF_PIECE * min(PIECE, nnz)
    covers = COVER * min(nnz, max(AT_ONCE, pair)) + CUT * min(nnz, max(AT_ONCE, part))
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
    for max_net in (None, *NETS):
        for name in [tool] if tool else MODELS[model].tools:
            backend = _with_forecast(name)
            accepted = {} if backend is None else {**MODELS[model].options, **backend.options}
            options = dict(given)
            if max_net is not None:
                if "max_net" in given or "max_net" not in accepted:
                    continue
                options["max_net"] = max_net
            if backend is None or (tool is None and not options.keys() <= accepted.keys()):
                continue  # what was given are options of another tool
            yield name, backend, all_options(graph, model, name, backend, options)


def _with_forecast(name: str) -> Tool | None:
    """The tool, if it is installed and it is known how much it takes."""
    try:
        backend = TOOLS.get(name)
    except UserError:
        return None
    return backend if backend.memory is not None or backend.distribution is None else None


def _said(choice: Choice) -> str:
    left_out = choice.options.get("max_net", 0)
    return f"the tool {choice.tool}" + (f" and max_net={left_out}" if left_out else "")


def _hint(
    sizes: Sizes, least: Choice, model: str, memory: float, tool: str | None,
    given: Settings,
) -> str:  # fmt: skip
    """Other options that would fit."""
    enough = f"give --memory {least.peak / 1e9 + 0.01:.2f}GB"
    others = {stage: size for stage, size in least.stages.items() if stage != "refinement"}
    if max(others.values()) <= memory:
        return f"leave --refine out, or {enough}"
    random = forecast(sizes, TOOLS.get("random"), {}, "rp", "refinement" in least.stages)
    if max(random.values()) > memory:
        return enough
    if tool is not None or "max_net" in given:
        return f"leave {'--tool' if tool is not None else 'max_net'} out, or {enough}"
    other = "--model gp" if model == "hp" else "--model rp, refined,"
    return f"{other} takes less; or {enough}"
