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
        "order of a rank's rows in memory, docs/performance.md#the-order-of-rows; auto: rcm if "
        "neighbours have distant numbers, none in infer",
        choices=ROW_ORDERS,
    )


_SPARSE = ("scheme.sparse", True)


@options_of("comm")
class PrecisionOptions:
    """Of schemes that send the rows that are needed: their messages."""

    precision: str = key(
        EXACT,
        "numbers in messages, docs/schemes.md#precision-of-messages; fp32: as computed, in "
        "dtype; others: rounded",
        choices=PRECISIONS,
        needs=_SPARSE,
    )


@options_of("scheme", of_all=True)
class SchemeConfig:
    """``[scheme]``: the distributed algorithm. Each has a class below, which adds its options."""

    name: str = key("p2p", "distributed algorithm, docs/schemes.md", choices=SCHEMES)
    machine: str = key(
        "",
        "file of 'gcnmpi calibrate', or a published machine "
        "(docs/scale.md#published-machines), for the cost model; empty: default constants",
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
        "what is sent: rows of neighbours; mixed: rows or partial sums, "
        "docs/schemes.md#the-mixed-exchange; auto: the shorter epoch by the cost model",
        choices=("auto", "rows", "mixed"),
        needs=_SPARSE,
    )
    transport: str = key(
        "persistent",
        "what carries the rows, docs/schemes.md#transports",
        choices=TRANSPORTS,
        needs=_SPARSE,
    )
    progress_chunks: int = key(
        4,
        "row blocks of the own product, between which MPI is called so that messages progress",
        low=1,
        needs=_SPARSE,
    )


@options_of("scheme")
class OverlapOptions(SchemeConfig):
    """Of schemes that broadcast blocks of rows."""

    overlap: bool = key(
        True,
        "receive a block while the previous one is multiplied",
        needs=("scheme.sparse", False),
    )


@options_of("scheme")
class ReplicatedOptions(OverlapOptions, ExchangeOptions):
    """Of the scheme whose ranks hold copies of parts."""

    replication: int = key(2, "copies of each part", low=1)
    sparse: bool = key(True, "send only the rows that are needed")


@options_of("scheme")
class GridOptions(SchemeConfig):
    """Of schemes whose ranks form a grid."""

    grid: str = key(
        "auto",
        "ranks along the axes, such as 4x2 or 2x2x2; auto: the fastest by the cost model",
        example="2x2",
        joined="x",
    )
    permutation: str = key(
        "auto",
        "order of the vertices where there is no partition; single: random; double: random, "
        "and another one for columns (tensor3d)",
        choices=("auto", "none", "single", "double"),
    )


@options_of("scheme")
class SummaOptions(GridOptions):
    """Of schemes that broadcast panels of a tile."""

    block: int = key(0, "columns of a dense matrix in one broadcast; 0: all", low=0)


@options_of("scheme")
class Tensor3DOptions(GridOptions):
    """Of tensor parallelism on three axes."""

    chunks: int = key(
        1,
        "row blocks of a product; the sum of one over ranks overlaps with the product of the next",
        low=1,
    )
    transpose_grad: bool = key(False, "compute the weight gradient as (Gᵀ·T)ᵀ, not Tᵀ·G")


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
