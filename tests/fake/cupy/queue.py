"""The work of the device, in order, and the memory that it may still touch."""

_work, _memory = [], []


def begin(call):
    _work.append(call)


def keep(array):
    if _work:
        _memory.append(array)


def wait():
    for call in _work:
        call()
    _work.clear()
    _memory.clear()
