"""Arcs that have relations: each relation into a vertex is thinned out by itself."""

import numpy as np
import pytest
import scipy.sparse as sp
from refusals import refuses

from gcnmpi.layout.entries import EntryRows, Groups, parts_of
from gcnmpi.options.train import TrainConfig, sampler_of
from gcnmpi.schemes import sampling
from gcnmpi.schemes.sampling_arcs import ArcEntries
from partition.graph.neighbor_sampling import fanouts_of_relations
from partition.graph.relations import Relation

N, OWN, COUNT = 90, 60, 3
RELATIONS = tuple(Relation("v", name, "v") for name in ("few", "many", "none"))
SHARES = 0.05, 0.4, 0.1


def arcs_of(seed=0):
    """The arcs into own rows 0 … OWN − 1, of vertices in another order, loops and parallel ones."""
    random = np.random.default_rng(seed)
    ids = random.permutation(N)
    there = np.stack([random.random((OWN, N)) < share for share in SHARES])
    relation, row, column = np.nonzero(there)
    order = np.lexsort((ids[column], relation, row))
    row, relation, column = row[order], relation[order], column[order]
    begins = np.append(True, (row[1:] != row[:-1]) | (relation[1:] != relation[:-1]))
    starts = np.append(np.flatnonzero(begins), len(row))
    of_groups = row[starts[:-1]], relation[starts[:-1]]
    parts = parts_of(of_groups[0], of_groups[1] == 2, starts)
    groups = Groups(ids[of_groups[0]], of_groups[1], starts, len(starts) - 1, parts)
    of_rows = np.append(0, np.cumsum(np.bincount(row, minlength=OWN)))
    every = EntryRows(ids, of_rows, column.astype(np.int32), np.zeros(len(row), np.int64), groups)
    return ArcEntries(every, N, np.dtype(np.float64)), row, relation, column


def sampler(name, fanouts="4", own=""):
    """Of one layer, for the three relations."""
    words = f"{name},7,{fanouts}" if fanouts else f"{name},20"
    return sampler_of(TrainConfig(batches=words, fanouts=own), N, N, relations=RELATIONS)


@pytest.mark.parametrize("name", ["neighbor", "labor", "vertex"])
@pytest.mark.parametrize("own", ["", "many=2; none=0", "few=-1;many=1"])
def test_compiled_and_in_numpy_are_the_same_arcs(monkeypatch, name, own):
    entries, row, relation, column = arcs_of()
    own, fanouts = (own, "4") if name != "vertex" else ("", "")
    drawing = sampler(name, fanouts, own)
    rows = np.random.default_rng(1).permutation(OWN)[:40]
    for place in ((1, 0, 0), (3, 2, 0)):
        found = []
        for native in (sampling._native, None):
            monkeypatch.setattr(sampling, "_native", native)
            (starts, columns, values), arcs = entries.kept(drawing, place, rows)
            order = np.lexsort((arcs.some, np.repeat(np.arange(40), np.diff(starts))))
            found.append((starts, columns[order], values[order], arcs.some[order]))
            # Groups are those of the rows, in their order, and none is empty.
            assert (np.diff(arcs.groups.starts) > 0).all()
            where = np.repeat(arcs.groups.rows, np.diff(arcs.groups.starts))
            of_rows = np.repeat(rows, np.diff(starts))
            expected = relation, entries.ids[row], column, row
            for one, other in zip((arcs.relations, where, columns, of_rows), expected, strict=True):
                np.testing.assert_array_equal(one, other[arcs.some])
        for one, other in zip(*found, strict=True):
            np.testing.assert_array_equal(one, other)


DRAWN = {
    "neighbor": ("neighbor", "3"), "labor": ("labor", "3", "few=1"), "vertex": ("vertex", ""),
    "everything": ("labor", "-1"),
}  # fmt: skip


@pytest.mark.parametrize("name", DRAWN)
def test_the_mean_of_sampled_means_is_that_of_each_relation(name):
    (entries, row, relation, column), drawing = arcs_of(), sampler(*DRAWN[name])
    x = np.random.default_rng(2).standard_normal(N)
    shape = OWN, COUNT

    def means(values, some):
        ends = row[some], relation[some]
        return sp.coo_array((values * x[column[some]], ends), shape=shape).toarray()

    sizes = sp.coo_array((np.ones(len(row)), (row, relation)), shape=shape).toarray()
    whole = means(1 / sizes[row, relation], np.arange(len(row)))
    sums, squares, counts = np.zeros((3, *shape))
    for epoch in range(1 if name == "everything" else 300):
        inside = np.arange(OWN)
        if not drawing.layered:
            inside = np.flatnonzero(drawing.contains(epoch, 0, entries.ids[:OWN]))
        (_, _, values), arcs = entries.kept(drawing, (epoch, 0, 0), inside)
        product = means(values, arcs.some)
        sums += product
        squares += product**2
        counts[inside] += 1
    mean = sums / counts
    error = np.sqrt(np.maximum(squares / counts - mean**2, 0) / counts)
    assert (np.abs(mean - whole) <= 5 * error + 1e-12).all()
    assert (error.max() > 0) == (name != "everything")


def test_fan_outs_are_read():
    relations = (*RELATIONS, Relation("w", "few", "v"))
    found = fanouts_of_relations("v,few,v=1,2; many=-1;none=0", (5, 4), relations, "train.fanouts")
    assert found == ((1, 2), (-1, -1), (0, 0), (5, 4))
    assert fanouts_of_relations("", (5, 4), relations, "train.fanouts") == ()
    for text, says in {
        "few=1": "2 relations are called 'few'", "many=some": "numbers of neighbours",
        "many": "gives no 2 numbers", "many=1,2,3": "gives no 2 numbers",
        "mayn=1": "unknown relation of train.fanouts 'mayn'",
    }.items():  # fmt: skip
        refuses(says, fanouts_of_relations, text, (5, 4), relations, "train.fanouts")
