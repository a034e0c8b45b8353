"""Under mpirun: the memory that epochs allocate, in bytes of the rank that allocates most.

Cases (see cases.py): {"graph", "partition", "settings", "epochs"} → {"growth": from after the third
to after the last epoch, "peak": the most in one epoch beyond what was there before it}. NumPy's
arrays are counted and Python's objects, not what libraries keep for themselves.
"""

import gc
import tracemalloc

from gcnmpi.mpi import comm as mpi
from gcnmpi.options.config import load_config
from gcnmpi.run.problem import open_problem
from gcnmpi.run.step import Step

WARM = 3


def of_case(comm, case):
    config = load_config(None, ("threads=1",), over=case["settings"])
    problem = open_problem(comm, case["graph"], case["partition"], config)
    step, peak = Step(problem), 0
    evaluate = step.work.evaluation()
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
    return dict(zip(("growth", "peak"), map(int, largest), strict=True))
