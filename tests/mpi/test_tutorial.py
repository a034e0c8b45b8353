"""The tutorial is run: as a script, and as a notebook where nbclient is installed."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

NOTEBOOK = Path(__file__).parents[2] / "docs" / "tutorial.ipynb"
EXECUTE = """
import sys
import nbclient, nbformat

notebook = nbformat.read(sys.argv[1], as_version=4)
nbclient.NotebookClient(notebook, timeout=150).execute()
for cell in notebook.cells:
    for output in cell.get("outputs", []):
        print(output.get("text", ""))
"""


def cells(kind: str) -> list[str]:
    notebook = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    return ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == kind]


@pytest.mark.nightly
def test_the_cells_run_one_after_the_other(shell, tmp_path):
    (tmp_path / "tutorial.py").write_text("\n\n".join(cells("code")), encoding="utf-8")
    done = shell("silent python tutorial.py", timeout=120)
    assert "equal to one serial process: True" in done.stdout


@pytest.mark.nightly
def test_it_runs_as_a_notebook(shell, tmp_path):
    pytest.importorskip("nbclient", reason="nbclient is not installed")
    pytest.importorskip("ipykernel", reason="ipykernel is not installed")
    (tmp_path / "execute.py").write_text(EXECUTE)
    done = shell(f"silent python execute.py {NOTEBOOK}", timeout=180)
    assert "equal to one serial process: True" in done.stdout


def test_its_links_resolve_and_it_is_stored_without_output():
    for target in re.findall(r"\]\(([^)\s]+)\)", "\n".join(cells("markdown"))):
        assert (NOTEBOOK.parent / target.partition("#")[0]).is_file(), target
    notebook = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert not [cell for cell in code if cell["outputs"] or cell["execution_count"]]
