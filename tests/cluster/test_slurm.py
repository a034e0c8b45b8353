"""Runs on four hosts under Slurm: submitted, requeued, hit by a power cut; and plain mpirun."""

import json
import time
from importlib.util import find_spec
from pathlib import Path

import pytest
from stored_graphs import store
from words import sets, wait_until

from gcnmpi.run.record import read_run
from partition.importing.synthetic import sbm
from partition.pipeline.adding import add_partition

EPOCHS = 800  # some seconds, in which a run can be hit
SETTINGS = (
    "dtype=float64", "model.dropout=0.5", "model.input_dropout=0.2", "train.checkpoint_every=10",
)  # fmt: skip
EXAMPLE = Path(__file__).parents[2] / "examples" / "own_layer.py"


@pytest.fixture(scope="module")
def graph(lab):
    made = sbm(4000, 4, degree=10, intra=0.9, features=32, noise=2.0, train=0.3, val=0.2, seed=0)
    path = store(lab.folder / "g.graph", made)
    add_partition(path, "gp", 4)
    return path


@pytest.fixture(scope="module")
def submit(lab, graph):
    """``submit(name, *words, epochs=EPOCHS)`` → folder of the run, number of the job."""

    def give(name, *words, epochs=EPOCHS, partition="gp-4", setup="setup.sh"):
        given = sets(*SETTINGS, f"train.epochs={epochs}")
        out = [] if name is None else ["--out", lab.folder / name]
        words = ["submit", graph, "--partition", partition, "--nodes", 4, *out, *words]
        facts = json.loads(lab.gcnmpi(*words, "--setup", setup, *given, "--json"))
        return Path(facts["run"]), facts

    return give


@pytest.fixture(scope="module")
def uninterrupted(lab, submit):
    out, facts = submit("uninterrupted", "--time", "30")
    finish(lab, facts["job"])
    return out


def wait(lab, job, seconds=900):
    until = time.monotonic() + seconds
    said = signalled = "JobState=SIGNALING"  # which the lab takes for an end
    while signalled in said and time.monotonic() < until:
        left = max(1, int(until - time.monotonic()))
        said = lab.run("wait", job, left, check=False).stdout
    return "COMPLETED" in said, said


def finish(lab, job):
    """Wait for the good end of a job; what Slurm said of it."""
    finished, said = wait(lab, job)
    assert finished, said
    return said


def curve(out):
    same = ("loss", "train_accuracy", "val_accuracy", "test_accuracy")
    return [[epoch.get(name) for name in same] for epoch in read_run(out).epochs]


def wait_for_epoch(out, number):
    record, said = out / "run.jsonl", f'"epoch": {number},'
    wait_until(lambda: record.exists() and said in record.read_text(), 90, f"no epoch {number}")


def outlast(lab, job, out, whole, weights):
    """Send what Slurm sends before the time limit: the job goes on, on the same curve."""
    wait_for_epoch(out, 20)
    lab.on_head("scancel", "--batch", "--signal=USR1", str(job))
    assert "Restarts=0" not in finish(lab, job)
    record = read_run(out)
    assert record.resumes >= 1
    assert record.end["finished"]
    assert curve(out) == curve(whole)
    assert (out / weights).read_bytes() == (whole / weights).read_bytes()
    return record


def test_a_run_that_is_submitted_finishes_on_four_hosts(lab, uninterrupted):
    record = read_run(uninterrupted)
    assert len(record.epochs) == EPOCHS
    assert record.end["finished"]
    assert record.start["threads"] == 1  # as asked of Slurm: hosts share the cores of this machine
    assert sorted(record.start["hosts"]) == ["node1", "node2", "node3", "node4"]
    assert (uninterrupted / "weights.npz").exists()
    told = lab.gcnmpi("status", uninterrupted)
    assert "finished" in told
    assert f"epoch {EPOCHS} of {EPOCHS}" in told


def test_a_partition_that_is_missing_is_made_once_for_several_runs(lab, submit, graph):
    runs = [submit(None, "--time", "5", epochs=5, partition="hp-4") for _ in range(3)]
    assert len({out for out, _ in runs}) == 3
    assert runs[0][1]["partition_job"] < runs[0][1]["job"]
    out, facts = runs[-1]
    if facts["partition_job"]:  # on a busy machine the partition is there before the last submit
        words = ["submit", graph, "--partition", "gp-4", "--out", out, "--time", "5"]
        assert f"has a job already: {facts['partition_job']} " in lab.gcnmpi(*words, check=False)
        told = lab.gcnmpi("status", out)
        assert "queued" in told or "RUNNING" in told  # the partition may be there by now
    for out, facts in runs:
        finish(lab, facts["job"])
        assert read_run(out).start["partition"] == "hp-4"
    assert len({read_run(out).start["partition_id"] for out, _ in runs}) == 1


def test_what_became_of_a_job_is_told(lab, submit):
    (lab.folder / "broken.sh").write_text("exit 3\n")
    no_partition, first = submit("a", "--time", "5", partition="rp-4", setup="broken.sh")
    nothing, second = submit("b", "--time", "5", setup="broken.sh")
    for facts in (first, second):
        assert not wait(lab, facts["job"])[0]
    told = lab.gcnmpi("status", no_partition)
    assert "failed" in told
    part = first["partition_job"]
    assert f"job {part}, which was to make the partition: FAILED (exit code 3)" in told
    assert f"see {no_partition}/slurm-{part}.out" in told
    told = lab.gcnmpi("status", nothing)
    assert f"job {second['job']}: FAILED (exit code 3) before it wrote a record" in told


