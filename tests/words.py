"""Words of command lines, and processes that have such words."""

import subprocess
import time
from itertools import chain


def latest(*settings):
    """The settings, the last one of each key: a key that is given twice is refused."""
    return list({setting.partition("=")[0]: setting for setting in settings}.values())


def sets(*settings):
    """The words of a command line for them."""
    return [word for setting in latest(*settings) for word in ("--set", setting)]


def line(verb, *words, settings=(), **options):
    """A command line; of options, True stands for those without a value, None for none."""
    given = {f"--{name.replace('_', '-')}": value for name, value in options.items()}
    named = ((key,) if value is True else (key, value) for key, value in given.items())
    options_of_it = chain(*(some for some in named if some[-1] is not None))
    return [verb, *words, *options_of_it, *sets(*settings)]


def processes_of(word):
    """Process ids and programs of those whose command line has this word."""
    listed = subprocess.check_output(["ps", "-wweo", "pid,args"], text=True).splitlines()
    rows = (row.split(None, 2) for row in listed if str(word) in row)
    return {int(pid): program for pid, program, _ in rows}


def wait_until(done, seconds=60, message="it does not end"):
    """Ask until it is so."""
    until = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < until, message
        time.sleep(0.02)
