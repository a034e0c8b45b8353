"""Which values a rank keeps, makes again or writes to a file, so that its memory suffices.

States of arcs are made again first, which sends nothing: those of every layer, of every second
one, and so on. Then rows of vertices, one value after the other: always that whose other residence
takes the fewest seconds for the bytes that it frees, by the cost model. In the end, values are kept
again that need not have left, and as many rows of values that are made again in blocks as memory
has room for.
"""

from __future__ import annotations

import math
import sys
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property

from gcnmpi.layout.place import Place, Space
from gcnmpi.nn.compile.residency import choices
from gcnmpi.nn.slices import at_once
from gcnmpi.nn.tasks.interface import task_of
from gcnmpi.options.config import Config
from gcnmpi.options.train import Residences, batches_of
from gcnmpi.planner.case import Case
from gcnmpi.planner.costmodel import step_seconds
from partition.commands import parse_bytes
from partition.errors import UserError

CaseOf = Callable[[Residences], Case]


@dataclass(frozen=True)
class Allowed:
    """The memory that a rank may take, and what else it may use.

    Attributes
    ----------
    limit : float
        Bytes.
    given : bool
        Whether the user gave them, so that it is an error if none suffices.
    moves : bool
        Whether rows of vertices may be made again.
    repeats : bool
        Whether rows may be sent again for that.
    writes : bool
        Whether they may be written to a file.
    """

    limit: float
    given: bool = False
    moves: bool = True
    repeats: bool = True
    writes: bool = False


def allowed_by(config: Config, limit: float) -> Allowed:
    """The residences that a configuration allows on a rank that has so many bytes."""
    train, given = config.train, config.train.memory != "auto"
    # The matrices of a batch live for a moment.
    moves = batches_of(train) is None and not task_of(config.task).steps(config.task).matrix
    return Allowed(
        limit=parse_bytes(train.memory, "train.memory") if given else limit,
        given=given and moves,
        moves=moves,
        repeats=config.comm.precision == "fp32",
        writes=moves and bool(train.scratch),
    )


@dataclass(frozen=True)
class _Tried:
    """Residences, and what they take of the rank that needs most."""

    left: Residences
    case: Case
    memory: int

    @cached_property
    def seconds(self) -> float:
        """Seconds of an epoch."""
        return sum(step_seconds(self.case)[0].values())


def fitting(case_of: CaseOf, needs: Callable[[Case], int], allowed: Allowed) -> Case:
    """The fastest case that was found of those whose memory suffices, or one that needs least.

    ``case_of`` gives the case with some residences, ``needs`` bytes of the rank that needs most. A
    UserError if none suffices, and the user gave the size.
    """

    @cache
    def tried(left: Residences) -> _Tried:
        case = case_of(left)
        return _Tried(left, case, needs(case))

    case = case_of(Residences())
    if math.isinf(allowed.limit) or needs(case) <= allowed.limit:
        return case
    least = tried(Residences())
    for one in _descent(tried, least, allowed):
        if one.memory <= allowed.limit:
            found = _kept_again(tried, one, allowed.limit)
            return _first_kept(tried, found, allowed.limit).case
        least = min(least, one, key=lambda each: each.memory)
    if allowed.given:
        more = "" if allowed.writes else ", or train.scratch=FOLDER too"
        raise UserError(
            f"train.memory: a rank needs {_size(least.memory)} at least",
            f"set train.memory={_size(least.memory)}{more}, or use more ranks",
        )
    return least.case


def _descent(
    tried: Callable[[Residences], _Tried], now: _Tried, allowed: Allowed
) -> Iterator[_Tried]:
    """Residences that need less and less memory, or as much where the next may need less."""
    program, each = now.case.program, 1
    layers = max(1, len(program.outputs) - 1)
    while program.needs_entries and each < 2 * layers:
        now = tried(Residences(each if each < layers else sys.maxsize))
        yield now
        each *= 2
    if not allowed.moves:
        return
    possible = choices(now.case.program, allowed.repeats)
    moves = [("again", value) for value in sorted(possible.again)]
    moves += [("written", value) for value in sorted(possible.written) if allowed.writes]
    went_on = True
    while went_on:
        went_on, before = False, now
        found = [(_price(one, now), one.left) for one in _each(tried, now, moves)]
        for price, left in sorted(found, key=lambda each: each[0]):
            one = tried(_joined(now.left, left))
            # One that frees nothing by itself may do so with others.
            level = math.isinf(price[0]) and before.memory == now.memory == one.memory
            if level or one.memory < now.memory:
                now, went_on = one, True
                yield now


def _each(
    tried: Callable[[Residences], _Tried], now: _Tried, moves: Sequence[tuple[str, int]]
) -> Iterator[_Tried]:
    """The residences that each move leads to, if they take no more memory."""
    for name, value in moves:
        left = _moved(now.left, name, value)
        one = now if left == now.left else tried(left)
        if one is not now and one.memory <= now.memory:
            yield one


def _price(one: _Tried, before: _Tried) -> tuple[float, float]:
    """Seconds for each byte that is freed; of what frees none, its seconds."""
    seconds, freed = one.seconds - before.seconds, before.memory - one.memory
    return (seconds / freed if freed else math.inf), seconds


def _moved(left: Residences, name: str, value: int) -> Residences:
    """With another residence of one value; what is written is not made again."""
    if name == "again":
        return left if value in left.written else replace(left, again=left.again | {value})
    return replace(left, again=left.again - {value}, written=left.written | {value})


def _joined(left: Residences, other: Residences) -> Residences:
    written = left.written | other.written
    return replace(left, again=(left.again | other.again) - written, written=written)


def _kept_again(tried: Callable[[Residences], _Tried], now: _Tried, limit: float) -> _Tried:
    """The same with values kept again that need not have left."""

    def without(value: int) -> _Tried:
        again, written = now.left.again - {value}, now.left.written - {value}
        return tried(replace(now.left, again=again, written=written))

    gone = {value: without(value) for value in sorted(now.left.again | now.left.written)}
    for value in sorted(gone, key=lambda value: gone[value].seconds):
        one = without(value)
        if one.memory <= limit:
            now = one
    return now


def _first_kept(tried: Callable[[Residences], _Tried], now: _Tried, limit: float) -> _Tried:
    """The same with the largest number of first rows that fit, in whole blocks."""
    case, block = now.case, at_once(Space.OWN)
    rows = max(case.rows(rank, Place(0)) for rank in case.forecast.ranks())

    def with_first(blocks: int) -> _Tried:
        return tried(replace(now.left, first=blocks * block)) if blocks else now

    if not now.left.again or not with_first(1).case.program.repeated:
        return now
    blocks = range(1, -(-rows // block))
    return with_first(bisect_right(blocks, limit, key=lambda each: with_first(each).memory))


def _size(nbytes: int) -> str:
    """A size that is not below so many bytes, as ``train.memory`` takes it."""
    return f"{math.ceil(nbytes / 1e6)}MB"
