"""Files of weights of other programs: what is read, what is refused, and that nothing runs."""

import pickle
import re
import subprocess
import sys
import zipfile
from collections import OrderedDict
from pathlib import Path

import numpy as np
import pytest
import tensor_files as write
from refusals import refuses
from traced import takes_less_than

from partition.errors import UserError
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


def test_safetensors_come_back(tmp_path):
    write.write_safetensors(tmp_path / "w.safetensors", STATE)
    same(read_tensors(tmp_path / "w.safetensors"), STATE)


def test_torch_files_come_back(tmp_path):
    write.write_state(tmp_path / "w.pt", STATE)
    same(read_tensors(tmp_path / "w.pt"), STATE)
    for word in ("state_dict", "model", "model_state_dict"):
        write.write_state(
            tmp_path / "w.pth", STATE, lambda state, word=word: {"epoch": 3, word: state, "lr": 0.1}
        )
        same(read_tensors(tmp_path / "w.pth"), STATE)


def test_views_of_one_storage_are_taken_apart(tmp_path):
    base = np.arange(12, dtype=np.float32)
    content = OrderedDict(
        row=write.tensor("0", base, 3, (3,), (1,)),
        turned=write.tensor("0", base, 0, (3, 4), (1, 3)),
        nothing=write.tensor("0", base, 12, (0, 3), (3, 1)),
        scalar=write.tensor("0", base, 11, (), ()),
    )
    write.write_torch(tmp_path / "w.pt", content, {"0": base.tobytes()})
    found = read_tensors(tmp_path / "w.pt")
    same(
        found,
        {"row": base[3:6], "turned": base.reshape(4, 3).T, "nothing": np.empty((0, 3)),
         "scalar": base[11]},
    )  # fmt: skip


def test_the_upper_half_of_a_float_is_one(tmp_path):
    numbers = np.array([1.0, -2.5, 3.140625], np.float32)  # exact in 16 bits
    half = (numbers.view(np.uint32) >> 16).astype(np.uint16)

    def bf16(header):
        header["w"]["dtype"] = "BF16"

    write.write_safetensors(tmp_path / "w.safetensors", {"w": half.view("<f2")}, bf16)
    np.testing.assert_array_equal(read_tensors(tmp_path / "w.safetensors")["w"], numbers)


@pytest.mark.parametrize(
    ("entry", "says"),
    [
        ({"dtype": "F8_E4M3"}, "dtype 'F8_E4M3'"),
        ({"shape": [2, 4]}, "24 bytes for shape"),
        ({"shape": [-2, -3]}, "whole numbers"),
        ({"shape": [2.0, 3]}, "whole numbers"),
        ({"shape": 6}, "safetensors"),
        ({"data_offsets": [0, 1 << 40]}, "outside of the file"),
        ({"data_offsets": [24, 0]}, "outside of the file"),
        ({"data_offsets": [0]}, "safetensors"),
    ],
)
def test_a_header_that_does_not_fit_is_refused(tmp_path, entry, says):
    path = tmp_path / "w.safetensors"
    write.write_safetensors(path, STATE, lambda header: header["a.weight"].update(entry))
    refuses(says, read_tensors, path)


def test_what_is_no_safetensors_file_is_refused(tmp_path):
    path = tmp_path / "w.safetensors"
    header = b'{"a": {}, "a": {}}'
    for raw in (b"", b"1234", b"\xff" * 20, (30).to_bytes(8, "little") + b"{}",
                (3).to_bytes(8, "little") + b"[1]", len(header).to_bytes(8, "little") + header,
                (40_000).to_bytes(8, "little") + b"[" * 40_000):  # fmt: skip
        path.write_bytes(raw)
        refuses("safetensors", read_tensors, path)
    write.write_safetensors(path, STATE, cut=1)
    refuses("outside of the file", read_tensors, path)


