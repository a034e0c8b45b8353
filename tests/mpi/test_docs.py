"""The documentation is true: its commands, names, and the numbers of README.

Each command line of a page is read as its program reads it, and each module and name that Python
imports there exists. README.md and the pages of DAILY are run too; the nightly tests run all pages:
every ```bash and ```python block of README.md and docs/*.md is executed, page by page, in an
empty folder with configs/ (whose trainings are cut short, as are those of gcnmpi demo and the
search of --model auto) and planetoid/data/ (a local copy of Cora) beside it. Blocks of other kinds
are illustrations. The commands ./scripts/… are left out: CI calls them, and a test that ran the
tests would never end. Python that needs a package of OPTIONAL runs where that is installed. A block
that begins with the name of a file, "# story.py", is saved; later commands run it. The tutorial is
run as a script; ``gcnmpi demo`` is run too.
Programs in Python write nothing to the standard error, on one rank and on several.
"""

from __future__ import annotations

import ast
import contextlib
import importlib.util
import json
import os
import re
import shlex
import subprocess
from collections.abc import Iterator
from itertools import groupby, pairwise
from pathlib import Path

import click
import numpy as np
import pytest
from axes import ALL
from stored_graphs import store
from words import line

from gcnmpi.cli.main import cli as trainer
from gcnmpi.options.config import load_config
from gcnmpi.options.model import NETWORKS
from gcnmpi.run.record import PHASES, field_tables
from partition import PYTHON
from partition.cli.main import cli as partitioner
from partition.graph.samples import write_samples
from partition.importing.synthetic import sbm
from partition.pipeline.adding import add_partition

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
CONFIGS = sorted((ROOT / "configs").glob("*.toml"))
TUNED = sorted((ROOT / "configs" / "tuned").glob("*.toml"))
OPTIONAL = ("torch", "skfem", "meshio")
PACKAGES = ("gcnmpi", "partition")
DAILY = ("README", "python")
EPOCHS = 13  # of trainings that are cut short
EXAMPLES = {"kernel": "panels", "scheme": "local"}
# Pages whose blocks are files to be saved: other tests run them.
OF_OTHER_TESTS = {f"adding-a-{kind}" for kind in (*EXAMPLES, "network", "partitioner")}
OF_OTHER_TESTS.add("file-formats")


def blocks(page: Path) -> list[tuple[str, str]]:
    """(language, text) of every fenced block of a page."""
    fenced = re.findall(r"^```(\w*)\n(.*?)^```$", page.read_text(encoding="utf-8"), re.M | re.S)
    assert 2 * len(fenced) == len(re.findall(r"^\s*```", page.read_text(), re.M)), page
    return fenced


def stands_alone(text: str) -> bool:
    """Whether a block in Python has the packages of OPTIONAL that it names, and imports them.

    test_torch.py runs the one that goes on where another ends.
    """
    packages = [package for package in OPTIONAL if package in text]
    imported = [re.search(rf"^(import|from) (gcnmpi\.)?{name}\b", text, re.M) for name in packages]
    return all(map(importlib.util.find_spec, packages)) and all(imported)


def as_script(page: Path) -> str:
    """One bash script of all that is to be run of a page."""
    pieces = []
    for language, text in blocks(page):
        if language == "bash" and not text.startswith("./scripts/"):
            text = text.replace("gcnmpi demo ", f"gcnmpi demo --epochs {EPOCHS} ")
            text = text.replace("--model auto ", "--model auto --time-limit 5 ")
            pieces.append(re.sub(r"^(?=(mpirun -n \d+ )?python )", "silent ", text, flags=re.M))
        elif language == "python" and stands_alone(text):
            named = re.match(r"# (\w+\.py)\n", text)
            file = named[1] if named else ".block.py"
            pieces.append(f"cat > {file} <<'END_OF_BLOCK'\n{text}END_OF_BLOCK\n")
            pieces += [] if named else [f"silent python {file}\n"]
    return "".join(pieces)


RUN = [page for page in PAGES if page.stem not in OF_OTHER_TESTS and as_script(page)]


PROGRAMS = {"gcnmpi": trainer, "gcn-partition": partitioner}


def commands(page: Path) -> Iterator[tuple[str, list[str]]]:
    """The programs of this distribution that a page starts, and their words."""
    for language, text in blocks(page):
        for typed in text.replace("\\\n", " ").splitlines() if language == "bash" else ():
            words = shlex.shlex(
                re.sub(r"\$\{?\w+\}?", "2", typed), posix=True, punctuation_chars=True
            )
            words.whitespace_split = True
            for punctuation, group in groupby(words, lambda word: set(word) <= set("();<>|&")):
                some = [] if punctuation else list(group)
                for i in (i for i, word in enumerate(some) if word in PROGRAMS):
                    yield some[i], some[i + 1 :]


