"""Settings of a command line, where some take the place of others, and how long to train."""


def latest(*settings):
    """The settings, the last one of each key: a key that is given twice is refused."""
    return list({setting.partition("=")[0]: setting for setting in settings}.values())


def sets(*settings):
    """The words of a command line for them."""
    return [word for setting in latest(*settings) for word in ("--set", setting)]


def epochs(nranks):
    """How many show what a number of ranks does: many where they are cheap, few elsewhere."""
    return 20 if nranks == 2 else 4
