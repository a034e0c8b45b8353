"""Distributed algorithms: a layout of the dense matrices plus the products on it.

And the transports of those that exchange rows.
"""

from partition.registry import Registry

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
)

TRANSPORTS = Registry(
    "transport",
    {
        "persistent": "gcnmpi.transports:Persistent",
        "isend": "gcnmpi.transports:Isend",
        "neighbor": "gcnmpi.transports:Neighbor",
        "alltoallv": "gcnmpi.transports:Alltoallv",
        "onesided": "gcnmpi.one_sided:OneSided",
        "shared": "gcnmpi.node_memory:Shared",
    },
)
