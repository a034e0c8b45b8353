"""The libraries that compare_peers.py compares gcnmpi with: one file each, imported alone.

An entry is called with the case, and gives a :class:`peers.task.Contestant`. It raises a UserError
where the library cannot be loaded or is not compared for the network.
"""

from partition.registry import Registry

PEERS = Registry(
    "peer",
    {
        "torch": "peers.plain_torch:untuned",
        "torch-tuned": "peers.plain_torch:tuned",
        "torch-mesh": "peers.mesh_graph_net:train",
        "pyg": "peers.geometric:by_arcs",
        "pyg-csr": "peers.geometric:by_rows",
        "dgl": "peers.deep_graph_library:train",
    },
)
