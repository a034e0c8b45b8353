"""The table of models: the descriptions of a graph that partitioning tools take, by name."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from partition.backends import TOOLS, Option, Tool, check_options
from partition.errors import UserError, unknown_name
from partition.graph.graph import Graph
from partition.graph.sampling import SAMPLERS
from partition.models import descriptions
from partition.models.descriptions import Description
from partition.registry import Setting, Settings


@dataclass(frozen=True)
class Model:
    """A way to describe a graph to a tool.

    Attributes
    ----------
    build : callable
        From (graph, direction, **options) to a model of ``partition.models``; of models that are
        random also from ``seed``.
    tools : tuple of str
        The tools that take it, names in ``partition.backends.TOOLS``; the first is the default.
    help : str
    options : mapping of str to Option
    settle : callable, optional
        ``settle(graph, direction, k, seed, options)`` → the options with everything decided that
        they left open; so they are recorded.
    exchange : {"rows", "mixed"}
        The exchange that the model's objective counts the rows of.
    random : bool
        Whether the model depends on a seed.
    share : callable, optional
        Of a model of mini-batches: ``share(n, options)`` → the probability that a vertex is in a
        batch, whoever else is; None where that depends on the others.
    """

    build: Callable[..., Description]
    tools: tuple[str, ...]
    help: str
    options: Mapping[str, Option] = field(default_factory=dict)
    settle: Callable[..., Settings] | None = None
    exchange: str = "rows"
    random: bool = False
    share: Callable[[int, Settings], float | None] | None = None


MODELS = {
    "rp": Model(descriptions.row_model, ("random",), "random rows, for comparison"),
    "block": Model(descriptions.row_model, ("block",), "contiguous rows, in the order of the file"),
    "gp": Model(
        descriptions.graph_model, ("metis", "kaminpar", "mtkahypar"),
        "the symmetrised graph, partitioned within seconds",
        {
            "max_net": Option(
                0, "leave out rows of H that more rows of M need than so many; 0: keep all"
            ),
        },
    ),
    "hp": Model(
        descriptions.hypergraph_model, ("mtkahypar", "kahypar"),
        "the column-net hypergraph, whose objective is the number of rows sent",
    ),
    "mg": Model(
        descriptions.medium_grain_model, ("mtkahypar", "kahypar"),
        "the medium-grain hypergraph, whose objective is the volume of a mixed exchange",
        exchange="mixed",  # as partition.graph.manifest.MADE_FOR_MIXED has it
    ),
    "shp": Model(
        descriptions.stochastic_model, ("mtkahypar", "kahypar"),
        "hypergraphs of sampled mini-batches, merged",
        {
            "sampler": Option("vertex", "how mini-batches are drawn", tuple(SAMPLERS)),
            "batch": Option("6%", "vertices in a mini-batch, or a share of all"),
            "fanouts": Option("", "fan-outs of the neighbor sampler, such as 10,5 (seeds first)"),
            "owners": Option(
                "all",
                "nets of all vertices, or of the vertices of a batch (as in the paper)",
                ("all", "batch"),
            ),
            "theta": Option(
                0.0,
                "allowed error of the mean connectivity, which determines the number of nets; 0: "
                f"{descriptions.THETA}, or more if that takes more than "
                f"{descriptions.MOST_BATCHES:,} batches",
            ),
            "delta": Option(0.1, "probability of an error larger than theta"),
            "batches": Option(0, "number of mini-batches; 0: computed from theta and delta"),
        },
        descriptions.settle,
        random=True,
        share=descriptions.share_of_vertices,
    ),
}  # fmt: skip


AUTO = "auto"  # beside the models: several are tried, and the best partition is kept


def check_model(name: str) -> None:
    """Refuse an unknown model, or one whose tool is not installed, as ``add --model NAME`` does."""
    if name != AUTO:
        if name not in MODELS:
            raise unknown_model(name)
        TOOLS.get(MODELS[name].tools[0])


# Other names of the models, and tools that are not built in.
_ALSO_CALLED = {
    **dict.fromkeys(("metis", "kmetis"), "METIS is gp, or gp with --objective vol"),
    **dict.fromkeys(("mtkahypar", "mt-kahypar"), "Mt-KaHyPar is hp"),
    "kaminpar": "KaMinPar is gp with --tool kaminpar",
    "kahypar": "KaHyPar is hp with --tool kahypar",
    "random": "random rows are rp",
    "graph": "the graph model is gp",
    "hypergraph": "the hypergraph model is hp",
    **dict.fromkeys(
        ("patoh", "hmetis", "zoltan", "kahip", "parmetis", "scotch"),
        "export-model writes its files, import-parts reads its result",
    ),
}


def unknown_model(name: str) -> UserError:
    """The error for an unknown model."""
    if name.lower() in _ALSO_CALLED:
        return UserError(f"unknown model {name!r}", _ALSO_CALLED[name.lower()])
    return unknown_name("model", name, [*MODELS, AUTO])


def describe(
    graph: Graph, model: str, k: int, *, seed: int = 0, direction: str = "in", **options: Setting
) -> Description:
    """The model of a graph that tools for k parts are given.

    Parameters are those of :func:`add_partition`; options of a tool are ignored.
    """
    entry = MODELS[model]
    options = {key: option.default for key, option in entry.options.items()} | options
    options = settled(graph, model, k, seed, direction, options)
    chosen = {key: options[key] for key in entry.options}
    return entry.build(graph, direction, **chosen, **({"seed": seed} if entry.random else {}))


def all_options(graph: Graph, model: str, chosen: str, backend: Tool, given: Settings) -> Settings:
    """All options of a model and of the tool ``chosen``: those given, checked, and defaults.

    Options that depend on the size of the graph are decided here, so that they are recorded.
    """
    table = {**MODELS[model].options, **backend.options}
    options = check_options(chosen, table, given)
    return {key: table[key].decided(value, graph.nnz) for key, value in options.items()}


def settled(
    graph: Graph, model: str, k: int, seed: int, direction: str, options: Settings
) -> Settings:
    """Options of a model with everything decided that they left open."""
    settle = MODELS[model].settle
    return settle(graph, direction, k, seed, options) if settle else dict(options)
