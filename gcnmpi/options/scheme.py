"""Distributed algorithms: a layout of the dense matrices plus the products on it.

And the options that they own, the transports of those that exchange rows, and orders of rows.
"""

from gcnmpi.core.precision import EXACT, PRECISIONS
from gcnmpi.options.settings import key, options_of
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


@options_of("loading")
class RowsOptions:
    """Of schemes whose ranks keep rows whole."""

    order: str = key(
        "auto",
        "order of a rank's rows in memory; auto: rcm if neighbours have distant numbers",
        choices=ROW_ORDERS,
    )


_SPARSE = ("scheme.sparse", True)


@options_of("comm")
class PrecisionOptions:
    """Of schemes that send the rows that are needed: their messages."""

    precision: str = key(
        EXACT,
        "p2p, replicated: numbers of rows in messages; fp32: as computed, in dtype",
        choices=PRECISIONS,
        needs=_SPARSE,
    )


@options_of("scheme", of_all=True)
class SchemeConfig:
    """``[scheme]``: the distributed algorithm. Each has a class below, which adds its options."""

    name: str = key("p2p", "distributed algorithm", choices=SCHEMES)
    machine: str = key(
        "",
        "file of 'gcnmpi calibrate', for what is 'auto'; empty: default constants",
        example="machine.json",
    )


@options_of("scheme")
class ExchangeOptions(SchemeConfig):
    """Of schemes that send the rows that are needed."""

    backward: str = key(
        "auto",
        "exchange of the backward pass; auto: expand where the pattern is symmetric, else fold",
        choices=("auto", "expand", "fold"),
        needs=_SPARSE,
    )
    exchange: str = key(
        "auto",
        "p2p, replicated: what is sent; mixed: rows or partial sums, the fewest of two ranks",
        choices=("auto", "rows", "mixed"),
        needs=_SPARSE,
    )
    transport: str = key(
        "persistent",
        "p2p, replicated: how rows are exchanged",
        choices=TRANSPORTS,
        needs=_SPARSE,
    )
    progress_chunks: int = key(
        4,
        "p2p, replicated: row blocks of the own product; between blocks messages progress",
        low=1,
        needs=_SPARSE,
    )


@options_of("scheme")
class OverlapOptions(SchemeConfig):
    """Of schemes that broadcast blocks of rows."""

    overlap: bool = key(
        True,
        "bcast, replicated: receive a block while the previous one is multiplied",
        needs=("scheme.sparse", False),
    )


@options_of("scheme")
class ReplicatedOptions(OverlapOptions, ExchangeOptions):
    """Of the scheme whose ranks hold copies of parts."""

    replication: int = key(2, "replicated: copies of each part", low=1)
    sparse: bool = key(True, "replicated: send only the rows that are needed")


@options_of("scheme")
class GridOptions(SchemeConfig):
    """Of schemes whose ranks form a grid."""

    grid: str = key(
        "auto",
        "ranks along the axes of a grid, such as 4x2; auto: the fastest by the cost model",
        example="2x2",
        joined="x",
    )
    permutation: str = key(
        "auto",
        "grids without a partition: order of the vertices; double: rows and columns differ",
        choices=("auto", "none", "single", "double"),
    )


@options_of("scheme")
class SummaOptions(GridOptions):
    """Of schemes that broadcast panels of a tile."""

    block: int = key(0, "summa: columns of a broadcast in T·W; 0: all", low=0)


@options_of("scheme")
class Tensor3DOptions(GridOptions):
    """Of tensor parallelism on three axes."""

    chunks: int = key(1, "tensor3d: row blocks whose all-reduce overlaps with the next", low=1)
    transpose_grad: bool = key(False, "tensor3d: compute Wᵀ's gradient as Gᵀ·T, not Tᵀ·G")


SCHEMES.options.update(
    p2p=(RowsOptions, ExchangeOptions, PrecisionOptions),
    bcast=(RowsOptions, OverlapOptions),
    replicated=(RowsOptions, ReplicatedOptions, PrecisionOptions),
    summa=(SummaOptions,),
    split3d=(SummaOptions,),
    tensor3d=(Tensor3DOptions,),
    columns=(RowsOptions, SchemeConfig),
)


def exchange_of(scheme: SchemeConfig) -> ExchangeOptions:
    """How rows are exchanged: the defaults where a scheme, which may do so too, has no options."""
    return scheme if isinstance(scheme, ExchangeOptions) else ExchangeOptions()
