"""Every reader as a fuzzer needs it: valid files, and how to read them.

A file inside a container (a member of a zip, the text in a gzip) is mutated as it is inside too,
and packed again: what a checksum refuses never reaches the parser behind it.
"""

import contextlib
import gzip
import io
import json
import pickle
import random
import re
import shutil
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import scipy.sparse as sp
import tensor_files
from pickle_programs import reprogrammed

from gcnmpi.options.config import Config, load_config
from gcnmpi.report.page import write_report
from gcnmpi.report.run_facts import facts_of
from gcnmpi.run import checkpoint_files
from gcnmpi.run.record import Epoch, read_run
from gcnmpi.run.weights import read_weights
from partition.errors import UserError
from partition.graph.graph import Graph
from partition.graph.links import read_pairs, split_pairs, write_pairs
from partition.graph.metrics import measure
from partition.graph.store import open_graph, read_partition, write_graph
from partition.importing.partfile import read_parts
from partition.importing.readers import Layout, read_source
from partition.importing.readers.link_files import read_masks
from partition.importing.vertex_data import VertexFiles, attach
from partition.pipeline.adding import add_partition
from partition.reporting.describe import describe_pairs, describe_partition
from partition.reporting.tables import show_partition
from partition.tensor_files import read_tensors, torch_zip

Pack = Callable[[bytes], bytes]
PICKLES = ("planetoid", "torch", "pyg", "pair files")  # the targets that hold pickles


@dataclass(frozen=True, repr=False)
class Target:
    """A reader: its valid files by name, and ``read(folder)``.

    Attributes
    ----------
    inside : mapping of str to (bytes, function)
        File name → what is in the container, and how it is packed.
    """

    files: Mapping[str, bytes]
    read: Callable[[Path], object]
    inside: Mapping[str, tuple[bytes, Pack]] = field(default_factory=dict)

    @property
    def seeds(self) -> list[tuple[str, bytes, Pack]]:
        """Everything that can be mutated: file, bytes, and what makes the file of them."""
        plain = [(name, data, bytes) for name, data in self.files.items()]
        return plain + [(name.split("!")[0], *inner) for name, inner in self.inside.items()]


def _gzip(data: bytes) -> bytes:
    return gzip.compress(data, mtime=0)  # not the time of day: the same seed, the same file


def outcome(target: Target, folder: Path, name: str, data: bytes) -> str | None:
    """Read the valid files with one replaced: the message of the refusal, None if it was read."""
    shutil.rmtree(folder, ignore_errors=True)
    for other, valid in target.files.items():
        path = folder / other
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data if other == name else valid)
    try:
        target.read(folder)
    except UserError as error:
        return str(error)
    return None


NUMBERS = [
    b"0", b"-1", b"99999999999999999999999", b"2147483648", b"9223372036854775807", b"1e999",
    b"nan", b"1" * 5000, b"[" * 3000, b"\x00", b"\n", b'"', b"{", b"true",
]  # fmt: skip


def mutated(data: bytes, rng: random.Random) -> bytes:
    """The bytes with one to four damages: flips, cuts, copies, numbers in the place of numbers.

    Of a pickle, the instructions are changed as often as the bytes.
    """
    if data.startswith(b"\x80") and rng.random() < 0.5:
        return reprogrammed(data, rng)
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(data) + 1)
        upto = min(len(data), at + rng.choice([0, 1, 1, 2, 4, 8, 100]))
        kind = rng.randrange(8)
        if kind == 0:
            data = data[:at]
        elif kind == 1:
            data = data[:at] + data[upto:]
        elif kind == 2:
            data = data[:upto] + data[at:]
        elif kind == 3:
            data = data[:at] + rng.choice(NUMBERS) + data[upto:]
        elif kind == 4 and (found := list(re.finditer(rb"-?\d+", data))):
            number = rng.choice(found)
            data = data[: number.start()] + rng.choice(NUMBERS) + data[number.end() :]
        elif kind == 5:
            width = rng.choice([1, 2, 4, 8])
            value = rng.choice([0, 1, 2 ** (8 * width - 1), 2 ** (8 * width) - 1])
            data = data[:at] + value.to_bytes(width, "little") + data[at + width :]
        elif at < len(data):
            data = data[:at] + bytes([data[at] ^ (1 << rng.randrange(8))]) + data[at + 1 :]
    return data


