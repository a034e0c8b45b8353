#!/usr/bin/env python
"""A contestant of compare_peers.py: trains a network with one library, epochs on request.

Usage: peer_worker.py gcnmpi|PEER, a peer of benchmarks/peers

Reads JSON objects from standard input, one a line, and answers each with one. The first is the
case: graph, and config as in the record of a run; the answer is {"versions": …, "bytes": …} or,
where the library is not installed or lacks the network, {"missing": why}. Then {"epochs": n} is
answered with {"seconds": [n numbers], "losses": [n numbers], "bytes": …}. The end of the input ends
it. Bytes are of the process: {"imports": in memory before the graph is read, "peak": so far}.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from itertools import count
from typing import Any, NoReturn

from peers import PEERS

from gcnmpi.core.resident import peak_bytes, resident_bytes
from partition.errors import UserError


def main() -> None:
    """Answer until the input ends."""
    name, case = sys.argv[1], json.loads(sys.stdin.readline())
    if name == "gcnmpi":
        train_with_ours(case)
    try:
        made = PEERS.get(name)(case)
    except UserError as error:
        answer({"missing": error.message})
        return
    except ImportError as error:
        answer({"missing": f"{type(error).__name__}: {error}"})
        return
    serve(made.epoch, made.versions, made.imports)


def train_with_ours(case: dict[str, Any]) -> NoReturn:
    """One rank of gcnmpi."""
    from gcnmpi import __version__
    from gcnmpi.mpi import process
    from gcnmpi.options.config import from_table
    from gcnmpi.run.problem import open_problem
    from gcnmpi.run.step import Step

    def job(world: Any) -> int:
        imports = resident_bytes()
        problem = open_problem(world, case["graph"], None, from_table(case["config"]))
        step, numbers = Step(problem), count(1)
        versions = {"gcnmpi": __version__, "kernel": problem.runtime.kernel.name}
        serve(lambda: step(next(numbers)), versions, imports)
        return 0

    process.run(job)


def serve(epoch: Callable[[], float], versions: dict[str, str], imports: int) -> None:
    """Say that the contestant is ready, and train on request."""

    def with_bytes(values: dict[str, Any]) -> None:
        answer(values | {"bytes": {"imports": imports, "peak": peak_bytes()}})

    with_bytes({"versions": versions})
    for line in sys.stdin:
        seconds, losses = [], []
        for _ in range(json.loads(line)["epochs"]):
            began = time.perf_counter()
            losses.append(epoch())
            seconds.append(time.perf_counter() - began)
        with_bytes({"seconds": seconds, "losses": losses})


def answer(values: dict[str, Any]) -> None:
    """Write one line, now."""
    print(json.dumps(values), flush=True)


if __name__ == "__main__":
    main()