def understood(name: str, words: list[str]) -> None:
    """Read a command line as its program does, without the files that it names."""
    command, context = PROGRAMS[name], None
    while True:
        context = command.make_context(name, words, parent=context)
        if not isinstance(command, click.Group):
            break
        name, command, words = command.resolve_command(
            context, context._protected_args + context.args
        )
    given = [setting for one, setting in pairwise(words) if one == "--set"]
    if name == "train":
        load_config(None, given)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_commands_and_imports_of_pages_are_understood(page, monkeypatch):
    monkeypatch.setattr(
        click.Path, "convert", lambda self, value, *_: self.coerce_path_result(value)
    )
    for name, words in commands(page):
        with contextlib.suppress(click.exceptions.Exit):  # --help
            understood(name, words)
    texts = blocks(page) if page.stem not in OF_OTHER_TESTS else ()
    alone = (text for language, text in texts if language == "python" and stands_alone(text))
    for node in (node for text in alone for node in ast.walk(ast.parse(text))):
        if isinstance(node, ast.ImportFrom) and node.module.split(".")[0] in PACKAGES:
            exec(ast.unparse(node), {})


@pytest.fixture
def beside(tmp_path, data_dir) -> Path:
    """The folder that the commands of the documentation are run in."""
    if not (data_dir / "planetoid" / "ind.cora.x").is_file():
        pytest.skip(f"no planetoid/ind.cora.* in {data_dir}")
    (tmp_path / "planetoid").mkdir()
    (tmp_path / "planetoid" / "data").symlink_to(data_dir / "planetoid")
    (tmp_path / "configs").mkdir()
    for config in CONFIGS:
        text = re.sub(r"^epochs = \d+$", f"epochs = {EPOCHS}", config.read_text(), flags=re.M)
        (tmp_path / "configs" / config.name).write_text(text)
    return tmp_path


@pytest.mark.parametrize(
    "page",
    [pytest.param(p, marks=[] if p.stem in DAILY else pytest.mark.nightly) for p in RUN],
    ids=lambda page: page.stem,
)
def test_commands_and_snippets_run(page, beside, shell):
    shell(as_script(page), timeout=240)
    if page.stem == "user-guide":
        fields_are_described(beside)


def fields_are_described(folder: Path) -> None:
    """Every field of every record that a run of the page wrote is in the table of fields."""
    known = {name for fields in field_tables().values() for name in fields}
    for record in folder.glob("runs/*/run.jsonl"):
        for written in record.read_text().splitlines():
            fields = json.loads(written)
            assert fields.keys() <= known, fields["event"]
    assert fields["phases"].keys() <= PHASES.keys()


def test_examples_of_kernel_network_and_scheme_work(mpirun, tmp_path):
    for kind, name in EXAMPLES.items():
        page = ROOT / "docs" / f"adding-a-{kind}.md"
        (example,) = [text for language, text in blocks(page) if language == "python"]
        (tmp_path / f"{name}.py").write_text(example)
    save_networks(tmp_path)
    graph = tmp_path / "sbm.graph"
    synthesise(graph)
    for nranks, kinds in ((2, ("kernel", "network")), (1, ("scheme",))):
        mpirun(nranks, "examples.py", tmp_path, graph, "gp-2", *kinds, timeout=240)


def save_networks(folder: Path) -> None:
    """The networks of docs/adding-a-network.md, and the pieces of its operator."""
    page = ROOT / "docs" / "adding-a-network.md"
    examples = [text for language, text in blocks(page) if language == "python"]
    networks = [text for text in examples if text.startswith('"""')]
    for name, text in zip(("cheb", "gated", "states"), networks, strict=True):
        (folder / f"{name}.py").write_text(text)
    for number, text in enumerate(text for text in examples if text not in networks):
        (folder / f"piece-{number}.py").write_text(text)


def test_every_config_trains(succeed, tmp_path):
    graph = tmp_path / "sbm.graph"
    synthesise(graph)
    few = {"partition": "gp-2", "settings": ["train.epochs=2"], "quiet": True}
    trained = (*CONFIGS, *(TUNED if ALL else TUNED[::4]))
    assert all(load_config(config) for config in TUNED)
    outs = {config: tmp_path / config.stem for config in trained}
    succeed(2, *(line("train", graph, config=of, out=out, **few) for of, out in outs.items()))
    assert all('"finished": true' in (out / "run.jsonl").read_text() for out in outs.values())


FAKE_PYTHON = """#!/usr/bin/env bash
case "$*" in
  *"pip show"*) exit 1 ;;
  *"pip install"*) echo "$GCNMPI_COMPILED" >> "$0.log" ;;
  *"import gcnmpi.kernels._native"*) echo "$KERNEL" ;;
esac
"""