def targets(folder: Path) -> dict[str, Target]:
    """Every reader by name; ``folder`` is for files on the way."""
    made = {
        "mtx": _mtx(),
        "edges": _edges(),
        "npz": _npz(),
        "planetoid": _planetoid(),
        "torch": _torch(),
        "safetensors": _safetensors(),
        "pyg": _pyg(),
        "pair files": _pair_files(),
        "vertex data": _vertex_data(),
        "vertex tables": _vertex_tables(),
        "part file": Target({"parts": b"0\n1\n2\n0\n"}, lambda f: read_parts(f / "parts", 4, 3)),
        "config": _config(),
        "weights": _weights(),
        "record": _record(),
        **_stored(folder / "g.graph"),
        "checkpoint": _checkpoint(folder / "run"),
    }
    for name, target in made.items():
        file, data, _ = target.seeds[0]
        assert outcome(target, folder / "valid", file, data) is None, name
    return made


def _npy(array: np.ndarray) -> bytes:
    stream = io.BytesIO()
    np.save(stream, array)
    return stream.getvalue()


def _sources(files: dict[str, bytes], inside: dict) -> Target:
    """Files of arcs, of which each is read."""

    def read(folder: Path) -> None:
        for name in files:
            read_source(folder / name)

    return Target(files, read, inside)


def _mtx() -> Target:
    text = b"%%MatrixMarket matrix coordinate real general\n% a\n4 4 3\n1 2 0.5\n3 4 1\n4 1 2e0\n"
    return _sources({"a.mtx": text, "b.mtx.gz": _gzip(text)}, {"b.mtx.gz": (text, _gzip)})


def _edges() -> Target:
    text = b"# a\n10 20\n20 30\n-5 10\n"
    files = {
        "a.txt": text, "b.txt.gz": _gzip(text), "c.csv": b"1,2,0.5\n2,3,1\n",
        "d.csv": b'\xef\xbb\xbfTarget;Source;Weight\r\n"a b";c;0.5\r\nc;"a b";1\r\n',
        "e.npy": _npy(np.array([[0, 1, 2], [1, 2, 0]])),
    }  # fmt: skip
    return _sources(files, {"b.txt.gz": (text, _gzip)})


def _csr(name: str, matrix: np.ndarray) -> dict[str, np.ndarray]:
    csr = sp.csr_matrix(matrix)
    return {
        f"{name}_indptr": csr.indptr, f"{name}_indices": csr.indices,
        f"{name}_data": csr.data, f"{name}_shape": np.array(csr.shape),
    }  # fmt: skip


def _npz() -> Target:
    arrays = _csr("adj", np.eye(4, k=1)) | _csr("attr", np.eye(4, 3)) | {"labels": np.arange(4)}
    return _of_npz("a.npz", arrays, lambda folder: read_source(folder / "a.npz"))


def _weights() -> Target:
    arrays = {"convs.0.lin.weight": np.ones((2, 3)), "convs.0.bias": np.ones(2)}
    facts = {
        "format": "gcnmpi-weights", "version": 1, "model": {"name": "gcn", "hidden": []},
        "activation": "relu", "widths": [3, 2], "graph": {"direction": "in"},
    }  # fmt: skip
    target = _of_npz("w.npz", arrays, lambda folder: read_weights(folder / "w.npz", Config()))
    stream = io.BytesIO(target.files["w.npz"])
    with zipfile.ZipFile(stream, "a") as archive:
        archive.comment = json.dumps(facts).encode()
    return replace(target, files={"w.npz": stream.getvalue()})


def _of_npz(file: str, arrays: dict, read: Callable[[Path], object]) -> Target:
    stream = io.BytesIO()
    np.savez_compressed(stream, **arrays)
    return _of_zip(file, stream.getvalue(), read)


def _of_zip(file: str, archive: bytes, read: Callable[[Path], object]) -> Target:
    return Target({file: archive}, read, _members(file, archive))


STATE = {"a.weight": np.ones((2, 3), np.float32), "a.bias": np.ones(2)}


def _torch() -> Target:
    stream = io.BytesIO()
    tensor_files.write_state(stream, STATE, lambda content: {"epoch": 3, "state_dict": content})
    return _of_zip("w.pt", stream.getvalue(), lambda folder: read_tensors(folder / "w.pt"))


def _safetensors() -> Target:
    with tempfile.NamedTemporaryFile() as file:
        tensor_files.write_safetensors(Path(file.name), STATE)
        data = Path(file.name).read_bytes()
    return Target({"w.safetensors": data}, lambda f: read_tensors(f / "w.safetensors"))


