"""The advice of the doctor on each of its findings."""

from dataclasses import replace
from pathlib import Path

import pytest

from gcnmpi.cluster.doctor import Link, Seat, judge
from gcnmpi.report.machines import print_findings

SEAT = Seat(0, "a", "Open MPI 5", "1.0", (0, 1, 2, 3), 4, (), None, 8 << 30, True)
GOOD = [
    replace(SEAT, rank=rank, host="ab"[rank // 2], cores=(2 * (rank % 2), 2 * (rank % 2) + 1))
    for rank in range(4)
]


def link(hosts, seconds=2e-6, rate=1e10):
    return Link((0, 2), hosts, seconds, rate)


def told(seats=GOOD, links=(), need=0):
    return [(f.problem, f.text, f.advice) for f in judge(seats, links, Path("/runs"), need)]


def test_nothing_is_said_of_a_good_place():
    assert told(links=[link(("a", "b")), link(("a", "a"))], need=4 << 30) == []


@pytest.mark.parametrize(
    ("change", "problem", "says"),
    [
        ({"mpi": "MPICH 4"}, True, "different MPI libraries: Open MPI 5 on b, MPICH 4 on b"),
        ({"gcnmpi": "2.0"}, True, "different versions of gcnmpi"),
        ({"sees_folder": False}, True, "b do not see what is written in /runs"),
        ({"free_memory": 1 << 30}, True, "2 ranks on b need up to 4 GiB, 1 GiB are free"),
        ({"kernel": "the native kernel was not built"}, False, "was not built on b"),
        ({"gpus": ("H200",), "cuda_aware": False}, False, "cannot send from their memory"),
    ],
)
def test_what_is_wrong_with_one_rank(change, problem, says):
    ((found, text, advice),) = told([*GOOD[:3], replace(GOOD[3], **change)], need=2 << 30)
    assert found == problem
    assert says in text
    assert advice


def test_ranks_and_cores_of_a_host():
    crowded = [replace(SEAT, rank=rank, cores=(0, 1), host_cores=4) for rank in range(3)]
    ((problem, text, advice),) = told(crowded)
    assert problem
    assert "3 ranks share 2 cores on a" in text
    assert "--bind-to none" in advice
    unbound = [replace(seat, host_cores=2) for seat in crowded]
    assert [advice for *_, advice in told(unbound)] == ["start fewer ranks per host"]
    bound = [replace(SEAT, rank=rank, cores=(rank,), host_cores=16) for rank in range(2)]
    ((problem, text, _),) = told(bound)
    assert not problem
    assert "bound to one core of a, and 14 are idle" in text
    gpus = [replace(seat, gpus=("H200",), cuda_aware=True) for seat in GOOD]
    assert [text for _, text, _ in told(gpus)] == [f"2 ranks share 1 GPUs on {h}" for h in "ab"]


def test_slow_networks_and_links():
    ((problem, text, _),) = told(links=[link(("a", "b"), seconds=3e-4)])
    assert not problem
    assert "300 µs from host to host" in text
    links = [link(("a", "b")), link(("b", "c")), link(("c", "d"), rate=1e9)]
    ((_, text, _),) = told(links=links)
    assert text == "c to d: 1000 MB/s, others 10000"


def test_it_is_printed(capsys):
    links = [link(("a", "b"))]
    print_findings(GOOD, links, judge(GOOD[:1], [], Path(), need=99 << 30))
    out = capsys.readouterr().out
    assert "0-1" in out
    assert "2.0 µs" in out
    assert "PROBLEM: 1 ranks on a need up to 99 GiB" in out
    assert out.endswith("1 problem\n")
