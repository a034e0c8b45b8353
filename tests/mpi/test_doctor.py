"""The doctor under mpirun."""

import json

from stored_graphs import store

from partition.importing.synthetic import sbm


def test_what_the_ranks_find(mpirun, tmp_path):
    made = sbm(300, 3, degree=8, intra=0.9, features=6, noise=1.5, train=0.3, val=0.2, seed=0)
    path = store(tmp_path / "g.graph", made, 3)
    words = ("doctor", path, "--partition", "rp-3", "--folder", tmp_path)
    done = mpirun(3, "gcnmpi", *words, "--json", code=None)
    found = json.loads(done.stdout)
    assert done.returncode == int(any(finding["problem"] for finding in found["findings"]))
    assert [seat["rank"] for seat in found["ranks"]] == [0, 1, 2]
    assert all(seat["sees_folder"] and seat["free_memory"] > 0 for seat in found["ranks"])
    (link,) = found["links"]
    assert link["ranks"] == [0, 1]
    assert link["seconds"] > 0
    assert not list(tmp_path.glob(".doctor*"))


def test_a_folder_that_is_not_there(mpirun, tmp_path):
    done = mpirun(2, "gcnmpi", "doctor", "--folder", tmp_path / "nowhere", code=2)
    assert done.stderr.count("error: ") == 1
    assert "--folder names one that all hosts share" in done.stderr
