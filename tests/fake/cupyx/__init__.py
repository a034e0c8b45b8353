"""Page-locked memory: any memory."""

import numpy as np


def empty_pinned(shape, dtype):
    return np.empty(shape, dtype)
