"""Distributed algorithms: a layout of the dense matrices plus the products on it.

And the options that they own, the transports of those that exchange rows, and orders of rows.
"""

from gcnmpi.options.settings import Options, key
from partition.registry import Registry

SCHEMES = Registry(
    "scheme",
    {
        "p2p": "gcnmpi.schemes.p2p:ENTRY",
        "bcast": "gcnmpi.schemes.bcast:ENTRY",
        "replicated": "gcnmpi.schemes.replicated:ENTRY",
        "summa": "gcnmpi.schemes.summa:ENTRY",
        "split3d": "gcnmpi.schemes.summa:ENTRY",
        "tensor3d": "gcnmpi.schemes.tensor3d:ENTRY",
        "columns": "gcnmpi.schemes.columns:ENTRY",
    },
)

TRANSPORTS = Registry(
    "transport",
    {
        "persistent": "gcnmpi.halo.transports:Persistent",
        "isend": "gcnmpi.halo.transports:Isend",
        "neighbor": "gcnmpi.halo.transports:Neighbor",
        "alltoallv": "gcnmpi.halo.transports:Alltoallv",
        "onesided": "gcnmpi.halo.one_sided:OneSided",
        "shared": "gcnmpi.halo.node_memory:Shared",
        "nccl": "gcnmpi.halo.on_devices:Nccl",
    },
)

ROW_ORDERS = Registry(
    "order of rows",
    {
        "auto": "gcnmpi.layout.row_order:by_need",
        "none": "gcnmpi.layout.row_order:by_id",
        "rcm": "gcnmpi.layout.row_order:by_bandwidth",
        "degree": "gcnmpi.layout.row_order:by_degree",
    },
)


_SPARSE = ("scheme.sparse", True)


class SchemeConfig(Options, section="scheme", of_all=True):
    """``[scheme]``: the distributed algorithm. Each has a class below, which adds its options.

    Attributes
    ----------
    name
        distributed algorithm, docs/schemes.md
    machine
        file of 'gcnmpi calibrate', or a published machine (docs/scale.md#published-machines), for
        the cost model; empty: default constants
    """

    name: str = key("p2p", choices=SCHEMES)
    machine: str = key("", example="machine.json")


class ExchangeOptions(SchemeConfig):
    """Of schemes that send the rows that are needed.

    Attributes
    ----------
    backward
        exchange of the backward pass; auto: expand where the pattern is symmetric, else fold
    exchange
        what is sent: rows of neighbours; mixed: rows or partial sums,
        docs/schemes.md#the-mixed-exchange; auto: the shorter epoch by the cost model
    transport
        what carries the rows, docs/schemes.md#transports
    progress_chunks
        row blocks of the own product, between which MPI is called so that messages progress
    """

    backward: str = key("auto", choices=("auto", "expand", "fold"), needs=_SPARSE)
    exchange: str = key("auto", choices=("auto", "rows", "mixed"), needs=_SPARSE)
    transport: str = key("persistent", choices=TRANSPORTS, needs=_SPARSE)
    progress_chunks: int = key(4, low=1, needs=_SPARSE)


class OverlapOptions(SchemeConfig):
    """Of schemes that broadcast blocks of rows.

    Attributes
    ----------
    overlap
        receive a block while the previous one is multiplied
    """

    overlap: bool = key(True, needs=("scheme.sparse", False))


class ReplicatedOptions(OverlapOptions, ExchangeOptions):
    """Of the scheme whose ranks hold copies of parts.

    Attributes
    ----------
    replication
        copies of each part
    sparse
        send only the rows that are needed
    """

    replication: int = key(2, low=1)
    sparse: bool = True


class GridOptions(SchemeConfig):
    """Of schemes whose ranks form a grid.

    Attributes
    ----------
    grid
        ranks along the axes, such as 4x2 or 2x2x2; auto: the fastest by the cost model
    permutation
        order of the vertices where there is no partition; single: random; double: random, and
        another one for columns (tensor3d)
    """

    grid: str = key("auto", example="2x2", joined="x")
    permutation: str = key("auto", choices=("auto", "none", "single", "double"))


class SummaOptions(GridOptions):
    """Of schemes that broadcast panels of a tile.

    Attributes
    ----------
    block
        columns of a dense matrix in one broadcast; 0: all
    """

    block: int = key(0, low=0)


class Tensor3DOptions(GridOptions):
    """Of tensor parallelism on three axes.

    Attributes
    ----------
    chunks
        row blocks of a product; the sum of one over ranks overlaps with the product of the next
    transpose_grad
        compute the weight gradient as (Gᵀ·T)ᵀ, not Tᵀ·G
    """

    chunks: int = key(1, low=1)
    transpose_grad: bool = False


_ORDER, _PRECISION = "loading.order", "comm.precision"
SCHEMES.options.update(
    p2p=(_ORDER, ExchangeOptions, _PRECISION),
    bcast=(_ORDER, OverlapOptions),
    replicated=(_ORDER, ReplicatedOptions, _PRECISION),
    summa=(SummaOptions,),
    split3d=(SummaOptions,),
    tensor3d=(Tensor3DOptions,),
    columns=(_ORDER, SchemeConfig),
)


def exchange_of(scheme: SchemeConfig) -> ExchangeOptions:
    """How rows are exchanged: the defaults where a scheme, which may do so too, has no options."""
    return scheme if isinstance(scheme, ExchangeOptions) else ExchangeOptions()