def with_fake_python(folder: Path, **told: str) -> subprocess.CompletedProcess[str]:
    """Source the script in an environment of which Python and pip are written above."""
    (folder / "bin").mkdir(parents=True)
    (folder / "bin" / "activate").write_text(f'PATH="{folder}/bin:$PATH"\n')
    for name, text in (("python", FAKE_PYTHON), ("mpirun", "#!/bin/sh\n")):
        (folder / "bin" / name).write_text(text)
        (folder / "bin" / name).chmod(0o755)
    line = ["bash", "-c", 'set -euo pipefail; . scripts/environment.sh ""']
    env = os.environ | {"VENV": str(folder)} | told
    return subprocess.run(line, cwd=ROOT, env=env, capture_output=True, text=True, check=False)


def test_a_kernel_compiled_before_is_taken_for_the_same_sources_and_flags(tmp_path):
    kernel, cache = tmp_path / "_native.abi3.so", {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    kernel.write_text("compiled")
    taken = []
    for name, flags in (("first", ""), ("second", ""), ("other flags", "-g"), ("again", "-g")):
        done = with_fake_python(tmp_path / name, KERNEL=str(kernel), CXXFLAGS=flags, **cache)
        assert done.returncode == 0, done.stderr
        assert (tmp_path / name / ".installed-gcnmpi").exists()
        taken.append(Path((tmp_path / name / "bin" / "python.log").read_text().strip()))
    assert [path.name for path in taken] == ["", kernel.name, "", kernel.name]
    assert taken[1] != taken[3]
    assert all(path.read_text() == "compiled" for path in taken[1::2])
    assert len(list((tmp_path / "cache" / "gcnmpi" / "kernels").iterdir())) == 2


def synthesise(graph: Path) -> None:
    """A small graph with communities, a partition of it into two parts, and samples."""
    made = sbm(400, 3, degree=8, intra=0.9, features=6, noise=0.5, train=0.3, val=0.2, seed=0)
    add_partition(store(graph, made), "gp", 2)
    states = np.random.default_rng(0).normal(size=(66, 400, 1)).astype(np.float32)
    ranges = {"train": [(0, 42)], "val": [(42, 66)]}
    write_samples(graph, "samples", states, None, ranges, made="drawn")


@pytest.mark.usefixtures("launching")  # ranks that wait take no core from the others
def test_the_loss_of_a_demo_is_the_same_for_one_rank_and_four_on_every_partition(tmp_path):
    """And a demo is no rank."""
    rank = {"OMPI_COMM_WORLD_SIZE": "1", "OMPI_COMM_WORLD_RANK": "0"}
    words = [*PYTHON, "gcnmpi", "demo", "--out", "made here", "--vertices", "300", "--epochs", "3"]
    for variables, code in ((rank, 2), ({}, 0)):
        given = {"cwd": tmp_path, "env": os.environ | variables, "check": False}
        done = subprocess.run(words, capture_output=True, text=True, **given)
        assert done.returncode == code, done.stderr
        assert (tmp_path / "made here").exists() == (code == 0)
    losses = {}
    for record in tmp_path.glob("made here/*/run.jsonl"):
        entries = map(json.loads, record.read_text(encoding="utf-8").splitlines())
        losses[record.parent.name] = [e["loss"] for e in entries if "loss" in e and "epoch" in e]
    assert losses.keys() == {"one", "rp-4", "gp-4", "hp-4"}
    assert len(losses["one"]) == 3
    for found in losses.values():
        assert found == pytest.approx(losses["one"], rel=1e-5)
    assert (tmp_path / "made here" / "report.html").exists()
    assert "$ mpirun -n 4 gcnmpi train 'made here/demo.graph' --partition hp-4" in done.stdout


NOTEBOOK = ROOT / "docs" / "tutorial.ipynb"
CELLS = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
CODE = [cell for cell in CELLS if cell["cell_type"] == "code"]


@pytest.mark.nightly
def test_the_cells_run_one_after_the_other(shell, tmp_path):
    text = "\n\n".join("".join(cell["source"]) for cell in CODE)
    (tmp_path / "tutorial.py").write_text(text, encoding="utf-8")
    done = shell("silent python tutorial.py", timeout=120)
    assert "equal to one serial process: True" in done.stdout


def test_its_links_resolve_and_it_is_stored_without_output():
    text = "".join("".join(cell["source"]) for cell in CELLS if cell["cell_type"] == "markdown")
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        assert (NOTEBOOK.parent / target.partition("#")[0]).is_file(), target
    assert not [cell for cell in CODE if cell["outputs"] or cell["execution_count"]]


def test_every_config_is_named_in_the_documentation():
    text = "".join(page.read_text(encoding="utf-8") for page in PAGES)
    assert not [config.name for config in CONFIGS if f"configs/{config.name}" not in text]


def test_every_network_is_in_the_page_of_networks():
    text = (ROOT / "docs" / "networks.md").read_text(encoding="utf-8")
    rows = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| `")]
    described = [cells[0].strip("`") for cells in rows if len(cells) == 4]
    assert described[1:] == list(NETWORKS)  # after the head of the table
