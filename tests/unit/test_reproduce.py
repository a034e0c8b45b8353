"""The scripts that make the papers' tables again, on small graphs."""

import hashlib
import importlib
import json
import sys
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).parents[2] / "scripts" / "reproduce"
NAMES = sorted(path.stem for path in SCRIPTS.glob("*.py") if path.stem != "reproducing")


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_table_is_made_with_figure_and_record(name, monkeypatch, tmp_path, capsys):
    pytest.importorskip("matplotlib")
    monkeypatch.syspath_prepend(str(SCRIPTS))
    for module in ("reproducing", *NAMES):
        monkeypatch.delitem(sys.modules, module, raising=False)
    importlib.import_module(name).main(["--quick", "--out", str(tmp_path)])
    text = (tmp_path / f"{name}.md").read_text()
    assert text in capsys.readouterr().out
    assert text.count("\n|") > 3  # rows of a table
    record = json.loads((tmp_path / f"{name}.json").read_text())
    assert record["versions"]["numpy"]
    assert sorted(record["files"]) == sorted(f"{name}.{end}" for end in ("csv", "md", "pdf", "png"))
    for file, digest in record["files"].items():
        assert hashlib.sha256((tmp_path / file).read_bytes()).hexdigest() == digest
