"""The networks of ``tests/foreign``: by the name of a file of weights, the text of [model].

DGL, which is no longer developed, wrote its files by version 2.1 with torch 2.2.
"""

from pathlib import Path

FOREIGN = Path(__file__).parent / "foreign"
NETWORKS = {}
for _made, _prefix in (("pyg", ""), ("dgl", "dgl-")):
    for _line in (FOREIGN / f"{_made}.toml").read_text().splitlines():
        _name, _, _table = _line.partition(" = ")
        NETWORKS[_prefix + _name] = f"model = {_table}\n"
