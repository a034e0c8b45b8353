"""Data of arcs on the ranks that own their rows, and products on graphs with parallel arcs."""

from dataclasses import replace

import numpy as np
import pytest
from stored_graphs import store

from partition.importing.assemble import build_graph
from partition.importing.readers import Source


@pytest.mark.parametrize("nranks", [1, 2, 3])
def test_each_arc_is_where_its_row_is(run_cases, tmp_path, nranks):
    assert run_cases("arc_columns", nranks, [tmp_path]) == [48]


def test_parallel_arcs_add_up_in_every_scheme(verified, tmp_path):
    rng = np.random.default_rng(5)
    ends = rng.integers(0, 55, (2, 300))
    ends[:, 200:] = ends[:, :100]
    graph, _ = build_graph(Source(61, *ends), duplicates="keep")
    assert graph.nnz == 300
    labels = rng.integers(0, 3, 61).astype(np.int32)
    features = rng.standard_normal((61, 4)).astype(np.float32)
    path = store(tmp_path / "g.graph", replace(graph, features=features, labels=labels), 2)
    cases = [
        {"graph": str(path), "partition": partition, "settings": settings}
        for partition, settings in (
            ("rp-2", []),
            ("rp-2", ["scheme.exchange=mixed"]),
            ("rp-2", ["model.name=gat"]),
            ("rp-2", ["model.name=sage", "model.aggregation=max"]),
            (None, ["scheme.name=summa"]),
            ("rp-2", ["scheme.name=bcast"]),
        )
    ]
    assert len(verified(2, cases)) == len(cases)
