"""``gcnmpi propagate`` against SciPy and plain loops, by every scheme, interrupted or not."""

import numpy as np
import pytest
from scipy.sparse.csgraph import connected_components
from scipy.special import iv
from stored_graphs import graph_of, store, store_parts
from words import line

from gcnmpi.core.rng import column_keys, hash_block, row_keys
from partition.graph.aggregation import aggregation_matrix
from partition.graph.graph import Graph

N, CLASSES = 61, 3


def made(directed: bool) -> Graph:
    """Two components and some isolated vertices, loops; directed: weights, dangling vertices."""
    random = np.random.default_rng(3)
    dense = np.where(random.random((N, N)) < 0.1, random.uniform(0.5, 2.0, (N, N)), 0.0)
    dense[20:, :20] = dense[:20, 20:] = 0
    if directed:
        dense[[5, 17, 30]] = 0
    else:
        dense = ((dense + dense.T) > 0).astype(float)
    dense[-3:] = dense[:, -3:] = 0
    dense[8, 8] = 1.0
    kind, labels = random.integers(0, 3, N), random.integers(-1, CLASSES, N)
    labels[:CLASSES] = range(CLASSES)
    return graph_of(
        dense if directed else dense > 0,
        features=random.standard_normal((N, 5)).astype(np.float32),
        labels=labels.astype(np.int32),
        masks={name: kind == i for i, name in enumerate(("train", "val", "test"))},
    )


