"""PyTorch on a distributed graph: a rank's rows, and what brings in the rows of others.

Not imported by anything else in gcnmpi: it needs PyTorch, the extra ``torch``. Start with
:func:`open`; docs/pytorch.md tells the rest.
"""

from partition.errors import installing

try:
    import torch as _torch  # noqa: F401 (to say what is missing, before anything else does)
except ImportError as error:
    raise ImportError(f"gcnmpi.torch needs PyTorch ({error}): {installing('torch')}") from error

from gcnmpi.torch.collective import BatchNorm, Collective, RowNorm
from gcnmpi.torch.graph import Graph
from gcnmpi.torch.moves import Fetched
from gcnmpi.torch.opening import open
from gcnmpi.torch.verifying import Differs, Verified, verify

__all__ = [
    "BatchNorm",
    "Collective",
    "Differs",
    "Fetched",
    "Graph",
    "RowNorm",
    "Verified",
    "open",
    "verify",
]
