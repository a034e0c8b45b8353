"""Every reader as a fuzzer needs it: valid files, and how to read them.

The content of a container (a member of a zip, the text in a gzip) is mutated inside too, and
packed again: what a checksum refuses never reaches the parser behind it.
"""

import contextlib
import functools
import gzip
import io
import json
import pickle
import pickletools
import random
import re
import shutil
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import scipy.sparse as sp
from tensor_files import write_graph as write_pyg
from tensor_files import write_safetensors, write_state, write_torch

from gcnmpi.options.config import Config, load_config
from gcnmpi.report.page import write_report
from gcnmpi.report.run_facts import facts_of
from gcnmpi.run import checkpoint_files
from gcnmpi.run.record import Epoch, read_run
from gcnmpi.run.weights import read_weights
from partition.errors import UserError
from partition.graph.graph import Graph
from partition.graph.metrics import measure
from partition.graph.store import open_graph, read_partition, write_graph
from partition.graph.vertex_pairs import read_pairs, split_pairs, write_pairs
from partition.importing.data_files import VertexFiles, attach
from partition.importing.pair_files import read_masks
from partition.importing.readers.metis_files import read_parts
from partition.importing.readers.reading import read_source
from partition.pipeline.adding import add_partition
from partition.reporting.tables import describe_pairs, describe_partition, show_partition
from partition.tensor_files import OLD_MAGIC, read_tensors

Seed = tuple[str, bytes, Callable[[bytes], bytes]]
PICKLES = ("planetoid", "torch", "pyg", "pair files")  # the targets that hold pickles
OLD = b"".join(pickle.dumps(part, 2) for part in (OLD_MAGIC, 1001, {}))


@dataclass(frozen=True, repr=False)
class Target:
    """A reader: its valid files by name, and ``read(folder)``."""

    files: Mapping[str, bytes]
    read: Callable[[Path], object]

    @property
    def seeds(self) -> list[Seed]:
        """Everything that can be mutated: file, bytes, and what makes the file of them."""
        inner = [seed for name, data in self.files.items() for seed in _inside(name, data)]
        return [(name, data, bytes) for name, data in self.files.items()] + inner


def _gzip(data: bytes) -> bytes:
    return gzip.compress(data, mtime=0)  # not the time of day: the same seed, the same file


def _inside(name: str, data: bytes) -> Iterator[Seed]:
    """The contents of a container, and the container with others in their place."""
    if data.startswith(b"\x1f\x8b"):
        yield name, gzip.decompress(data), _gzip
    if data.startswith(OLD):
        yield name, data[len(OLD) :], OLD.__add__
    if not data.startswith(b"PK"):
        return
    with zipfile.ZipFile(io.BytesIO(data)) as opened:
        members, comment = {one: opened.read(one) for one in opened.namelist()}, opened.comment

    def pack(member: str, changed: bytes) -> bytes:
        with zipfile.ZipFile(stream := io.BytesIO(), "w") as packed:
            packed.comment = comment
            for other, valid in members.items():
                packed.writestr(other, changed if other == member else valid)
        return stream.getvalue()

    for member, valid in members.items():
        yield name, valid, lambda changed, member=member: pack(member, changed)


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
        at, kind = rng.randrange(len(data) + 1), rng.randrange(8)
        upto = min(len(data), at + rng.choice([0, 1, 1, 2, 4, 8, 100]))
        if kind < 4:
            end = (len(data), upto, at, upto)[kind]
            new = (b"", b"", data[at:upto], rng.choice(NUMBERS))[kind]
            data = data[:at] + new + data[end:]
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
    made = {}
    for name, read in READERS.items():
        place = folder / name.replace(" ", "-")
        written = FILES[name] if name in FILES else _written(place, name)
        made[name] = Target(written, read)
        file, data = next(iter(written.items()))
        assert outcome(made[name], folder / "valid", file, data) is None, name
    return made


def _npy(array: list | np.ndarray) -> bytes:
    np.save(stream := io.BytesIO(), np.asarray(array))
    return stream.getvalue()


