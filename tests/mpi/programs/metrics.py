"""Under mpirun: metrics of vertices that are spread over the ranks, against those of the oracle.

Many cases in one launch: ties, whole columns of one score, columns without positives, unknown
labels, ranks without vertices, everything on one rank. A case (see cases.py) is a number of seeds,
and gives the largest difference by metric.
"""

from collections import defaultdict

import numpy as np

from gcnmpi.nn.metrics import pairs
from gcnmpi.nn.metrics.scored import Scored
from gcnmpi.options.task import METRICS, METRICS_OF, hits_of
from gcnmpi.proof.scores import ranks_of, score, score_pairs

KINDS = {"classes": "classes", "two": "classes", "labels": "labels", "numbers": "regression"}


def of_case(comm, seeds: int) -> dict:
    apart = defaultdict(float)

    def compare(metric, found, expected):
        assert (found is None) == (expected is None), (metric, found, expected)
        assert len({*comm.allgather(found)}) == 1, (metric, found)
        if found is not None:
            error = abs(found - expected) / max(1.0, abs(expected))
            apart[metric] = max(apart[metric], error)

    for random in map(np.random.default_rng, range(seeds)):
        for kind, task in KINDS.items():
            z, y = make(random, kind)
            mine = owners(random, len(z), comm.size) == comm.rank
            for metric in METRICS_OF[task]:
                found = METRICS.get(metric)(comm, Scored(z[mine], y[mine]))
                compare(metric, found, score(metric, z, y))
        of_pairs(comm, random, compare)
    return apart


def of_pairs(comm, random, compare) -> None:
    """The metrics of pairs, with common negatives and with candidates of each positive."""
    m, q, c = (int(random.integers(1, most)) for most in (30, 60, 9))
    positives, negatives, among = (
        np.round(2 * random.standard_normal(shape)) / 4 for shape in (m, q, (m, c))
    )
    of, others = (owners(random, count, comm.size) == comm.rank for count in (m, q))
    own, common = positives[of], negatives[others]
    ranks = ranks_of(positives, among)[of]
    common_ranks = pairs.ranks_among(comm, own, common)
    for scored, candidates in (
        (pairs.ScoredPairs(own, common, of_all=common_ranks), None),
        (pairs.ScoredPairs(own, common, ranks), among),
    ):
        for metric in ("auc", "ap", "mrr", "hits@1", "hits@3", "hits@20", "hits@70"):
            k = hits_of(metric)
            found = METRICS.get(metric)(comm, scored, *([k] if k else []))
            compare(metric, found, score_pairs(metric, positives, negatives, candidates))


def make(random, kind):
    """Output and labels of up to 60 vertices; some columns are constant, some lack a kind."""
    m, c = int(random.integers(1, 60)), {"two": 2}.get(kind, int(random.integers(3, 6)))
    z = random.standard_normal((m, c)).astype(random.choice([np.float32, np.float64]))
    z = z[random.integers(0, m, m)]  # rows that are equal
    if kind == "classes":  # equal but for rounding errors: odds do not depend on a shift
        z += (np.round(10 * random.standard_normal((m, 1))) / 10).astype(z.dtype)
        z *= 1 + 1e-15 * random.standard_normal(z.shape)
    else:
        z = np.round(2 * z) / 2 * random.choice([1.0, -1.0])  # ties, and -0
        z[:, 0] = 1.5
    if kind in ("classes", "two"):
        return z, random.integers(0, max(1, c - 1), m).astype(np.int32)
    y = random.standard_normal((m, c)) if kind == "numbers" else random.random((m, c)) < 0.3
    if random.random() < 0.2:  # nothing is there, and nothing is decided on
        z, y = -np.abs(z) - 0.5, 0 * y
    y = y.astype(np.float32)
    y[random.random((m, c)) < 0.2] = np.nan
    y[:, 1] = random.choice([0.0, 1.0, np.nan])
    return z, y


def owners(random, m, size):
    """At random, uneven with empty parts, or all on one rank."""
    kind = random.integers(3)
    if kind == 1:
        return np.minimum(random.geometric(0.6, m) - 1, size - 1) // 2 * 2 % size
    return random.integers(0, size, m) if kind == 0 else np.full(m, random.integers(size))
