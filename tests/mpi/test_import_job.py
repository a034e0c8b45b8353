"""``gcnmpi import``: the folder of one process, byte for byte, for any number of ranks."""

import gzip
import os
import tarfile

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from partition.cli.main import cli

RANKS = (2, 3)
ROWS = 900


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    """Lists of arcs of all formats: copies, loops, a hub, ids with gaps."""
    root, random = tmp_path_factory.mktemp("lists"), np.random.default_rng(7)
    ends = (random.integers(0, 200, (ROWS, 2)) ** 2) // 200
    ends[:5, 1] = ends[:5, 0]
    ends[-40:] = ends[:40]
    weights = (random.standard_normal(ROWS) * 1e3).tolist()
    far = ends * 10**15 - 7 * 10**16
    kinds = random.choice(["red", "green", "blue"], ROWS)

    def text(rows, name, end="\n", head="", last=True):
        body = end.join([head] * bool(head) + [",".join(map(str, row)) for row in rows])
        (root / name).write_bytes((body + end * last).encode())

    plain = ends.tolist()
    text(plain, "plain.csv")
    text(plain, "dos.csv", "\r\n", "source,target", last=False)
    text(plain, "mac.csv", "\r")
    noted = [[s, f"{t} # c" if i % 9 == 0 else t] for i, (s, t) in enumerate(plain)]
    text(noted, "notes.csv", "\n\n", "# a comment")
    text([[s, t, w] for (s, t), w in zip(plain, weights, strict=True)], "weighted.csv")
    text(far.tolist(), "far.csv")
    text((ends + 5).tolist(), "shifted.csv")
    rows = zip(far.tolist(), weights, kinds, strict=True)
    text([[s, t, w, w / 3, k] for (s, t), w, k in rows], "data.csv", head="src,dst,weight,f1,kind")
    text([[3, 4]], "one.csv", last=False)
    (root / "packed.csv.gz").write_bytes(gzip.compress((root / "weighted.csv").read_bytes()))
    with tarfile.open(root / "packed.tar.xz", "w:xz") as archive:
        archive.add(root / "weighted.csv", "weighted.csv")
    np.save(root / "two.npy", ends.T.astype(np.int32))
    np.save(root / "pairs.npy", far)
    np.save(root / "arcs.npy", random.standard_normal((ROWS, 3)))
    np.save(root / "words.npy", kinds)
    np.save(root / "x.npy", random.standard_normal((200, 4), np.float32))
    ids = random.permutation(np.unique(np.append(far, far.max() + 1)))
    (root / "ids.txt").write_text("".join(f"{i}\n" for i in ids.tolist()))
    (root / "y.csv").write_text("id,label\n" + "".join(f"{i},{i % 3}\n" for i in range(200)))
    table = pa.table({"source": far[:, 0], "target": far[:, 1], "weight": weights, "kind": kinds})
    pq.write_table(table, root / "small.parquet", row_group_size=37)
    pq.write_table(table.select([0, 1]), root / "one.parquet")
    pq.write_table(table, root / "large.parquet", row_group_size=400)
    return root


CASES = {
    "plain": "plain.csv",
    "undirected": "plain.csv --undirected --self-loops drop --features random:3",
    "dos": "dos.csv --duplicates sum",
    "mac": "mac.csv",
    "notes": "notes.csv --direction out",
    "weighted": "weighted.csv --undirected --columns source,target,weight",
    "sums": "weighted.csv --duplicates sum --columns source,target,weight",
    "all": "weighted.csv --duplicates keep --undirected --columns source,target,weight",
    "far": "far.csv --undirected --labels random:4 --split random:0.5,0.2,0.3",
    "listed": "far.csv --ids ids.txt",
    "shifted": "shifted.csv",
    "span": "shifted.csv --vertices 2..240 --undirected",
    "labelled": "plain.csv --vertices 200 --features x.npy --labels y.csv",
    "data": "data.csv --arc-features f* --arc-label kind --undirected",
    "kept": "data.csv --arc-features weight,f1 --arc-label kind --duplicates keep",
    "files": "plain.csv --arc-features arcs.npy --arc-label words.npy",
    "one": "one.csv",
    "gzip": "packed.csv.gz --columns source,target,weight",
    "tar": "packed.tar.xz --columns source,target,weight",
    "npy": "two.npy --undirected --duplicates sum",
    "pairs": "pairs.npy --ids ids.txt",
    "small groups": "small.parquet --undirected --arc-label kind",
    "large groups": "large.parquet --duplicates sum",
    "a group": "one.parquet",
}


def words_of(root, line):
    """The words of a line, with the paths of files."""
    return [str(root / word) if (root / word).is_file() else word for word in line.split()]


