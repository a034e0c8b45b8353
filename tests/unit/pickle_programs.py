"""Pickles as programs: valid ones with other instructions grafted in, and random ones.

Damage of single bytes rarely makes a program that runs on; here nearly every instruction is one,
with operands that are hostile: values nested by reference, sizes that are announced and not there,
calls, states and keys of everything.
"""

import functools
import pickletools
import random
import struct

NAMES = [
    b"ccollections\nOrderedDict\n", b"ctorch._utils\n_rebuild_tensor_v2\n", b"ctorch\nSize\n",
    b"ctorch\nFloatStorage\n", b"ctorch_geometric.data.data\nData\n", b"cnumpy\nndarray\n",
    b"cnumpy\ndtype\n", b"cnumpy.core.multiarray\n_reconstruct\n", b"cos\nsystem\n",
    b"cscipy.sparse.csr\ncsr_matrix\n", b"ccollections\ndefaultdict\n", b"c_codecs\nencode\n",
]  # fmt: skip
TEXTS = ["0", "f4", "<", "storage", "x", "edge_index", "num_nodes", "state_dict", "_mapping", "é"]
NUMBERS = [0, 1, 2, -1, 255, 2**31, 2**40, 2**63 - 1, 2**63, 2**64, -(2**63), 10**30]
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
    number, text = rng.choice(NUMBERS), rng.choice(TEXTS).encode()
    raw = number.to_bytes(number.bit_length() // 8 + 1, "little", signed=True)
    simple = [b")", b"]", b"}", b"\x8f", b"N", b"\x88", b"X" + struct.pack("<I", len(text)) + text]
    simple += [b"\x8a" + bytes([len(raw)]) + raw, rng.choice(NAMES), rng.choice(LONG)]
    first, second = rng.choices(simple, k=2)
    both = b"(" + first + second + rng.choice([b"t", b"l", b"d", b"\x91"])
    return rng.choice([first, first, both, rng.choice(NESTED), rng.choice(OTHERS)])


def _call(rng: random.Random) -> bytes:
    """A call of something with arguments, and perhaps a state."""
    arguments = b"".join(_value(rng) for _ in range(rng.randrange(4)))
    called = rng.choice(NAMES) + b"(" + arguments + b"t" + rng.choice([b"R", b"\x81"])
    return called + (_value(rng) + b"b" if rng.random() < 0.3 else b"")
