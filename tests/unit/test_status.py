"""The state of a run by its record, by Slurm, and by the lock in its folder."""

import json
import os
import re
import time
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from refusals import refuses

from gcnmpi.cluster.doctor import Link, Seat, judge
from gcnmpi.cluster.submit import JOB, PARTITION_SCRIPT, SCRIPT
from gcnmpi.report.status import ask_to_stop, print_status, status
from gcnmpi.run.claims import STOP
from partition.locks import Holder, folder_lock

NOW = time.time()
START = {"event": "start", "config": {"train": {"epochs": 10}}, "job": "7.0"}
RECORDS = {
    "start": START,
    "resume": {**START, "event": "resume", "epoch": 2},
    "one": {"event": "epoch", "epoch": 1, "loss": 0.9, "val_accuracy": None, "seconds": 1.0,
            "time": NOW},
    "three": {"event": "epoch", "epoch": 3, "loss": 0.5, "val_accuracy": 0.25, "seconds": 1.0,
              "time": NOW + 8},
    "stop": {"event": "stop", "epoch": 3},
    "end": {"event": "end", "finished": True},
}  # fmt: skip


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """``folder(records, **answers)``: of a run; and what programs of Slurm say, if they do."""
    run, programs = tmp_path / "run", tmp_path / "bin"
    run.mkdir()
    programs.mkdir()
    monkeypatch.setenv("PATH", f"{programs}:/usr/bin:/bin")

    def make(records, *, jobs=None, age=180, **answers):
        if records:
            lines = [json.dumps(RECORDS[name]) for name in records]
            (run / "run.jsonl").write_text("\n".join(lines) + "\n")
            os.utime(run / "run.jsonl", times=(time.time() - age,) * 2)
        if jobs is not None:
            (run / SCRIPT).touch()
            before, job = jobs
            facts = {"run": str(run), "job": job, "partition_job": before}
            (run / JOB).write_text(json.dumps(facts))
        for name in ("squeue", "sacct", "scontrol"):
            text = answers.get(name, "echo Slurm accounting storage is disabled >&2; exit 1")
            (programs / name).write_text(f"#!/bin/sh\n{text.replace('FOLDER', str(run))}\n")
            (programs / name).chmod(0o755)
        return run

    return make


def said(run, capsys):
    print_status(status(run))
    return capsys.readouterr().out


QUEUED = "echo '7|PENDING|Resources|FOLDER/job.sbatch'"
RUNNING = "echo '7|RUNNING|None|FOLDER/job.sbatch'"
NOBODY = "true"  # squeue knows no job


