"""``import gcnmpi`` under mpirun, and the ranks that a script launches."""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pytest
from stored_graphs import store
from words import wait_until

import gcnmpi
from partition.importing.synthetic import sbm


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    """A graph with communities, and a partition of it into three parts."""
    made = sbm(150, 3, degree=8, intra=0.9, features=6, noise=0.5, train=0.3, val=0.2, seed=0)
    return store(tmp_path_factory.mktemp("api") / "sbm.graph", made, 3)


def test_it_does_what_the_command_line_does(mpirun, path, tmp_path):
    done = mpirun(3, "api.py", tmp_path, path, "rp-3", cwd=tmp_path, timeout=120)
    assert done.stdout.count("has done check_") == 15


SCALE = 2.0


def doubled(x):
    """Twice x, with what this module knows."""
    return SCALE * x


def story(graph, partition, x):
    """The function that ranks are launched for."""
    from gcnmpi.mpi.process import world

    comm = world()
    print(f"rank {comm.rank} of {comm.size}", flush=True)
    run = gcnmpi.train(graph, partition, train_epochs=3, out=Path("launched"), resume="never")
    return {"run": run, "x": doubled(x), "sizes": comm.gather(np.int64(comm.size))}


def failing(how):
    """Ranks that do not come to their end."""
    from gcnmpi.mpi.process import world

    comm = world()
    if how == "raises" and comm.rank == 1:
        raise ArithmeticError("of rank 1")
    if how == "mistake":
        gcnmpi.graph.open("nowhere.graph")
    if how == "dies" and comm.rank == 1:
        os._exit(7)
    if how == "hangs" and comm.rank == 1:
        time.sleep(60)
    comm.Barrier()


def test_ranks_are_launched_and_hand_back_what_they_return(
    launching, path, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    arguments = {"graph": gcnmpi.graph.open(path), "partition": "rp-3", "x": np.arange(4)}
    found = gcnmpi.launch(story, 3, arguments, timeout=60)
    assert found["sizes"] == [3, 3, 3]
    np.testing.assert_array_equal(found["x"], [0.0, 2.0, 4.0, 6.0])
    assert found["run"].summary["ranks"] == 3
    assert found["run"].path == tmp_path / "launched"
    printed = [line for line in capsys.readouterr().out.splitlines() if line.startswith("rank ")]
    assert sorted(printed) == [f"rank {rank} of 3" for rank in range(3)]


RAISED = [
    ("raises", gcnmpi.RankError, "(?s)rank 1 failed: ArithmeticError: of rank 1.*Traceback"),
    ("mistake", gcnmpi.UserError, "there is no graph folder nowhere.graph"),
    ("dies", gcnmpi.RankError, "mpirun ended with exit code"),
    ("hangs", TimeoutError, "the ranks did not end within 3 s"),
]


@pytest.mark.parametrize(("how", "kind", "message"), RAISED)
def test_what_ranks_raise_comes_back_and_none_is_left(launching, how, kind, message):
    with pytest.raises(kind, match=message):
        gcnmpi.launch(failing, 2, {"how": how}, timeout=3 if how == "hangs" else 60)
    assert not launching()


# A notebook's function has no module, and its script must not run again.
SCRIPT = """
import time
import numpy as np
import gcnmpi

SIZE = 3
assert __name__ == "__main__"

def squares(n):
    return np.arange(n) ** 2

def ask(n):
    return {"squares": squares(n), "size": SIZE}

def wait():
    print("here", flush=True)
    time.sleep(60)

"""


def test_ranks_end_when_who_has_launched_them_is_killed(launching, tmp_path):
    (tmp_path / "waits.py").write_text(SCRIPT + "gcnmpi.launch(wait, 2)\n")
    command, environment = [sys.executable, "waits.py"], os.environ | {"TMPDIR": tempfile.tempdir}
    process = subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE)
    assert process.stdout.readline() == b"here\n"
    assert len(launching()) >= 3
    process.kill()
    process.communicate()
    wait_until(lambda: not launching())


def test_a_script_launches_its_functions_also_after_it_has_trained(path, tmp_path, shell):
    asked = 'found = gcnmpi.launch(ask, 2, {"n": SIZE})\nprint(found["squares"], found["size"])\n'
    before = f"gcnmpi.train({str(path)!r}, train_epochs=2, out='alone')\n"
    (tmp_path / "script.py").write_text(SCRIPT + before + asked)
    assert shell("python script.py").stdout == "[0 1 4] 3\n"
