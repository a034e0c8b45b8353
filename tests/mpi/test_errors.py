"""Every mistake: one message with a hint, on all ranks, exit code 2, within seconds.

Most command lines run in one launch; a mistake of each stage runs as a user would start it: in the
words, the configuration, the folder, the sizes of files, their content, and an epoch.
"""

import shutil
import subprocess
import time
from dataclasses import dataclass

import numpy as np
import pytest
from stored_graphs import change_array, change_json, graph_of, store, store_parts
from words import sets

from gcnmpi.run.record import read_run
from partition.cli.main import cli
from partition.graph.store import open_graph
from partition.pipeline.adding import add_partition

N, WIDTH, CLASSES = 40, 5, 3


def directed_graph(seed=0, **changes):
    rng = np.random.default_rng(seed)
    dense = np.zeros((N, N), bool)
    for row in dense:
        row[rng.choice(N, 4, replace=False)] = True
    data = {
        "features": rng.standard_normal((N, WIDTH)).astype(np.float32),
        "labels": (np.arange(N) % CLASSES).astype(np.int32),
        "masks": {"train": np.arange(N) < 20, "test": np.arange(N) >= 30},
    }
    return graph_of(dense, **(data | changes))


def truncate(file):
    size = file.stat().st_size
    with open(file, "r+b") as opened:
        opened.truncate(size // 2)


def change_manifest(path, *gone, **changes):
    change_json(path / "manifest.json", *gone, **changes)


def spoil(path, name, place, value):
    """As in a folder of before there were checksums."""
    change_array(path, name, place, value)
    change_manifest(path, "sums")


def flip_bit(path, name, byte=-3):
    file = path / f"{name}.npy"
    held = bytearray(file.read_bytes())
    held[byte] ^= 4
    file.write_bytes(held)


def other_target(path):
    """One that a graph could have."""
    targets = np.load(path / "indices.npy").reshape(N, 4)
    targets[np.flatnonzero(targets[:, 3] < N - 1)[0], 3] += 1
    np.save(path / "indices.npy", targets.reshape(-1))


def claim_symmetry(path, values=True):
    change_manifest(path, directed=False, symmetric_pattern=True, symmetric_values=values)


# Name of a damaged copy of the good graph → what is done to it.
DAMAGES = {
    "half-features": lambda p: truncate(p / "features.npy"),
    "half-indices": lambda p: truncate(p / "indices.npy"),
    "half-partition": lambda p: truncate(p / "partitions" / "rp-3.npz"),
    "no-labels-file": lambda p: (p / "labels.npy").unlink(),
    "no-nnz": lambda p: change_manifest(p, "nnz"),
    "other-version": lambda p: change_manifest(p, version=99),
    "no-json": lambda p: (p / "manifest.json").write_text("{"),
    "no-manifest": lambda p: (p / "manifest.json").unlink(),
    "target-too-large": lambda p: spoil(p, "indices", 7, N),
    "target-negative": lambda p: spoil(p, "indices", -1, -1),
    "target-changed-late": lambda p: spoil(p, "indices", -1, 10**6),
    "indptr-decreases": lambda p: spoil(p, "indptr", 5, 0),
    "nan-feature": lambda p: spoil(p, "features", (N - 1, 2), np.nan),
    "infinite-feature": lambda p: spoil(p, "features", (0, 2), np.inf),
    "label-too-large": lambda p: spoil(p, "labels", 3, CLASSES),
    "label-negative": lambda p: spoil(p, "labels", 3, -5),
    "foreign-partition": lambda p: change_manifest(p, id="0" * 32),
    "flipped-feature": lambda p: flip_bit(p, "features"),
    "flipped-label": lambda p: flip_bit(p, "labels", -4),
    "flipped-mask": lambda p: np.save(p / "train_mask.npy", np.arange(N) < 21),
    "other-target": other_target,
    "not-symmetric": claim_symmetry,
    "not-symmetric-pattern": lambda p: claim_symmetry(p, values=False),
    "contradiction": lambda p: change_manifest(p, symmetric_pattern=True),
    "no-masks": lambda p: change_manifest(p, masks=[]),
    "part-too-large": lambda p: np.savez(
        p / "partitions" / "rp-3.npz", parts=np.full(N, 3, np.int32)
    ),
}


@dataclass(frozen=True)
class Mistake:
    """Words after "gcnmpi" ({0} stands for the folder), and what the message must say."""

    line: str
    says: tuple[str, ...]


def train(words, *says):
    return Mistake(f"train --quiet --out {{0}}/run {words}", says)


def infer(words, *says):
    return Mistake(f"infer {{0}}/good.graph --partition rp-3 --out {{0}}/y.npy {words}", says)


GOOD = "{0}/good.graph --partition rp-3"
MISTAKES = {
    "no graph": train("{0}/nothere.graph --partition rp-3", "nothere.graph", "gcn-partition"),
    **{
        name: train(f"{{0}}/{name}.graph --partition rp-3", *says)
        for name, *says in (
            ("half-features", "features.npy is damaged or truncated"),
            ("half-indices", "indices.npy is damaged or truncated"),
            ("half-partition", "rp-3.npz"),
            ("no-labels-file", "labels.npy is missing"),
            ("no-nnz", "manifest.json is damaged", "nnz"),
            ("other-version", "format version 99", "reads 1"),
            ("no-json", "manifest.json"),
            ("no-manifest", "not a graph folder"),
            ("target-too-large", "damaged", f"outside 0..{N - 1}"),
            ("target-negative", "damaged", f"outside 0..{N - 1}"),
            ("target-changed-late", "damaged", f"outside 0..{N - 1}"),
            ("indptr-decreases", "indptr.npy does not increase"),
            ("nan-feature", "features are not all finite"),
            ("infinite-feature", "features are not all finite"),
            ("label-too-large", "a label outside"),
            ("label-negative", "a label outside"),
            ("flipped-feature", "features.npy does not hold what", "gcn-partition check"),
            ("flipped-label", "labels.npy does not hold what"),
            ("flipped-mask", "train_mask.npy does not hold what"),
            ("other-target", "indices.npy does not hold what"),
            ("not-symmetric", "no reverse of equal weight", "gcn-partition check"),
            ("not-symmetric-pattern", "no reverse of equal weight"),
            ("contradiction", "manifest.json is damaged: directed and symmetric"),
            ("no-masks", "contradicts itself about test_mask.npy"),
            ("foreign-partition", "another graph", "gcn-partition add"),
            ("part-too-large", "outside 0..2"),
        )
    },
    **{
        f"not-symmetric, {name}": train(
            f"{{0}}/not-symmetric.graph --set scheme.name={name}", "no reverse of equal weight"
        )
        for name in ("bcast", "summa", "tensor3d")
    },
    "weights not symmetric": train(
        "{0}/not-symmetric-weights.graph --partition rp-3", "no reverse of equal weight"
    ),
    "flipped feature, infer": Mistake(
        "infer {0}/flipped-feature.graph --partition rp-3 --out {0}/y.npy --weights {0}/good.npz",
        ("features.npy does not hold what",),
    ),
    **{
        f"{name}, propagate": Mistake(
            f"propagate {{0}}/{name}.graph {method} --partition rp-3 --out {{0}}/y.npy", (says,)
        )
        for name, method, says in (
            ("flipped-feature", "sgc", "features.npy does not hold what"),
            ("not-symmetric", "pagerank", "no reverse of equal weight"),
        )
    },
    "k is not P": train(
        "{0}/good.graph --partition rp-4",
        "4 parts",
        "3 ranks",
        "mpirun -n 4",
        "or take rp-3, or",
        "gcn-partition add",
    ),
    "k is a multiple of P": train(
        "{0}/good.graph --partition rp-6", "mpirun -n 6", "join the parts of rp-6", "-k 3"
    ),
    "no partition": train("{0}/good.graph", "3 ranks need a partition", "take rp-3", "-k 3"),
    "no partition at all": train("{0}/bare.graph", "3 ranks need a partition", "hint: make one"),
    # These are found before the features, which are damaged.
    "fan-outs": train(
        "{0}/nan-feature.graph --partition rp-3 --set train.batches=neighbor,6,3",
        "1 fan-outs, the network looks at neighbours 2 times",
    ),
    "size of a batch": train(
        "{0}/nan-feature.graph --partition rp-3 --set train.batches=neighbor,six,3,3", "'six'"
    ),
    "unknown partition": train("{0}/good.graph --partition rp3", "unknown partition", "'rp-3'"),
    "partition of none": train("{0}/bare.graph --partition hp-3", "nor any other"),
    "partition name": train(
        "{0}/good.graph --partition ../rp-3", "not a valid name for a partition"
    ),
    "more ranks than vertices": train(
        "{0}/two.graph --partition rp-2", "3 ranks for 2 vertices", "no more ranks"
    ),
    "no features": train("{0}/no-features.graph --partition rp-3", "has no features", "random:16"),
    "no labels": train("{0}/no-labels.graph --partition rp-3", "has no labels", "random:8"),
    "no labels in shared memory": train(
        "{0}/no-labels.graph --partition rp-3 --set scheme.transport=shared", "has no labels"
    ),
    "nothing to train on": train(
        "{0}/no-train.graph --partition rp-3", "no labelled vertex to train on"
    ),
    "directed expand": train(f"{GOOD} --set scheme.backward=expand", "directed", "'fold'"),
    "loss not a number": train(
        f"{GOOD} --set train.lr=1e30 --set train.epochs=9", "the loss is nan in epoch", "train.lr"
    ),
    "unknown key": train(f"{GOOD} --set train.epoch=3", "'train.epoch'", "'train.epochs'"),
    "unknown key in file": train(f"{GOOD} --config {{0}}/key.toml", "'model.hiden'", "hidden'"),
    "bad value": train(f"{GOOD} --set model.dropout=1.0", "model.dropout is below 1"),
    "bad type": train(f"{GOOD} --set train.epochs=ten", "train.epochs takes an integer", "'ten'"),
    "no value": train(f"{GOOD} --set train.epochs", "'train.epochs'", "key=value"),
    "unknown kernel": train(f"{GOOD} --set kernel=graphblast", "unknown kernel", "'graphblas'"),
    "unknown scheme": train(f"{GOOD} --set scheme.name=p3p", "scheme.name 'p3p'", "'p2p'"),
    "grid of other ranks": train(
        f"{GOOD} --set scheme.name=summa --set scheme.grid=2x2", "4 places", "3 ranks"
    ),
    "grid without a layer axis": train(
        f"{GOOD} --set scheme.name=split3d --set scheme.grid=3x1", "is not 3 numbers", "3 ranks"
    ),
    "two orders of the vertices": train(
        "{0}/good.graph --set scheme.name=summa --set scheme.permutation=double",
        "one order of the vertices",
        "'single'",
    ),
    "replicated directed expand": train(
        "{0}/good.graph --set scheme.name=replicated --set scheme.backward=expand "
        "--set scheme.replication=3",
        "directed",
        "'fold'",
    ),
    "option of another scheme": train(
        f"{GOOD} --set scheme.grid=3x1", "scheme.grid is an option of", "scheme p2p", "leave"
    ),
    "two orders of a grid": train(
        f"{GOOD} --set scheme.name=summa --set scheme.permutation=none", "both give an order"
    ),
    "no config": train(f"{GOOD} --config {{0}}/nothere.toml", "nothere.toml", "No such file"),
    "no TOML": train(f"{GOOD} --config {{0}}/broken.toml", "broken.toml is not valid TOML", "line"),
    "out is a file": Mistake(f"train {GOOD} --out {{0}}/key.toml", ("cannot write", "run.jsonl")),
    "weights below a file": train(f"{GOOD} --save-weights {{0}}/key.toml/w.npz", "cannot write"),
    "unknown command": Mistake("trian {0}/good.graph", ("'trian'",)),
    "no argument": Mistake("train", ("Missing argument 'GRAPH'",)),
    "unknown option": Mistake("train {0}/good.graph --partiton rp-3", ("--partiton",)),
    "no weights": infer("--weights {0}/nothere.npz", "nothere.npz", "No such file"),
    "damaged weights": infer("--weights {0}/half.npz", "half.npz is truncated or damaged"),
    "pickled weights": infer("--weights {0}/pickled.npz", "pickled.npz", "Object arrays"),
    "array for weights": infer("--weights {0}/array.npy", "array.npy", "is not an npz file"),
    "other names": infer("--weights {0}/names.npz", "'lin.weight'", "convs.0.lin.weight"),
    "other features": infer("--weights {0}/wide.npz", f"has {WIDTH} features", "take 9"),
    "other shapes": infer("--weights {0}/shapes.npz", "shapes of layer 1"),
    "bias missing": infer("--weights {0}/bias.npz", "only some have a bias"),
    "layer too high": infer("--weights {0}/good.npz --layer 3", "--layer 3", "layers 1 to 2"),
    "layer too low": infer("--weights {0}/good.npz --layer 0", "--layer 0", "layers 1 to 2"),
    "layer and classes": infer("--weights {0}/good.npz --layer 1 --classes", "exclude each other"),
    "result below a file": Mistake(
        f"infer {GOOD} --weights {{0}}/good.npz --out {{0}}/key.toml/y.npy", ("cannot write",)
    ),
    "result is a folder": Mistake(
        f"infer {GOOD} --weights {{0}}/good.npz --out {{0}}/folder.npy", ("is a folder",)
    ),
    "result of no kind": Mistake(
        f"infer {GOOD} --weights {{0}}/good.npz --out {{0}}/y.txt", ("ends in .txt", ".npy, .npz")
    ),
    "result over the weights": Mistake(
        f"infer {GOOD} --weights {{0}}/good.npz --out {{0}}/same/good.npz",
        ("--weights and --out name the same file",),
    ),
    "weights of GraphSAGE": infer("--weights {0}/sage.npz", "'convs.0.lin_l.weight' is not"),
    "weights with a gap": infer("--weights {0}/gap.npz", "layer 1 of the weights is missing"),
    "weights not finite": infer("--weights {0}/nan.npz", "convs.1.bias is not all finite"),
    "weights of other widths": infer(
        "--weights {0}/good.npz --set model.hidden=[5]",
        "convs.0.lin.weight is float64 (4, 5)",
        "the network's is (5, 5)",
    ),
    "weights of no kind": train(f"{GOOD} --save-weights {{0}}/w.txt", "ends in .txt", "w.npz"),
    "one file for two": train(
        f"{GOOD} --save-weights {{0}}/w.npz --save-best {{0}}/./w.npz", "name the same file"
    ),
    "best without evaluation": train(
        f"{GOOD} --save-best {{0}}/b.npz --set train.eval_every=0",
        "nothing will be validated",
        "train.eval_every is 0",
    ),
    "best without validation": train(
        "{0}/no-val.graph --partition rp-3 --save-best {0}/b.npz", "no labelled vertex to validate"
    ),
    "weights where no file can be": train(
        f"{GOOD} --save-weights /proc/w.npz", "cannot write /proc/w.npz", "no file can be made"
    ),
    "nothing to resume": train(f"{GOOD} --resume {{0}}/nothere", "there is no checkpoint"),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Good, damaged and unfit graphs, weights and configurations."""
    root = tmp_path_factory.mktemp("mistakes")
    store(root / "good.graph", directed_graph(), 3, 4, 6)
    for name, damage in DAMAGES.items():
        shutil.copytree(root / "good.graph", root / f"{name}.graph")
        damage(root / f"{name}.graph")
    store(root / "no-features.graph", directed_graph(features=None), 3)
    store(root / "no-labels.graph", directed_graph(labels=None, masks={}), 3)
    store(root / "bare.graph", directed_graph())
    store(root / "same-size.graph", directed_graph(seed=1), 3)
    shutil.copytree(root / "good.graph", root / "same-but-parts.graph")
    add_partition(root / "same-but-parts.graph", "rp", 3, seed=5, name="rp-3", overwrite=True)
    store(root / "no-train.graph", directed_graph(masks={"train": np.zeros(N, bool)}), 3)
    pair = {"features": np.ones((2, 1), np.float32), "labels": np.array([0, 1], np.int32)}
    store(root / "two.graph", graph_of(np.eye(2) == 0, **pair), 2)
    store(root / "not-symmetric-weights.graph", _both_ways(directed_graph()), 3)
    assert open_graph(root / "not-symmetric-weights.graph").manifest.symmetric_pattern
    claim_symmetry(root / "not-symmetric-weights.graph")
    no_val = {"train": np.ones(N, bool), "val": np.zeros(N, bool)}
    store(root / "no-val.graph", directed_graph(masks=no_val), 3)
    (root / "folder.npy").mkdir()
    (root / "same").symlink_to(root)
    (root / "key.toml").write_text("[model]\nhiden = [4]\n")
    (root / "broken.toml").write_text("[model\n")
    _write_weights(root)
    return root


def _both_ways(graph):
    """Each arc and its reverse, of which one has another weight."""
    there = graph.adjacency().toarray() > 0
    both = (there | there.T).astype(float)
    source, target = np.nonzero(both)
    first = np.flatnonzero(source != target)[0]
    both[source[first], target[first]] = 2
    return graph_of(both, features=graph.features, labels=graph.labels, masks=graph.masks)


def _write_weights(root):
    first, second = np.ones((4, WIDTH)), np.ones((CLASSES, 4))
    names = ("convs.0.lin.weight", "convs.0.bias", "convs.1.lin.weight", "convs.1.bias")
    good = dict(zip(names, (first, np.ones(4), second, np.ones(CLASSES)), strict=True))
    np.savez(root / "good.npz", **good)
    np.savez(root / "wide.npz", **(good | {names[0]: np.ones((4, 9))}))
    np.savez(root / "shapes.npz", **(good | {names[2]: np.ones((CLASSES, 6))}))
    np.savez(root / "bias.npz", **{name: good[name] for name in names[:3]})
    sides = {f"convs.0.lin_{side}.weight": np.ones((CLASSES, WIDTH)) for side in "lr"}
    np.savez(root / "sage.npz", **sides, **{"convs.0.lin_l.bias": np.ones(CLASSES)})
    shifted = {name.replace("1", "2"): array for name, array in good.items()}
    np.savez(root / "gap.npz", **shifted)
    np.savez(root / "nan.npz", **(good | {names[3]: np.full(CLASSES, np.nan)}))
    np.savez(root / "names.npz", **{"lin.weight": first})
    np.savez(root / "pickled.npz", **{names[0]: np.array([{}], dtype=object)})
    np.save(root / "array.npy", first)
    shutil.copy(root / "good.npz", root / "half.npz")
    truncate(root / "half.npz")


@pytest.fixture(scope="module")
def complaints(gcnmpi_lines, folder):
    """The complaints of 3 ranks by name of the mistake, and by None of a good run after all."""
    lines = {name: mistake.line for name, mistake in MISTAKES.items()}
    lines[None] = f"train --quiet {GOOD} --out {{0}}/last --set train.epochs=2"
    heard = gcnmpi_lines(3, [line.format(folder).split() for line in lines.values()])
    return dict(zip(lines, heard, strict=True))


@pytest.mark.quick
@pytest.mark.parametrize("name", MISTAKES)
def test_every_rank_hears_of_the_mistake(complaints, name):
    first, *others = complaints[name]
    assert first is not None
    assert others == [first, first]
    assert all(words in first for words in MISTAKES[name].says), first


def test_a_good_run_after_all_those_mistakes(complaints, folder):
    assert complaints[None] == [None, None, None]
    assert '"finished": true' in (folder / "last" / "run.jsonl").read_text()
    left = [path for path in folder.rglob(".*") if path.name.endswith(".tmp")]
    assert not left


# One of each class, found at different depths: on the command line, before and after loading,
# by rank 0 alone, by one rank on its own rows, by all ranks, in the last step.
@pytest.mark.parametrize(
    "name",
    [
        "unknown command",
        "unknown key",
        "no graph",
        "half-features",
        "target-changed-late",
        "loss not a number",
    ],
)
def test_a_mistake_is_told_once_with_exit_code_2(mpirun, folder, name):
    mistake = MISTAKES[name]
    done = mpirun(3, "gcnmpi", *mistake.line.format(folder).split(), timeout=20, code=2)
    assert done.stderr.count("error: ") == 1, done.stderr
    assert all(done.stderr.count(words) >= 1 for words in mistake.says), done.stderr
    assert "Traceback" not in done.stderr
    assert "Warning" not in done.stderr


@pytest.mark.parametrize(
    ("first", "others", "says"),
    [
        ("good.graph", "good.graph --config {0}/nothere.toml", "cannot read"),
        ("good.graph", "good.graph --set train.epochs=9", "another configuration than rank 0"),
        ("good.graph", "good.graph --save-best {0}/w.npz", "rank 1 has another --save-best than"),
        ("good.graph", "same-size.graph", "another graph or partition"),
        ("good.graph", "same-but-parts.graph", "another graph or partition"),
    ],
)
def test_ranks_that_do_not_see_the_same_files(mpirun, warm, folder, first, others, says):
    """As on hosts whose disks differ: the first rank and the other two get other words."""

    def words(rest):
        line = f"train --quiet --out {{0}}/differ --partition rp-3 {{0}}/{rest}"
        return line.format(folder).split()

    more = [":", "-n", "2", *warm("gcnmpi"), *words(others)]
    done = mpirun(1, "gcnmpi", *words(first), *more, timeout=20, code=2)
    assert done.stderr.count("error: ") == 1, done.stderr
    assert says in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("how", "code", "says"),
    [
        ("raise", 1, ["rank 1 failed", "Traceback", "ArithmeticError: on one rank only"]),
        ("mistake", 2, ["rank 1: error: a mistake on one rank only"]),
        ("exit", None, ["rank 1 failed", "SystemExit: 5"]),
        ("SIGKILL", None, []),
    ],
)
def test_a_rank_that_fails_alone_takes_the_job_down(mpirun, folder, tmp_path, how, code, says):
    words = f"train --quiet {GOOD} --out {tmp_path} --set train.epochs=1000000".format(folder)
    when = "gcnmpi.run.trainer.maxima@8"
    done = mpirun(3, "broken.py", how, 1, when, *words.split(), code=code)
    assert done.returncode != 0
    assert all(words in done.stderr for words in says), done.stderr
    assert "rank 0 failed" not in done.stderr
    until = time.monotonic() + 60
    while str(tmp_path) in subprocess.check_output(["ps", "-wweo", "args"], text=True):
        assert time.monotonic() < until, "a rank goes on after the job has ended"
        time.sleep(0.05)


MTX = "%%MatrixMarket matrix coordinate pattern general\n3 3 2\n"


@pytest.mark.parametrize(
    ("text", "beside", "says"),
    [
        ("%%MatrixMarket matrx coordinate real\n3 3 1\n1 2 1\n", {}, ["bad.mtx", "line 1"]),
        (MTX + "1 2\n4 1\n", {}, ["bad.mtx", "4"]),
        (MTX + "1 2\n", {}, ["bad.mtx", "2"]),
        (MTX + "1 2\nx 1\n", {}, ["bad.mtx"]),
        (MTX + "1 2\n2 1\n", {"features": [[1.0], [np.nan], [1.0]]}, ["features"]),
        (MTX + "1 2\n2 1\n", {"features": [[1.0], [1.0]]}, ["2", "3"]),
        (MTX + "1 2\n2 1\n", {"labels": [0, -2, 1]}, ["label"]),
        (MTX + "1 2\n2 1\n", {"labels": [0, 1]}, ["2", "3"]),
        (None, {}, ["bad.mtx"]),
    ],
)
def test_a_file_that_cannot_be_imported(tmp_path, capsys, text, beside, says):
    if text is not None:
        (tmp_path / "bad.mtx").write_text(text)
    options = []
    for name, values in beside.items():
        np.save(tmp_path / f"{name}.npy", np.array(values))
        options += [f"--{name}", tmp_path / f"{name}.npy"]
    words = ["import", tmp_path / "bad.mtx", tmp_path / "out.graph", *options]
    with pytest.raises(SystemExit) as ended:
        cli.main([str(word) for word in words], prog_name="gcn-partition")
    told = capsys.readouterr().err
    assert ended.value.code == 2, told
    assert told.count("error: ") == 1
    assert all(words in told for words in says), told
    assert "Traceback" not in told
    assert not (tmp_path / "out.graph").exists()


def test_isolated_vertices_empty_parts_and_graphs_without_edges_train(gcnmpi_lines, tmp_path):
    full = directed_graph(3)
    data = {"features": full.features, "labels": full.labels, "masks": full.masks}
    dense = full.adjacency().toarray() > 0
    dense[-5:] = dense[:, -5:] = False
    for name, arcs in (("isolated", dense), ("edgeless", np.zeros((N, N), bool))):
        path = store(tmp_path / f"{name}.graph", graph_of(arcs, **data), 3)
        store_parts(path, "empty-3", np.arange(N) % 2 * 2, 3)

    def line(graph, out, *more):
        own = sets("dtype=float64", "train.epochs=6", "model.dropout=0.4")
        path = tmp_path / f"{graph}.graph"
        return ["train", path, "--quiet", "--out", tmp_path / out, *own, *more]

    cases = [(g, p) for g in ("isolated", "edgeless") for p in ("rp-3", "empty-3")]
    lines = [line(g, f"{g}-{p}", "--partition", p) for g, p in cases]
    assert gcnmpi_lines(3, lines) == [[None] * 3] * len(lines)
    lines = [line(g, g) for g in ("isolated", "edgeless")]
    *heard, [many] = gcnmpi_lines(1, [*lines, line("edgeless", "many", "--partition", "rp-3")])
    assert heard == [[None]] * len(lines)
    assert "'rp-3' has 3 parts, and this run has 1 rank\n" in many  # mpirun was forgotten
    assert "one rank needs no partition: leave it out; or start 3: mpirun -n 3" in many
    for graph, partition in cases:
        expected = _losses(tmp_path / graph)
        assert len(expected) == 6
        np.testing.assert_allclose(_losses(tmp_path / f"{graph}-{partition}"), expected, rtol=1e-12)
    assert open_graph(tmp_path / "edgeless.graph").graph.nnz == 0


def _losses(folder):
    return [epoch["loss"] for epoch in read_run(folder).epochs]
