"""Files of weights of other programs: what is read, what is refused, and that nothing runs."""

import re
import zipfile
from collections import OrderedDict

import numpy as np
import tensor_files as write
from refusals import refuses

from partition.tensor_files import read_tensors

STATE = {
    "a.weight": np.arange(6, dtype=np.float32).reshape(2, 3),
    "a.bias": np.array([1.5, -2.0]),
    "b": np.array([0.5, 3.0], np.float16),
    "b.num_batches_tracked": np.array(7),
}


def same(found, expected):
    assert found.keys() == expected.keys()
    for name, array in expected.items():
        assert found[name].shape == array.shape
        np.testing.assert_array_equal(found[name], array)


def test_files_come_back(tmp_path):
    for writer, name in ((write.write_safetensors, "w.safetensors"), (write.write_state, "w.pt")):
        writer(tmp_path / name, STATE)
        same(read_tensors(tmp_path / name), STATE)
    for word in ("state_dict", "model", "model_state_dict"):
        wrap = lambda state, word=word: {"epoch": 3, word: state, "lr": 0.1}  # noqa: E731
        write.write_state(tmp_path / "w.pth", STATE, wrap)
        same(read_tensors(tmp_path / "w.pth"), STATE)


def test_views_of_one_storage_are_taken_apart(tmp_path):
    base = np.arange(12, dtype=np.float32)
    views = {  # name → offset, shape, strides; what it is
        "row": (3, (3,), (1,), base[3:6]),
        "turned": (0, (3, 4), (1, 3), base.reshape(4, 3).T),
        "nothing": (12, (0, 3), (3, 1), np.empty((0, 3))),
        "scalar": (11, (), (), base[11]),
        "last": (10, (2,), (1,), base[10:]),
        "repeated rows": (1, (4, 3), (0, 1), np.tile([1, 2, 3], (4, 1))),
        "repeated columns": (1, (2, 5), (3, 0), np.repeat([[1], [4]], 5, axis=1)),
        "one number": (1, (7,), (0,), np.ones(7)),
    }
    content = {name: write.tensor("0", base, *view) for name, (*view, _) in views.items()}
    write.write_torch(tmp_path / "w.pt", OrderedDict(content), {"0": base.tobytes()})
    same(read_tensors(tmp_path / "w.pt"), {name: view[-1] for name, view in views.items()})


def test_the_upper_half_of_a_float_is_one(tmp_path):
    numbers = np.array([1.0, -2.5, 3.140625], np.float32)  # exact in 16 bits
    half = (numbers.view(np.uint32) >> 16).astype(np.uint16)

    def bf16(header):
        header["w"]["dtype"] = "BF16"

    write.write_safetensors(tmp_path / "w.safetensors", {"w": half.view("<f2")}, bf16)
    np.testing.assert_array_equal(read_tensors(tmp_path / "w.safetensors")["w"], numbers)


HEADERS = [
    ({"dtype": "F8_E4M3"}, "dtype 'F8_E4M3'"), ({"shape": [2, 4]}, "24 bytes for shape"),
    ({"shape": [-2, -3]}, "whole numbers"), ({"shape": 6}, "safetensors"),
    ({"data_offsets": [0, 1 << 40]}, "outside of the file"), ({"data_offsets": [0]}, "safetensors"),
]  # fmt: skip


def test_what_is_no_safetensors_file_is_refused(tmp_path):
    path, entry = (
        tmp_path / "w.safetensors",
        b'"a": {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}',
    )
    header = b"{%s, %s}" % (entry, entry)
    for wrong, says in HEADERS:
        change = lambda head, wrong=wrong: head["a.weight"].update(wrong)  # noqa: E731
        write.write_safetensors(path, STATE, change)
        refuses(says, read_tensors, path)
    sized = (30, b"{}"), (3, b"[1]"), (len(header), header), (40_000, b"[" * 40_000)
    whole = (size.to_bytes(8, "little") + rest for size, rest in sized)
    for raw in (*whole, b"", b"1234", b"\xff" * 20):
        path.write_bytes(raw)
        refuses("safetensors", read_tensors, path)
    write.write_safetensors(path, STATE, cut=1)
    refuses("outside of the file", read_tensors, path)


