"""Progress of long commands of ``gcn-partition``: nothing of short ones, lines by time in a log."""

import threading
from itertools import islice

from partition.cli import common
from partition.cli.common import advancing, pauses, working
from partition.terminal import duration


def test_a_log_gets_a_line_now_and_then(capsys):
    now = [0.0]
    with advancing(lambda: now[0]) as tell:
        for done in range(1, 101):
            now[0] += 1
            tell("sorting", done, 100)
    lines = capsys.readouterr().err.splitlines()
    assert lines[:2] == ["sorting: 5%, 0:00:05", "sorting: 12%, 0:00:12"]
    assert len(lines) == 7


def test_short_commands_say_nothing(capsys):
    with advancing() as tell, working("partitioning") as report:
        tell("sorting", 1, 2)
        tell("nothing", 0, 0)
        report("gp, metis")
    assert capsys.readouterr().err == ""


def test_a_log_hears_what_is_being_done(capsys, monkeypatch):
    told, said = threading.Event(), threading.Event()

    def turns():
        told.wait(10)
        yield 0.0
        said.set()  # asked for the next pause, the line is written
        yield 60.0

    monkeypatch.setattr(common, "pauses", turns)
    with working("partitioning") as report:
        report("gp, metis")
        told.set()
        assert said.wait(10)
    assert capsys.readouterr().err.startswith("partitioning: gp, metis, 0:00:")


def test_pauses_grow_to_five_minutes():
    found = list(islice(pauses(), 30))
    assert found[0] == 5
    assert found[-1] == 300
    assert duration(3723.4) == "1:02:03"