@pytest.mark.parametrize(
    ("module", "name"),
    [("os", "system"), ("posix", "system"), ("builtins", "eval"), ("builtins", "getattr"),
     ("subprocess", "Popen"), ("torch.nn.modules.linear", "Linear"), ("torch", "load"),
     ("torch._utils", "_rebuild_wrapper_subclass"), ("numpy", "load")],
)  # fmt: skip
def test_a_file_that_calls_something_is_refused_and_not_run(tmp_path, module, name):
    path, trace = tmp_path / "evil.pt", tmp_path / "trace"
    evil = write.call(module, name, f"touch {trace}")
    for content in (evil, OrderedDict(w=evil), {"state_dict": OrderedDict(w=evil)}):
        write.write_torch(path, content, {})
        found = refuses(rf"evil\.pt names {module}\.{name}, .* run", read_tensors, path)
        assert "\n" not in found.message
    assert not trace.exists()


def test_every_way_of_a_pickle_to_a_name_is_guarded(tmp_path):
    """GLOBAL, STACK_GLOBAL, INST and the extension registry."""
    trace = tmp_path / "trace"
    word = f"touch {trace}".encode()
    pickles = [
        b"cos\nsystem\n(S'" + word + b"'\ntR.",
        b"\x80\x04\x8c\x02os\x8c\x06system\x93(S'" + word + b"'\ntR.",
        b"(S'" + word + b"'\nios\nsystem\n.",
        b"\x82\x01.",
        b"ctorch\nFloatStorage\n}S'code'\nS'O8'\nsb.",  # attributes of what stands for a class
        b"ctorch._utils\n_rebuild_parameter\n(N}S'__defaults__'\n(I1\ntstb.",
        b"ccollections\nOrderedDict\n(N}S'get'\nS'x'\nstb.",
    ]
    for raw in pickles:
        with zipfile.ZipFile(tmp_path / "evil.pt", "w") as archive:
            archive.writestr("archive/data.pkl", raw)
        refuses(r"evil\.pt", read_tensors, tmp_path / "evil.pt")
    assert not trace.exists()


NESTED = b")" + b"2\x86" * 40  # a tuple of 2⁴⁰ leaves
SMALL = {
    "a nested key": b"}" + NESTED + b"K\1s.",
    "a key nested in three": b"}" + NESTED + b"X\1\0\0\0a2\x87K\1s.",
    "a nested set": b"N" + b"".join(b"qd0(hd)hd\x86\x91" for _ in range(40)) + b".",
    "a nested persistent id": b"}X\1\0\0\0w" + NESTED + b"Qs.",
    "a persistent id of a nested storage": b"(X\7\0\0\0storagectorch\nFloatStorage\n"
    + NESTED + b"tQ.",
    "bytes that are not there": b"\x96" + (1 << 40).to_bytes(8, "little") + b".",
    "a large key": b"}\x8b" + (1 << 16).to_bytes(4, "little") + b"\x7f" * (1 << 16) + b"K\1s.",
    "a long key": b"}X\0\0\1\0" + b"a" * (1 << 16) + b"K\1s.",
    "an extension": b"\x82\1.",
    "a nested name": NESTED + NESTED + b"\x93.",
    "a call of a number": b"K\1)R.",
    "a call with a nested tuple": b"ctorch\nSize\n" + NESTED + b"R.",
}  # fmt: skip


@pytest.mark.parametrize("case", SMALL)
def test_a_small_file_neither_hangs_nor_grows(tmp_path, case):
    with zipfile.ZipFile(tmp_path / "w.pt", "w") as archive:
        archive.writestr("archive/data.pkl", b"\x80\2" + SMALL[case])

    def refused():
        with pytest.raises(UserError, match=r"w\.pt (is truncated|holds something else)") as found:
            read_tensors(tmp_path / "w.pt")
        assert len(found.value.message) < 400

    assert takes_less_than(4 << 20, refused)


def test_many_tensors_of_one_storage_are_bounded(tmp_path):
    base = np.zeros(1 << 20, np.float32)
    content = {f"w{i}": write.tensor("0", base) for i in range(40)}
    write.write_torch(tmp_path / "w.pt", content, {"0": base.tobytes()})
    found = refuses(r"more than 8 times its size", read_tensors, tmp_path / "w.pt")
    assert "clone()" in found.hint


