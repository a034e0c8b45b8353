"""Pure-Python writers of the formats that weights come in, for tests."""

import io
import json
import pickle
import zipfile
from collections import OrderedDict

import numpy as np

SAFE = {"<f4": "F32", "<f8": "F64", "<f2": "F16", "<i8": "I64"}
STORAGES = {"|b1": "BoolStorage", "<f4": "FloatStorage", "<f8": "DoubleStorage",
            "<f2": "HalfStorage", "<i8": "LongStorage"}  # fmt: skip


def write_safetensors(path, state, change=lambda header: None, cut=0):
    """A safetensors file; ``change`` may spoil its header, ``cut`` takes bytes off its end."""
    header, data = {"__metadata__": {"format": "pt"}}, b""
    for name, array in state.items():
        raw = np.ascontiguousarray(array).tobytes()
        offsets = [len(data), len(data) + len(raw)]
        header[name] = {"dtype": SAFE[array.dtype.str], "shape": list(array.shape),
                        "data_offsets": offsets}  # fmt: skip
        data += raw
    change(header)
    text = json.dumps(header).encode()
    whole = len(text).to_bytes(8, "little") + text + data
    path.write_bytes(whole[: len(whole) - cut])


class _Pickled:
    """An object that is pickled as a name, such as torch.FloatStorage, or as a call or instance."""

    def __init__(self, kind, *parts):
        self.kind, self.parts = kind, parts


class _Pickler(pickle._Pickler):
    def persistent_id(self, value):
        return value.parts if isinstance(value, _Pickled) and value.kind == "storage" else None

    def save(self, value, save_persistent_id=True):
        kind = value.kind if isinstance(value, _Pickled) else "storage"
        if kind == "storage":
            super().save(value, save_persistent_id)
        elif kind == "name":
            self.write(pickle.GLOBAL + "{}\n{}\n".format(*value.parts).encode())
        else:
            called, given = value.parts
            self.save(called)
            if kind == "instance":
                self.write(pickle.EMPTY_TUPLE + pickle.NEWOBJ)
            self.save(given)
            self.write(pickle.REDUCE if kind == "call" else pickle.BUILD)


def tensor(key, array, offset=0, shape=None, strides=None, count=None):
    """The call that torch pickles for a tensor of a storage."""
    shape = array.shape if shape is None else shape
    if strides is None:
        strides = tuple(s // array.itemsize for s in array.strides)
    kind, count = named("torch", STORAGES[array.dtype.str]), array.size if count is None else count
    storage = _Pickled("storage", "storage", kind, key, "cpu", count)
    rest = storage, offset, shape, strides, False, OrderedDict()
    return call("torch._utils", "_rebuild_tensor_v2", *rest)


def call(module, name, *arguments):
    """A call of anything."""
    return _Pickled("call", named(module, name), arguments)


def instance(module, name, state):
    """An object of any class."""
    return _Pickled("instance", named(module, name), state)


def named(module, name):
    """A class or a function itself."""
    return _Pickled("name", module, name)


def write_torch(path, content, storages=(), compression=zipfile.ZIP_STORED):
    """A file as torch.save writes it: an object of the above, and bytes by key."""
    stream = io.BytesIO()
    _Pickler(stream, protocol=2).dump(content)
    with zipfile.ZipFile(path, "w", compression) as archive:
        archive.writestr("archive/data.pkl", stream.getvalue())
        archive.writestr("archive/byteorder", b"little")
        for key, raw in dict(storages).items():
            archive.writestr(f"archive/data/{key}", raw)


def write_state(path, state, wrap=lambda content: content):
    """A state dict; ``wrap`` puts it into a checkpoint."""
    content = OrderedDict((name, tensor(str(i), a)) for i, (name, a) in enumerate(state.items()))
    raws = {str(i): np.ascontiguousarray(a).tobytes() for i, a in enumerate(state.values())}
    write_torch(path, wrap(content), raws)


def write_graph(path, fields):
    """A Data object of PyTorch Geometric, as it is saved since version 2."""
    data, storage = "torch_geometric.data.data", "torch_geometric.data.storage"
    arrays = {name: value for name, value in fields.items() if isinstance(value, np.ndarray)}
    tensors = {name: tensor(name, array) for name, array in arrays.items()}
    state = {
        "_edge_attr_cls": named(data, "DataEdgeAttr"),
        "_store": instance(
            storage, "GlobalStorage", {"_mapping": fields | tensors, "_parent": None}
        ),
    }
    raws = {name: array.tobytes() for name, array in arrays.items()}
    write_torch(path, instance(data, "Data", state), raws)
