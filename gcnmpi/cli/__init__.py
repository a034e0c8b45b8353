"""The ``gcnmpi`` command, one file per group of commands."""
