"""Mini-batches of networks that tell relations apart: one curve for any number of ranks.

One rank has every case; four, of which one has no rows, have all with smaller batches.
"""

from dataclasses import replace

import numpy as np
import pytest
from test_minibatch import COMMON as PLAIN
from test_minibatch import as_planned, as_simulated, is_that_of_one_rank
from test_relational import MEAN, schemas  # noqa: F401 (a fixture)
from words import latest, sets

from gcnmpi.core import rng
from gcnmpi.options.config import load_config
from gcnmpi.options.train import sampler_of
from gcnmpi.planner.machine import DRAWING, Machine
from gcnmpi.planner.ranking import Candidate, Setting
from gcnmpi.proof import oracle
from partition.graph.store import open_graph

COMMON = (*PLAIN, "model.hidden=[6]")
HEADS = ("model.heads=2", "model.attention_dropout=0.3")
NETWORKS = {
    "rgcn": ("model.name=rgcn", "model.bases=2", "model.norm=layer"),
    "rgat": ("model.name=rgat", *HEADS),
    "rgat-within": ("model.name=rgat", "model.softmax=relation", *HEADS),
    "compgcn": ("model.name=compgcn", "model.composition=corr", "model.norm=layer"),
    "hetero": ("model.name=hetero", "model.norm=batch", "model.hidden=[6,6]"),
    "hetero-max": ("model.name=hetero", "model.aggregation=max+mean"),
    "hetero-gat": ("model.name=hetero", "model.convolution=gat", *HEADS),
    # Scores of arcs on one side of the slope leave rounding errors, which adam would divide by.
    "hetero-gatv2": (
        "model.name=hetero", "model.convolution=gatv2", MEAN, *HEADS, "train.optimizer=sgd",
    ),
    "hgt": ("model.name=hgt", "model.hidden=[6,6]", "model.out_heads=2", *HEADS),
}  # fmt: skip
DEEP = ("hetero", "hgt")
GRAPHS = {"rgcn": "typed", "hetero-gat": "typed", "hgt": "typed"}
SAMPLERS = ("vertex,13", "cluster,uneven-7,3", "neighbor,4,3,2", "labor,4,3,2")
OWN = "train.fanouts=writes=1; author,reviews,paper=0; cites=-1"
WHOLE = ("vertex,100%", "cluster,uneven-7,100%", "neighbor,100%,-1,-1", "labor,100%,-1,-1")


def batches(network, sampler):
    """The setting of a sampler, with a fan-out more for a layer more."""
    seeds = sampler.partition(",")[0] in ("neighbor", "labor")
    more = "," + sampler.rpartition(",")[2] if seeds and network in DEEP else ""
    return f"train.batches={sampler}{more}"


def cases():
    """Name → network, settings: a sampler of vertices, one of seeds, and one of everything."""
    found = {}
    for i, (network, settings) in enumerate(NETWORKS.items()):
        of_seeds = SAMPLERS[2 + i % 2]
        for sampler in SAMPLERS if network == "rgcn" else (SAMPLERS[i % 2], of_seeds):
            found[f"{network}-{sampler}"] = network, (*settings, batches(network, sampler))
        for sampler in SAMPLERS[2:] if network == "rgcn" else (of_seeds,):
            wanted = (*settings, batches(network, sampler), OWN)
            found[f"{network}-{sampler} own"] = network, wanted
        whole = (*settings, batches(network, WHOLE[0 if network == "hetero" else i % 4]))
        found |= {f"{network} whole": (network, settings), f"{network} parts": (network, whole)}
    kept = "train.cache_mb=0.0005"
    for network in ("rgcn", "hgt"):
        name = f"{network}-{SAMPLERS[2]}"
        found[name] = network, (*NETWORKS[network], batches(network, SAMPLERS[2]))
        found[f"{name} kept"] = network, (*found[name][1], kept)
    rgcn = found[f"rgcn-{SAMPLERS[2]}"][1]
    found["out"] = "rgcn", (*rgcn, "graph.direction=out")
    found["scipy"] = "hgt", (*NETWORKS["hgt"], batches("hgt", SAMPLERS[3]), "kernel=scipy")
    found["ahead"] = "rgcn", (*rgcn, "train.draw_ahead=yes")
    return found


def planned():
    """Name → network, settings, of one epoch."""
    some = [*SAMPLERS[:1], *SAMPLERS[2:]]
    return {
        f"planned {network}-{sampler}": (
            network, (*NETWORKS[network], batches(network, sampler), "train.epochs=1", *own),
        )
        for network in ("rgcn", "hgt")
        for sampler in some
        for own in [(OWN,) if sampler == some[1] else ()]
    }  # fmt: skip