def test_a_file_that_calls_something_is_refused_and_not_run(tmp_path):
    path, trace = tmp_path / "evil.pt", tmp_path / "trace"
    for called in (
        "os.system", "posix.system", "builtins.eval", "builtins.getattr", "subprocess.Popen",
        "torch.nn.modules.linear.Linear", "torch.load", "numpy.load",
        "torch._utils._rebuild_wrapper_subclass",
    ):  # fmt: skip
        evil = write.call(*called.rsplit(".", 1), f"touch {trace}")
        for content in (evil, OrderedDict(w=evil), {"state_dict": OrderedDict(w=evil)}):
            write.write_torch(path, content)
            refuses(rf"evil\.pt names {re.escape(called)}, .* run", read_tensors, path)
    assert not trace.exists()


def test_every_way_of_a_pickle_to_a_name_is_guarded(tmp_path):
    """GLOBAL, STACK_GLOBAL, INST and the extension registry."""
    trace = tmp_path / "trace"
    word = f"touch {trace}".encode()
    for raw in (
        b"cos\nsystem\n(S'" + word + b"'\ntR.",
        b"\x80\x04\x8c\x02os\x8c\x06system\x93(S'" + word + b"'\ntR.",
        b"(S'" + word + b"'\nios\nsystem\n.",
        b"\x82\x01.",
        b"ctorch\nFloatStorage\n}S'code'\nS'O8'\nsb.",  # attributes of what stands for a class
        b"ctorch._utils\n_rebuild_parameter\n(N}S'__defaults__'\n(I1\ntstb.",
        b"ccollections\nOrderedDict\n(N}S'get'\nS'x'\nstb.",
    ):
        with zipfile.ZipFile(tmp_path / "evil.pt", "w") as archive:
            archive.writestr("archive/data.pkl", raw)
        refuses(r"evil\.pt", read_tensors, tmp_path / "evil.pt")
    assert not trace.exists()


def test_keys_are_of_bounded_length(tmp_path):
    base, path = np.ones(2, np.float32), tmp_path / "w.pt"
    for length in (1000, 1001):
        content = {"a" * length: write.tensor("0", base)}
        write.write_torch(path, content, {"0": base.tobytes()})
        if length == 1000:
            same(read_tensors(path), {"a" * length: base})
    refuses(r"w\.pt", read_tensors, path)


OUTSIDE = [
    (7, (6,), (1,)), (5, (2,), (1,)), (0, (2, 3), (4, 1)), (0, (1 << 40,), (0,)), (-1, (2,), (1,)),
    (0, (2,), (-1,)), (0, (2, 3), (1,)), (0, 6, (1,)), (0, (2.0,), (1,)),
]  # fmt: skip


def test_a_tensor_outside_of_its_storage_is_refused(tmp_path):
    path, base = tmp_path / "w.pt", np.arange(6, dtype=np.float32)
    for view in OUTSIDE:
        write.write_torch(path, {"w": write.tensor("0", base, *view)}, {"0": base.tobytes()})
        refuses(r"w\.pt (is damaged: w |holds tensors of more)", read_tensors, path)
    large = np.zeros(1 << 20, np.float32)
    content = {f"w{i}": write.tensor("0", large) for i in range(40)}
    write.write_torch(path, content, {"0": large.tobytes()})
    assert "clone()" in refuses(r"more than 8 times its size", read_tensors, path).hint


def test_what_is_no_state_dict_is_refused(tmp_path):
    path, base = tmp_path / "w.pt", np.zeros(2, np.float32)
    for content in ([1, 2], {"w": 3}, {3: write.tensor("0", base)}, write.tensor("0", base)):
        write.write_torch(path, content, {"0": base.tobytes()})
        refuses("something else than a dict of tensors", read_tensors, path)
    write.write_torch(path, OrderedDict(w=write.tensor("0", base)))
    refuses("it has no data/0", read_tensors, path)
    wide = OrderedDict(w=write.tensor("0", np.zeros(1 << 18, np.float32)))
    write.write_torch(path, wide, {"0": bytes(1 << 20)}, zipfile.ZIP_DEFLATED)
    refuses("does not compress", read_tensors, path)
    write.write_torch(path, wide, {"0": bytes(1 << 20)})
    of_entry = (content := path.read_bytes()).index(b"PK\1\2") + 20
    path.write_bytes(content[:of_entry] + b"\xfe\xff\xff\xff" + content[of_entry + 4 :])
    refuses("does not compress", read_tensors, path)  # a buffer of 4 GB is announced
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("model/code/x.py", b"")
        archive.writestr("model/data.pkl", b".")
    refuses("holds no state dict", read_tensors, path)
