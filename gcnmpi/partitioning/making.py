"""From a graph folder to parts: down to a small hypergraph, its partition, and back."""

from __future__ import annotations

import numpy as np
from gcnmpi.partitioning import loops
from gcnmpi.partitioning.annealing import Partitioned, Wanted, anneal
from gcnmpi.partitioning.coarsening import Coarser, coarser
from gcnmpi.partitioning.levels import Level, total
from gcnmpi.partitioning.quotient import first_parts
import time

QUOTIENT = 1 << 20
COARSEST = 30
SHRINK = 0.9


def multilevel(level, wanted, quotient, imbalance, tell, sweeps_for, solve=first_parts, cycles=2):
    own = None
    for number in range(cycles):
        own = cycle(level, wanted, own, quotient, imbalance, tell, sweeps_for, solve, number)
    return own

def cycle(level, wanted, own, quotient, imbalance, tell, sweeps_for, solve, number):
    comm = level.comm
    grain = max(1, wanted.limit // (2 * COARSEST))
    down: list[Coarser] = []
    now = level
    first = own is None
    if first: own = np.zeros(level.vertices.count, np.int32)
    while now.vertices.total > 2 * COARSEST * wanted.k and not (first and now.pin_count <= quotient):
        t = time.time()
        made = coarser(now, own, grain, wanted.seed+1000*number+len(down))
        tell(f"level {len(down)+1}: {made.level.vertices.total} vertices {made.level.nets.total} nets {made.level.pin_count} pins {time.time()-t:.2f}")
        if made.level.vertices.total > SHRINK * now.vertices.total:
            break
        own = lift(made, own)
        down.append(made)
        now = made.level
    t = time.time()
    if first:
        own = solve(now, wanted, quotient, imbalance)
    tell(f"solved {time.time()-t:.2f}")
    for depth in range(len(down), -1, -1):
        here = down[depth - 1].level if depth else level
        t = time.time()
        slack = min(grain, int(0.2 * total(comm, int(here.weights.sum()))[0] / here.vertices.total)) if depth else 0
        state = Partitioned(here, wanted, own, slack, 100*number+depth)
        before = state.send.sum(), state.send.max(), state.loads.max() / wanted.limit
        own = anneal(state, sweeps_for(here.pin_count))
        tell(f"{depth}: {before} -> {state.send.sum()} {state.send.max()} {state.loads.max()/wanted.limit:.4f} {time.time()-t:.2f}")
        if depth:
            step = down.pop()
            own = project(step, own)
    return own

def lift(step, own):
    from gcnmpi.mpi.comm import redistribute
    space = step.level.vertices
    (number, part), _ = redistribute(space.comm, space.rank_of(step.up), [step.up, own], space.max_bytes)
    out = np.zeros(space.count, np.int32)
    out[number - space.first] = part
    return out

def project(step, own):
    from gcnmpi.mpi.comm import redistribute
    space = step.level.vertices
    to = space.rank_of(step.up)
    order = np.argsort(to, kind="stable")
    (asked,), counts = redistribute(space.comm, to[order], [step.up[order]], space.max_bytes)
    back = np.repeat(np.arange(space.comm.size, dtype=np.int32), counts)
    (parts,), _ = redistribute(space.comm, back, [own[asked - space.first]], space.max_bytes)
    out = np.empty(len(step.up), np.int32)
    out[order] = parts
    return out
