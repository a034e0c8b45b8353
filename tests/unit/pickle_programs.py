"""Pickles as programs: valid ones with other instructions grafted in, and random ones.

Damage of single bytes rarely makes a program that runs on; here nearly every instruction is one,
with operands that are hostile: values nested by reference, sizes that are announced and not there,
calls, states and keys of everything.
"""

from __future__ import annotations

import functools
import pickletools
import random
import struct

NAMES = [
    b"c%s\n" % name.replace(b".", b"\n")
    for name in (
        b"collections.OrderedDict", b"torch.Size", b"torch.FloatStorage", b"numpy.ndarray",
        b"numpy.dtype", b"collections.defaultdict", b"__builtin__.list", b"_codecs.encode",
        b"__builtin__.bytes", b"os.system", b"builtins.bytearray",
    )
] + [
    b"ctorch._utils\n_rebuild_tensor_v2\n", b"ctorch._utils\n_rebuild_parameter\n",
    b"ctorch_geometric.data.data\nData\n", b"ctorch_geometric.data.storage\nGlobalStorage\n",
    b"cnumpy.core.multiarray\n_reconstruct\n", b"cscipy.sparse.csr\ncsr_matrix\n",
]  # fmt: skip
TEXTS = ["0", "f4", "i8", "<", "storage", "x", "edge_index", "num_nodes", "state_dict", "_store"]
TEXTS += ["_mapping", "indptr", "indices", "data", "_shape", "é", "\ud800", "\u0100" * 9]
NUMBERS = [0, 1, 2, 3, -1, 255, 2**31 - 1, 2**31, 2**40, 2**63 - 1, 2**63, 2**64, -(2**63), 10**30]
# With nothing behind them, or less than they announce.
ANNOUNCED = [b"\x96", b"\x8e", b"\x8d", b"\x95"]
ANNOUNCED = [code + struct.pack("<Q", 1 << 40) for code in ANNOUNCED]
ANNOUNCED += [code + struct.pack("<i", 1 << 30) for code in (b"\x8b", b"T", b"B", b"X")]
# Of each instruction that takes nothing out of the file.
BARE = [
    bytes([ord(opcode.code)]) for opcode in pickletools.opcodes
    if opcode.arg is None and opcode.name != "STOP"
]  # fmt: skip
WITH_ARGUMENT = [
    b"\x82\x01", b"\x83\x01\x00", b"\x84\x01\x00\x00\x00", b"icollections\nOrderedDict\n",
    b"iposix\nsystem\n", b"Pname\n", b"S'a\\x80'\n", b"S'\\'\n", b"Va\\u0100\n", b"I12\n", b"I01\n",
    b"I" + b"9" * 5000 + b"\n", b"L12L\n", b"F1e999\n", b"Fnan\n", b"G" + struct.pack(">d", 0.5),
    b"g0\n", b"p3\n", b"p-1\n", b"r\xff\xff\xff\xff", b"j\xff\xff\xff\x7f", b"\x80\x05",
]  # fmt: skip


def reprogrammed(data: bytes, rng: random.Random) -> bytes:
    """A pickle with one to three changes of its instructions; now and then, another program."""
    steps = list(_steps(data))
    if len(steps) < 5 or rng.random() < 0.2:
        return b"\x80\x02" + b"".join(_step(rng) for _ in range(rng.randint(2, 60))) + b"."
    for _ in range(rng.randint(1, 3)):
        at = rng.randrange(1, len(steps))
        kind = rng.randrange(7)
        if kind == 0:
            steps[at:at] = [_step(rng)]
        elif kind == 1:
            del steps[at]
        elif kind == 2:
            steps[at:at] = [steps[rng.randrange(1, len(steps))]]
        elif kind == 3:
            steps[at] = rng.choice(BARE)
        elif kind == 4 and _is_value(steps[at]):
            steps[at] = _value(rng)
        elif kind == 5:
            steps[at:at] = [b"0", _value(rng)]  # in place of what is on the stack
        else:
            values = [i for i, step in enumerate(steps) if _is_value(step)] or [at]
            steps[rng.choice(values)] = _value(rng)
    return b"".join(steps)


