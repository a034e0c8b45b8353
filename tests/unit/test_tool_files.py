"""Files of other partitioners, read back by parsers that share nothing with the writer."""

from itertools import pairwise

import numpy as np
import pytest
from command_line import as_json, refused, run
from hypothesis import given, settings
from hypothesis import strategies as st
from refusals import refuses
from small_graphs import make_folder, partitioned_graphs, random_graph

from partition.graph.store import read_partition
from partition.importing.readers.metis_files import read_parts
from partition.models.descriptions import graph_model, hypergraph_model, row_model, stochastic_model
from partition.pipeline import tool_files
from partition.pipeline.tool_files import export_model, write_model


def numbers(file):
    """Lines of numbers, comments left out."""
    with open(file) as lines:
        return [[int(word) for word in line.split()] for line in lines if line[0] != "%"]


def read_metis(file):
    """(weights of each vertex, neighbours of each vertex), by the METIS manual."""
    (n, edges, code, *constraints), *lines = numbers(file)
    count = constraints[0] if constraints else 1
    found = sum(len(line) - count for line in lines)
    assert (code, len(lines), found) == (10, n, 2 * edges)
    return [line[:count] for line in lines], [[v - 1 for v in line[count:]] for line in lines]


def read_scotch(file):
    """(weights of each vertex, neighbours of each vertex), by the manual of Scotch."""
    (version,), (n, arcs), (base, code), *lines = numbers(file)
    assert (version, base, code, len(lines), sum(line[1] for line in lines)) == (0, 1, 1, n, arcs)
    assert all(len(line) == 2 + line[1] for line in lines)
    return [line[:1] for line in lines], [[v - base for v in line[2:]] for line in lines]


def read_hmetis(file):
    """(weights, nets, costs), by the hMETIS manual."""
    (nets, n, code), *lines = numbers(file)
    assert code in (10, 11)
    assert len(lines) == nets + n
    costs = [line[0] if code == 11 else 1 for line in lines[:nets]]
    pins = [[v - 1 for v in line[code - 10 :]] for line in lines[:nets]]
    return lines[nets:], pins, costs


def read_patoh(file):
    """(weights, nets, costs), by the PaToH manual."""
    (base, n, nets, pins, scheme, *constraints), *lines = numbers(file)
    assert scheme in (1, 3)
    count = constraints[0] if constraints else 1
    costs = [line[0] if scheme == 3 else 1 for line in lines[:nets]]
    found = [[v - base for v in line[scheme == 3 :]] for line in lines[:nets]]
    assert sum(map(len, found)) == pins
    flat = [word for line in lines[nets:] for word in line]
    assert len(flat) == n * count
    return [flat[i : i + count] for i in range(0, len(flat), count)], found, costs


def rows(indptr, indices):
    return [indices[a:b].tolist() for a, b in pairwise(indptr)]


DRAWN = {"seed": 0, "batches": 5, "sampler": "vertex", "batch": "60%"}
DRAWN |= {"fanouts": "", "owners": "batch"}


@settings(max_examples=60)
@given(partitioned_graphs(), st.sampled_from(["in", "out"]), st.integers(1, 40), st.booleans())
def test_round_trip(tmp_path_factory, case, direction, piece, several):
    graph, _, _ = case
    file = tmp_path_factory.mktemp("files") / "model"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tool_files, "PIECE", piece)
        model = graph_model(graph, direction)
        weights = np.array([model.weights, 3 * np.arange(graph.n)])[: 1 + several]
        write_model(file, model, "metis", weights)
        assert read_metis(file) == (weights.T.tolist(), rows(model.indptr, model.indices))
        write_model(file, model, "scotch", weights[:1])
        assert read_scotch(file) == (weights[:1].T.tolist(), rows(model.indptr, model.indices))

        drawn = stochastic_model(graph, direction, **DRAWN)
        for model in (hypergraph_model(graph, direction), drawn):
            nets = rows(model.indptr, model.pins)
            costs = model.net_costs().tolist()
            write_model(file, model, "hmetis")
            assert read_hmetis(file) == (weights[:1].T.tolist(), nets, costs)
            write_model(file, model, "patoh", weights)
            assert read_patoh(file) == (weights.T.tolist(), nets, costs)


def test_from_the_command_line_and_back(tmp_path):
    graph, file = random_graph(30, 120), tmp_path / "small.u"
    path = make_folder(tmp_path / "small.graph", graph)
    facts = as_json("export-model", path, file, "--format", "patoh", "--balance", "nnz,rows")
    model = hypergraph_model(graph, "in")
    assert (facts["model"], facts["nets"], facts["pins"]) == ("hp", 30, len(model.pins))
    weights, nets, _ = read_patoh(file)
    assert nets == rows(model.indptr, model.pins)
    assert weights == [[w, 1] for w in model.weights.tolist()]
    assert "is there already" in refused("export-model", path, file, "--format", "metis")
    run("export-model", path, file, "--format", "metis", "--force", "--direction", "out")
    assert read_metis(file)[0] == [[w] for w in row_model(graph, "out").weights.tolist()]
    words = ["--format", "hmetis", "--model", "shp", "-k", 4, "--set", "batch=10", "--force"]
    run("export-model", path, file, *words)
    assert sum(read_hmetis(file)[2]) > 100

    # PaToH writes several part numbers per line.
    (tmp_path / "parts").write_text("0 1 2 " * 4 + "\n" + "2 1 0\n" * 6)
    run("import-parts", path, tmp_path / "parts", "--name", "theirs", "-k", 3)
    assert read_partition(path, "theirs").parts.tolist() == [0, 1, 2] * 4 + [2, 1, 0] * 6

    # Scotch writes how many vertices there are, and the part of each in some order.
    backwards = [f"{30 - i}\t{i % 3}" for i in range(30)]
    file.write_text("\n".join(["30", *backwards]) + "\n")
    assert read_parts(file, 30).tolist() == [i % 3 for i in reversed(range(30))]
    for line, says in (("7\tx", "each there once"), ("30\tx", "line 2: 'x' is not a part number")):
        file.write_text("\n".join(["30", line, *backwards[1:]]))
        refuses(says, read_parts, file, 30)


MISTAKES = [
    ("metiss", None, {}, "unknown format 'metiss'"),
    ("metis", "hp", {}, r"a metis file holds a graph \(--model gp\)"),
    ("hmetis", "hp", {"balance": "nnz,rows"}, "one weight per vertex"),
    ("scotch", "gp", {"balance": "nnz,rows"}, "one weight per vertex"),
    ("hmetis", "shp", {}, "depends on the number of parts"),
    ("hmetis", "shp", {"k": 3, "thets": "0"}, "unknown option of the model 'shp' 'thets'"),
    ("hmetis", "hp", {"preset": "fast"}, "the model 'hp' has no options"),
    ("hmetis", "hp", {"balance": "train"}, "the graph has none"),
]


def test_mistakes_leave_no_file(tmp_path):
    path = make_folder(tmp_path / "small.graph", random_graph(30, 120))
    for format, model, options, message in MISTAKES:
        refuses(message, export_model, path, tmp_path / "out", format, model, **options)
    assert [file.name for file in tmp_path.iterdir()] == ["small.graph"]
