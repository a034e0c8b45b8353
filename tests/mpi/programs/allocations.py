"""Under mpirun: what epochs allocate, in bytes of the rank that allocates most.

Usage: allocations.py CASES.json

CASES.json holds a list of {"graph", "partition", "settings", "epochs"}; rank 0 prints a list of
{"growth": from after the third to after the last epoch, "peak": the most in one epoch beyond what
was there before it}. NumPy's arrays are counted and Python's objects, not what libraries keep
for themselves.
"""

import gc
import json
import sys
import tracemalloc
from pathlib import Path

from gcnmpi.mpi import comm as mpi
from gcnmpi.mpi.process import run
from gcnmpi.options.config import load_config
from gcnmpi.run.evaluation import Evaluation
from gcnmpi.run.problem import open_problem
from gcnmpi.run.step import Step

WARM = 3


def main(comm):
    results = []
    for case in json.loads(Path(sys.argv[1]).read_text()):
        config = load_config(None, ("threads=1",), over=case["settings"])
        problem = open_problem(comm, case["graph"], case["partition"], config)
        step, peak = Step(problem), 0
        evaluate = Evaluation(problem, step.model, step.targets)
        tracemalloc.start()
        for epoch in range(1, case["epochs"] + 1):
            before, _ = tracemalloc.get_traced_memory()
            tracemalloc.reset_peak()
            step(epoch)
            peak = max(peak, (tracemalloc.get_traced_memory()[1] - before) * (epoch > WARM))
            if epoch % 10 == WARM:
                evaluate()
            if epoch == WARM:
                gc.collect()
                kept, _ = tracemalloc.get_traced_memory()
        gc.collect()
        growth = tracemalloc.get_traced_memory()[0] - kept
        tracemalloc.stop()
        largest = mpi.maxima(comm, growth, peak)
        results.append(dict(zip(("growth", "peak"), map(int, largest), strict=True)))
    if comm.rank == 0:
        print(json.dumps(results))
    return 0


if __name__ == "__main__":
    run(main)