def _pyg() -> Target:
    stream = io.BytesIO()
    arrays = {
        "x": np.ones((3, 2), np.float32), "edge_index": np.array([[0, 1], [1, 2]]),
        "y": np.array([0, 1, 0]), "train_mask": np.array([True, False, True]),
    }  # fmt: skip
    tensor_files.write_graph(stream, arrays | {"num_nodes": 3})
    return _of_zip("g.pt", stream.getvalue(), lambda folder: read_source(folder / "g.pt", "pyg"))


def _pair_files() -> Target:
    pairs = np.array([[0, 1], [1, 2], [3, 1]])
    head = b"".join(pickle.dumps(part, 2) for part in (torch_zip.OLD_MAGIC, 1001, {}))
    old, new = pickle.dumps({"edge": pairs, "edge_neg": pairs}, 2), io.BytesIO()
    tensor_files.write_torch(new, {"head": pairs[:, 0], "tail": pairs[:, 1], "x": 1}, {})
    files = {
        "train.pt": new.getvalue(), "valid.pt": head + old, "test.csv": b"0,2\n2,1\n",
    }  # fmt: skip
    inside = _members("train.pt", new.getvalue()) | {"valid.pt!": (old, lambda data: head + data)}
    return Target(files, lambda folder: read_masks(folder, Layout()), inside)


def _members(file: str, archive: bytes) -> dict[str, tuple[bytes, Pack]]:
    """Each member of a zip, and the zip with another in its place."""
    with zipfile.ZipFile(io.BytesIO(archive)) as opened:
        members = {name: opened.read(name) for name in opened.namelist()}

    def pack(name: str, data: bytes) -> bytes:
        stream = io.BytesIO()
        with zipfile.ZipFile(stream, "w") as packed:
            for other, valid in members.items():
                packed.writestr(other, data if other == name else valid)
        return stream.getvalue()

    return {
        f"{file}!{name}": (valid, lambda data, name=name: pack(name, data))
        for name, valid in members.items()
    }


def _planetoid() -> Target:
    onehot, rows = np.eye(3, dtype=np.int32)[[0, 1, 2, 0]], np.eye(4, 5, dtype=np.float32)
    parts = {"x": rows, "allx": rows, "tx": rows[:2]}
    parts = {name: sp.csr_matrix(some) for name, some in parts.items()}
    graph = {0: [1], 1: [0, 4], 2: [3], 3: [2], 4: [1], 5: []}
    parts |= {"y": onehot, "ally": onehot, "ty": onehot[:2], "graph": graph}
    files = {f"ind.a.{name}": pickle.dumps(value, 2) for name, value in parts.items()}
    files["ind.a.test.index"] = b"5\n4\n"
    return Target(files, lambda folder: read_source(folder / "ind.a", "planetoid"))


GRAPH = Graph(np.array([0, 1, 1, 1]), np.array([1], np.int32))


def _vertex_data() -> Target:
    arrays = {
        "x.npy": np.ones((3, 2), np.float32), "y.npy": np.array([0, 1, 0]),
        "m.npy": np.array([True, False, True]), "v.npy": np.array([1]),
    }  # fmt: skip

    def read(folder: Path) -> None:
        masks = {"train": folder / "m.npy", "val": folder / "v.npy"}
        attach(GRAPH, VertexFiles(features=folder / "x.npy", labels=folder / "y.npy", masks=masks))

    return Target({name: _npy(array) for name, array in arrays.items()}, read)


def _vertex_tables() -> Target:
    stream = io.BytesIO()
    sp.save_npz(stream, sp.csr_matrix(np.eye(3, 2, dtype=np.float32)))
    files = {
        "x.csv": b"id,a,b\n2,0.5,1\n0,1,-2e3\n1,0,0\n", "y.csv": b"label\ncat\ndog\ncat\n",
        "m.txt": b"true\nfalse\ntrue\n", "i.txt": b"2\n1\n0\n", "s.npz": stream.getvalue(),
    }  # fmt: skip

    def read(folder: Path) -> None:
        masks = {"train": folder / "m.txt"}
        attach(GRAPH, VertexFiles(labels=folder / "y.csv", masks=masks, ids=folder / "i.txt"))
        for name in ("x.csv", "s.npz"):
            attach(GRAPH, VertexFiles(features=folder / name))

    return Target(files, read)


def _config() -> Target:
    text = b'dtype = "float64"\n[model]\nhidden = [16, 8]\ndropout = 0.5\n[train]\nepochs = 20\n'
    return Target({"c.toml": text}, lambda folder: load_config(folder / "c.toml"))


