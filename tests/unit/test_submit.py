"""Batch scripts: what is in them, that they are words and not programs, and what they decide."""

import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from refusals import refuses

from gcnmpi.cli.main import cli
from gcnmpi.cluster.submit import PARTITION_SCRIPT, SCRIPT, Request, check, scripts, submit
from gcnmpi.options.requests import RUN_VARIABLE, job_folder
from gcnmpi.run.claims import STOP
from partition.graph.store import read_partition, write_graph, write_partition
from partition.importing.synthetic import sbm
from partition.locks import folder_lock
from partition.pipeline.adding import add_partition

pytestmark = pytest.mark.slow

GROUPED = ("task.name=samples", "task.batch=4", "train.groups=2")


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


def prepare(request):
    return scripts(request, check(request))


@pytest.fixture
def slurm(tmp_path, monkeypatch):
    """``slurm(**scripts)``: programs that stand for those of Slurm and MPI, before all others."""
    (folder := tmp_path / "bin").mkdir()
    path = [folder, Path(sys.executable).parent, os.environ["PATH"]]
    monkeypatch.setenv("PATH", os.pathsep.join(map(str, path)))

    def give(**scripts):
        for name, text in scripts.items():
            (folder / name).write_text(f"#!/bin/bash\n{text}\n")
            (folder / name).chmod(0o755)

    return give


def program_of(lines, folder):
    """The words that a script starts, as a shell in the folder reads them."""
    (program,) = [line for line in lines if line.startswith("program=")]
    words = ["bash", "-c", f'{program}\nprintf "%s\\n" "${{program[@]}}"']
    return subprocess.check_output(words, text=True, cwd=folder).splitlines()


def test_directives_and_words(request_for, graph, tmp_path):
    (tmp_path / "set up.sh").write_text("module load x\n")
    text = prepare(replace(request_for, setup=tmp_path / "set up.sh"))[SCRIPT]
    lines, here = text.splitlines(), str(Path(sys.executable).parent)
    for line in ("nodes=2", "ntasks=4", "time=01:00:00", "signal=B:USR1@90", "requeue"):
        assert f"#SBATCH --{line}" in lines
    assert f". '{tmp_path}/set up.sh'" in lines
    words = program_of(lines, tmp_path)
    assert words[:6] == [sys.executable, "-P", "-m", "gcnmpi", "train", str(graph)]
    assert not (tmp_path / "evil").exists()
    # The mpirun of this environment is found where the environment is not active.
    (path,) = [line for line in lines if line.startswith('case ":$PATH')]
    for before in ("/usr/bin:/bin", f"/usr/bin:/bin:{here}"):
        words = ["/bin/bash", "-c", f"{path}; printf $PATH"]
        after = subprocess.check_output(words, text=True, env={"PATH": before})
        assert after.split(":").count(here) == 1
    assert after == before
    for known in ("${rank_prefix[@]}", "${launch[@]}", "${program[@]}", "USR1@90"):
        text = text.replace(known, "")
    assert "@" not in text  # every name is filled in
    for change, lines in (
        ({}, ["launch=(mpirun"]),
        ({"launcher": "srun"}, ["--mpi=pmix"]),
        ({"settings": GROUPED}, ["#SBATCH --ntasks=8"]),
        ({"launcher": "srun", "gpus": 2}, [
            "#SBATCH --gpus-per-node=2",
            '--gpus-per-node="$SLURM_GPUS_PER_NODE" --gpu-bind=none']),
        *(({"time": time}, [f"#SBATCH --time={time}"])
          for time in ("2", "1:31", "0:01:31", "1-0", "0-1", "0-0:2", "0-00:01:31")),
    ):  # fmt: skip
        text = prepare(replace(request_for, **change))[SCRIPT]
        assert all(line in text for line in lines)


