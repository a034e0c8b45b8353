"""``gcnmpi doctor``: checks the hosts, ranks and network of a job before a long run."""

from __future__ import annotations

import os
import socket
import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from gcnmpi import __version__
from gcnmpi.core.resident import free_bytes
from gcnmpi.mpi.comm import Comm, from_root, sees_devices, versions
from gcnmpi.mpi.hosts import most_ranks_a_node, ping_pong
from gcnmpi.options.config import Config
from gcnmpi.options.kernel import AUTO, resolve
from gcnmpi.options.scheme import SCHEMES
from gcnmpi.planner.machine import Machine
from gcnmpi.planner.ranking import Candidate, Setting
from partition.errors import system_errors
from partition.graph.store import member, open_graph, read_partition

_ROUND_TRIPS, LARGE, _LARGE_TRIPS = 100, 1 << 22, 4
_SLOW_SECONDS = 100e-6  # a latency between hosts that a cluster's own network stays below
_UNLIKE = 3.0  # times the median at which a link is called slow
PATIENCE = 5.0  # seconds for a file to appear on another host


@dataclass(frozen=True)
class Seat:
    """The surroundings of one rank."""

    rank: int
    host: str
    mpi: str
    gcnmpi: str
    cores: tuple[int, ...]  # on which the rank may run, of the host's
    host_cores: int
    gpus: tuple[str, ...]  # names of the CUDA devices that it sees; empty without CuPy
    cuda_aware: bool | None
    free_memory: int  # bytes that its host can still give
    sees_folder: bool  # whether it finds the file that rank 0 wrote
    kernel: str | None = None  # why "auto" is not the best one on all of these cores


@dataclass(frozen=True)
class Link:
    """A measured pair of ranks: seconds one way, and bytes a second of large messages."""

    ranks: tuple[int, int]
    hosts: tuple[str, str]
    seconds: float
    rate: float


@dataclass(frozen=True)
class Finding:
    """Something to be told: a problem, which makes the exit code 1, or advice."""

    problem: bool
    text: str
    advice: str


@dataclass(frozen=True)
class Diagnosis:
    """The ranks of a job, the links between their hosts, and what was found."""

    ranks: list[Seat]
    links: list[Link]
    findings: list[Finding]


def examine(
    comm: Comm,
    folder: Path,
    graph: str | os.PathLike | None,
    partition: str | None,
    config: Config,
) -> Diagnosis:
    """Look around, measure the network, and judge; the same on all ranks.

    All hosts should see the folder, and rank 0 must be able to write to it. With a graph, the
    memory that training needs is predicted.
    """
    sees = _sees_folder(comm, folder)
    seats = comm.allgather(_seat(comm.rank, sees))
    links = _links(comm, [seat.host for seat in seats])
    need, per_node = 0, most_ranks_a_node(comm)
    if graph is not None:
        need = from_root(comm, lambda: _need(graph, partition, config, comm.size, per_node))
    return Diagnosis(seats, links, judge(seats, links, folder, need))


def judge(
    seats: Sequence[Seat], links: Sequence[Link], folder: Path, need: int = 0
) -> list[Finding]:
    """The problems, and advice on everything that could be better.

    ``need`` is the bytes that training takes on the rank that needs most; 0: not known.
    """
    return [
        *_software(seats),
        *_of_hosts(seats, need),
        *_folder(seats, folder),
        *_network(seats, links),
    ]


def _software(seats: Sequence[Seat]) -> Iterator[Finding]:
    for what, values in (
        ("MPI libraries", {seat.mpi: seat.host for seat in seats}),
        ("versions of gcnmpi", {seat.gcnmpi: seat.host for seat in seats}),
    ):
        if len(values) > 1:
            which = ", ".join(f"{value} on {host}" for value, host in values.items())
            advice = "load the same modules and the same environment on all hosts"
            yield Finding(True, f"different {what}: {which}", advice)
    for warning, host in {seat.kernel: seat.host for seat in seats if seat.kernel}.items():
        advice = "install gcnmpi again, where there are a C++ compiler with OpenMP and its headers"
        yield Finding(False, f"{warning} on {host}", advice)


def _of_hosts(seats: Sequence[Seat], need: int) -> Iterator[Finding]:
    """Cores, memory and GPUs of each host that its ranks share."""
    hosts: dict[str, list[Seat]] = {}
    for seat in seats:
        hosts.setdefault(seat.host, []).append(seat)
    for host, ranks in hosts.items():
        count, gpus = len(ranks), len(ranks[0].gpus)
        cores = {core for seat in ranks for core in seat.cores}
        idle, bound = ranks[0].host_cores - len(cores), all(len(seat.cores) == 1 for seat in ranks)
        if count > len(cores):
            advice = "start fewer ranks per host"
            advice += ", or do not bind them: mpirun --bind-to none" if idle > 0 else ""
            yield Finding(True, f"{count} ranks share {len(cores)} cores on {host}", advice)
        elif count > 1 and bound and idle >= count:
            text = f"each rank is bound to one core of {host}, and {idle} are idle"
            advice = "give each rank its share: mpirun --map-by ppr:N:node:PE=CORES"
            yield Finding(False, text, advice)
        free = min(seat.free_memory for seat in ranks)
        if need * count > free:
            text = f"{count} ranks on {host} need up to {_gib(need * count)}, {_gib(free)} are free"
            advice = "use more hosts or fewer ranks per host; gcnmpi plan says how many are enough"
            yield Finding(True, text, advice)
        if 0 < gpus < count:
            text = f"{count} ranks share {gpus} GPUs on {host}"
            yield Finding(False, text, "start one rank for each GPU")