@pytest.mark.parametrize("suffix", ["pt", "npz"])
def test_a_member_that_wants_a_password_is_one_line(tmp_path, suffix):
    path = tmp_path / f"w.{suffix}"
    write.write_state(path, STATE) if suffix == "pt" else np.savez(path, **STATE)
    raw = bytearray(path.read_bytes())
    for mark, flags in ((b"PK\3\4", 6), (b"PK\1\2", 8)):
        for found in re.finditer(mark, bytes(raw)):
            raw[found.start() + flags] |= 1
    path.write_bytes(raw)
    refusal = refuses(rf"w\.{suffix}.* (cannot be read|cannot read).*encrypted", read_tensors, path)
    assert "\n" not in refusal.message


def test_torch_is_not_imported():
    code = "import sys, partition.tensor_files.torch_zip; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-P", "-c", code], check=False).returncode == 0


def test_numbers_that_a_tensor_repeats(tmp_path):
    base, forms = np.arange(6, dtype=np.float32), {"a": (4, 3), "b": (2, 5), "c": (7,)}
    strides = {"a": (0, 1), "b": (3, 0), "c": (0,)}
    tensors = {
        name: write.tensor("0", base, offset=1, shape=shape, strides=strides[name])
        for name, shape in forms.items()
    }
    write.write_torch(tmp_path / "w.pt", OrderedDict(tensors), {"0": base.tobytes()})
    found = read_tensors(tmp_path / "w.pt")
    np.testing.assert_array_equal(found["a"], np.tile([1, 2, 3], (4, 1)))
    np.testing.assert_array_equal(found["b"], np.repeat([[1], [4]], 5, axis=1))
    np.testing.assert_array_equal(found["c"], np.ones(7))


@pytest.mark.parametrize(
    "spoiled",
    [
        {"offset": 7, "shape": (6,), "strides": (1,)},
        {"offset": 0, "shape": (2, 3), "strides": (4, 1)},
        {"offset": 0, "shape": (1 << 40,), "strides": (0,)},
        {"offset": -1, "shape": (2,), "strides": (1,)},
        {"offset": 0, "shape": (2,), "strides": (-1,)},
        {"offset": 0, "shape": (2, 3), "strides": (1,)},
        {"offset": 0, "shape": 6, "strides": (1,)},
        {"offset": 0, "shape": (2.0,), "strides": (1,)},
    ],
)
def test_a_tensor_outside_of_its_storage_is_refused(tmp_path, spoiled):
    base = np.arange(6, dtype=np.float32)
    write.write_torch(
        tmp_path / "w.pt", OrderedDict(w=write.tensor("0", base, **spoiled)), {"0": base.tobytes()}
    )
    refuses(r"w\.pt (is damaged: w |holds tensors of more)", read_tensors, tmp_path / "w.pt")


def test_what_is_no_state_dict_is_refused(tmp_path):
    path, base = tmp_path / "w.pt", np.zeros(2, np.float32)
    for content in ([1, 2], {"w": 3}, {3: write.tensor("0", base)}, write.tensor("0", base)):
        write.write_torch(path, content, {"0": base.tobytes()})
        refuses("something else than a dict of tensors", read_tensors, path)
    write.write_torch(path, OrderedDict(w=write.tensor("0", base)), {})
    refuses("it has no data/0", read_tensors, path)
    packed = {"0": bytes(1 << 20)}
    wide = np.zeros(1 << 18, np.float32)
    write.write_torch(path, OrderedDict(w=write.tensor("0", wide)), packed, zipfile.ZIP_DEFLATED)
    refuses("does not compress", read_tensors, path)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("model/code/x.py", b"")
        archive.writestr("model/data.pkl", b".")
    found = refuses("holds no state dict", read_tensors, path)
    assert "state_dict()" in found.hint


def test_the_old_format_is_refused_with_a_hint(tmp_path):
    path = tmp_path / "old.pt"
    path.write_bytes(pickle.dumps(0x1950A86A20F9469CFC6C, 2) + pickle.dumps(1001, 2))
    found = refuses("not in torch's zip format", read_tensors, path)
    assert "1.6" in found.hint


def test_a_file_that_is_cut_anywhere_is_refused(tmp_path):
    source = Path(__file__).parents[1] / "foreign" / "gcn.pt"
    raw, path = source.read_bytes(), tmp_path / "cut.pt"
    for end in range(0, len(raw) - 1, 97):
        path.write_bytes(raw[:end])
        refuses(r"cut\.pt", read_tensors, path)
