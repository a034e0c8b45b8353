"""``gcnmpi propagate`` against SciPy and plain loops, by every scheme that runs it."""

from collections.abc import Callable

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.sparse.csgraph import connected_components
from scipy.special import iv
from stored_graphs import graph_of, store, store_parts
from words import sets

from gcnmpi.core.rng import column_keys, hash_block, row_keys
from partition.graph.aggregation import aggregation_matrix
from partition.graph.graph import Graph

N, CLASSES = 61, 3
FLOAT64 = ("dtype=float64",)


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
    kind = random.integers(0, 3, N)
    labels = random.integers(-1, CLASSES, N)
    labels[:CLASSES] = range(CLASSES)
    return graph_of(
        dense if directed else dense > 0,
        features=random.standard_normal((N, 5)).astype(np.float32),
        labels=labels.astype(np.int32),
        masks={name: kind == i for i, name in enumerate(("train", "val", "test"))},
    )


GRAPHS = {"directed": made(True), "symmetric": made(False)}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Graph folders with partitions that have an empty part; files that options name."""
    root = tmp_path_factory.mktemp("propagation")
    for kind, graph in GRAPHS.items():
        path = store(root / f"{kind}.graph", graph)
        for k in (2, 3, 4):
            parts = np.random.default_rng(k).integers(0, k - 1, N) + 1
            store_parts(path, f"p{k}", parts, k)
    random = np.random.default_rng(1)
    predicted = random.random((N, CLASSES))
    np.save(root / "predicted.npy", predicted / predicted.sum(axis=1, keepdims=True))
    np.save(root / "short.npy", predicted[1:])
    np.save(root / "line.npy", predicted[:, 0])
    np.save(root / "none.npy", predicted[:, :0])
    predicted[[7, 40], 1] = np.nan, np.inf
    np.save(root / "nan.npy", predicted)
    (root / "huge.txt").write_text("# seeds\n3 1e308\n21 1e308\n60 1e308\n")
    (root / "nothing.txt").write_text("# seeds\n3 0\n")
    (root / "seeds.txt").write_text("# seeds\n3 2.5\n21\n\n60 0.5\n")
    return root


# The results of the cases with NumPy and SciPy. A case is a graph, a method and settings.


def adjacency(kind: str) -> np.ndarray:
    return GRAPHS[kind].adjacency().toarray()


def matrix(kind: str, self_loops: bool = True, normalize: str = "sym") -> sp.csr_array:
    return aggregation_matrix(GRAPHS[kind], "in", self_loops, normalize)


def pagerank(a: np.ndarray, start: np.ndarray, damping: float) -> np.ndarray:
    leaving = a.sum(axis=1, keepdims=True)
    steps = np.where(leaving > 0, a / np.where(leaving > 0, leaving, 1), start)
    return np.linalg.solve(np.eye(N) - damping * steps.T, (1 - damping) * start)


def seeds() -> np.ndarray:
    start = np.zeros(N)
    start[[3, 21, 60]] = 2.5, 1, 0.5
    return start / start.sum()


def powers(kind: str, hops: int) -> list[np.ndarray]:
    found = [np.asarray(GRAPHS[kind].features, np.float64)]
    for _ in range(hops):
        found.append(matrix(kind) @ found[-1])
    return found


def known(kind: str) -> tuple[np.ndarray, np.ndarray]:
    graph = GRAPHS[kind]
    trains = graph.masks["train"] & (graph.labels >= 0)
    y = np.zeros((N, CLASSES))
    y[trains, graph.labels[trains]] = 1
    return y, trains


def spread(kind, first, layers, alpha, after):
    x, m = first, matrix(kind, self_loops=False)
    for _ in range(layers):
        x = after(alpha * (m @ x) + (1 - alpha) * first)
    return x


def corrected(kind: str, given: np.ndarray, scale: float | None) -> np.ndarray:
    y, trains = known(kind)
    error = np.where(trains[:, None], y - given, 0)
    if scale is None:
        e = spread(kind, error, 4, 0.7, lambda x: np.clip(x, -1, 1))
        with np.errstate(divide="ignore"):
            factor = np.abs(error).sum() / trains.sum() / np.abs(e).sum(axis=1, keepdims=True)
        factor[factor > 1000] = 1
    else:
        factor, mask = scale, trains[:, None]
        e = spread(kind, error, 4, 0.7, lambda x: np.where(mask, error, x))
    mixed = np.where(trains[:, None], y, given + factor * e)
    return spread(kind, mixed, 3, 0.6, lambda x: np.clip(x, 0, 1))


def appnp(kind: str, given: np.ndarray) -> np.ndarray:
    x = given
    for _ in range(4):
        x = 0.8 * (matrix(kind) @ x) + 0.2 * given
    return x


def predicted(folder) -> np.ndarray:
    return np.load(folder / "predicted.npy")


def laplacian(kind: str) -> np.ndarray:
    m = matrix(kind, self_loops=False).toarray()
    return np.diag((m.sum(axis=1) > 0).astype(float)) - m


def eigenvalues(count: int) -> np.ndarray:
    return np.linalg.eigvalsh(laplacian("symmetric"))[:count]


def fastrp(kind: str, weights: tuple[float, ...], beta: float) -> np.ndarray:
    m = matrix(kind, self_loops=False, normalize="none").toarray()
    degrees = m.sum(axis=1)
    inverse = np.divide(1, degrees, out=np.zeros(N), where=degrees > 0)
    left = np.power(degrees / degrees.sum(), beta, out=np.zeros(N), where=degrees > 0)
    rows, columns = row_keys(7, 0, 0, np.arange(N)), column_keys(np.arange(6))
    bits, scratch = np.empty((2, N, 6), np.uint32)
    hash_block(rows, columns, bits, scratch)
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


def unit(gram: np.ndarray) -> np.ndarray:
    """The products of rows after they have been divided by their lengths."""
    lengths = np.sqrt(np.diag(gram))
    inverse = np.divide(1, lengths, out=np.zeros(N), where=lengths > 1e-6)
    return gram * inverse[:, None] * inverse


def prone(kind: str, order: int, mu: float, theta: float) -> np.ndarray:
    """Products of the rows of the published formula, with whole decompositions."""
    a = adjacency(kind)
    degrees = np.maximum(a.sum(axis=1, keepdims=True), 1)
    p = a / degrees
    negative = p.sum(axis=0) ** 0.75
    negative /= negative.sum()
    there = a > 0
    factor = np.zeros((N, N))
    factor[there] = np.log(p[there]) - np.log(np.broadcast_to(negative, (N, N))[there])
    u, sizes, _ = np.linalg.svd(factor)
    x = u * np.sqrt(sizes)
    lengths = np.linalg.norm(x, axis=1, keepdims=True)
    x = np.divide(x, lengths, out=np.zeros((N, N)), where=lengths > 1e-6)
    looped = a + np.eye(N)
    shifted = (1 - mu) * np.eye(N) - looped / looped.sum(axis=1, keepdims=True)
    terms = [x, 0.5 * shifted @ shifted @ x - x]
    while len(terms) < order:
        terms.append(shifted @ shifted @ terms[-1] - 2 * terms[-1] - terms[-2])
    bessel = [iv(i, theta) * (-1) ** i * (2 if i else 1) for i in range(order)]
    series = sum(b * t for b, t in zip(bessel, terms, strict=True))
    return unit(absolute(looped @ (x - series)))


def polynomial(kind: str, weights: tuple[float, ...]) -> np.ndarray:
    m = matrix(kind, self_loops=False).toarray()
    return sum(w * np.linalg.matrix_power(m, i) for i, w in enumerate(weights, start=1))


def components(kind: str) -> np.ndarray:
    _, labels = connected_components(adjacency(kind))
    return np.array([np.flatnonzero(labels == label)[0] for label in labels])


def cores(kind: str) -> np.ndarray:
    """By taking the vertex of least degree away, again and again."""
    a = adjacency(kind) - np.diag(np.diag(adjacency(kind)))
    found, left, k = np.zeros(N, int), list(range(N)), 0
    while left:
        degrees = a[np.ix_(left, left)].sum(axis=1)
        k = max(k, int(degrees.min()))
        found[left.pop(int(degrees.argmin()))] = k
    return found


DOUBLE = ("pagerank", "laplacian-eigenvectors")
UNIFORM = np.full(N, 1 / N)
STEPS = ("correct_layers=4", "correct_alpha=0.7", "smooth_layers=3", "smooth_alpha=0.6")
GIVEN, EIGEN = "predictions=@predicted.npy", "laplacian-eigenvectors"
# Graph, method, settings, and what it computes; @ stands for the folder.
CASES: dict[str, tuple[str, str, tuple[str, ...], Callable[..., np.ndarray]]] = {
    "pagerank, the other way": (
        "directed", "pagerank", ("graph.direction=out", "damping=0.5"),
        lambda f: pagerank(adjacency("directed").T, UNIFORM, 0.5),
    ),
    "pagerank": (
        "directed", "pagerank", ("seeds=@seeds.txt",),
        lambda f: pagerank(adjacency("directed"), seeds(), 0.85),
    ),
    "sgc": ("directed", "sgc", ("hops=3", *FLOAT64), lambda f: powers("directed", 3)[-1]),
    "sgc, float32": ("symmetric", "sgc", (), lambda f: powers("symmetric", 2)[-1]),
    "sign": ("symmetric", "sign", FLOAT64, lambda f: np.hstack(powers("symmetric", 3))),
    "label propagation": (
        "directed", "label-propagation", ("layers=5", "alpha=0.8", *FLOAT64),
        lambda f: spread("directed", known("directed")[0], 5, 0.8, lambda x: np.clip(x, 0, 1)),
    ),
    "correct and smooth, autoscale": (
        "symmetric", "correct-and-smooth", (GIVEN, *STEPS, *FLOAT64),
        lambda f: corrected("symmetric", predicted(f), None),
    ),
    "correct and smooth, scale": (
        "directed", "correct-and-smooth",
        (GIVEN, *STEPS, "autoscale=false", "scale=0.3", *FLOAT64),
        lambda f: corrected("directed", predicted(f), 0.3),
    ),
    "appnp": (
        "directed", "appnp", (GIVEN, "steps=4", "alpha=0.2", *FLOAT64),
        lambda f: appnp("directed", predicted(f)),
    ),
    "eigenvectors": (
        "symmetric", EIGEN, ("count=9", "block=4", "tolerance=1e-13"), lambda f: eigenvalues(9)
    ),
    # 0 is an eigenvalue of more vectors than a block has.
    "eigenvectors, block of 2": (
        "symmetric", EIGEN, ("count=9", "block=2", "tolerance=1e-13", "iterations=2000"),
        lambda f: eigenvalues(9),
    ),
    "eigenvectors, all": (
        "symmetric", EIGEN, ("count=61", "tolerance=1e-12", "degree=6"), lambda f: eigenvalues(N)
    ),
    "fastrp": (
        "directed", "embed",
        ("dimension=6", "seed=7", "weights=0,1,2", "beta=-0.3", *FLOAT64),
        lambda f: fastrp("directed", (0, 1, 2), -0.3),
    ),
    "prone": (
        "symmetric", "embed", ("method=prone", f"dimension={N}", "order=6", "mu=0.2", *FLOAT64),
        lambda f: prone("symmetric", 6, 0.2, 0.5),
    ),
    "randsvd": (
        "symmetric", "embed", ("method=randsvd", f"dimension={N}", "rounds=1", *FLOAT64),
        lambda f: absolute(polynomial("symmetric", (1, 0.5, 0.25))),
    ),
    "components": ("symmetric", "components", (), lambda f: components("symmetric")),
    "core numbers": ("symmetric", "core-numbers", (), lambda f: cores("symmetric")),
}  # fmt: skip

# On 4 ranks by other schemes, the second on two copies of two parts, the last in chains of columns.
BY_OTHER_SCHEMES = ("pagerank", "eigenvectors", "components")
IN_CHAINS = (
    "sgc", "sign", "appnp", "label propagation",
    "correct and smooth, autoscale", "correct and smooth, scale",
)  # fmt: skip
OTHER_SCHEMES = {
    "bcast": ("p4", BY_OTHER_SCHEMES),
    "replicated": ("p2", BY_OTHER_SCHEMES),
    "columns": ("p4", (*BY_OTHER_SCHEMES[:2], *IN_CHAINS)),
}

# Graph, method and settings; what is said of them.
NOT_FINITE = "has a number that is not finite in row 7"
MISTAKES = {
    "symmetric sgc damping=0.5": "is an option of pagerank, not of",
    "symmetric pagerank graph.normalize=row": "of its own",
    "symmetric correct-and-smooth scale=2": "scale has no effect with autoscale",
    "symmetric appnp": "the option predictions is missing",
    "symmetric appnp predictions=@absent.npy": "absent.npy",
    "symmetric appnp predictions=@short.npy": "60 × 3; the graph takes",
    "symmetric appnp predictions=@line.npy": "has 1 dimension, not 2",
    "symmetric appnp predictions=@none.npy": "has no columns",
    "symmetric appnp predictions=@nan.npy": NOT_FINITE,
    "symmetric correct-and-smooth predictions=@nan.npy": NOT_FINITE,
    "directed pagerank seeds=@huge.txt": "overflows",
    "directed pagerank seeds=@nothing.txt": "a weight above 0",
    "directed pagerank seeds=@predicted.npy": "cannot read",
    "symmetric pagerank checkpoint=@short.npy": "cannot write",
    "directed laplacian-eigenvectors": "is directed, and laplacian-eigenvectors",
    "symmetric laplacian-eigenvectors count=62": "has 61 vertices",
    "symmetric embed mu=0.3": "mu has no effect with method",
    "directed embed method=prone": "prone needs a symmetric matrix",
    "directed components": "components takes arcs both ways",
    "symmetric sgc scheme.name=summa": "cuts the rows",
    "symmetric components scheme.name=columns": "which components looks at",
}


def line(folder, out, part: str, graph: str, method: str, *settings: str) -> list:
    words = ["propagate", folder / f"{graph}.graph", method, "--out", out, "--partition", part]
    given = [text.replace("@", f"{folder}/") for text in settings]
    return [*words, *sets(*given, "threads=1")]


@pytest.fixture(scope="module")
def written(gcnmpi_lines, folder):
    """The arrays of each case on 3 ranks, and of (scheme, case) on 4."""
    lines, others = {}, {}
    for number, (name, (graph, method, settings, _)) in enumerate(CASES.items()):
        mixed = number % 2 and method != "components"
        how = (*settings, f"scheme.exchange={'mixed' if mixed else 'rows'}")
        suffix = ".npz" if number % 2 or method == EIGEN else ".npy"
        lines[name] = line(folder, folder / f"{name}{suffix}", "p3", graph, method, *how)
    for scheme, (part, some) in OTHER_SCHEMES.items():
        for name in some:
            graph, method, settings, _ = CASES[name]
            out = folder / scheme / f"{name}.npz"
            how = (*settings, f"scheme.name={scheme}")
            others[scheme, name] = line(folder, out, part, graph, method, *how)
    assert gcnmpi_lines(3, lines.values()) == [[None] * 3] * len(lines)
    assert gcnmpi_lines(4, others.values()) == [[None] * 4] * len(others)
    loaded = {
        name: np.load(words[4], allow_pickle=False) for name, words in (lines | others).items()
    }
    return {
        name: {"values": found} if isinstance(found, np.ndarray) else dict(found)
        for name, found in loaded.items()
    }


@pytest.mark.parametrize("name", CASES)
def test_it_equals_a_serial_computation(written, folder, name):
    _, method, settings, reference = CASES[name]
    expected, got = reference(folder), written[name]["values"]
    if expected.dtype.kind == "i":
        np.testing.assert_array_equal(got, expected)
        return
    exact = "dtype=float64" in settings or method in DOUBLE
    assert got.dtype == (np.float64 if exact else np.float32)
    bound = {"rtol": 1e-10, "atol": 1e-12} if exact else {"rtol": 1e-4, "atol": 1e-5}
    if name in ("prone", "randsvd"):  # of rotations of singular vectors, any is as good
        got, bound = got @ got.T, {"atol": 1e-7}
    np.testing.assert_allclose(got, expected, **bound)
    if method == "pagerank":
        assert abs(got.sum() - 1) < 1e-12
        np.testing.assert_allclose(got, expected, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("scheme", OTHER_SCHEMES)
def test_other_schemes_and_ranks_give_the_same(written, scheme):
    for name in OTHER_SCHEMES[scheme][1]:
        for array, expected in written[name].items():
            got = written[scheme, name][array]
            np.testing.assert_allclose(got, expected, atol=1e-10, err_msg=f"{name} {array}")


def test_eigenvectors_are_orthonormal(written):
    dense = laplacian("symmetric")
    assert np.count_nonzero(eigenvalues(N) < 1e-12) >= 5  # two components, isolated vertices
    for name in CASES:
        if name.startswith("eigenvectors"):
            vectors, found = written[name]["vectors"], written[name]["values"]
            np.testing.assert_allclose(vectors.T @ vectors, np.eye(len(found)), atol=1e-12)
            np.testing.assert_allclose(dense @ vectors, vectors * found, atol=1e-11)


def test_all_ranks_tell_a_mistake(hear_mistakes, folder):
    pairs = []
    for words, says in MISTAKES.items():
        out = folder / ("x.npz" if "eigen" in words else "x.npy")
        pairs.append((line(folder, out, "p3", *words.split()), says))
    hear_mistakes(3, pairs)
    assert not list(folder.glob("x.*"))
