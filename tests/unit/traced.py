"""The memory that a call takes, as tests ask for it."""

import tracemalloc


def takes_less_than(limit, run):
    """Whether `run` holds fewer than `limit` bytes at once: the first time, or the second.

    The process may grow meanwhile (an import, a table of names that doubles), and that is counted
    too; it does so once. A call that takes too much takes it the second time as well.
    """
    return _peak(run) < limit or _peak(run) < limit


def _peak(run):
    tracemalloc.start()
    try:
        run()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
