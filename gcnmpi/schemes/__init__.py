"""Distributed algorithms: a layout of the dense matrices plus the products on it."""

from partition.registry import Registry

SCHEMES = Registry(
    "scheme",
    {
        "p2p": "gcnmpi.schemes.p2p:ENTRY",
        "tensor3d": "gcnmpi.schemes.tensor3d:ENTRY",
    },
)
