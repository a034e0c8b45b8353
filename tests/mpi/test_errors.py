"""Every mistake: one message with a hint, on all ranks, exit code 2, within seconds.

Most command lines run in one launch; a mistake of each stage runs as a user would start it: in the
words, in the content of files, and in an epoch.
"""

import shutil

import numpy as np
import pytest
from stored_graphs import change_array, change_json, graph_of, store
from words import processes_of, wait_until

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
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


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


def part_too_large(path):
    np.savez(path / "partitions" / "rp-3.npz", parts=np.full(N, 3, np.int32))


CHANGED = "features.npy does not hold what"
OUTSIDE, REVERSE = f"outside 0..{N - 1}", "no reverse of equal weight"
# Name of a damaged copy of the good graph → what is done to it, and what is said.
DAMAGES = {
    "half-partition": (lambda p: truncate(p / "partitions" / "rp-3.npz"), "rp-3.npz"),
    "target-too-large": (lambda p: spoil(p, "indices", 7, N), OUTSIDE),
    "target-changed-late": (lambda p: spoil(p, "indices", -1, 10**6), OUTSIDE),
    "indptr-decreases": (lambda p: spoil(p, "indptr", 5, 0), "indptr.npy does not increase"),
    "nan-feature": (lambda p: spoil(p, "features", (N - 1, 2), np.nan), "not all finite"),
    "label-too-large": (lambda p: spoil(p, "labels", 3, CLASSES), "a label outside"),
    "foreign-partition": (lambda p: change_manifest(p, id="0" * 32), "another graph"),
    "flipped-feature": (lambda p: flip_bit(p, "features"), CHANGED),
    "flipped-label": (lambda p: flip_bit(p, "labels", -4), "labels.npy does not hold what"),
    "other-target": (other_target, "indices.npy does not hold what"),
    "not-symmetric": (claim_symmetry, REVERSE),
    "not-symmetric-pattern": (lambda p: claim_symmetry(p, values=False), REVERSE),
    "part-too-large": (part_too_large, "outside 0..2"),
}
# Words after "train --out run" (@ stands for the folder), and those that the message has.
OF_GRAPHS = {
    **{f"@{name}.graph --partition rp-3": says for name, (_, says) in DAMAGES.items()},
    "@nothere.graph --partition rp-3": ("nothere.graph", "gcn-partition"),
    "@not-symmetric.graph --set scheme.name=bcast": REVERSE,
    "@not-symmetric.graph --set scheme.name=summa": REVERSE,
    "@good.graph --partition rp-4": ("3 ranks", "mpirun -n 4", "or take rp-3", "gcn-partition add"),
    "@good.graph --partition rp-6": ("mpirun -n 6", "join the parts of rp-6", "-k 3"),
    "@good.graph": ("3 ranks need a partition", "take rp-3", "-k 3"),
    "@bare.graph": ("3 ranks need a partition", "hint: make one"),
    # These are found before the features, which are damaged.
    "@nan-feature.graph --partition rp-3 --set train.batches=neighbor,6,3": "1 fan-outs",
    "@good.graph --partition rp3": ("unknown partition", "'rp-3'"),
    "@bare.graph --partition hp-3": "nor any other",
    "@two.graph --partition rp-2": "3 ranks for 2 vertices",
    "@no-features.graph --partition rp-3": ("has no features", "random:16"),
    "@no-labels.graph --partition rp-3": ("has no labels", "random:8"),
    "@no-train.graph --partition rp-3": "no labelled vertex to train on",
    "@no-val.graph --partition rp-3 --save-best @b.npz": "no labelled vertex to validate",
    "@good.graph --set scheme.name=summa --set scheme.permutation=double": "'single'",
}
# The same of what follows "train --out run good.graph --partition rp-3".
OF_SETTINGS = {
    "--set scheme.backward=expand": ("directed", "'fold'"),
    "--set train.lr=1e30 --set train.epochs=9": ("the loss is nan in epoch", "train.lr"),
    "--config @key.toml": ("'model.hiden'", "hidden'"),
    "--set scheme.name=split3d --set scheme.grid=3x1": ("is not 3 numbers", "3 ranks"),
    "--set scheme.grid=3x1": ("scheme.grid is an option of", "scheme p2p"),
    "--set scheme.name=summa --set scheme.permutation=none": "both give an order",
    "--save-weights @w.txt": ("ends in .txt", "w.npz"),
    "--save-weights @w.npz --save-best @./w.npz": "name the same file",
    "--save-best @b.npz --set train.eval_every=0": "train.eval_every is 0",
    "--save-weights /proc/w.npz": ("cannot write /proc/w.npz", "no file can be made"),
    "--resume @nothere": "there is no checkpoint",
}
# The same of what follows "infer good.graph --partition rp-3".
OF_INFERENCE = {
    "--out @y.npy --weights @names.npz": ("'lin.weight'", "convs.0.lin.weight"),
    "--out @y.npy --weights @wide.npz": (f"has {WIDTH} features", "take 9"),
    "--out @y.npy --weights @good.npz --layer 3": ("--layer 3", "layers 1 to 2"),
    "--out @y.npy --weights @good.npz --layer 1 --classes": "exclude each other",
    "--out @folder.npy --weights @good.npz": "is a folder",
    "--out @y.txt --weights @good.npz": ("ends in .txt", ".npy, .npz"),
    "--out @same/good.npz --weights @good.npz": "--weights and --out name the same file",
    "--out @y.npy --weights @sage.npz": "'convs.0.lin_l.weight' is not",
    "--out @y.npy --weights @gap.npz": "layer 1 of the weights is missing",
    "--out @y.npy --weights @good.npz --set model.hidden=[5]": ("(4, 5)", "(5, 5)"),
}
OTHERS = {
    "trian @good.graph": "'trian'",
    "train": "Missing argument 'GRAPH'",
    "train @good.graph --partiton rp-3": "--partiton",
    "train --out @key.toml @good.graph --partition rp-3": ("cannot write", "run.jsonl"),
    "infer @flipped-feature.graph --partition rp-3 --out @y.npy --weights @good.npz": CHANGED,
    "propagate @flipped-feature.graph sgc --partition rp-3 --out @y.npy": CHANGED,
    "propagate @not-symmetric.graph pagerank --partition rp-3 --out @y.npy": REVERSE,
}
GOOD = "@good.graph --partition rp-3"
MISTAKES = {
    **{f"train --quiet --out @run {line}": says for line, says in OF_GRAPHS.items()},
    **{f"train --quiet --out @run {GOOD} {line}": says for line, says in OF_SETTINGS.items()},
    **{f"infer {GOOD} {line}": says for line, says in OF_INFERENCE.items()},
    **OTHERS,
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Good, damaged and unfit graphs, weights and configurations."""
    root = tmp_path_factory.mktemp("mistakes")
    store(root / "good.graph", directed_graph(), 3, 4, 6)
    for name, (damage, _) in DAMAGES.items():
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
    no_val = {"train": np.ones(N, bool), "val": np.zeros(N, bool)}
    store(root / "no-val.graph", directed_graph(masks=no_val), 3)
    (root / "folder.npy").mkdir()
    (root / "same").symlink_to(root)
    (root / "key.toml").write_text("[model]\nhiden = [4]\n")
    write_weights(root)
    return root


def write_weights(root):
    names = ("convs.0.lin.weight", "convs.0.bias", "convs.1.lin.weight", "convs.1.bias")
    shapes = ((4, WIDTH), 4, (CLASSES, 4), CLASSES)
    good = {name: np.ones(shape) for name, shape in zip(names, shapes, strict=True)}
    sides = {f"convs.0.lin_{side}.weight": np.ones((CLASSES, WIDTH)) for side in "lr"}
    for file, arrays in {
        "good": good,
        "wide": good | {names[0]: np.ones((4, 9))},
        "sage": sides | {"convs.0.lin_l.bias": np.ones(CLASSES)},
        "gap": {name.replace("1", "2"): array for name, array in good.items()},
        "names": {"lin.weight": good[names[0]]},
    }.items():
        np.savez(root / f"{file}.npz", **arrays)


def words_of(line, folder):
    return line.replace("@", f"{folder}/").split()


@pytest.mark.quick
def test_every_rank_hears_of_the_mistake_and_then_a_good_run_is_one(
    hear_mistakes, gcnmpi_lines, folder
):
    hear_mistakes(3, [(words_of(line, folder), says) for line, says in MISTAKES.items()])
    line = f"train --quiet {GOOD} --out @last --set train.epochs=2"
    assert gcnmpi_lines(3, [words_of(line, folder)]) == [[None] * 3]
    assert '"finished": true' in (folder / "last" / "run.jsonl").read_text()
    assert not [path for path in folder.rglob(".*") if path.name.endswith(".tmp")]
    alone = words_of(f"train --quiet {GOOD} --out @run", folder)  # mpirun was forgotten
    hear_mistakes(1, [(alone, ("this run has 1 rank\n", "leave it out; or start 3: mpirun -n 3"))])


# On the command line; by one rank on its own rows; by all ranks, in the last step.
@pytest.mark.parametrize(
    "line",
    [
        "trian @good.graph",
        "train --quiet --out @run @target-changed-late.graph --partition rp-3",
        f"train --quiet --out @run {GOOD} --set train.lr=1e30 --set train.epochs=9",
    ],
)
def test_a_mistake_is_told_once_with_exit_code_2(mpirun, folder, line):
    says = MISTAKES[line]
    done = mpirun(3, "gcnmpi", *words_of(line, folder), timeout=20, code=2)
    assert done.stderr.count("error: ") == 1, done.stderr
    assert all(word in done.stderr for word in ([says] if isinstance(says, str) else says))
    assert "Traceback" not in done.stderr


def test_ranks_that_do_not_see_the_same_files(mpirun, warm, run_cases, folder):
    """As on hosts whose disks differ: the first rank and the other two get other words."""

    def words(rest):
        return words_of(f"train --quiet --out @differ --partition rp-3 @{rest}", folder)

    told = {
        "good.graph --set train.epochs=9": "another configuration than rank 0",
        "good.graph --save-best @w.npz": "rank 1 has another --save-best than",
        "same-size.graph": "another graph or partition",
        "same-but-parts.graph": "another graph or partition",
    }
    cases = [[words("good.graph"), words(others)] for others in told]
    for heard, says in zip(run_cases("commands", 3, cases), told.values(), strict=True):
        assert heard == heard[:1] * 3
        assert says in heard[0]
    # A mistake of one rank, before the others are asked.
    more = [":", "-n", "2", *warm("gcnmpi"), *words("good.graph --config @absent.toml")]
    done = mpirun(1, "gcnmpi", *words("good.graph"), *more, timeout=20, code=2)
    assert done.stderr.count("error: ") == 1, done.stderr
    assert "cannot read" in done.stderr
    assert "Traceback" not in done.stderr


ALONE = [
    ("raise", 1, ["rank 1 failed", "Traceback", "ArithmeticError: on one rank only"]),
    ("mistake", 2, ["rank 1: error: a mistake on one rank only"]),
]


@pytest.mark.parametrize(("how", "code", "says"), ALONE)
def test_a_rank_that_fails_alone_takes_the_job_down(mpirun, folder, tmp_path, how, code, says):
    words = words_of(f"train --quiet {GOOD} --out {tmp_path} --set train.epochs=1000000", folder)
    done = mpirun(3, "broken.py", how, 1, "gcnmpi.run.ledger.maxima@8", *words, code=code)
    assert done.returncode != 0
    assert all(words in done.stderr for words in says), done.stderr
    assert "rank 0 failed" not in done.stderr
    wait_until(lambda: not processes_of(tmp_path), message="a rank goes on after the job has ended")


UNCAUGHT = [
    ("on all ranks", 1, "ArithmeticError: of a script"),
    ("a mistake of some", 2, "rank 1 error: a mistake of the user's\n  hint: a hint"),
    ("told to some", 1, "rank 1 failed:\nTraceback"),
]


@pytest.mark.parametrize(("how", "code", "said"), UNCAUGHT)
def test_what_a_script_does_not_catch_ends_all_ranks(mpirun, how, code, said):
    done = mpirun(3, "uncaught.py", how, code=code)
    assert done.stderr.count(said) == 1, done.stderr
    assert "ends" not in done.stdout