GRAPHS = {"directed": made(True), "symmetric": made(False)}
A = {kind: graph.adjacency().toarray() for kind, graph in GRAPHS.items()}
RANDOM = np.random.default_rng(1).random((N, CLASSES))
PREDICTED = RANDOM / RANDOM.sum(axis=1, keepdims=True)
SEEDS = "# seeds\n3 2.5\n21\n\n60 0.5\n"
START = np.bincount([3, 21, 60], [0.625, 0.25, 0.125], N)
FILES = {"huge": "# seeds\n3 1e308\n21 1e308\n60 1e308\n", "seeds": SEEDS}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Graph folders with partitions that have an empty part; files that options name."""
    root = tmp_path_factory.mktemp("propagation")
    for kind, graph in GRAPHS.items():
        path = store(root / f"{kind}.graph", graph)
        for k in (2, 3, 4):
            store_parts(path, f"p{k}", np.random.default_rng(k).integers(0, k - 1, N) + 1, k)
        store_parts(path, "q", np.arange(N) % 3, 3)
    np.save(root / "predicted.npy", PREDICTED)
    np.save(root / "short.npy", PREDICTED[1:])
    np.save(root / "flat.npy", PREDICTED[0])
    np.save(root / "empty.npy", PREDICTED[:, :0])
    np.save(root / "nan.npy", np.where(np.arange(N)[:, None] == 7, np.nan, PREDICTED))
    for name, text in FILES.items():
        (root / f"{name}.txt").write_text(text)
    return root


# The results of the cases with NumPy and SciPy.


def matrix(kind: str, self_loops: bool = True, normalize: str = "sym") -> np.ndarray:
    return aggregation_matrix(GRAPHS[kind], "in", self_loops, normalize).toarray()


def pagerank(a: np.ndarray, start: np.ndarray, damping: float) -> np.ndarray:
    leaving = a.sum(axis=1, keepdims=True)
    steps = np.where(leaving > 0, a / np.where(leaving > 0, leaving, 1), start)
    return np.linalg.solve(np.eye(N) - damping * steps.T, (1 - damping) * start)


def powers(kind: str, hops: int) -> list[np.ndarray]:
    m, x = matrix(kind), np.asarray(GRAPHS[kind].features, np.float64)
    return [np.linalg.matrix_power(m, k) @ x for k in range(hops + 1)]


def known(kind: str) -> tuple[np.ndarray, np.ndarray]:
    graph = GRAPHS[kind]
    trains = (graph.masks["train"] & (graph.labels >= 0))[:, None]
    return np.where(trains, np.eye(CLASSES)[graph.labels], 0), trains


def spread(kind, first, layers, alpha, after=lambda x: x, self_loops=False):
    x, m = first, matrix(kind, self_loops)
    for _ in range(layers):
        x = after(alpha * (m @ x) + (1 - alpha) * first)
    return x


def within(low: float):
    return lambda x: np.clip(x, low, 1)


def corrected(kind: str, scale: float | None) -> np.ndarray:
    y, trains = known(kind)
    error, factor = np.where(trains, y - PREDICTED, 0), scale
    keep = within(-1) if scale is None else lambda x: np.where(trains, error, x)
    e = spread(kind, error, 4, 0.7, keep)
    if scale is None:
        with np.errstate(divide="ignore"):
            factor = np.abs(error).sum() / trains.sum() / np.abs(e).sum(axis=1, keepdims=True)
        factor[factor > 1000] = 1
    return spread(kind, np.where(trains, y, PREDICTED + factor * e), 3, 0.6, within(0))


def laplacian() -> np.ndarray:
    m = matrix("symmetric", self_loops=False)
    return np.diag((m.sum(axis=1) > 0).astype(float)) - m


def fastrp(kind: str, weights: tuple[float, ...], beta: float) -> np.ndarray:
    m = matrix(kind, self_loops=False, normalize="none")
    degrees = m.sum(axis=1)
    inverse = np.divide(1, degrees, out=np.zeros(N), where=degrees > 0)
    left = np.power(degrees / degrees.sum(), beta, out=np.zeros(N), where=degrees > 0)
    bits, scratch = np.empty((2, N, 6), np.uint32)
    hash_block(row_keys(7, 0, 0, np.arange(N)), column_keys(np.arange(6)), bits, scratch)
    drawn = (bits + 0.5) / 2.0**32
    x = left[:, None] * np.sqrt(3 / 6) * np.select([drawn < 1 / 6, drawn > 5 / 6], [1.0, -1.0])
    out = np.zeros_like(x)
    for weight in weights:
        x = inverse[:, None] * (m @ x)
        out += weight * x
    return (out - out.mean(axis=0)) / out.std(axis=0)


def absolute(matrix: np.ndarray) -> np.ndarray:
    """The matrix (A·Aᵀ)^½ = U·Σ·Uᵀ."""
    u, sizes, _ = np.linalg.svd(matrix)
    return (u * sizes) @ u.T


def of_length_one(x: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    return x * np.divide(1, lengths, out=np.zeros(N), where=lengths > 1e-6)[:, None]


def prone(order: int, mu: float, theta: float) -> np.ndarray:
    """Products of the rows of the published formula, with whole decompositions."""
    a = A["symmetric"]
    p, there = a / np.maximum(a.sum(axis=1, keepdims=True), 1), a > 0
    negative = p.sum(axis=0) ** 0.75
    factor = np.zeros((N, N))
    factor[there] = np.log((p / np.where(there, negative / negative.sum(), 1))[there])
    u, sizes, _ = np.linalg.svd(factor)
    x = u * np.sqrt(sizes)
    x = of_length_one(x, np.linalg.norm(x, axis=1))
    looped = a + np.eye(N)
    shifted = (1 - mu) * np.eye(N) - looped / looped.sum(axis=1, keepdims=True)
    terms = [x, 0.5 * shifted @ shifted @ x - x]
    while len(terms) < order:
        terms.append(shifted @ shifted @ terms[-1] - 2 * terms[-1] - terms[-2])
    bessel = [iv(i, theta) * (-1) ** i * (2 if i else 1) for i in range(order)]
    series = sum(b * t for b, t in zip(bessel, terms, strict=True))
    gram = absolute(looped @ (x - series))
    lengths = np.sqrt(np.diag(gram))
    return of_length_one(of_length_one(gram, lengths).T, lengths)


def components() -> np.ndarray:
    _, labels = connected_components(A["symmetric"])
    return np.unique(labels, return_index=True)[1][labels]


def cores() -> np.ndarray:
    """By taking the vertex of least degree away, again and again."""
    a = A["symmetric"] - np.diag(np.diag(A["symmetric"]))
    found, left, k = np.zeros(N, int), list(range(N)), 0
    while left:
        degrees = a[np.ix_(left, left)].sum(axis=1)
        k = max(k, int(degrees.min()))
        found[left.pop(int(degrees.argmin()))] = k
    return found


# Graph, method, settings; @ stands for the folder. Their results are below.
STEPS = "correct_layers=4 correct_alpha=0.7 smooth_layers=3 smooth_alpha=0.6"
GIVEN = "predictions=@predicted.npy dtype=float64"
CASES = {
    "pagerank, the other way": "directed pagerank graph.direction=out damping=0.5",
    "pagerank": "directed pagerank seeds=@seeds.txt",
    "sgc": "directed sgc hops=3 dtype=float64",
    "sgc, float32": "symmetric sgc",
    "sign": "symmetric sign dtype=float64",
    "labels": "directed label-propagation layers=5 alpha=0.8 dtype=float64",
    "autoscale": f"symmetric correct-and-smooth {GIVEN} {STEPS}",
    "scale": f"directed correct-and-smooth {GIVEN} {STEPS} autoscale=false scale=0.3",
    "appnp": f"directed appnp {GIVEN} steps=4 alpha=0.2",
    # 0 is an eigenvalue of more vectors than a block has.
    "eigenvectors": "symmetric laplacian-eigenvectors count=9 block=2 tolerance=1e-13 "
    "iterations=2000",
    "eigenvectors, all": "symmetric laplacian-eigenvectors count=61 tolerance=1e-12 degree=6",
    "fastrp": "directed embed dimension=6 seed=7 weights=0,1,2 beta=-0.3 dtype=float64",
    "prone": f"symmetric embed method=prone dimension={N} order=6 mu=0.2 dtype=float64",
    "randsvd": f"symmetric embed method=randsvd dimension={N} rounds=1 dtype=float64",
    "components": "symmetric components",
    "cores": "symmetric core-numbers",
}
EXPECTED = {
    "pagerank, the other way": lambda: pagerank(A["directed"].T, np.full(N, 1 / N), 0.5),
    "pagerank": lambda: pagerank(A["directed"], START, 0.85),
    "sgc": lambda: powers("directed", 3)[-1],
    "sgc, float32": lambda: powers("symmetric", 2)[-1],
    "sign": lambda: np.hstack(powers("symmetric", 3)),
    "labels": lambda: spread("directed", known("directed")[0], 5, 0.8, within(0)),
    "autoscale": lambda: corrected("symmetric", None),
    "scale": lambda: corrected("directed", 0.3),
    "appnp": lambda: spread("directed", PREDICTED, 4, 0.8, self_loops=True),
    "eigenvectors": lambda: np.linalg.eigvalsh(laplacian())[:9],
    "eigenvectors, all": lambda: np.linalg.eigvalsh(laplacian()),
    "fastrp": lambda: fastrp("directed", (0, 1, 2), -0.3),
    "prone": lambda: prone(6, 0.2, 0.5),
    "randsvd": lambda: absolute(
        sum(w * np.linalg.matrix_power(matrix("symmetric", False), k + 1)
            for k, w in enumerate((1, 0.5, 0.25)))
    ),
    "components": components,
    "cores": cores,
}  # fmt: skip
# On 4 ranks by other schemes, the second on two copies of two parts, the last in chains of columns.
BY_OTHER_SCHEMES = ("pagerank", "eigenvectors", "components")
IN_CHAINS = ("sgc", "sign", "appnp", "labels", "autoscale", "scale")
OTHER_SCHEMES = {
    "bcast": ("p4", BY_OTHER_SCHEMES),
    "replicated": ("p2", BY_OTHER_SCHEMES),
    "columns": ("p4", (*BY_OTHER_SCHEMES[:2], *IN_CHAINS)),
}
# Command lines and their complaints.
MISTAKES = {
    "symmetric correct-and-smooth scale=2": "scale has no effect with autoscale",
    "symmetric appnp": "the option predictions is missing",
    "symmetric appnp predictions=@short.npy": "60 × 3; the graph takes",
    "symmetric appnp predictions=@flat.npy": "flat.npy has 1 dimension, not 2",
    "symmetric appnp predictions=@empty.npy": "empty.npy has no columns",
    "symmetric appnp predictions=@nan.npy": "has a number that is not finite in row 7",
    "directed pagerank seeds=@huge.txt": "overflows",
    "directed pagerank seeds=@none.txt": "none.txt: No such file",
    "directed pagerank damping": "'damping' is not of the form key=value",
    "directed pagerank graph.normalize=row": "pagerank has a matrix of its own",
    "directed laplacian-eigenvectors": "is directed, and laplacian-eigenvectors",
    "symmetric laplacian-eigenvectors count=62": "has 61 vertices",
    "symmetric embed mu=0.3": "mu has no effect with method",
    "directed embed method=prone": "prone needs a symmetric matrix",
    "directed components": "components takes arcs both ways",
    "symmetric sgc scheme.name=summa": "cuts the rows",
    "symmetric components scheme.name=columns": "which components looks at",
}


def words(folder, asked: str, out, partition="p3", *more: str) -> list:
    graph, method, *given = asked.replace("@", f"{folder}/").split()
    settings, options = (*given, *more, "threads=1"), {"out": out, "partition": partition}
    return line("propagate", folder / f"{graph}.graph", method, settings=settings, **options)


@pytest.fixture(scope="module")
def written(succeed, folder):
    """The arrays of each case on 3 ranks, and of (scheme, case) on 4."""
    lines, others = {}, {}
    for number, (name, asked) in enumerate(CASES.items()):
        how = "mixed" if number % 2 and name not in ("components", "cores") else "rows"
        suffix = ".npz" if number % 2 or name.startswith("eigen") else ".npy"
        out = folder / f"{name}{suffix}"
        lines[name] = words(folder, asked, out, "p3", f"scheme.exchange={how}")
    for scheme, (part, some) in OTHER_SCHEMES.items():
        for name in some:
            out, more = folder / scheme / f"{name}.npz", f"scheme.name={scheme}"
            others[scheme, name] = words(folder, CASES[name], out, part, more)
    succeed(3, *lines.values())
    succeed(4, *others.values())
    loaded = {name: np.load(words[4]) for name, words in (lines | others).items()}
    return {
        name: {"values": found} if isinstance(found, np.ndarray) else dict(found)
        for name, found in loaded.items()
    }


@pytest.mark.parametrize("name", CASES)
def test_it_equals_a_serial_computation_by_every_scheme(written, name):
    expected, got = EXPECTED[name](), written[name]["values"]
    whole = expected.dtype.kind == "i"
    exact = name != "sgc, float32"
    assert whole or got.dtype == (np.float64 if exact else np.float32)
    bound = {"rtol": 1e-10, "atol": 1e-12} if exact else {"rtol": 1e-4, "atol": 1e-5}
    if name in ("prone", "randsvd"):  # of rotations of singular vectors, any is as good
        got, bound = got @ got.T, {"atol": 1e-7}
    if name.startswith("pagerank"):
        bound = {"rtol": 1e-12, "atol": 1e-14}
    np.testing.assert_allclose(got, expected, **(bound if not whole else {"rtol": 0}))
    if name.startswith("eigenvectors"):
        vectors = written[name]["vectors"]
        assert np.count_nonzero(got < 1e-12) >= 5  # two components, isolated vertices
        np.testing.assert_allclose(vectors.T @ vectors, np.eye(len(got)), atol=1e-12)
        np.testing.assert_allclose(laplacian() @ vectors, vectors * got, atol=1e-11)
    for scheme, (_, some) in OTHER_SCHEMES.items():
        for array, of_rows in written[name].items() if name in some else ():
            np.testing.assert_allclose(written[scheme, name][array], of_rows, atol=1e-10)


def test_all_ranks_tell_a_mistake(hear_mistakes, folder):
    pairs = []
    for asked, says in MISTAKES.items():
        out = folder / ("x.npz" if "eigen" in asked else "x.npy")
        pairs.append((words(folder, asked, out), says))
    hear_mistakes(3, pairs)
    assert not list(folder.glob("x.*"))


def test_the_bits_are_those_of_a_run_that_was_not_interrupted(run_cases, folder):
    """A checkpoint of something else is refused on all ranks, a damaged one passed over."""
    run_cases("resumed", 3, [folder])