@pytest.mark.parametrize(
    ("records", "answers", "state", "says"),
    [
        ([], {"squeue": QUEUED}, "queued", "queued, job 7 PENDING (Resources)"),
        (["start", "one"], {"squeue": RUNNING}, "running", "last written to 3 min ago"),
        (["start", "stop"], {"squeue": QUEUED}, "stopped", "stopped, job 7 PENDING"),
        (["start", "stop"], {"squeue": RUNNING}, "loading", ""),
        (["start", "end"], {"squeue": NOBODY}, "finished", "finished, job 7"),
        # It ended, and Slurm says how.
        ([], {"squeue": NOBODY, "sacct": "echo 'FAILED|127:0'"}, "failed",
         "before it wrote a record; sbatch FOLDER/job.sbatch starts over"),
        (["start", "one"], {"squeue": NOBODY, "sacct": "echo 'CANCELLED by 1000|0:15'"}, "failed",
         "job 7: CANCELLED (by 1000)"),
        (["start", "one"], {"squeue": NOBODY, "scontrol":
         "echo JobId=7 JobName=x JobState=OUT_OF_MEMORY Reason=OutOfMemory ExitCode=0:125"},
         "failed", "job 7: OUT_OF_MEMORY (OutOfMemory)"),
        (["start", "one"], {"squeue": NOBODY, "sacct": "echo 'FAILED|0:9'"}, "failed",
         "job 7: FAILED (signal 9)"),
        (["start", "one"], {"squeue": NOBODY, "scontrol":
         "echo JobId=7 JobState=FAILED Reason=NonZeroExitCode ExitCode=2:0"},
         "failed", "job 7: FAILED (exit code 2)"),
        # Slurm refused to put it back.
        (["start", "stop"], {"squeue": NOBODY, "sacct": "echo 'FAILED|75:0'"}, "stopped",
         "job 7: FAILED (exit code 75); sbatch FOLDER/job.sbatch "),
        # Slurm has forgotten it.
        (["start", "one"], {"squeue": NOBODY}, "interrupted",
         "no process runs it any more; sbatch FOLDER/job.sbatch starts over"),
        ([], {"squeue": NOBODY}, "failed", "job 7 has ended without a record; sbatch "),
        # A newer job than that of the record: sent off again by hand.
        (["start", "end"], {"squeue": "echo '9|PENDING|Priority|FOLDER/job.sbatch'"}, "queued",
         "job 9 PENDING (Priority)"),
        (["start"], {"squeue": "echo '9|RUNNING|None|FOLDER/job.sbatch'"}, "loading", "job 9"),
    ],
)  # fmt: skip
def test_of_a_job(folder, capsys, records, answers, state, says):
    run = folder(records, jobs=(None, 7), **answers)
    assert status(run)["state"] == state
    assert says.replace("FOLDER", str(run)) in said(run, capsys)


def test_of_a_partition_that_could_not_be_made(folder, capsys):
    sacct = "case $* in *=6*) echo 'CANCELLED by 5|0:0';; *) echo 'CANCELLED|0:0';; esac"
    run = folder([], jobs=(6, 7), squeue="true", sacct=sacct)
    for name in (PARTITION_SCRIPT, "slurm-6.out"):
        (run / name).touch()
    found, text = status(run), said(run, capsys)
    assert (found["state"], found["log"]) == ("failed", str(run / "slurm-6.out"))
    assert "job 6, which was to make the partition: CANCELLED (by 5)" in text
    assert f"see {run / 'slurm-6.out'}" in text


def test_without_slurm(folder, tmp_path, capsys, monkeypatch):
    """The lock in the folder decides."""
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    run = folder(["start", "one", "three"], age=3)
    found = [status(run)[name] for name in ("state", "epoch", "seconds_left")]
    assert found == ["interrupted", 3, None]
    text = said(run, capsys)
    assert "epoch 3 of 10, loss 0.5000, val 0.250, 4 s per epoch" in text
    assert "no process runs it any more; the same command starts over" in text
    (run / "checkpoints" / "epoch-000003+000007").mkdir(parents=True)
    assert "the same command goes on after epoch 3 and 7 batches" in said(run, capsys)
    assert "left" not in text
    with folder_lock(run, "gcnmpi train"):
        text = said(run, capsys)
    assert re.search(r"running(.|\n)*gcnmpi train \(host ", text)
    (run / "run.jsonl").write_text("")  # it has been made, and nothing has been written to it
    with folder_lock(run, "gcnmpi train"):
        assert "loading" in said(run, capsys)
    assert "left: 0:00:28" in text  # with evaluations: by the clock, not by the seconds of epochs


