"""Progress in a log and of long commands: lines by time, what is left, what is a terminal."""

from itertools import pairwise
from types import SimpleNamespace

from gcnmpi.options.config import from_table
from gcnmpi.report.progress import Progress, shown_metrics
from gcnmpi.run.record import Epoch
from partition.cli.common import advancing


def progress(capsys, epochs, seconds, first=1):
    """The lines, without the heading, of a run whose epochs take so many seconds each."""
    now = [0.0]
    problem = SimpleNamespace(
        config=from_table({"train": {"epochs": epochs}}),
        source=SimpleNamespace(
            stored=SimpleNamespace(manifest=SimpleNamespace(name="g\x1b[2J")), partition=None
        ),
        runtime=SimpleNamespace(
            everyone=SimpleNamespace(size=2), kernel=SimpleNamespace(name="scipy", threads=1)
        ),
        warnings=(),
        machine=(),
    )
    with Progress(problem, quiet=False, clock=lambda: now[0]) as shown:
        for epoch in range(first, epochs + 1):
            now[0] += seconds
            shown.epoch(Epoch(epoch, 1.5, {"val_accuracy": 0.5}, seconds))
    err = capsys.readouterr().err
    assert "\x1b" not in err  # whatever the graph is called
    return err.splitlines()[1:]


def test_a_short_run_shows_its_first_and_last_epoch(capsys):
    lines = progress(capsys, 200, 0.001)
    assert [line.split()[1] for line in lines] == ["1/200", "200/200"]
    assert "left" not in lines[0] + lines[1]


def test_lines_come_at_growing_intervals_with_what_is_left(capsys):
    lines = progress(capsys, 100_000, 0.5)
    assert 100 < len(lines) < 200
    epochs = [int(line.split()[1].partition("/")[0]) for line in lines]
    pauses = [later - earlier for earlier, later in pairwise(epochs)][:-1]
    assert pauses[0] == 10
    assert all(later >= earlier for earlier, later in pairwise(pauses))
    assert pauses[-1] == 600
    assert lines[1].endswith("loss 1.5000  val 0.500  0.5000 s  13:53:14 left")


def test_slow_epochs_are_all_shown_and_resumed_runs_know_their_pace(capsys):
    lines = progress(capsys, 12, 3600.0, first=9)
    assert [line.rpartition("s  ")[2] for line in lines[1:3]] == ["2:00:00 left", "1:00:00 left"]
    assert len(lines) == 4


def test_the_metric_that_chooses_is_shown_and_no_other(capsys):
    values = {"train_rmse": 1234.56, "val_rmse": 0.5, "test_rmse": None, "val_r2": 0.9}
    assert shown_metrics(Epoch(1, 1.0, values, 0.1)) == ["train rmse 1235", "val rmse 0.500"]
    assert shown_metrics(Epoch(1, 1.0, {"val_accuracy": 0.5}, 0.1)) == ["val 0.500"]
    assert shown_metrics(Epoch(1, 1.0, {}, 0.1)) == []


def test_a_log_gets_a_line_now_and_then(capsys):
    now = [0.0]
    with advancing(lambda: now[0]) as tell:
        for done in range(1, 101):
            now[0] += 1
            tell("sorting", done, 100)
    lines = capsys.readouterr().err.splitlines()
    assert lines[:2] == ["sorting: 5%, 0:00:05", "sorting: 12%, 0:00:12"]
    assert len(lines) == 7
