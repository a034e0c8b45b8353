"""``python -m partition`` and ``python -m gcnmpi``: the installed program, wherever it is started.

Python puts the working directory before everything else when it runs a module with ``-m``: a
``random.py`` that lies there would be executed, and in a checkout the sources would be imported
instead of what was installed, without the compiled kernel.
"""

import os
import sys

# Starts a module of an installed package as a program. -P: not from the working directory.
PYTHON = (sys.executable, "-P", "-m")


def leave_working_directory() -> None:
    """Start this program again with ``-P`` if it was started without; else do nothing."""
    if not sys.flags.safe_path:
        os.execv(sys.executable, [sys.executable, "-P", *sys.orig_argv[1:]])