SUB = "model.name=compgcn", "model.composition=sub"


def held_still():
    """Name → network, settings: an epoch whose batches all have the initial weights."""
    still = ("train.lr=0", "train.epochs=1", "model.dropout=0")
    found = {}
    for sampler in (SAMPLERS[0], *SAMPLERS[2:]):
        for name, own in {"": (), " own": (OWN,)}.items():
            if own and sampler is SAMPLERS[0]:
                continue
            for network in (("model.name=rgcn",), SUB):
                settings = (*network, *still, batches("rgcn", sampler), *own)
                found[f"still {network[0][11:]} {sampler}{name}"] = "still", settings
    return found


def sampled_loss(graph, config):
    """The loss of such an epoch, one arc after the other, on all vertices."""
    rows = oracle.Rows(graph, "in", config, int(graph.labels.max()) + 1)
    weights, x = rows.initial(), rows.features
    column = np.repeat(np.arange(graph.n), np.diff(graph.indptr))
    row, relation = np.array(graph.indices), np.array(graph.arc_type)
    order = np.lexsort((column, relation, row))
    row, relation, column = row[order], relation[order], column[order]
    layer_of, turned = LAYERS[config.model.name], np.array(graph.schema.turned)
    alike = relation if layer_of is rgcn_layer else turned[relation].astype(int)
    sizes = np.zeros((graph.n, len(graph.relations)))
    np.add.at(sizes, (row, alike), 1)
    trained = np.flatnonzero(graph.masks["train"] & (graph.labels >= 0))
    sampler = sampler_of(config.train, graph.n, len(trained), None, graph.relations)
    total = 0.0
    for batch in range(sampler.batches):
        members, h = sampler.members(1, batch), x * kept_numbers(x.shape, batch + 1)
        seeds = trained[members] if sampler.layered else np.intersect1d(members, trained)
        for layer in (0, 1):
            place = 1, batch, 1 - layer if sampler.layered else 0
            kept, factors = sampler.arcs(place, row, relation, column)
            y, message = layer_of(graph, weights, layer, h)
            for e, factor in zip(np.flatnonzero(kept), factors, strict=True):
                y[row[e]] += factor / sizes[row[e], alike[e]] * message(h[column[e]], relation[e])
            h = np.maximum(y, 0) if layer == 0 else y
        chosen = h[seeds]
        largest = chosen.max(axis=1)
        norms = largest + np.log(np.exp(chosen - largest[:, np.newaxis]).sum(axis=1))
        total += (norms - chosen[np.arange(len(seeds)), graph.labels[seeds]]).sum()
    return total / len(trained)


def kept_numbers(shape, number, p=0.2):
    """Input dropout of a batch: 0, or by how much a number is larger."""
    keys = rng.row_keys(0, number, 0, np.arange(shape[0]))
    hashes, scratch = np.empty((2, *shape), np.uint32)
    rng.hash_block(keys, rng.column_keys(np.arange(shape[1])), hashes, scratch)
    return (hashes >= rng.threshold(p)) / (1 - p)


def rgcn_layer(graph, weights, layer, h):
    """The terms of the vertices themselves, and what an arc of a relation sends."""
    name = f"convs.{layer}"
    kinds = weights[f"{name}.weight"].reshape(len(graph.relations), h.shape[1], -1)
    own = h @ weights[f"{name}.root"] + weights[f"{name}.bias"]
    return own, lambda x, relation: x @ kinds[relation]


def compgcn_layer(graph, weights, layer, h):
    """The same with differences of rows and vectors of relations."""
    name, z = f"convs.{layer}", weights["init_rel"]
    z = z @ weights["convs.0.w_rel"] if layer else z
    loops = weights[f"{name}.loop_rel"][graph.vertex_types.of(np.arange(graph.n))]
    own = (h - loops) @ weights[f"{name}.w_loop"] + weights[f"{name}.bias"]
    ways = [weights[f"{name}.w_{'in' if back else 'out'}"] for back in graph.schema.turned]
    return own, lambda x, relation: (x - z[relation]) @ ways[relation]


LAYERS = {"rgcn": rgcn_layer, "compgcn": compgcn_layer}


EVERY = cases() | planned() | held_still()


def wanted(nranks, schemas):  # noqa: F811
    return {
        name: (
            schemas / f"{GRAPHS.get(network, 'schema')}.graph",
            f"uneven-{nranks}" if nranks > 1 else None,
            [*COMMON, *settings],
        )
        for name, (network, settings) in EVERY.items()
        if nranks == 1 or " whole" not in name
    }