def test_a_run_that_outlasts_its_jobs_ends_on_the_same_curve(lab, submit, uninterrupted):
    out, facts = submit("requeued", "--time", "30")
    outlast(lab, facts["job"], out, uninterrupted, "weights.npz")


@pytest.mark.skipif(find_spec("torch") is None, reason="PyTorch is not installed")
def test_a_script_of_pytorch_that_outlasts_its_jobs_ends_on_the_same_curve(lab, graph):
    epochs = 200

    def give(name):
        words = ["--nodes", 4, "--time", "30", "--out", lab.folder / name, "--setup", "setup.sh"]
        own = [graph, "--partition", "gp-4", "--epochs", epochs]
        told = lab.gcnmpi("submit", *words, "--json", EXAMPLE, "--", *own)
        return lab.folder / name, json.loads(told)["job"]

    whole, job = give("script-whole")
    finish(lab, job)
    out, job = give("script-requeued")
    record = outlast(lab, job, out, whole, "weights.pt")
    assert sorted(record.start["hosts"]) == ["node1", "node2", "node3", "node4"]
    assert record.end["bytes_sent"] == record.end["bytes_predicted"]
    told = (out / f"slurm-{job}.out").read_text()
    assert "stopped with a checkpoint (exit code 75), back into the queue" in told
    assert f"finished, job {job}" in lab.gcnmpi("status", out)
    assert f"epoch {epochs} of {epochs}" in lab.gcnmpi("status", out)


@pytest.mark.parametrize(
    ("trouble", "repair", "says"),
    [
        (("kill", "node3"), ("boot", "node3"), ""),
        (("cable", "node3", "down"), ("cable", "node3", "up"), "has made no progress for 10 s"),
    ],
)
def test_after_a_lost_node_the_same_script_goes_on(
    lab, submit, uninterrupted, trouble, repair, says
):
    out, facts = submit(f"lost-{trouble[0]}", "--time", "30", "--sbatch=--no-requeue",
                        "--set", "comm.timeout=10")  # fmt: skip
    wait_for_epoch(out, 25)
    lab.run(*trouble)
    finished, said = wait(lab, facts["job"], 90)
    lab.run(*repair)
    assert not finished, said
    interrupted = read_run(out)
    assert interrupted.end is None
    told = lab.gcnmpi("status", out)
    assert f"failed, job {facts['job']} " in told
    assert says in (out / f"slurm-{facts['job']}.out").read_text(errors="replace")
    job = lab.on_head("sbatch", "--parsable", "--no-requeue", out / "job.sbatch").strip()
    finish(lab, job)
    assert f"finished, job {job}" in lab.gcnmpi("status", out)
    records = [json.loads(line) for line in (out / "run.jsonl").read_text().splitlines()]
    (after,) = [record["epoch"] for record in records if record["event"] == "resume"]
    assert 0 <= len(interrupted.epochs) - after <= 10  # a checkpoint every 10
    assert curve(out) == curve(uninterrupted)


def test_mpirun_over_ssh_ends_when_a_host_is_gone(lab, graph):
    """With what docs/cluster.md says; without a queue nobody else notices."""
    out, said = lab.folder / "ssh", lab.folder / "ssh.txt"
    script = lab.folder / "ssh.sh"
    script.write_text(
        '. "$CLUSTER_LAB/mpienv.sh"\n'
        "export PRTE_MCA_oob_tcp_keepalive_time=4\n"
        "export PRTE_MCA_oob_tcp_keepalive_intvl=2 PRTE_MCA_oob_tcp_keepalive_probes=2\n"
        "exec mpirun -H node1,node2,node3,node4 gcnmpi "
        f"train {graph} --partition gp-4 --out {out} --set train.epochs=1000000 > {said} 2>&1\n"
    )
    with lab.start("on", "node1", "bash", script) as launcher:
        wait_for_epoch(out, 20)
        lab.run("cable", "node3", "down")
        try:
            launcher.wait(60)
        finally:
            lab.run("cable", "node3", "up")
    assert "lost communication with a remote daemon" in said.read_text()
    assert "on node node3" in said.read_text()
    assert read_run(out).end is None


def test_the_doctor_measures_the_network_between_hosts(lab):
    script = lab.folder / "doctor.sh"
    doctor = f"mpirun -H node1,node2,node3,node4 gcnmpi doctor --json --folder {lab.folder}\n"
    script.write_text(f'. "$CLUSTER_LAB/mpienv.sh"\n{doctor}')
    found = json.loads(lab.run("on", "node1", "bash", script).stdout)
    assert not any(finding["problem"] for finding in found["findings"])
    hosts = sorted(link["hosts"] for link in found["links"])
    assert hosts == [["node1", "node2"], ["node2", "node3"], ["node3", "node4"]]
    # A folder that is each host's own.
    script.write_text(script.read_text().replace(str(lab.folder), "/tmp"))
    done = lab.run("on", "node1", "bash", script, check=False)
    assert done.returncode == 1
    assert "do not see what is written in /tmp" in done.stdout
