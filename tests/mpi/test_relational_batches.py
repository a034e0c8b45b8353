"""Mini-batches of networks that tell relations apart: one curve for any number of ranks.

One rank has every case. Four, of which one has no rows, have all with smaller batches and some of
those with batches of everything; two and three ranks take turns.
"""

from dataclasses import replace

import numpy as np
import pytest
from test_minibatch import COMMON as PLAIN
from test_minibatch import as_planned, as_simulated, is_that_of_one_rank
from test_relational import MEAN, schemas  # noqa: F401 (a fixture)
from words import latest, sets

from gcnmpi.options.config import load_config
from gcnmpi.options.train import sampler_of
from gcnmpi.planner.machine import DRAWING, Machine
from gcnmpi.planner.ranking import Candidate, Setting
from gcnmpi.proof import oracle
from partition.graph.store import open_graph

RANKS = (1, 2, 3, 4)
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
        "model.name=hetero",
        "model.convolution=gatv2",
        MEAN,
        *HEADS,
        "train.optimizer=sgd",
    ),
    "hgt": ("model.name=hgt", "model.hidden=[6,6]", "model.out_heads=2", *HEADS),
}
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
    """Name → network, settings of every case."""
    found = {}
    for network, settings in NETWORKS.items():
        for sampler in SAMPLERS:
            found[f"{network}-{sampler}"] = network, (*settings, batches(network, sampler))
        for sampler in SAMPLERS[2:]:
            wanted = (*settings, batches(network, sampler), OWN)
            found[f"{network}-{sampler} own"] = network, wanted
        for sampler in WHOLE:
            found[f"{network} whole {sampler}"] = network, (*settings, batches(network, sampler))
        found[f"{network} whole"] = network, settings
    kept = "train.cache_mb=0.0005"
    for network in ("rgcn", "hgt"):
        name, settings = f"{network}-neighbor,4,3,2", NETWORKS[network]
        found[f"{name} kept"] = network, (*settings, batches(network, SAMPLERS[2]), kept)
    rgcn = (*NETWORKS["rgcn"], batches("rgcn", SAMPLERS[2]))
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
    still = ("train.lr=0", "train.epochs=1", "model.dropout=0", "model.input_dropout=0")
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
        members, h = sampler.members(1, batch), x
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


def those_of(nranks, every):
    """The names of the cases that so many ranks have."""
    names = list(every)
    if nranks == 1:
        return names
    smaller = [name for name in names if " whole" not in name]
    whole = [name for name in names if " whole" in name]  # five of each network
    return [*smaller, *whole[::6]] if nranks == 4 else smaller[nranks % 2 :: 2]


def each(every, ranks=RANKS):
    """Numbers of ranks and names of their cases."""
    return [(nranks, name) for nranks in ranks for name in those_of(nranks, every)]


def wanted(nranks, schemas):  # noqa: F811
    found = {}
    names = [n for every in (cases(), planned(), held_still()) for n in those_of(nranks, every)]
    for name in names:
        network, settings = (cases() | planned() | held_still())[name]
        graph = schemas / f"{GRAPHS.get(network, 'schema')}.graph"
        partition = f"uneven-{nranks}" if nranks > 1 else None
        found[name] = graph, partition, [*COMMON, *settings]
    return found


@pytest.mark.parametrize(("nranks", "name"), each(cases()))
def test_one_curve_and_what_was_counted(results, nranks, name):
    record, alone = results(nranks)[name], results(1)[name.removesuffix(" kept")]
    is_that_of_one_rank(record, alone, nranks)


@pytest.mark.parametrize("network", NETWORKS)
def test_batches_of_everything_are_full_batches(results, network):
    """On one rank, whose curves those of four are."""
    found = results(1)
    full = found[f"{network} whole"]["losses"]
    for sampler in WHOLE:
        if network == "hetero" and sampler[0] in "nl":
            continue  # moments of a batch norm are those of the rows that seeds reach
        losses = found[f"{network} whole {sampler}"]["losses"]
        np.testing.assert_allclose(losses, full, rtol=1e-10)


@pytest.mark.parametrize(("nranks", "name"), each(held_still()))
def test_a_batch_is_what_the_sampler_says(results, schemas, nranks, name):  # noqa: F811
    config = load_config(None, latest(*COMMON, *held_still()[name][1]))
    expected = sampled_loss(open_graph(schemas / "schema.graph").graph, config)
    (loss,) = results(nranks)[name]["losses"]
    np.testing.assert_allclose(loss, expected, rtol=1e-10)


@pytest.mark.parametrize(("nranks", "name"), each(planned()))
def test_bytes_and_messages_are_those_that_are_planned(results, schemas, nranks, name):  # noqa: F811
    network, settings = planned()[name]
    config = load_config(None, latest(*COMMON, *settings))
    stored = open_graph(schemas / f"{GRAPHS.get(network, 'schema')}.graph")
    as_planned(stored, config, nranks, results(nranks)[name])


DRAWN = {f"rgcn-{sampler}{own}": sampler for sampler in SAMPLERS[2:] for own in ("", " own")}


@pytest.mark.parametrize(
    ("nranks", "case"), [(n, case) for n, case in each(cases(), RANKS[1:]) if case in DRAWN]
)
def test_a_simulation_by_relation_counts_what_a_run_counts(
    results, schemas, nranks, case  # noqa: F811
):  # fmt: skip
    of = OWN.partition("=")[2] if case.endswith(" own") else ""
    options = {"relations": True, "fanouts_of": [one.strip() for one in of.split(";") if one]}
    as_simulated(results(nranks)[case], schemas / "typed.graph", DRAWN[case], **options)


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
