"""The doctor under mpirun."""

import json

from stored_graphs import small_graph, store


def test_the_doctor_says_what_the_ranks_find(mpirun, tmp_path):
    path = store(tmp_path / "g.graph", small_graph("symmetric"), 3)
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
    done = mpirun(2, "gcnmpi", "doctor", "--folder", tmp_path / "nowhere", code=2)
    assert done.stderr.count("error: ") == 1
    assert "--folder names one that all hosts share" in done.stderr