def _npz(facts: object = None, **arrays: np.ndarray) -> bytes:
    np.savez_compressed(stream := io.BytesIO(), **arrays)
    with zipfile.ZipFile(stream, "a") as archive:
        archive.comment = b"" if facts is None else json.dumps(facts).encode()
    return stream.getvalue()


def _csr(name: str, matrix: np.ndarray) -> dict[str, np.ndarray]:
    csr, parts = sp.csr_matrix(matrix), ("indptr", "indices", "data", "shape")
    return {f"{name}_{part}": np.array(getattr(csr, part)) for part in parts}


def _scipy(matrix: np.ndarray) -> bytes:
    sp.save_npz(stream := io.BytesIO(), sp.csr_matrix(matrix))
    return stream.getvalue()


def _planetoid() -> dict[str, bytes]:
    onehot, rows = np.eye(3, dtype=np.int32)[[0, 1, 2, 0]], np.eye(4, 5, dtype=np.float32)
    parts = {"x": rows, "allx": rows, "tx": rows[:2]}
    parts = {name: sp.csr_matrix(some) for name, some in parts.items()}
    graph = {0: [1], 1: [0, 4], 2: [3], 3: [2], 4: [1], 5: []}
    parts |= {"y": onehot, "ally": onehot, "ty": onehot[:2], "graph": graph}
    files = {f"ind.a.{name}": pickle.dumps(value, 2) for name, value in parts.items()}
    return files | {"ind.a.test.index": b"5\n4\n"}


MTX = b"%%MatrixMarket matrix coordinate real general\n% a\n4 4 3\n1 2 0.5\n3 4 1\n4 1 2e0\n"
EDGES = b"# a\n10 20\n20 30\n-5 10\n"
MATRICES = _csr("adj", np.eye(4, k=1)) | _csr("attr", np.eye(4, 3))
LAYER = {"convs.0.lin.weight": np.ones((2, 3)), "convs.0.bias": np.ones(2)}
WEIGHTS = {
    "format": "gcnmpi-weights", "version": 1, "model": {"name": "gcn", "hidden": []},
    "activation": "relu", "widths": [3, 2], "graph": {"direction": "in"},
}  # fmt: skip
RUN = [
    {"event": "start", "graph": "g", "config": {"dtype": "float32"}, "ranks": 2,
     "versions": {"mpi": "5"}, "hosts": ["a", "b"],
     "of_ranks": {"rows": [1, 2], "peers": [[1], [0]], "peer_rows": [[3], [4]],
                  "expand_row_bytes": 4, "fold_row_bytes": 0, "memory_forecast_bytes": 5}},
    {"event": "epoch", **Epoch(1, 0.5, {"val_accuracy": 0.25}, 0.1).record(), "time": 1.0},
    {"event": "resume", "epoch": 1, "ranks": 3},
    {"event": "end", "finished": True, "epochs_run": 1, "rank_phases": {"spmm": [1.0] * 3},
     "samples": [{"epoch": 1, "after": 0, "seconds": {"spmm": [1.0, 2.0, 1.0]}}]},
]  # fmt: skip
FILES: dict[str, dict[str, bytes]] = {
    "mtx": {"a.mtx": MTX, "b.mtx.gz": _gzip(MTX)},
    "edges": {
        "a.txt": EDGES, "b.txt.gz": _gzip(EDGES), "c.csv": b"1,2,0.5\n2,3,1\n",
        "d.csv": b'\xef\xbb\xbfTarget;Source;Weight\r\n"a b";c;0.5\r\nc;"a b";1\r\n',
        "e.npy": _npy([[0, 1, 2], [1, 2, 0]]),
    },
    "npz": {"a.npz": _npz(**MATRICES, labels=np.arange(4))},
    "planetoid": _planetoid(),
    "vertex data": {
        "x.npy": _npy(np.ones((3, 2), np.float32)), "y.npy": _npy([0, 1, 0]),
        "m.npy": _npy([True, False, True]), "v.npy": _npy([1]),
    },
    "vertex tables": {
        "x.csv": b"id,a,b\n2,0.5,1\n0,1,-2e3\n1,0,0\n", "y.csv": b"label\ncat\ndog\ncat\n",
        "m.txt": b"true\nfalse\ntrue\n", "i.txt": b"2\n1\n0\n",
        "s.npz": _scipy(np.eye(3, 2, dtype=np.float32)),
    },
    "part file": {"parts": b"0\n1\n2\n0\n"},
    "config": {"c.toml": b'dtype = "float64"\n[model]\nhidden = [16, 8]\n[train]\nlr = 0.5'},
    "weights": {"w.npz": _npz(WEIGHTS, **LAYER)},
    "record": {"run.jsonl": "".join(json.dumps(line) + "\n" for line in RUN).encode()},
}  # fmt: skip