def _record() -> Target:
    lines = [
        {"event": "start", "graph": "g", "config": {"dtype": "float32"}, "ranks": 2,
         "versions": {"mpi": "5"}, "hosts": ["a", "b"],
         "of_ranks": {"rows": [1, 2], "peers": [[1], [0]], "peer_rows": [[3], [4]],
                      "expand_row_bytes": 4, "fold_row_bytes": 0, "memory_forecast_bytes": 5}},
        {"event": "epoch", **Epoch(1, 0.5, {"val_accuracy": 0.25}, 0.1).record(), "time": 1.0},
        {"event": "resume", "epoch": 1, "ranks": 3},
        {"event": "end", "finished": True, "epochs_run": 1, "rank_phases": {"spmm": [1.0] * 3},
         "samples": [{"epoch": 1, "after": 0, "seconds": {"spmm": [1.0, 2.0, 1.0]}}]},
    ]  # fmt: skip
    text = "".join(json.dumps(line) + "\n" for line in lines)

    def shown(folder: Path) -> None:
        facts = facts_of("run", "run.jsonl", read_run(folder))
        write_report(folder / "page.html", [facts])

    return Target({"run.jsonl": text.encode()}, shown)


def _stored(path: Path) -> dict[str, Target]:
    labels, n = np.arange(6, dtype=np.int32) % 2, 6
    data = np.ones(n), np.ones((n, 2), np.float32), labels, {"train": labels == 0}
    graph = Graph(np.arange(n + 1), (np.arange(n, dtype=np.int32) + 1) % n, *data)
    write_graph(path, graph, source={})
    add_partition(path, "rp", 2)

    def files(folder: Path) -> dict[str, bytes]:
        return {str(file.relative_to(path)): file.read_bytes() for file in folder.rglob("*.*")}

    whole, npz = files(path), "partitions/rp-2.npz"
    write_pairs(path, split_pairs(graph, ("1/2", "1/4", "1/4")))
    pairs = files(path / "pairs") | {"manifest.json": whole["manifest.json"]}

    def described(folder: Path) -> None:
        with contextlib.redirect_stdout(io.StringIO()):
            partition = read_partition(folder, "rp-2")
            describe_partition(partition)
            show_partition(partition)

    def opened(folder: Path) -> None:
        """A graph that is opened must do no harm to code that computes with it."""
        graph = open_graph(folder).graph
        measure(graph, np.arange(graph.n, dtype=np.int32) % 2, 2, "out")

    return {
        "graph folder": Target(whole, opened),
        "pairs": Target(pairs, lambda folder: describe_pairs(read_pairs(folder, "links"))),
        "partition": Target(whole, described, _members(npz, whole[npz])),
    }


def _checkpoint(out: Path) -> Target:
    folder = out / checkpoint_files.FOLDER / f".{checkpoint_files.name_of(2)}.tmp"
    checkpoint_files.make_folder(folder)
    facts = {
        "format": checkpoint_files.FORMAT, "version": checkpoint_files.VERSION, "epoch": 2,
        "steps": 2, "graph_id": "0", "data_id": "", "direction": "in", "widths": [2, 2],
        "config": {"train": {"epochs": 2}}, "best": {"epoch": 0, "value": None},
    }  # fmt: skip
    history = checkpoint_files.History([Epoch(k, 0.5, {}, 0.1) for k in (1, 2)])
    state = {"weights/convs.0.lin.weight": np.ones((2, 2))}
    path = checkpoint_files.finish(folder, state, facts, history=history)
    files = {file.name: file.read_bytes() for file in path.iterdir()}

    def read(folder: Path) -> None:
        for manifest_of in (checkpoint_files.read_manifest, _sealed):  # as if checksums were right
            try:
                facts = manifest_of(folder)
                checkpoint_files.check(folder, facts["files"])
                checkpoint_files.read_state(folder, facts)
                return
            except UserError:
                if manifest_of is _sealed:
                    raise

    return Target(files, read, _members("state.npz", files["state.npz"]))


def _sealed(folder: Path) -> dict:
    path = folder / checkpoint_files.MANIFEST
    try:
        facts = json.loads(path.read_bytes())
        facts.pop("checksum", None)
        for piece in facts["files"]:
            data = (folder / piece[0]).read_bytes()
            piece[1:] = [0, len(data), zlib.crc32(data)]
        path.write_text(json.dumps(facts | {"checksum": checkpoint_files._checksum(facts)}))
    except Exception:  # it could not even be sealed
        pass
    return checkpoint_files.read_manifest(folder)
