"""``sp`` is scipy.sparse, which modules that every program begins with import from here.

SciPy's own modules take ``from numpy import *``, and so import numpy.f2py and numpy.testing, of
which nothing here has any use: a third of the time that scipy.sparse takes, on each of the ranks.
"""

import numpy

_LEFT_OUT = [name for name in ("f2py", "testing") if name not in vars(numpy)]
for _name in _LEFT_OUT:
    setattr(numpy, _name, None)  # NumPy imports these when they are asked for and are not there
import scipy.sparse as sp  # noqa: E402

for _name in _LEFT_OUT:
    if vars(numpy)[_name] is None:  # else another module has imported it
        delattr(numpy, _name)

__all__ = ["sp"]
