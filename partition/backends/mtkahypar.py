"""Mt-KaHyPar (Gottesbüren, Heuer, Maas, Sanders): multi-threaded partitioning."""

from collections.abc import Sequence

import mtkahypar
import numpy as np

from partition.backends import Option, Tool, settings_file
from partition.errors import UserError
from partition.models.descriptions import GraphModel, HypergraphModel, without_large_nets
from partition.resident import usable_cores

_PRESETS = {
    "deterministic": mtkahypar.PresetType.DETERMINISTIC,
    "deterministic-quality": mtkahypar.PresetType.DETERMINISTIC_QUALITY,
    "default": mtkahypar.PresetType.DEFAULT,
    "quality": mtkahypar.PresetType.QUALITY,
    "highest-quality": mtkahypar.PresetType.HIGHEST_QUALITY,
    "large-k": mtkahypar.PresetType.LARGE_K,
}


def _partition(
    model: HypergraphModel | GraphModel,
    k: int,
    *,
    imbalance: float,
    seed: int,
    preset: str,
    threads: int,
    max_net: int,
) -> np.ndarray:
    """Partition a hypergraph for connectivity−1, a graph for the edge cut.

    Of a hypergraph, nets of more than ``max_net`` pins, whose rows most parts need whatever is
    done, are not shown to the tool; 0 shows all. It counts pins, or edges, in 32 bits.
    """
    n, graph = len(model.weights), isinstance(model, GraphModel)
    if isinstance(model, GraphModel):
        low = np.repeat(np.arange(n), np.diff(model.indptr))
        once = low < model.indices
        ends = np.stack((low[once], model.indices[once]), axis=1)
        nets, costs = (
            _LazyNets(range(0, ends.size + 1, 2), ends.ravel()),
            np.ones(len(ends), np.int64),
        )
        preset = "deterministic" if preset == "fast" else preset
    else:
        model = without_large_nets(model, max_net) if max_net else model
        nets, costs = _LazyNets(model.indptr, model.pins), model.net_costs()
    if len(nets) == 0:  # nothing that could be cut; it would fail
        return np.arange(n, dtype=np.int32) % k
    if max(model.indptr[-1], model.weights.sum(), costs.sum()) >= 2**31:
        raise UserError(
            f"Mt-KaHyPar counts in 32 bits: {model.indptr[-1]} pins are too many",
            "use --model gp --tool metis",
        )
    mtk = mtkahypar.initialize(threads or usable_cores(), print_warnings=False)
    mtkahypar.set_seed(seed)
    if preset == "fast":
        # The deterministic preset spends most of its time in its last phase, where it moves single
        # vertices by "Jet" rounds. This one moves them by label propagation, and makes fewer
        # starts.
        with settings_file("mtkahypar.ini", {"seed": seed}) as file:
            context = mtk.context_from_file(file)
    else:
        context = mtk.context_from_preset(_PRESETS[preset])
    objective = mtkahypar.Objective.CUT if graph else mtkahypar.Objective.KM1
    context.set_partitioning_parameters(k, imbalance, objective)
    context.logging = False
    create = mtk.create_graph if graph else mtk.create_hypergraph
    number, weights = np.arange(n), model.weights
    if seed and preset.startswith("deterministic"):  # only another order makes a difference to them
        number = np.random.default_rng(seed).permutation(n)
        weights = weights[np.argsort(number)]
        nets.number = number
    made = create(context, n, len(nets), nets, weights, costs)
    return np.array(made.partition(context).get_partition(), dtype=np.int32)[number]


class _LazyNets:
    """The nets, or edges, as a sequence whose items are made when asked for: no lists of all pins.

    ``number`` is that of each vertex for the tool, where it has another one.
    """

    number: np.ndarray | None = None

    def __init__(self, indptr: Sequence[int] | np.ndarray, pins: np.ndarray) -> None:
        self._indptr, self._pins = indptr, pins

    def __len__(self) -> int:
        return len(self._indptr) - 1

    def __getitem__(self, j: int) -> list[int]:
        pins = self._pins[self._indptr[j] : self._indptr[j + 1]]
        return (pins if self.number is None else self.number[pins]).tolist()


TOOL = Tool(
    _partition,
    options={
        "preset": Option("fast", "how much effort", ("fast", *_PRESETS)),
        "threads": Option(0, "number of threads; 0: all cores of this process", least=0),
        "max_net": Option(
            -1, "leave larger nets out of the tool's model; 0: keep all", least=-1, by_size=(0, 100)
        ),
    },
    distribution="mtkahypar",
    # Whatever the number of threads; the others are so with one thread at best.
    deterministic=lambda options: str(options["preset"]).startswith(("fast", "deterministic")),
    memory=lambda options, n, pins: 260 * pins + 100 * n,
)
