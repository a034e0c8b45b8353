"""Settings of a command line, where some take the place of others."""


def latest(*settings):
    """The settings, the last one of each key: a key that is given twice is refused."""
    return list({setting.partition("=")[0]: setting for setting in settings}.values())


def sets(*settings):
    """The words of a command line for them."""
    return [word for setting in latest(*settings) for word in ("--set", setting)]
