"""Parquet: lists of arcs and tables of vertices."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from command_line import run
from refusals import refuses

from partition.graph.store import open_graph
from partition.importing import spools
from partition.importing.assemble import import_graph
from partition.importing.readers import Layout, Reading, open_stream, parquet_tables, read_source
from partition.importing.readers.vertex_files import read_features, read_ids, read_labels, read_mask


def put(path, **columns):
    pq.write_table(pa.table(columns), path)
    return path


def in_pieces(path):
    reading = Reading(spools.allocate_in(path.parent))
    return list(open_stream(path, "auto", Layout(), reading).pieces)


def test_lists_of_arcs_with_ids_of_both_kinds(tmp_path):
    path = put(tmp_path / "e.parquet", weight=[0.5, 2], dst=[7, 9], kind=["k", "l"], src=[5, 7])
    source = read_source(path)
    assert (source.format, source.n, source.ids.tolist()) == ("parquet", 3, [5, 7, 9])
    assert (source.source.tolist(), source.target.tolist()) == ([0, 1], [1, 2])
    assert source.weights.tolist() == [0.5, 2]
    texts = put(tmp_path / "t.parquet", a=pa.array(["y", "x"]).dictionary_encode(), b=["z", "y"])
    source = read_source(texts)
    assert (source.ids.tolist(), source.source.tolist()) == (["x", "y", "z"], [1, 0])
    source = read_source(path, layout=Layout(columns="-,source,-,target", string_ids=True))
    assert (source.ids.tolist(), source.source.tolist()) == (["5", "7", "9"], [1, 2])
    assert read_source(path, layout=Layout(vertices="0..9")).n == 10


def test_a_list_of_arcs_is_the_same_in_pieces(tmp_path):
    ends = np.random.default_rng(0).integers(0, 50, (2, 300))
    path = put(tmp_path / "e.parquet", source=ends[0], target=ends[1])
    made = [
        import_graph(path, tmp_path / name / "g.graph", memory=memory, duplicates="sum")
        for name, memory in (("a", None), ("b", 1e9))
    ]
    assert made[0] == made[1]
    texts = put(tmp_path / "t.parquet", source=["x"], target=["y"])
    refuses("these are texts", in_pieces, texts)


def test_tables_of_vertices(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    put("e.parquet", source=["b", "a", "c"], target=["a", "c", "b"])
    put("v.parquet", id=["c", "a", "b"], emb=[[1.0, 2], [3, 4], [5, 6]], label=["u", "v", "u"],
        train=[True, False, False])  # fmt: skip
    run("import", "e.parquet", "g.graph", "--features", "v.parquet", "--labels", "v.parquet",
        "--train-mask", "v.parquet")  # fmt: skip
    graph = open_graph("g.graph").graph
    assert graph.ids.tolist() == ["a", "b", "c"]
    assert graph.features.tolist() == [[3, 4], [5, 6], [1, 2]]
    assert (graph.labels.tolist(), graph.class_names) == ([1, 0, 0], ("u", "v"))
    assert graph.masks["train"].tolist() == [False, False, True]
    plain = put("x.parquet", p=[1, 2], q=[0.5, np.nan])
    refuses("not finite", read_features, plain)
    rows = read_features(put("x.parquet", p=[1, 2], q=[0.5, 3]))
    assert rows.values.tolist() == [[1, 0.5], [2, 3]]
    assert read_ids(put("i.parquet", id=[4, 2])).tolist() == [4, 2]
    assert read_labels(put("y.parquet", node=[4, 2], y=[0, 1])).ids.tolist() == [4, 2]
    assert read_mask(put("m.parquet", mask=[True, False]), "train").values.tolist() == [True, False]


def test_what_is_unclear_or_damaged_is_refused(tmp_path, monkeypatch):
    cases = [
        ({"a": [1], "b": [2], "c": [3]}, "the columns 'a', 'b', 'c', and it is not clear"),
        ({"source": [1, None], "target": [1, 2]}, "lacks 1 of its values"),
        ({"source": [0.5], "target": [1.5]}, "ids are float64"),
        ({"source": [1], "target": [2], "weight": ["x"]}, "weights are"),
        ({"source": [1], "target": [2], "weight": [np.inf]}, "not a finite number"),
        ({"source": pa.array([], pa.int64()), "target": pa.array([], pa.int64())}, "no arcs"),
    ]
    for columns, message in cases:
        path = put(tmp_path / "e.parquet", **columns)
        refuses(message, read_source, path)
        refuses(message, in_pieces, path)
    raw = put(tmp_path / "e.parquet", source=[1], target=[2]).read_bytes()
    for spoiled in (raw[:-9], raw[:4] + bytes(8) + raw[12:], b"PAR1"):
        path.write_bytes(spoiled)
        refuses("truncated or damaged", read_source, path)
    buffer = pa.py_buffer(b"a\xffb")
    spoiled = pa.StringArray.from_buffers(2, pa.py_buffer(np.array([0, 2, 3], np.int32)), buffer)
    texts = put(tmp_path / "t.parquet", source=spoiled, target=["x", "y"])
    name = tmp_path / "n.parquet"
    name.write_bytes(raw.replace(b"target", b"targe\xff"))
    for path in (texts, name):
        refuses("truncated or damaged", read_source, path)
    refuses("different lengths", read_features, put(tmp_path / "x.parquet", x=[[1.0], [1.0, 2.0]]))
    refuses("'t' holds no numbers", read_features, put(tmp_path / "x.parquet", t=["a"]))
    monkeypatch.setattr(parquet_tables, "FREE_ARCHIVE", 1 << 10)
    put(tmp_path / "e.parquet", source=np.zeros(1 << 17, int), target=np.zeros(1 << 17, int))
    refuses("unpacks to more than 200 times its size", read_source, tmp_path / "e.parquet")


def test_ids_with_missing_values_are_no_ids(tmp_path):
    for column in ([1.0, None], [1, None], ["a", None]):
        path = put(tmp_path / "e.parquet", source=column, target=[2, 3])
        for text in (False, True):
            message = "ids are float64|lacks 1 of its values, the first in row 1"
            caught = refuses(message, read_source, path, layout=Layout(string_ids=text))
            assert "--string-ids" not in (caught.hint or "")
    labels = put(tmp_path / "y.parquet", label=["a", None, "b"], id=[0, 1, 2])
    assert read_labels(labels).values.tolist() == ["a", "", "b"]
