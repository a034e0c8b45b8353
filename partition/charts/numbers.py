"""Numbers as people read them, with units, and ticks at round numbers."""

import math
from collections.abc import Sequence

BYTES = ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1.0, "bytes"))
SECONDS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"))


def unit_of(most: float, units: Sequence[tuple[float, str]]) -> tuple[float, str]:
    """The largest unit of which ``most`` has at least one, and its size; else the smallest.

    >>> unit_of(2500, BYTES)
    (1000.0, 'kB')
    """
    return next((unit for unit in units if most >= unit[0]), units[-1])


def with_unit(value: float, units: Sequence[tuple[float, str]]) -> str:
    """A number with its unit.

    >>> with_unit(2.5e6, BYTES), with_unit(0.0314, SECONDS)
    ('2.5 MB', '31.4 ms')
    """
    size, name = unit_of(abs(value), units)
    return f"{number(value / size)} {name}"


def number(value: float | None, digits: int = 4) -> str:
    """A number with so many significant digits; powers of ten where it is very small or large.

    >>> [number(v) for v in (0, 1234567, 0.12345, 2.0, 1.5e-7, None)]
    ['0', '1,234,567', '0.1235', '2', '1.5e-07', '–']
    """
    if value is None or not math.isfinite(value):
        return "–"
    if value == int(value) and abs(value) < 1e9:
        return f"{int(value):,}"
    if 1e-4 <= abs(value) < 1e9:
        decimals = max(0, digits - 1 - math.floor(math.log10(abs(value))))
        text = f"{value:,.{decimals}f}"
        return text.rstrip("0").rstrip(".") if "." in text else text
    return f"{value:.{digits - 1}g}"


def ticks(least: float, most: float, count: int = 5) -> list[float]:
    """Round numbers from below ``least`` to above ``most``: steps of 1, 2 or 5 times a power of 10.

    >>> ticks(0, 0.93)
    [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]
    """
    if most <= least:
        most = least + (abs(least) or 1.0)
    rough = (most - least) / count
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough * 0.999)
    first, last = math.floor(least / step + 1e-9), math.ceil(most / step - 1e-9)
    return [
        round(place * step, 12 - math.floor(math.log10(step))) for place in range(first, last + 1)
    ]


def log_ticks(least: float, most: float) -> list[float]:
    """Powers of ten around positive numbers; 1, 2 and 5 times those where they are few.

    >>> log_ticks(0.3, 40)
    [0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0]
    >>> log_ticks(1e-4, 1)
    [0.0001, 0.001, 0.01, 0.1, 1.0]
    """
    low, high = math.floor(math.log10(least)), math.ceil(math.log10(most))
    decades = range(low, high + 1)
    if high - low >= 4:
        every = math.ceil((high - low) / 6)
        return [10.0**power for power in range(low, high + every, every)]
    found = [float(f"{factor}e{power}") for power in decades for factor in (1, 2, 5)]
    start = max((place for place, value in enumerate(found) if value <= least * 1.0001), default=0)
    end = next((place for place, value in enumerate(found) if value >= most * 0.9999), len(found))
    return found[start : end + 1]


def spread(count: int, most: int) -> list[int]:
    """At most so many of 0 … count − 1, at equal distances, from 0 on.

    >>> spread(10, 4)
    [0, 4, 8]
    """
    step = 1
    for step in (factor * 10**power for power in range(9) for factor in (1, 2, 4, 5)):
        if math.ceil(count / step) <= most:
            break
    return list(range(0, count, step))
