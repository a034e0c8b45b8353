"""Parts of measurements: medians and ratios of rounds."""

from gcnmpi.bench.rounds import Spread, ratios, spread


def test_medians_and_ratios_of_a_round():
    assert [spread([4, 1, 2, 3, 5]), spread([7])] == [Spread(3, 2, 4), Spread(7, 7, 7)]
    found = ratios({"a": [1, 10, 2], "b": [2, 20, 5]}, "a")
    assert (found["a"], found["b"].median) == (Spread(1, 1, 1), 2)  # one slow round does not count