@pytest.fixture(scope="module")
def alone(sources):
    """The folders of one process."""
    (root := sources / "alone").mkdir()
    for name, line in CASES.items():
        source, *options = words_of(sources, line)
        words = ["import", source, str(root / f"{name}.graph"), *options, "--json"]
        cli.main(words, standalone_mode=False)
    return root


def files_of(folder):
    """Name within the folder → content."""
    files = (path for path in folder.rglob("*.*") if path.is_file())
    return {os.path.relpath(path, folder): path.read_bytes() for path in files}


@pytest.mark.parametrize("ranks", RANKS)
def test_the_folder_is_that_of_one_process(sources, alone, run_cases, ranks):
    """Three ranks have every second case."""
    made = sources / f"by-{ranks}"
    made.mkdir()
    lines = {}
    for name, line in list(CASES.items())[:: ranks - 1]:
        source, *options = words_of(sources, line)
        lines[name] = ["import", source, str(made / f"{name}.graph"), *options, "--quiet", "--json"]
    assert run_cases("import_cases", ranks, list(lines.values())) == [[None] * ranks] * len(lines)
    for name in lines:
        found, wanted = (files_of(root / f"{name}.graph") for root in (made, alone))
        assert found.keys() == wanted.keys(), name
        assert [file for file in wanted if found[file] != wanted[file]] == [], name
    assert {*os.listdir(made)} == {f"{name}.graph" for name in lines}


BAD = {
    "a bad line": ("0,1\n" * 700 + "1,x\n" + "0,1\n" * 500, "", "line 701: '1,x'"),
    "two bad lines": ("0,1\n" * 700 + "1,y\n" * 400, "", "line 701: '1,y'"),
    "a weight": ("0,1,2\n" * 700 + "1,2,inf\n" * 300, "", "line 368 on: weight of entry 334"),
    "copies": ("".join(f"{i % 800},9\n" for i in range(900)), "--duplicates error",
               "the arc 0 -> 9 is listed more than once; there are 100 such copies"),
    "a hub": ("".join(f"{i % 3},{i}\n" for i in range(1500)), "", "arcs, which are sorted at once"),
    "outside": ("0,1\n" * 900 + "9,0\n", "--vertices 0..8", "there is a vertex 9"),
    "not listed": ("0,1\n" * 900 + "5,4\n", "--ids few.txt", "the vertex 4 is not in the file"),
    "empty": ("", "", "holds no arcs"),
    "long": ("0,1\n" * 300 + "0," + "1" * 70000 + "\n", "", "line 301"),
    "few rows": ("0,1\n" * 300, "--arc-features x.npy", "has 5 rows, it lists 300 arcs"),
    "relations": ("0,a,1\n" * 3, "--columns source,relation,target", "not read by several ranks"),
}  # fmt: skip


def test_mistakes_are_one_line_on_every_rank(tmp_path, run_cases, hear_mistakes):
    (tmp_path / "few.txt").write_text("0\n1\n2\n")
    np.save(tmp_path / "x.npy", np.zeros((5, 1), np.float32))
    told, out = [], tmp_path / "out" / "g.graph"
    out.parent.mkdir()
    for name, (text, options, says) in BAD.items():
        (tmp_path / f"{name}.csv").write_text(text)
        told.append(([tmp_path / f"{name}.csv", out, *words_of(tmp_path, options)], says))
    told.append((["pyg:Planetoid/Cora", out], "one process"))
    told.append(([tmp_path / "few rows.csv", tmp_path / "out"], "ends in .graph"))
    words = [["import", *map(str, line), "--quiet"] for line, _ in told]
    words.append(["touched", *words[-1][:2], str(out), "--quiet"])
    told.append((words[-1], "few rows.csv changed while it was read"))
    for (line, says), heard in zip(told, run_cases("import_cases", 3, words), strict=True):
        assert heard == heard[:1] * 3, line
        assert says in (heard[0] or ""), line
    little = ["import", tmp_path / "few rows.csv", out, "--memory", "100MB", "--quiet"]
    hear_mistakes(3, [(little, "is too little")])
    assert not list(out.parent.iterdir())


def test_a_rank_that_fails_leaves_no_folder(tmp_path, mpirun):
    (tmp_path / "e.csv").write_text("0,1\n1,2\n" * 400)
    words = ["import", tmp_path / "e.csv", tmp_path / "g.graph", "--quiet"]
    full = "full", 1, "partition.importing.arcs:Columns.append@2"
    assert mpirun(2, "broken.py", *full, *words, code=2).stderr.count("error:") == 1
    assert os.listdir(tmp_path) == ["e.csv"]
    killed = "SIGKILL", 1, "gcnmpi.importing.arcs.bounds_of"
    assert mpirun(2, "broken.py", *killed, *words, code=None).returncode != 0
    assert not (tmp_path / "g.graph").exists()
