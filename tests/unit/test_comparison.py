"""Volumes over the number of ranks: rows, crossover, files."""

import csv
import json

import pytest
from command_line import gcnmpi_cli, refused, run
from test_ranking import path, setting  # noqa: F401

from gcnmpi.planner.by_ranks import counted_rows, crossovers, predicted_rows, table, write_csv
from partition.errors import UserError


def row(ranks, scheme, received, partition="", source="predicted"):
    return {"ranks": ranks, "scheme": scheme, "options": "", "partition": partition,
            "source": source, "received": received, "messages": 1, "seconds": 0.1}  # fmt: skip


ROWS = [
    *(row(p, "p2p", r, "hp") for p, r in ((4, 10), (16, 8), (64, 7))),
    *(row(p, "summa", r) for p, r in ((4, 5), (16, 9), (64, 4))),
    *(row(p, "bcast", r) for p, r in ((4, 20), (16, 20), (64, 20))),
    row(4, "summa", 1, source="counted"),
]


def test_the_crossover_holds_up_to_the_largest_number_of_ranks():
    assert crossovers(ROWS) == [
        {"partition": "hp", "other": "summa", "from_ranks": 64, "compared": 64},
        {"partition": "hp", "other": "bcast", "from_ranks": None, "compared": 64},
    ]


def test_a_table_and_a_file(tmp_path):
    lines = table(ROWS).splitlines()
    assert lines[0] == "| scheme | partition | | P = 4 | P = 16 | P = 64 |"
    assert "| p2p | hp | predicted | 1e-05 | 8e-06 | 7e-06 |" in lines
    assert "| summa |  | counted | 1e-06 |  |  |" in lines
    write_csv(ROWS, tmp_path / "v.csv")
    with open(tmp_path / "v.csv") as file:
        assert [line["received"] for line in csv.DictReader(file)][:2] == ["10", "8"]


def test_the_best_of_each_kind(path):  # noqa: F811
    rows, _ = predicted_rows(setting(path), [2, 3], ["p2p"])
    found = {(each["ranks"], each["partition"]): each["received"] for each in rows}
    random = {(2, "random rows"), (3, "random rows")}
    assert set(found) == {(2, "block"), (2, "rp"), *random}
    assert found[2, "block"] == 0


def test_records_of_runs(tmp_path):
    file = tmp_path / "bench.jsonl"
    line = {"scheme": "summa", "options": {"grid": "2x2"}, "partition": None, "ranks": 4,
            "received": 7, "messages": 3, "seconds": 0.5}  # fmt: skip
    skipped = {"scheme": "p2p", "options": {}, "partition": None, "ranks": 4, "skipped": "no"}
    file.write_text("\n".join(["a word of mpirun", json.dumps(line), json.dumps(skipped)]))
    (found,) = counted_rows([file])
    assert (found["options"], found["received"], found["source"]) == ("grid 2x2", 7, "counted")
    file.write_text('{"other": 1}\n')
    with pytest.raises(UserError, match="bench-schemes --json"):
        counted_rows([file])
    with pytest.raises(UserError, match="cannot read"):
        counted_rows([tmp_path / "nothere"])


def test_the_command(path, tmp_path):  # noqa: F811
    words = ["volumes", path, "-P", 2, "-P", 3, "--schemes", "p2p,bcast"]
    done = run(*words, "--out", tmp_path / "out", program=gcnmpi_cli)
    assert (tmp_path / "out" / "volumes.md").read_text() in done.stdout
    assert "bcast receives less than p2p block: nowhere up to 2 ranks" in done.stdout
    with open(tmp_path / "out" / "volumes.csv") as file:
        assert {line["scheme"] for line in csv.DictReader(file)} == {"p2p", "bcast"}
    said = refused(*words, "--set", "scheme.grid=2x1", program=gcnmpi_cli)
    assert "scheme.grid is an option of" in said