def test_what_does_not_fit_is_said_before_it_is_queued(request_for):
    for change, says in (
        ({"time": "tomorrow"}, "not a time"),
        (
            {"time": "1:30"},
            "the limit of a job is 90 seconds, so it would be asked to stop at once",
        ),
        ({"time": "1\n#SBATCH --x"}, "not a time"),
        ({"run": Path("a b")}, "cannot be the folder"),
        ({"options": ("--wrap", "rm -rf /")}, "not an option of sbatch"),
        ({"setup": Path("nowhere.sh")}, "there is no file nowhere.sh"),
        ({"partition": "mine"}, "does not say how to make it"),
        ({"partition": None}, "--ranks"),
        ({"ranks": 3}, "on 3 ranks needs a partition into 3"),
        ({"ranks": 4, "settings": GROUPED}, "on 4 ranks in 2 groups needs a partition into 2"),
        ({"ranks": 5, "settings": GROUPED}, "does not divide 5 ranks"),
        ({"gpus": 4}, "--launcher srun"),
        ({"partition": "hp-100"}, "100 ranks for 60 vertices"),
    ):
        refuses(says, prepare, replace(request_for, **change))


@pytest.fixture
def training(tmp_path):
    """A script, which is never run here."""
    (tmp_path / "training.py").write_text("import numpy\n")
    return tmp_path / "training.py"


def of_line(*words):
    """The output of a line of the command, or its mistake."""
    done = CliRunner().invoke(cli, ["submit", *map(str, words)], standalone_mode=False)
    return str(done.exception) if done.exception else done.stdout


