"""Distributed algorithms: a layout of the dense matrices plus the products on it.

And the transports of those that exchange rows.
"""

from partition.registry import Registry

# Keys of the configuration: of those that exchange rows, of grids, of those that keep rows whole.
_ROWS = ("scheme.backward", "scheme.transport", "scheme.progress_chunks")
_GRID = ("scheme.grid", "scheme.permutation")
_WHOLE = ("loading.order",)

SCHEMES = Registry(
    "scheme",
    {
        "p2p": "gcnmpi.schemes.p2p:ENTRY",
        "bcast": "gcnmpi.schemes.bcast:ENTRY",
        "replicated": "gcnmpi.schemes.replicated:ENTRY",
        "summa": "gcnmpi.schemes.summa:ENTRY",
        "split3d": "gcnmpi.schemes.split3d:ENTRY",
        "tensor3d": "gcnmpi.schemes.tensor3d:ENTRY",
    },
    options={
        "p2p": (*_WHOLE, *_ROWS, "scheme.exchange"),
        "bcast": (*_WHOLE, "scheme.overlap"),
        "replicated": (*_WHOLE, *_ROWS, "scheme.replication", "scheme.sparse", "scheme.overlap"),
        "summa": (*_GRID, "scheme.block"),
        "split3d": (*_GRID, "scheme.block"),
        "tensor3d": (*_GRID, "scheme.chunks", "scheme.transpose_grad"),
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
    },
)