@functools.cache  # of the valid ones, of which there are few
def _steps(data: bytes) -> tuple[bytes, ...]:
    """The instructions of a pickle, with their operands; none of what is no pickle."""
    try:
        found = [at for _, _, at in pickletools.genops(data)]
    except ValueError:
        return ()
    return tuple(data[a:b] for a, b in zip(found, [*found[1:], len(data)], strict=True))


def _is_value(step: bytes) -> bool:
    """Whether an instruction puts a number, a text or a constant on the stack."""
    return step[:1] in (b"K", b"M", b"J", b"U", b"X", b"\x8c", b"N", b"\x88", b"\x89", b"h", b")")


def _step(rng: random.Random) -> bytes:
    return rng.choice(
        [_value, _value, _call, lambda rng: rng.choice(BARE), lambda rng: rng.choice(BARE),
         lambda rng: rng.choice(WITH_ARGUMENT), lambda rng: b"q" + bytes([rng.randrange(4)]),
         lambda rng: b"h" + bytes([rng.randrange(4)]), lambda rng: rng.choice(ANNOUNCED)]
    )(rng)  # fmt: skip


def _value(rng: random.Random) -> bytes:
    """Instructions that put one value on the stack."""
    kind = rng.randrange(9)
    if kind == 0:
        return _number(rng.choice(NUMBERS))
    if kind == 1:
        return _text(rng.choice(TEXTS))
    if kind == 2:
        return _nested(rng)
    if kind == 3:
        return _call(rng)
    if kind == 4:  # long ones
        size = rng.choice([300, 5_000, 60_000])
        return rng.choice([
            b"\x8b" + struct.pack("<i", size) + b"\x7f" * size, _text("a" * size),
            b"B" + struct.pack("<I", size) + b"\0" * size,
            b"\x96" + struct.pack("<Q", 8) + b"\0" * 8,
        ])  # fmt: skip
    if kind == 5:
        return b"(" + _value(rng) + _value(rng) + rng.choice([b"t", b"l", b"d", b"\x91"])
    if kind == 6:
        return rng.choice([b")", b"]", b"}", b"\x8f", b"N", b"\x88", b"\x89"])
    if kind == 7:
        return rng.choice(NAMES)
    return rng.choice(WITH_ARGUMENT)


def _call(rng: random.Random) -> bytes:
    """A call of something with arguments, and perhaps a state."""
    arguments = b"".join(_value(rng) for _ in range(rng.randrange(4)) if rng.random() < 0.6)
    called = rng.choice(NAMES) + b"(" + arguments + b"t" + rng.choice([b"R", b"\x81"])
    return called + (_value(rng) + b"b" if rng.random() < 0.3 else b"")


def _nested(rng: random.Random) -> bytes:
    """A value that holds the one before twice, and so on: a tree of 2^60 leaves in few bytes."""
    times = rng.choice([20, 40, 60])
    base = rng.choice([b")", b"]", b"N", _text("a"), b"K\1", _number(2**64)])
    pair, ways = b"2\x86" * times, (b"qd0(hdhdl", b"qd0(hd)hd\x86\x91")
    as_list, as_set = (b"".join(step for _ in range(times)) for step in ways)
    called = rng.choice(NAMES) + base + pair + b"\x85R"
    return rng.choice(
        [base + pair, base + as_list, base + as_set, base + pair + b"qd0}hdK\1s", called]
    )


def _number(value: int) -> bytes:
    raw = value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True)
    return b"\x8a" + bytes([len(raw)]) + raw


def _text(value: str) -> bytes:
    raw = value.encode("utf-8", "surrogatepass")
    return b"X" + struct.pack("<I", len(raw)) + raw
