"""Files of results with the ids of the vertices."""

import csv

import numpy as np
import pyarrow.parquet as pq
import pytest

from gcnmpi.run import results
from gcnmpi.run.results import Results, write_csv, write_npz, write_parquet
from partition.importing.readers.vertex_files import read_features

VALUES = np.random.default_rng(0).standard_normal((7, 3)).astype(np.float32) * 1e-3
TEXTS = np.array(["b", 'a "quoted", one', "ü", "d", "3", "#x", "% y"])
NUMBERS = np.array([5, -3, 2**40, 0, 1, 7, 9])


@pytest.fixture(autouse=True)
def few(monkeypatch):
    monkeypatch.setattr(results, "ROWS_AT_ONCE", 2)


@pytest.mark.parametrize("ids", [TEXTS, NUMBERS, None])
@pytest.mark.parametrize("picked", [None, np.array([6, 0, 0, 3, 1])])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64])
def test_files_come_back(tmp_path, ids, picked, dtype):
    some = slice(None) if picked is None else picked
    values = (VALUES[:, 0] * 1e6).astype(dtype) if dtype == np.int64 else VALUES.astype(dtype)
    made, values = Results(values[some], ids, picked), values[some]
    names = (np.arange(7) if ids is None else ids)[some]
    write_csv(made, tmp_path / "y.csv")
    write_npz(made, tmp_path / "y.npz")
    write_parquet(made, tmp_path / "y.parquet")
    with np.load(tmp_path / "y.npz") as arrays:
        np.testing.assert_array_equal(arrays["values"], values)
    with open(tmp_path / "y.csv", newline="", encoding="utf-8") as file:
        lines = list(csv.reader(file))
    header = ["class"] if values.ndim == 1 else ["0", "1", "2"]
    if ids is not None:
        assert lines.pop(0) == ["id", *header]
        assert [line.pop(0) for line in lines] == [str(name) for name in names]
    np.testing.assert_array_equal(np.array(lines, dtype).reshape(values.shape), values)
    table = pq.read_table(tmp_path / "y.parquet")
    assert table.column_names == ["id", *header]
    assert table.column("id").to_pylist() == names.tolist()
    found = np.stack([table.column(name).to_numpy() for name in header], 1).reshape(values.shape)
    assert found.dtype == dtype
    np.testing.assert_array_equal(found, values)
    if ids is TEXTS and dtype == np.float32 and picked is None:  # and can be attached
        for file in ("y.csv", "y.parquet"):
            rows = read_features(tmp_path / file)
            np.testing.assert_array_equal(rows.values, values)
            assert rows.ids.tolist() == names.tolist()


def test_one_number_a_row_has_a_name_and_an_archive_more_arrays(tmp_path):
    made = Results(VALUES[:, 0], NUMBERS, None, "rank", "ranks", {"values": np.arange(3)})
    write_csv(made, tmp_path / "y.csv")
    assert (tmp_path / "y.csv").read_text().startswith("id,rank\n")
    write_npz(made, tmp_path / "y.npz")
    with np.load(tmp_path / "y.npz") as arrays:
        assert sorted(arrays) == ["ranks", "values"]
        np.testing.assert_array_equal(arrays["ranks"], VALUES[:, 0])


def test_tables_have_the_names_of_classes(tmp_path):
    made = Results(np.array([2, 0, 1, 1, 2, 0, 0]), TEXTS, None, names=("a, b", "ü", "#c"))
    words = ["#c", "a, b", "ü", "ü", "#c", "a, b", "a, b"]
    write_csv(made, tmp_path / "y.csv")
    with open(tmp_path / "y.csv", newline="", encoding="utf-8") as file:
        lines = list(csv.reader(file))
    assert lines == [["id", "class"], *map(list, zip(TEXTS, words, strict=True))]
    write_parquet(made, tmp_path / "y.parquet")
    assert pq.read_table(tmp_path / "y.parquet").column("class").to_pylist() == words
