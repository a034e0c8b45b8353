"""Batch scripts: what is in them, that they are words and not programs, and what they decide."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from gcnmpi.report.status import print_status, status
from gcnmpi.submit import JOB, PARTITION_SCRIPT, SCRIPT, Request, prepare, submit
from partition.errors import UserError
from partition.pipeline import add_partition
from partition.store import write_graph
from partition.synthetic import sbm


@pytest.fixture(scope="module")
def graph(tmp_path_factory):
    path = tmp_path_factory.mktemp("graphs") / "a b $(touch evil) 'q.graph"
    made = sbm(60, 3, degree=4, intra=0.9, features=4, noise=1.0, train=0.3, val=0.2, seed=0)
    write_graph(path, made, source={})
    add_partition(path, "rp", 4)
    return path


@pytest.fixture
def request_for(graph, tmp_path):
    return Request(
        graph=graph, partition="rp-4", config_file=None, settings=(), run=tmp_path / "run",
        ranks=None, nodes=2, cpus=1, gpus=0, time="01:00:00", partition_time="60", notice=90,
        launcher="mpirun", setup=None, options=(),
    )  # fmt: skip


def programs(folder, **scripts):
    """Programs that stand for those of Slurm and MPI; returns the environment with them."""
    folder.mkdir(exist_ok=True)
    for name, text in scripts.items():
        (folder / name).write_text(f"#!/bin/bash\n{text}\n")
        (folder / name).chmod(0o755)
    return {**os.environ, "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}"}


def test_directives_and_words(request_for, graph, tmp_path):
    (tmp_path / "set up.sh").write_text("module load x\n")
    text = prepare(replace(request_for, setup=tmp_path / "set up.sh"))[SCRIPT]
    lines = text.splitlines()
    for line in ("nodes=2", "ntasks=4", "time=01:00:00", "signal=B:USR1@90", "requeue"):
        assert f"#SBATCH --{line}" in lines
    assert f". '{tmp_path}/set up.sh'" in lines
    (program,) = [line for line in lines if line.startswith("program=")]
    words = subprocess.run(
        ["bash", "-c", f'{program}\nprintf "%s\\n" "${{program[@]}}"'],
        capture_output=True, text=True, cwd=tmp_path,
    ).stdout.splitlines()  # fmt: skip
    assert words[:6] == [sys.executable, "-P", "-m", "gcnmpi", "train", str(graph)]
    assert not (tmp_path / "evil").exists()
    text = text.replace("${rank_prefix[@]}", "")
    assert "@" not in text.replace("${launch[@]}", "").replace("${program[@]}", "").replace(
        "USR1@90", ""
    )


def test_launchers(request_for):
    assert "launch=(mpirun" in prepare(request_for)[SCRIPT]
    assert "--mpi=pmix" in prepare(replace(request_for, launcher="srun"))[SCRIPT]
    text = prepare(replace(request_for, launcher="srun", gpus=2))[SCRIPT]
    assert "#SBATCH --gpus-per-node=2" in text
    assert "--gpu-bind=single:1" in text


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"time": "tomorrow"}, "no time"),
        ({"time": "1\n#SBATCH --x"}, "no time"),
        ({"run": Path("a b")}, "cannot be the folder"),
        ({"run": Path("a\n#SBATCH --x")}, "cannot be the folder"),
        ({"options": ("--wrap", "rm -rf /")}, "no option of sbatch"),
        ({"options": ("x.sh",)}, "no option of sbatch"),
        ({"setup": Path("nowhere.sh")}, "there is no file nowhere.sh"),
        ({"partition": "mine"}, "does not say how to make it"),
        ({"partition": None}, "--ranks"),
        ({"ranks": 3}, "on 3 ranks needs a partition into 3"),
        ({"settings": ("train.epoch=3",)}, "train.epoch"),
        ({"gpus": 4}, "--launcher srun"),
        ({"partition": "hp-100"}, "100 ranks for 60 vertices"),
    ],
)
def test_what_does_not_fit_is_said_before_it_is_queued(request_for, change, says):
    with pytest.raises(UserError, match=says):
        prepare(replace(request_for, **change))


def test_a_partition_that_is_missing_is_a_job_before(request_for, tmp_path, monkeypatch):
    made = prepare(replace(request_for, partition="hp-4", options=("--account=x",)))
    assert list(made) == [PARTITION_SCRIPT, SCRIPT]
    assert "partition add" in made[PARTITION_SCRIPT]
    assert "--model hp -k 4 --name hp-4" in made[PARTITION_SCRIPT]
    count = tmp_path / "count"
    log = tmp_path / "log"
    text = f'echo "$@" >> {log}; echo x >> {count}; wc -l < {count}'
    environment = programs(tmp_path / "bin", sbatch=text, squeue='echo "PENDING|Dependency"')
    monkeypatch.setenv("PATH", environment["PATH"])
    facts = submit(replace(request_for, partition="hp-4", options=("--account=x",)), made)
    assert facts == {"run": str(request_for.run), "job": 2, "partition_job": 1}
    first, second = log.read_text().splitlines()
    assert first == f"--parsable --account=x {request_for.run / PARTITION_SCRIPT}"
    assert "--dependency=afterok:1 --kill-on-invalid-dep=yes" in second
    found = status(request_for.run)
    assert (found["state"], found["slurm"]) == ("queued", "PENDING (Dependency)")


def test_without_slurm_it_says_so(request_for, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UserError, match="there is no sbatch here"):
        submit(request_for, prepare(request_for))


EPOCH = {"event": "epoch", "epoch": 3, "loss": 0.5, "val_accuracy": 0.25, "seconds": 2.0}
START = {"event": "start", "config": {"train": {"epochs": 10}}}


@pytest.mark.parametrize(
    ("before", "added", "code", "expected", "requeued"),
    [
        ([], ["start", "epoch", "stop"], 75, 0, True),
        (["start", "stop"], ["resume", "epoch", "stop"], 75, 0, True),
        (["start", "stop"], ["resume", "stop"], 139, 0, True),  # the launcher crashed after it
        (["start", "stop"], [], 2, 2, False),  # a mistake: not for ever round and round
        ([], ["start", "epoch", "end"], 0, 0, False),
        (["start", "end"], [], 0, 0, False),
        ([], ["start", "epoch"], 0, 1, False),  # a node died, and the launcher says nothing
        ([], [], 0, 1, False),
        ([], ["start", "epoch"], 9, 9, False),
    ],
)
def test_what_the_script_decides(request_for, tmp_path, before, added, code, expected, requeued):
    run = request_for.run
    run.mkdir()
    (run / SCRIPT).write_text(prepare(request_for)[SCRIPT].replace("sleep 60", "exit 0"))
    if before:
        (run / "run.jsonl").write_text("".join(f'{{"event": "{e}"}}\n' for e in before))
    lines = "".join(f'echo \'{{"event": "{e}"}}\' >> {run}/run.jsonl\n' for e in added)
    environment = programs(
        tmp_path / "bin", mpirun=f"{lines}exit {code}", scontrol=f'echo "$@" >> {tmp_path}/control'
    )
    slurm = {"SLURM_JOB_ID": "7", "SLURM_NTASKS": "4", "SLURM_JOB_NODELIST": "n[1-2]"}
    done = subprocess.run(
        ["bash", str(run / SCRIPT)], env=environment | slurm, capture_output=True, text=True,
        timeout=30,
    )  # fmt: skip
    assert done.returncode == expected, done.stdout + done.stderr
    control = tmp_path / "control"
    assert control.exists() == requeued
    if requeued:
        assert control.read_text() == "requeue 7\n"


def test_status(tmp_path, capsys):
    with pytest.raises(UserError, match="not the folder of a run"):
        status(tmp_path)
    records = [START, EPOCH]
    (tmp_path / "run.jsonl").write_text("\n".join(map(json.dumps, records)))
    found = status(tmp_path)
    assert (found["state"], found["epoch"], found["seconds_left"]) == ("started", 3, 14.0)
    print_status(found)
    assert "epoch 3 of 10, loss 0.5000, val 0.250, 2 s per epoch" in capsys.readouterr().out
    (tmp_path / JOB).write_text("{")
    with pytest.raises(UserError, match=r"job\.json is damaged"):
        status(tmp_path)
