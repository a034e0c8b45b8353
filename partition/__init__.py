"""Offline partitioning of graphs: which rank owns which rows.

Serial, and free of MPI. The trainer (package ``gcnmpi``) imports from here only the modules that
lie in no room, the room ``graph``, ``importing.synthetic`` and ``backends.catalogue``.
"""

import os
import sys

# With colorama, Numba ends a program by a code of colours: behind the JSON of a rank, whose output
# mpirun reads as from a terminal.
os.environ.setdefault("NUMBA_DISABLE_ERROR_MESSAGE_HIGHLIGHTING", "1")

# Starts a module of an installed package as a program. -P: not from the working directory.
PYTHON = (sys.executable, "-P", "-m")


def leave_working_directory() -> None:
    """Start this program again with ``-P`` if it was started without; else do nothing.

    Python puts the working directory before everything else when it runs a module with ``-m``: a
    ``random.py`` that lies there would be executed, and in a checkout the sources would be imported
    instead of what was installed, without the compiled kernel.
    """
    if not sys.flags.safe_path:
        os.execv(sys.executable, [sys.executable, "-P", *sys.orig_argv[1:]])
