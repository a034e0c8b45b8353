"""The ``gcn-partition`` command, one file per group of commands."""