def test_what_follows_a_script_is_its_own(training, graph, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    options = ["--time", "30", "--nodes", "2", "--out", "run", "--dry-run"]
    own = [graph, "--partition", "rp-4", "--time", "soon", "--set", "a", "--", "-h", "it's $HOME"]
    text = of_line(*options, training.name, "--", *own)
    # The parts of the partition that its arguments name, and no limit of its own.
    assert {"#SBATCH --ntasks=4", "#SBATCH --time=30"} <= {*text.splitlines()}
    words = program_of(text.splitlines(), "/")
    started = ["env", f"GCNMPI_RUN={tmp_path / 'run'}", sys.executable, str(training)]
    assert words == [*started, *map(str, own)]
    assert f"\ncd {tmp_path} #" in text  # also where somebody submits it again elsewhere
    missing = of_line(*options, training.name, "--", "--partition=hp-4", graph)
    assert "--model hp -k 4 --name hp-4 --if-missing" in missing
    assert "#SBATCH --ntasks=3" in of_line(*options, "--ranks", 3, training.name)


def test_mistakes_of_a_script_are_said_before_it_is_queued(training, graph, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("data.npz").write_bytes(b"PK\x00\xff")
    Path("torched.py").write_text("def main():\n    import gcnmpi.torch as t\n")
    monkeypatch.setattr("gcnmpi.cluster.submit.find_spec", lambda name: None)
    for words, says in (
        (["nowhere.py"], "cannot read nowhere.py: No such file"),
        (["data.npz"], "data.npz is not a program in Python"),
        (["training.py", "--", "--epochs", "3"], "training.py name no graph folder"),
        (["training.py", "--", "G", "--partition", "mine"], "does not say how to make it"),
        (["--ranks", "3", "training.py", "--", "G", "--partition", "rp-4"], "on 3 ranks needs"),
        (["--partition", "hp-4", "training.py"], "have no meaning with a script"),
        (["G", "hp-4"], "'hp-4' is one argument too many"),
        (["--ranks", "2", "torched.py"], "torched.py needs PyTorch, which is not installed"),
    ):
        words = [str(graph) if word == "G" else word for word in words]
        assert says in of_line("--time", 5, "--out", "run", *words)
    assert "training.py -- my.graph" in of_line("training.py", graph, "--time", 5, "--set", "a=1")


def test_a_script_finds_the_folder_of_its_job(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(RUN_VARIABLE, raising=False)
    assert [job_folder(given) for given in (None, Path("a"))] == [None, Path("a")]
    monkeypatch.setenv(RUN_VARIABLE, str(tmp_path / "a"))
    assert job_folder(None) == job_folder(Path("a")) == tmp_path / "a"
    refuses("the folder of the run is b, and the job looks for it in", job_folder, Path("b"))


def test_a_partition_that_is_missing_is_a_job_before(request_for, tmp_path, slurm):
    request = replace(request_for, options=("--account=x", "--job-name=mine"))
    for name, words in (
        ("hp-4", "--model hp -k 4 --name hp-4 --if-missing"),
        ("hp-4-s1-e0.03", "--model hp -k 4 --seed 1 --imbalance 0.03 --name hp-4-s1-e0.03"),
        ("auto-4-mixed", "--model auto -k 4 --exchange mixed --name auto-4-mixed --if-missing"),
    ):
        script = prepare(replace(request, partition=name))[PARTITION_SCRIPT]
        assert re.search(f"-P -m partition add .*{words}", script)
    stored = replace(read_partition(request.graph, "rp-4"), name="auto-4-rows")
    write_partition(request.graph, stored)
    assert PARTITION_SCRIPT not in prepare(replace(request, partition="auto-4"))
    count, log = tmp_path / "count", tmp_path / "log"
    # A site's own sbatch, with something to say around the answer.
    answer = f"echo budget: 70 hours; wc -l < {count}; echo have a nice day"
    slurm(sbatch=f'echo "$@" >> {log}; echo x >> {count}; {answer}')
    request = replace(request, partition="hp-4")
    facts = submit(request, prepare(request))
    assert facts == {"run": str(request_for.run), "job": 2, "partition_job": 1}
    first, second = log.read_text().splitlines()
    assert first == f"--parsable --account=x {request_for.run / PARTITION_SCRIPT}"
    assert "--job-name=mine --dependency=afterok:1 --kill-on-invalid-dep=yes" in second
    said = of_line("--time", 5, "--out", tmp_path / "b", request.graph, "--partition", "hp-4")
    assert ("job 3 makes the partition hp-4" in said, "job 4, run" in said) == (True, True)
    # It is cancelled if the run is refused.
    limited = 'case "$*" in *afterok*) echo "error: QOS limit" >&2; exit 1;; esac; echo 7'
    slurm(sbatch=limited, scancel=f'echo "$@" > {tmp_path}/cancelled', squeue="")
    refuses("QOS limit", submit, request, prepare(request))
    assert (tmp_path / "cancelled").read_text() == "7\n"


def test_the_number_of_a_job_and_a_folder_that_has_one(request_for, slurm, monkeypatch):
    made, queued = prepare(request_for), request_for.run / SCRIPT
    with monkeypatch.context() as patch:
        patch.setenv("PATH", str(request_for.graph))
        refuses("there is no sbatch here", submit, request_for, made)
    for answer in ("12", "12;cluster", "3 jobs left\\n12", "Submitted batch job 12 on cluster b"):
        slurm(sbatch=f"printf '{answer}\\n'", squeue="")
        assert submit(request_for, made)["job"] == 12
    for squeue, sbatch, says in (
        ("", "echo queued, good luck", "'queued, good luck'"),
        (f'echo "12|PENDING|Resources|{queued}"', "", r"has a job already: 12 PENDING \(Res"),
        (f'echo "12|RUNNING|None|{queued}"', "", "has a job already: 12 RUNNING"),
        ("echo slurm_load_jobs error >&2; exit 1", "", "slurm_load_jobs"),
    ):
        slurm(squeue=squeue, sbatch=sbatch)
        refuses(says, submit, request_for, made)
    slurm(squeue='echo "7|RUNNING|None|/another/run/job.sbatch"', sbatch="echo 7")
    submit(request_for, made)
    with folder_lock(request_for.run, "gcnmpi train"):  # by hand
        refuses("in use", submit, request_for, made)


# A run that hears the signal before it writes its first line, as the program's runs do.
HEARS = "trap 'echo asked; exit 75' USR1"
WAITS = "while :; do sleep 0.1; done"
NOTICE = {"first": f"{HEARS}; sleep 0.3; kill -USR1 $PPID; sleep 0.3", "last": WAITS}
STOPPED = ["start", "epoch", "stop"]


@pytest.mark.parametrize(
    ("before", "added", "code", "how", "expected", "says"),
    [
        ([], STOPPED, 75, {}, 0, ""),
        (["start", "stop"], ["resume", "stop"], 139, {}, 0, ""),  # the launcher crashed after it
        (["start", "stop"], [], 2, {}, 2, ""),  # a mistake: not for ever round and round
        ([], ["start", "epoch", "end"], 0, {}, None, ""),
        ([], ["start", "epoch"], 0, {}, 1, ""),  # a node died, and the launcher says nothing
        # From scratch: a record that is shorter than the one before.
        (["start", "epoch", "epoch", "stop"], ["new", "start", "stop"], 75, {}, 0, ""),
        (["start", "epoch", "epoch", "end"], ["new", "start"], 0, {}, 1, ""),
        ([], STOPPED, 75, {"last": "touch RUN/stop"}, 75, "to go on: sbatch"),
        ([], STOPPED, 75, {"scontrol": "exit 1"}, 75, "does not put this job back into the queue"),
        # The notice waits for the run to begin, also during the setup, and no longer.
        ([], ["new", "start", "stop"], 75, NOTICE, 0, "asked"),
        (["start", *["epoch"] * 20, "stop"], ["new", "start", "stop"], 75, NOTICE, 0, "asked"),
        ([], ["start", "stop"], 75, {"first": HEARS, "last": WAITS, "setup": True}, 0, "asked"),
        ([], [], 0, {"of_script": True}, 1, "has not finished; a script has to train in g.run("),
    ],
)
def test_what_the_script_decides(script, before, added, code, how, expected, says):
    """None: it ends with 0, and is not put back into the queue."""
    done, control = script(before, added, code, **how)
    assert done.returncode == (expected or 0), done.stdout + done.stderr
    assert says in done.stdout + done.stderr
    if "scontrol" not in how:
        asked = control.read_text() if control.exists() else ""
        assert asked == ("requeue 7\n" if expected == 0 else "")


@pytest.fixture
def script(request_for, training, tmp_path, slurm):
    """``script(before, added, code, …)``: the batch script with a record, and a run that adds."""
    (run := request_for.run).mkdir()
    record = run / "run.jsonl"

    def line(event, job):
        named = {"job": job} if event in ("start", "resume") else {}
        return json.dumps({"event": event, **named, "config": {}})

    (tmp_path / "slow.sh").write_text("kill -USR1 $$\n")

    def start(before, added, code, scontrol="", first="", last="", setup=False, of_script=False):
        own = {"setup": tmp_path / "slow.sh" if setup else None}
        request = replace(request_for, script=(str(training),) if of_script else (), **own)
        text, last = prepare(request)[SCRIPT], last.replace("RUN/stop", str(run / STOP))
        (run / SCRIPT).write_text(text.replace("sleep 60", "exit 0"))
        if before:
            record.write_text("".join(line(event, "7.0") + "\n" for event in before))
        lines = (
            f"echo '{line(event, '7.1')}' >>" if event != "new" else "rm -f" for event in added
        )
        adds = "".join(f"{line} {record}\n" for line in lines)
        requeue = f'echo "$@" >> {tmp_path}/control; {scontrol}'
        slurm(mpirun=f"{first}\n{adds}{last}\nexit {code}", scontrol=requeue)
        job = {"JOB_ID": "7", "RESTART_COUNT": "1", "NTASKS": "4", "JOB_NODELIST": "n[1-2]"}
        environment = os.environ | {f"SLURM_{name}": value for name, value in job.items()}
        how = {"env": environment, "capture_output": True, "text": True, "timeout": 30}
        return subprocess.run(["bash", run / SCRIPT], **how), tmp_path / "control"

    return start
