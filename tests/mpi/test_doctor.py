"""The doctor under mpirun."""

import json

from partition.graph.store import write_graph
from partition.importing.synthetic import sbm
from partition.pipeline.adding import add_partition


def test_what_the_ranks_find(mpirun, tmp_path):
    made = sbm(300, 3, degree=8, intra=0.9, features=6, noise=1.5, train=0.3, val=0.2, seed=0)
    write_graph(tmp_path / "g.graph", made, source={})
    add_partition(tmp_path / "g.graph", "rp", 3)
    words = ("doctor", tmp_path / "g.graph", "--partition", "rp-3", "--folder", tmp_path)
    done = mpirun(3, "gcnmpi", *words, "--json")
    found = json.loads(done.stdout)
    assert done.returncode == int(any(finding["problem"] for finding in found["findings"]))
    assert [seat["rank"] for seat in found["ranks"]] == [0, 1, 2]
    assert all(seat["sees_folder"] and seat["free_memory"] > 0 for seat in found["ranks"])
    (link,) = found["links"]
    assert link["ranks"] == [0, 1]
    assert link["seconds"] > 0
    assert not list(tmp_path.glob(".doctor*"))


def test_a_folder_that_is_not_there(mpirun, tmp_path):
    done = mpirun(2, "gcnmpi", "doctor", "--folder", tmp_path / "nowhere")
    assert done.returncode == 2
    assert done.stderr.count("error: ") == 1
    assert "--folder names one that all hosts share" in done.stderr