def _written(folder: Path, name: str) -> dict[str, bytes]:
    """The files that a writer leaves in a folder."""
    folder.mkdir(parents=True)
    state = {"a.weight": np.ones((2, 3), np.float32), "a.bias": np.ones(2)}
    pairs = np.array([[0, 1], [1, 2], [3, 1]])
    if name == "torch":
        write_state(folder / "w.pt", state, lambda content: {"epoch": 3, "state_dict": content})
    elif name == "safetensors":
        write_safetensors(folder / "w.safetensors", state)
    elif name == "pyg":
        arrays = {"x": np.ones((3, 2), np.float32), "edge_index": np.array([[0, 1], [1, 2]])}
        arrays |= {"y": np.array([0, 1, 0]), "train_mask": np.array([True, False, True])}
        write_pyg(folder / "g.pt", arrays | {"num_nodes": 3})
    elif name == "pair files":
        write_torch(folder / "train.pt", {"head": pairs[:, 0], "tail": pairs[:, 1], "x": 1})
        (folder / "valid.pt").write_bytes(OLD + pickle.dumps({"edge": pairs, "edge_neg": pairs}, 2))
        (folder / "test.csv").write_bytes(b"0,2\n2,1\n")
    elif name == "checkpoint":
        return _of_checkpoint(folder)
    else:
        path, labels = folder / "g.graph", np.arange(6, dtype=np.int32) % 2
        data = np.ones(6), np.ones((6, 2), np.float32), labels, {"train": labels == 0}
        graph = Graph(np.arange(7), (np.arange(6, dtype=np.int32) + 1) % 6, *data)
        write_graph(path, graph, source={})
        if name == "pairs":
            write_pairs(path, split_pairs(graph, ("1/2", "1/4", "1/4")))
        else:
            add_partition(path, "rp", 2)
        folder = path
    found = sorted(file for file in folder.rglob("*.*") if file.is_file())
    return {str(file.relative_to(folder)): file.read_bytes() for file in found}


def _of_checkpoint(out: Path) -> dict[str, bytes]:
    folder = out / checkpoint_files.FOLDER / f".{checkpoint_files.name_of(2)}.tmp"
    checkpoint_files.make_folder(folder)
    facts = {
        "format": checkpoint_files.FORMAT, "version": checkpoint_files.VERSION, "epoch": 2,
        "steps": 2, "graph_id": "0", "data_id": "", "direction": "in", "widths": [2, 2],
        "config": {"train": {"epochs": 2}}, "best": {"epoch": 0, "value": None},
    }  # fmt: skip
    epochs = [Epoch(k, 0.5, {}, 0.1) for k in (1, 2)]
    state = {"weights/convs.0.lin.weight": np.ones((2, 2))}
    path = checkpoint_files.finish(folder, state, facts, epochs=epochs)
    return {file.name: file.read_bytes() for file in path.iterdir()}


def _sources(folder: Path) -> None:
    for path in sorted(folder.iterdir()):
        read_source(path)


GRAPH = Graph(np.array([0, 1, 1, 1]), np.array([1], np.int32))


def _vertex_data(folder: Path) -> None:
    masks = {"train": folder / "m.npy", "val": folder / "v.npy"}
    attach(GRAPH, VertexFiles(features=folder / "x.npy", labels=folder / "y.npy", masks=masks))


