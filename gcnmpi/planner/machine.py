"""Constants of a machine for the cost model, their file, and the time of one step.

``gcnmpi calibrate`` measures them. Without its file the defaults below stand: a core of a server
of about 2020 and a network of 100 Gbit/s, good for an order and not for seconds.
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

import numpy as np

from gcnmpi.core.volume import Volume
from gcnmpi.schemes.forecast import Dense, Span, Sparse
from partition.errors import UserError
from partition.graph.sampling import Rule
from partition.records import atomic_file

FORMAT = "gcnmpi-machine"
VERSION = 1
# Of drawing a layer of a mini-batch; and all that files of earlier releases do not have.
DRAWING = (
    "batch_hop", "drawn_entry", "read_entry", "hashed_entry", "hashed_call", "drawn_arc",
    "drawn_group",
)  # fmt: skip
VECTOR = 64  # bytes of a vector of the widest registers; of a cache line of others
LATER = {*DRAWING, "batch_step", "free_cores", "kind_row", "kind_flop", "disk_byte"}


def whole_vectors(width: int, itemsize: int) -> int:
    """Columns that a product computes for so many: those of whole vectors.

    >>> whole_vectors(4, 4), whole_vectors(64, 4), whole_vectors(9, 8)
    (16, 64, 16)
    """
    lanes = VECTOR // itemsize
    return -(-width // lanes) * lanes


@dataclass(frozen=True)
class Machine:
    """Constants of one rank with its threads, and of the network. Times in s, sizes in bytes.

    Attributes
    ----------
    latency_intra, latency_inter : float
        Seconds per message to a rank of the same node, of another node (α).
    bandwidth_intra, bandwidth_inter : float
        Bytes per second between two ranks of a node; from one node to others, for all its ranks
        together (1/β).
    product_call : float
        Seconds per sparse product, independent of its size.
    sparse_entry : float
        Seconds per entry of M, independent of the width of the dense operand.
    sparse_number : float
        Seconds per multiplication: an entry of M times a column of the dense operand.
    sparse_miss : float
        Additional seconds per multiplication where the dense operand is not in the cache.
    sparse_row : float
        Seconds per element of the result.
    cache_bytes : float
        Bytes of the dense operand that stay in the cache.
    received_entry : float
        Seconds per entry to convert a received tile of M into the kernel's format.
    dense_flop : float
        Seconds per floating-point operation of a dense product.
    kind_row, kind_flop : float
        The same of a product of rows with the weight of each one's kind; and seconds per row, which
        lie anywhere.
    copy_byte : float
        Seconds per byte that is read or written in a pass over memory.
    dropout_number : float
        Seconds per element to which dropout is applied.
    process_bytes : float
        Bytes of memory of a process before it has read a graph.
    batch_hop : float
        Seconds to draw a layer of a mini-batch, independent of its size.
    batch_step : float
        Seconds per step of a program that is made ready for a mini-batch, and run on it.
    drawn_entry : float
        Seconds per entry of M that a mini-batch keeps: to draw it, to number its column, and to
        bring it into the order of both products.
    read_entry : float
        Seconds per entry that is looked at where rows share their neighbours.
    hashed_entry, hashed_call : float
        Seconds per entry that is looked at where a batch is a set of vertices, and for all of them.
    drawn_arc, drawn_group : float
        Where a network tells relations apart: seconds per arc that a mini-batch keeps, in place of
        ``drawn_entry``; and per group of arcs of one relation into a row, which is drawn from by
        itself and has a row in the network.
    free_cores : float
        Cores that a rank may run on beside those of its threads.
    disk_byte : float
        Seconds per byte that a node writes to its disk, or reads; the default, not measured.
    """

    latency_intra: float = 1e-6
    latency_inter: float = 2e-6
    bandwidth_intra: float = 8e9
    bandwidth_inter: float = 12.5e9
    product_call: float = 3e-5
    sparse_entry: float = 2e-9
    sparse_number: float = 2e-10
    sparse_miss: float = 4e-10
    sparse_row: float = 3e-10
    cache_bytes: float = 2**24
    received_entry: float = 2e-8
    dense_flop: float = 4e-11
    copy_byte: float = 1e-10
    dropout_number: float = 2e-9
    process_bytes: float = 1e8
    batch_hop: float = 4e-4
    batch_step: float = 6e-5
    drawn_entry: float = 1e-7
    read_entry: float = 1e-8
    hashed_entry: float = 3e-7
    hashed_call: float = 3e-3
    drawn_arc: float = 1.5e-7
    drawn_group: float = 5e-7
    kind_row: float = 4e-8
    kind_flop: float = 2e-11
    free_cores: float = 0.0
    disk_byte: float = 2e-9

    def sparse_seconds(
        self, work: Sparse, itemsize: int, distances: np.ndarray | None = None
    ) -> float:
        """Time of a product of a sparse tile with a dense matrix.

        Parameters
        ----------
        distances : array, optional
            Quantiles of |row − column| over the entries of M in the graph's own order, increasing:
            what is nearer than the rows that fit the cache is found there. None: no order.

        Notes
        -----
        Plexus (section 4.1, equation 4.4) multiplies √(nnz·d) by 1 + c·inner/d: dense operands that
        are tall (many rows, ``inner``) and narrow (few columns, d) are slow. Both effects are
        here, each with a cause: what an entry costs however narrow the row, and rows that do not
        fit the cache, of which a share 1 − cache/(inner·d·itemsize) is fetched from memory; less
        where the graph's order puts neighbours near each other. The work stays linear, so that
        the times of tiles add up; under the root they would not.
        """
        operand = work.inner * work.width * itemsize
        missed = 1 - self.cache_bytes / operand if operand > self.cache_bytes else 0.0
        if missed and distances is not None and not work.shuffled:
            window = self.cache_bytes / (2 * work.width * itemsize)  # rows, to either side
            missed *= 1 - np.searchsorted(distances, window) / len(distances)
        number = self.sparse_number + self.sparse_miss * missed
        return (
            self.product_call
            + work.entries * (self.sparse_entry + work.width * number)
            + work.rows * work.width * self.sparse_row
            + work.entries * self.received_entry * work.received
        )

    def dense_seconds(self, work: Dense, itemsize: int) -> float:
        """Time of a dense product: its arithmetic, and its three matrices through memory once."""
        rows, inner, width = work.rows, work.inner, work.width
        numbers = rows * inner + inner * width + rows * width
        flops = 2 * rows * inner * whole_vectors(width, itemsize)
        return flops * self.dense_flop + self.copy_seconds(numbers * itemsize)

    def kinds_seconds(self, rows: int, inner: int, width: int, itemsize: int) -> float:
        """Time of a product of rows with the weight of each one's kind, or of its gradients."""
        flops = 2 * inner * whole_vectors(width, itemsize)
        return rows * (self.kind_row + flops * self.kind_flop)

    def drawing_seconds(
        self, kept: int, looked_at: int, rule: Rule | None, groups: int | None = None
    ) -> float:
        """Time of drawing and cutting a layer of a mini-batch.

        ``kept`` and ``looked_at`` are entries of the layer, and of M in the rows that it computes;
        the rule of the sampler says which of these it has to look at. ``groups`` are those of arcs
        of one relation into a row; None where relations are not told apart.
        """
        seconds = self.batch_hop
        if groups is None:
            seconds += kept * self.drawn_entry
        else:
            seconds += kept * self.drawn_arc + groups * self.drawn_group
        if rule is None:
            return seconds + self.hashed_call + looked_at * self.hashed_entry
        return seconds + looked_at * self.read_entry * (rule.shared and rule.fanout >= 0)

    def copy_seconds(self, nbytes: float) -> float:
        """Time of reading or writing so many bytes."""
        return nbytes * self.copy_byte

    def disk_seconds(self, nbytes: float, ranks: int) -> float:
        """Time of writing or reading so many bytes on each of so many ranks of a node."""
        return nbytes * ranks * self.disk_byte

    def transfer_seconds(self, volume: Volume, spans: Sequence[Span], ranks_per_node: int) -> float:
        """Time of what one rank hands to MPI for a product: α·messages + max(sent, received)/β.

        Each of the spans is a group in which about as much moves as in any other.

        Notes
        -----
        A collective counts as a ring (Thakur, Rabenseifner and Gropp 2005; Plexus, equation 4.5):
        over g ranks, g − 1 messages and (g − 1)/g of the payload, which is how
        :mod:`gcnmpi.core.volume` counts. CAGNET's broadcasts (its section IV-A) take α·⌈lg g⌉ each
        and the same bytes.
        """
        return sum(self._in_span(volume, span, ranks_per_node) / len(spans) for span in spans)

    def all_reduce_seconds(
        self, nbytes: int, size: int, ranks_per_node: int, stride: int = 1
    ) -> float:
        """Time of a sum over ranks: a ring, or recursive doubling where that is faster.

        There are ``size`` of them, ``stride`` apart.
        """
        if size == 1:
            return 0.0
        latency, inverse = self._link(Span(size, stride), ranks_per_node)
        ring = 2 * (size - 1) * (latency + nbytes / size * inverse)
        doubling = math.ceil(math.log2(size)) * (latency + nbytes * inverse)
        return min(ring, doubling)

    def _in_span(self, volume: Volume, span: Span, ranks_per_node: int) -> float:
        if span.size == 1:
            return 0.0
        moved = max(volume.sent, volume.received)
        latency, inverse = self._link(span, ranks_per_node)
        return volume.messages * latency + moved * inverse

    def _link(self, span: Span, ranks_per_node: int) -> tuple[float, float]:
        """Seconds of a message and of a byte in a group of ranks.

        Inside a node, the node's. Otherwise (Plexus, equation 4.6) the groups that share the
        links of a node share their bandwidth: as many as the ranks of a node, or, where
        neighbours in the group are less than a node apart, as many as their distance. In an
        exchange of all with all every rank of the node sends out, and a share stays inside.
        """
        inside = (self.latency_intra, 1 / self.bandwidth_intra)
        if span.size * span.stride <= ranks_per_node:
            return inside
        sharing = ranks_per_node if span.all_pairs else min(ranks_per_node, span.stride)
        # A link to other nodes that nobody shares is still not faster than the node itself.
        byte = max(sharing / self.bandwidth_inter, inside[1])
        if not span.all_pairs:
            return self.latency_inter, byte
        near = max(1, ranks_per_node // span.stride)
        away = (span.size - near) / (span.size - 1)
        return (
            away * self.latency_inter + (1 - away) * inside[0],
            away * byte + (1 - away) * inside[1],
        )


def read_machine(path: str | os.PathLike) -> tuple[Machine, dict[str, object]]:
    """The constants in a file of ``gcnmpi calibrate``, and all that the file says.

    Or of one that comes along with published figures, by name: "perlmutter".
    """
    path = Path(path)
    if not path.is_file():
        path = shipped_machines().get(os.fspath(path), path)
    hint = "mpirun -n 2 gcnmpi calibrate --out machine.json makes one"
    try:
        facts = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}", hint) from error
    except ValueError as error:
        raise UserError(f"{path} is not JSON: {error}", hint) from error
    if not isinstance(facts, dict) or facts.get("format") != FORMAT:
        raise UserError(f"{path} does not describe a machine", hint)
    if facts.get("version") != VERSION:
        raise UserError(f"{path} has version {facts.get('version')}, this program reads {VERSION}")
    names, constants = {each.name for each in dataclasses.fields(Machine)}, facts.get("constants")
    if not isinstance(constants, dict) or not names - LATER <= set(constants) <= names:
        raise UserError(f"{path} does not hold the constants of a machine", hint)
    for name, value in constants.items():
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if not number or not math.isfinite(value) or value < 0:
            raise UserError(f"{path}: {name} is not a positive number", hint)
    for name in ("bandwidth_intra", "bandwidth_inter"):
        if constants[name] == 0:
            raise UserError(f"{path}: {name} is 0", hint)
    return Machine(**constants), facts


def shipped_machines() -> dict[str, Path]:
    """Files of machines that come along, by name."""
    folder = files("gcnmpi").joinpath("configs", "machines")
    return {one.name.removesuffix(".json"): Path(str(one)) for one in folder.iterdir()}


def write_machine(path: str | os.PathLike, machine: Machine, facts: Mapping[str, object]) -> None:
    """Write the constants and how they were found, whole or not at all."""
    record = {"format": FORMAT, "version": VERSION, **facts}
    record["constants"] = dataclasses.asdict(machine)
    with atomic_file(path, "w") as file:
        file.write(json.dumps(record, indent=1) + "\n")