@pytest.mark.parametrize("name", [name for name in cases() if " whole" not in name])
def test_one_curve_and_what_was_counted(results, name):
    is_that_of_one_rank(results(4)[name], results(1)[name.removesuffix(" kept")], 4)


@pytest.mark.parametrize("network", NETWORKS)
def test_batches_of_everything_are_full_batches(results, network):
    """Moments of a batch norm are those of the rows that seeds reach, and so not with "hetero"."""
    losses = [results(1)[f"{network} {kind}"]["losses"] for kind in ("parts", "whole")]
    np.testing.assert_allclose(*losses, rtol=1e-10)


@pytest.mark.parametrize("name", held_still())
def test_a_batch_is_what_the_sampler_says(results, schemas, name):  # noqa: F811
    config = load_config(None, latest(*COMMON, *held_still()[name][1]))
    expected = sampled_loss(open_graph(schemas / "schema.graph").graph, config)
    for nranks in (1, 4):
        np.testing.assert_allclose(results(nranks)[name]["losses"], [expected], rtol=1e-10)


@pytest.mark.parametrize("name", planned())
def test_bytes_and_messages_are_those_that_are_planned(results, schemas, name):  # noqa: F811
    network, settings = planned()[name]
    config = load_config(None, latest(*COMMON, *settings))
    stored = open_graph(schemas / f"{GRAPHS.get(network, 'schema')}.graph")
    as_planned(stored, config, 4, results(4)[name])


@pytest.mark.parametrize("sampler", SAMPLERS[2:])
@pytest.mark.parametrize("own", ["", " own"])
def test_a_simulation_by_relation_counts_what_a_run_counts(
    results, schemas, sampler, own  # noqa: F811
):  # fmt: skip
    of = OWN.partition("=")[2] if own else ""
    options = {"relations": True, "fanouts_of": [one.strip() for one in of.split(";") if one]}
    record = results(4)[f"rgcn-{sampler}{own}"]
    as_simulated(record, schemas / "typed.graph", sampler, **options)


def test_seconds_of_drawing_by_relation_are_in_the_plan(schemas):  # noqa: F811
    """Each arc and each group of a batch once; entries of M are not drawn."""
    words = latest(*COMMON, "model.name=rgcn", "train.batches=neighbor,6,3,2")
    stored, config = open_graph(schemas / "schema.graph"), load_config(None, words)
    none = Machine(**dict.fromkeys(DRAWING, 0.0))

    def seconds(**constants):
        setting = Setting(stored, config, replace(none, **constants), 1, locality=False)
        cost = setting.cost(Candidate(config.scheme, {}, 1, None), 1)
        return cost.phases["sample"], setting.batches.drawn

    least, drawn = seconds()
    patterns = [pattern for one in drawn for pattern in one.patterns]
    groups = sum(len(pattern.groups) for pattern in patterns)
    assert seconds(drawn_entry=1.0)[0] == least
    assert seconds(drawn_group=1.0)[0] - least == pytest.approx(groups)
    assert seconds(drawn_arc=1.0)[0] - least > groups  # some groups have several


def test_mistakes_are_told(hear_mistakes, schemas, tmp_path):  # noqa: F811
    batch, rgcn = "train.batches=neighbor,6,3,2", "model.name=rgcn"
    own = "train.fanouts=writes=2"
    mistakes = {
        (own, rgcn): "neighbours are drawn by train.batches",
        (own, rgcn, "train.batches=vertex,6"): "neighbours are drawn by train.batches",
        (own, batch, "model.name=gcn"): "does not tell relations apart",
        ("train.fanouts=wrties=2", batch, rgcn): "did you mean 'writes'",
        ("train.fanouts=writes=2,3,4", batch, rgcn): "gives no 2 numbers",
        ("train.fanouts=writes", batch, rgcn): "gives no 2 numbers",
        ("train.fanouts=writes=-2", batch, rgcn): "numbers of neighbours",
        (rgcn, "train.batches=neighbor,6,3"): "1 fan-outs, the network looks at neighbours 2 times",
        (rgcn, batch, "model.train_features=true"): "features that are trained",
        (rgcn, batch, "scheme.name=bcast"): "use scheme.name = p2p",
    }
    words = ["train", schemas / "schema.graph", "--out", tmp_path / "run"]
    hear_mistakes(1, [([*words, *sets(*keys)], says) for keys, says in mistakes.items()])