def _vertex_tables(folder: Path) -> None:
    masks = {"train": folder / "m.txt"}
    attach(GRAPH, VertexFiles(labels=folder / "y.csv", masks=masks, ids=folder / "i.txt"))
    for name in ("x.csv", "s.npz"):
        attach(GRAPH, VertexFiles(features=folder / name))


def _record(folder: Path) -> None:
    write_report(folder / "page.html", [facts_of("run", "run.jsonl", read_run(folder))])


def _partition(folder: Path) -> None:
    with contextlib.redirect_stdout(io.StringIO()):
        partition = read_partition(folder, "rp-2")
        describe_partition(partition)
        show_partition(partition)


def _checkpoint(folder: Path) -> None:
    """Read it; where it is refused, once more as if checksums were right."""
    for sealed in (False, True):
        if sealed:
            with contextlib.suppress(Exception):  # it could not even be sealed
                _seal(folder)
        try:
            facts = checkpoint_files.read_manifest(folder)
            checkpoint_files.check(folder, facts["files"])
            checkpoint_files.read_state(folder, facts)
            return
        except UserError:
            if sealed:
                raise


def _seal(folder: Path) -> None:
    path = folder / checkpoint_files.MANIFEST
    facts = json.loads(path.read_bytes())
    facts.pop("checksum", None)
    for piece in facts["files"]:
        data = (folder / piece[0]).read_bytes()
        piece[1:] = [0, len(data), zlib.crc32(data)]
    path.write_text(json.dumps(facts | {"checksum": checkpoint_files._checksum(facts)}))


READERS: dict[str, Callable[[Path], object]] = {
    "mtx": _sources,
    "edges": _sources,
    "npz": _sources,
    "planetoid": lambda folder: read_source(folder / "ind.a", "planetoid"),
    "torch": lambda folder: read_tensors(folder / "w.pt"),
    "safetensors": lambda folder: read_tensors(folder / "w.safetensors"),
    "pyg": lambda folder: read_source(folder / "g.pt", "pyg"),
    "pair files": lambda folder: read_masks(folder, Graph(np.zeros(5), np.zeros(0))),
    "vertex data": _vertex_data,
    "vertex tables": _vertex_tables,
    "part file": lambda folder: read_parts(folder / "parts", 4, 3),
    "config": lambda folder: load_config(folder / "c.toml"),
    "weights": lambda folder: read_weights(folder / "w.npz", Config()),
    "record": _record,
    # A graph that is opened must do no harm to code that computes with it.
    "graph folder": lambda f: measure(open_graph(f).graph, np.arange(6) % 2, 2, "out"),
    "pairs": lambda folder: describe_pairs(read_pairs(folder, "links")),
    "partition": _partition,
    "checkpoint": _checkpoint,
}


# Pickles as programs: valid ones with other instructions grafted in, and random ones. Damage of
# single bytes rarely makes a program that runs on; here nearly every instruction is one, with
# operands that are hostile: values nested by reference, sizes that are announced and not there,
# calls, states and keys of everything.