def test_only_a_run_that_runs_can_be_asked_to_stop(folder, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    run = folder(["start", "one"], age=3)
    refuses("is interrupted: there is nothing to stop", ask_to_stop, run)
    with folder_lock(run, "gcnmpi train"):
        ask_to_stop(run)
    assert (run / STOP).exists()
    with folder_lock(run, "gcnmpi propagate"):
        refuses("cannot be asked to stop", ask_to_stop, run)
    for call in (ask_to_stop, status):
        refuses("not the folder of a run", call, tmp_path)
    for damage in ("{", "[]", '{"job": "x", "partition_job": null}'):
        (run / JOB).write_text(damage)
        refuses(r"job\.json is damaged", status, run)


def test_a_run_on_another_host_whose_lock_is_not_seen_may_have_long_epochs(folder, monkeypatch):
    for name, of, change in (("long", "one", {}), ("longer", "three", {"time": NOW + 400})):
        monkeypatch.setitem(RECORDS, name, RECORDS[of] | {"seconds": 100.0} | change)
    for records, running, interrupted in (
        (["start", "one", "three"], 50, 70),  # epochs of 4 s
        (["start", "long"], 250, 310),  # one of 100 s
        (["start", "long", "longer"], 500, 610),  # 200 s each, with evaluations
        (["start"], 500, 610),  # how long they will be is not known
    ):
        for age, state in ((running, "running"), (interrupted, "interrupted")):
            run = folder(records, age=age)
            (run / ".lock").mkdir(exist_ok=True)
            holder = json.dumps(asdict(Holder("gcnmpi train", True, host="elsewhere")))
            (run / ".lock" / "elsewhere").write_text(holder)
            assert status(run)["state"] == state


# The advice of the doctor on each of its findings.

SEAT = Seat(0, "a", "Open MPI 5", "1.0", (0, 1, 2, 3), 4, (), None, 8 << 30, True)
PLACES = (("a", (0, 1)), ("a", (2, 3)), ("b", (0, 1)), ("b", (2, 3)))
GOOD = [replace(SEAT, rank=k, host=host, cores=of) for k, (host, of) in enumerate(PLACES)]


def link(hosts, seconds=2e-6, rate=1e10):
    return Link((0, 2), hosts, seconds, rate)


def told(seats=GOOD, links=(), need=0):
    return [(f.problem, f.text, f.advice) for f in judge(seats, links, Path("/runs"), need)]


def test_the_advice_on_each_finding():
    assert told(links=[link(("a", "b")), link(("a", "a"))], need=4 << 30) == []
    one = [[*GOOD[:3], replace(GOOD[3], **change)] for change in (
        {"mpi": "MPICH 4"}, {"gcnmpi": "2.0"}, {"sees_folder": False}, {"free_memory": 1 << 30},
        {"kernel": "the native kernel was not built"}, {"gpus": ("H200",), "cuda_aware": False},
    )]  # fmt: skip
    crowded = [replace(SEAT, rank=rank, cores=(0, 1), host_cores=4) for rank in range(3)]
    bound = [replace(SEAT, rank=rank, cores=(rank,), host_cores=16) for rank in range(2)]
    shared = [replace(seat, gpus=("H200",), cuda_aware=True) for seat in GOOD[:2]]
    slow = [link(("a", "b"), seconds=3e-4)]
    links = [link(("a", "b")), link(("b", "c")), link(("c", "d"), rate=1e9)]
    for seats, among, problem, says, advises in (
        (one[0], (), True, "different MPI libraries: Open MPI 5 on b, MPICH 4 on b", ""),
        (one[1], (), True, "different versions of gcnmpi", ""),
        (one[2], (), True, "b do not see what is written in /runs", ""),
        (one[3], (), True, "2 ranks on b need up to 4 GiB, 1 GiB are free", ""),
        (one[4], (), False, "was not built on b", ""),
        (one[5], (), False, "cannot send from their memory", ""),
        (crowded, (), True, "3 ranks share 2 cores on a", "--bind-to none"),
        ([replace(seat, host_cores=2) for seat in crowded], (), True, "", "start fewer ranks"),
        (bound, (), False, "bound to one core of a, and 14 are idle", ""),
        (shared, (), False, "2 ranks share 1 GPUs on a", ""),
        (GOOD, slow, False, "300 µs from host to host", ""),
        (GOOD, links, False, "c to d: 1000 MB/s, others 10000", ""),
    ):
        ((found, text, advice),) = told(seats, among, need=2 << 30)
        assert (found, says in text, advises in advice) == (problem, True, True)
        assert advice