def _folder(seats: Sequence[Seat], folder: Path) -> Iterator[Finding]:
    if blind := sorted({seat.host for seat in seats if not seat.sees_folder}):
        advice = "put graphs and runs in a folder that all hosts share; --folder names it"
        yield Finding(True, f"{', '.join(blind)} do not see what is written in {folder}", advice)


def _network(seats: Sequence[Seat], links: Sequence[Link]) -> Iterator[Finding]:
    if any(seat.gpus and seat.cuda_aware is False for seat in seats):
        text = "there are GPUs, and this MPI cannot send from their memory"
        yield Finding(False, text, "load a CUDA-aware MPI; messages now go through the host")
    between = [link for link in links if link.hosts[0] != link.hosts[1]]
    if not between:
        return
    typical = statistics.median(link.rate for link in between)
    for link in between:
        if link.rate * _UNLIKE < typical:
            rates = f"{link.rate / 1e6:.0f} MB/s, others {typical / 1e6:.0f}"
            text = f"{link.hosts[0]} to {link.hosts[1]}: {rates}"
            yield Finding(False, text, "check the cable, and which network it uses")
    latency = statistics.median(link.seconds for link in between)
    if latency > _SLOW_SECONDS:
        text = f"{latency * 1e6:.0f} µs from host to host: no fast network is used"
        advice = "see docs/cluster.md for how to choose the network of Open MPI and MPICH"
        yield Finding(False, text, advice)


def _seat(rank: int, sees_folder: bool) -> Seat:
    gpus = _cuda_devices()
    return Seat(
        rank=rank,
        host=socket.gethostname(),
        mpi=versions()["mpi"],
        gcnmpi=__version__,
        cores=tuple(sorted(os.sched_getaffinity(0))),
        host_cores=os.cpu_count() or 1,
        gpus=gpus,
        cuda_aware=sees_devices() if gpus else None,
        free_memory=free_bytes(),
        sees_folder=sees_folder,
        kernel=resolve(AUTO, len(os.sched_getaffinity(0)))[1],
    )


def _cuda_devices() -> tuple[str, ...]:
    try:
        import cupy

        count = cupy.cuda.runtime.getDeviceCount()
    except Exception:  # it is not installed, in part only, or there is no device
        return ()
    names = [cupy.cuda.runtime.getDeviceProperties(i)["name"] for i in range(count)]
    return tuple(name.decode() for name in names)


def _sees_folder(comm: Comm, folder: Path) -> bool:
    """Whether this rank reads what rank 0 wrote; rank 0 removes it."""
    word = f"{socket.gethostname()} {os.getpid()} {time.time_ns()}"

    def write() -> tuple[str, str]:
        path = folder / f".doctor-{os.getpid()}"
        with system_errors(f"cannot write to {folder}", "--folder names one that all hosts share"):
            path.write_text(word, encoding="utf-8")
        return str(path), word

    path, written = from_root(comm, write)
    until, sees = time.monotonic() + PATIENCE, False
    while not sees and time.monotonic() < until:
        try:
            sees = Path(path).read_text(encoding="utf-8") == written
        except OSError:
            time.sleep(0.05)
    comm.Barrier()
    if comm.rank == 0:
        Path(path).unlink()
    return sees


def _links(comm: Comm, hosts: Sequence[str]) -> list[Link]:
    """Ping-pong within the first host that has two ranks, and from each host to the next.

    In two rounds, so that all pairs of a round are measured at once and no rank is in two.
    """
    first = {host: hosts.index(host) for host in dict.fromkeys(hosts)}
    ring = list(first.values())
    pairs = list(pairwise(ring))
    within = [rank for rank in range(1, comm.size) if hosts[rank] == hosts[first[hosts[rank]]]]
    rounds = [pairs[::2], pairs[1::2]]
    if mates := [rank for rank in within if rank not in ring]:
        rounds.append([(first[hosts[mates[0]]], mates[0])])
    mine = []
    for pairs in rounds:
        comm.Barrier()
        mine += [_link(comm, pair, hosts) for pair in pairs if comm.rank in pair]
    every = comm.allgather([link for link in mine if link.ranks[0] == comm.rank])
    return [link for links in every for link in links]


def _link(comm: Comm, pair: tuple[int, int], hosts: Sequence[str]) -> Link:
    small, large = (
        statistics.fmean(ping_pong(comm, pair, nbytes, trips + 1)[1:]) / 2  # the first one connects
        for nbytes, trips in ((8, _ROUND_TRIPS), (LARGE, _LARGE_TRIPS))
    )
    return Link(pair, (hosts[pair[0]], hosts[pair[1]]), small, LARGE / large)


def _need(
    graph: str | os.PathLike, name: str | None, config: Config, size: int, per_node: int
) -> int:
    """Bytes that training takes on the rank that needs most, by the cost model."""
    stored = open_graph(graph)
    partition = None if name is None else read_partition(graph, member(graph, name), parts=False)
    parts = SCHEMES.get(config.scheme.name).parts(config.scheme, size)
    setting = Setting(stored, config, Machine(), per_node)
    return setting.memory(Candidate(config.scheme, {}, parts, partition), size)


def _gib(nbytes: int) -> str:
    return f"{nbytes / 2**30:.3g} GiB"