CALLED = [
    b"ccollections\nOrderedDict\n", b"ctorch._utils\n_rebuild_tensor_v2\n", b"ctorch\nSize\n",
    b"ctorch\nFloatStorage\n", b"ctorch_geometric.data.data\nData\n", b"cnumpy\nndarray\n",
    b"cnumpy\ndtype\n", b"cnumpy.core.multiarray\n_reconstruct\n", b"cos\nsystem\n",
    b"cscipy.sparse.csr\ncsr_matrix\n", b"ccollections\ndefaultdict\n", b"c_codecs\nencode\n",
]  # fmt: skip
TEXTS = ["0", "f4", "<", "storage", "x", "edge_index", "num_nodes", "state_dict", "_mapping", "é"]
INTEGERS = [0, 1, 2, -1, 255, 2**31, 2**40, 2**63 - 1, 2**63, 2**64, -(2**63), 10**30]
# With nothing behind them, or less than they announce.
ANNOUNCED = [code + struct.pack("<Q", 1 << 40) for code in (b"\x96", b"\x8e", b"\x8d", b"\x95")]
ANNOUNCED += [code + struct.pack("<i", 1 << 30) for code in (b"\x8b", b"T", b"B", b"X")]
LONG = [b"\x8b" + struct.pack("<i", 60_000) + b"\x7f" * 60_000, b"I" + b"9" * 5000 + b"\n"]
# Values that hold the one before twice, and so on: trees of 2^40 leaves in few bytes.
TWICE = b")" + b"2\x86" * 40
NESTED = [TWICE, TWICE + b"qd0}hdK\1s", b")" + b"qd0(hdhdl" * 40, b"N" + b"qd0(hd)hd\x86\x91" * 40]
BARE = [  # of each instruction that takes nothing out of the file
    bytes([ord(opcode.code)]) for opcode in pickletools.opcodes
    if opcode.arg is None and opcode.name != "STOP"
]  # fmt: skip
OTHERS = [
    b"\x82\x01", b"iposix\nsystem\n", b"Pname\n", b"S'a\\x80'\n", b"S'\\'\n", b"Va\\u0100\n",
    b"I01\n", b"F1e999\n", b"Fnan\n", b"g0\n", b"p-1\n", b"r\xff\xff\xff\xff", b"\x80\x05",
]  # fmt: skip


def reprogrammed(data: bytes, rng: random.Random) -> bytes:
    """A pickle with one to three changes of its instructions; now and then, another program."""
    steps = list(_steps(data))
    if len(steps) < 5 or rng.random() < 0.2:
        return b"\x80\x02" + b"".join(_step(rng) for _ in range(rng.randint(2, 60))) + b"."
    for _ in range(rng.randint(1, 3)):
        at, other = (rng.randrange(1, len(steps)) for _ in range(2))
        kind = rng.randrange(6)
        steps[at : at + (kind in (1, 3, 4))] = [
            [_step(rng)], [], [steps[other]], [rng.choice(BARE)], [_value(rng)], [b"0", _value(rng)]
        ][kind]  # fmt: skip
    return b"".join(steps)


@functools.cache  # of the valid ones, of which there are few
def _steps(data: bytes) -> tuple[bytes, ...]:
    """The instructions of a pickle, with their operands; none of what is no pickle."""
    try:
        found = [at for _, _, at in pickletools.genops(data)]
    except ValueError:
        return ()
    return tuple(data[a:b] for a, b in zip(found, [*found[1:], len(data)], strict=True))


def _step(rng: random.Random) -> bytes:
    memo = rng.choice([b"q", b"h"]) + bytes([rng.randrange(4)])
    kinds = [_value(rng), _value(rng), _call(rng), rng.choice(BARE), rng.choice(BARE), memo]
    return rng.choice([*kinds, rng.choice(ANNOUNCED), rng.choice(OTHERS)])


def _value(rng: random.Random) -> bytes:
    """Instructions that put one value on the stack."""
    number, text = rng.choice(INTEGERS), rng.choice(TEXTS).encode()
    raw = number.to_bytes(number.bit_length() // 8 + 1, "little", signed=True)
    simple = [b")", b"]", b"}", b"\x8f", b"N", b"\x88", b"X" + struct.pack("<I", len(text)) + text]
    simple += [b"\x8a" + bytes([len(raw)]) + raw, rng.choice(CALLED), rng.choice(LONG)]
    first, second = rng.choices(simple, k=2)
    both = b"(" + first + second + rng.choice([b"t", b"l", b"d", b"\x91"])
    return rng.choice([first, first, both, rng.choice(NESTED), rng.choice(OTHERS)])


def _call(rng: random.Random) -> bytes:
    """A call of something with arguments, and perhaps a state."""
    arguments = b"".join(_value(rng) for _ in range(rng.randrange(4)))
    called = rng.choice(CALLED) + b"(" + arguments + b"t" + rng.choice([b"R", b"\x81"])
    return called + (_value(rng) + b"b" if rng.random() < 0.3 else b"")
