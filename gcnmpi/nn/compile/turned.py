"""Chains of products with M, on columns: for schemes where a rank has all rows of M.

Own rows become columns once, all products of the chain are made without a message, and columns
become own rows again where something else than a sum or a multiple reads them::

    x ── Aggregate ── Scale ── Add ── Aggregate ──►        (p2p: an exchange for each product)

    x ── ToColumns ── Multiply ── Scale ── Add ── Multiply ── ToRows ──►

A product that is in no chain stays what it is: the scheme turns its operand and its result.

Ai et al. 2024, NeutronTP: Load-balanced distributed full-graph GNN training with tensor
parallelism (PVLDB 18), which takes networks apart so that all their products make one chain; here
networks stay what they are.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from gcnmpi.layout.place import Space
from gcnmpi.nn.operator import Operator
from gcnmpi.nn.operators.elementwise import Add, Scale
from gcnmpi.nn.operators.inserted import ToColumns, ToRows
from gcnmpi.nn.operators.neighbours import Aggregate, Multiply


def turn(
    operators: Sequence[Operator], outputs: Sequence[int]
) -> tuple[list[Operator], dict[int, int]]:
    """Operators with chains on columns; old number → new number of each value in own rows.

    The ``outputs`` stay own rows.
    """
    turned = _on_columns(operators, outputs)
    found: list[Operator] = []
    new: dict[tuple[int, Space], int] = {}

    def at(old: int, space: Space) -> int:
        """The number of a value in a space, with a turn where it is in the other one."""
        if (old, space) not in new:
            other = new[old, Space.OWN if space is Space.TURNED else Space.TURNED]
            kind = ToColumns if space is Space.TURNED else ToRows
            found.append(kind((other,), found[other].width, found[other].layer))
            new[old, space] = len(found) - 1
        return new[old, space]

    for number, operator in enumerate(operators):
        space = Space.TURNED if number in turned else Space.OWN
        inputs = tuple(at(i, space) for i in operator.inputs)
        if number in turned and isinstance(operator, Aggregate):
            operator = Multiply(inputs, operator.width, operator.layer)
        found.append(operator.reading(inputs))
        new[number, space] = len(found) - 1
        if number in outputs:
            at(number, Space.OWN)
    return found, {old: at for (old, space), at in new.items() if space is Space.OWN}


def _on_columns(operators: Sequence[Operator], outputs: Collection[int]) -> set[int]:
    """The operators that work on columns.

    Products with another one before or after them, with nothing between but sums and multiples;
    these; and sums and multiples before and after, where no more turns are needed for them.
    """
    readers: list[list[int]] = [[] for _ in operators]
    for number, operator in enumerate(operators):
        for i in operator.inputs:
            readers[i].append(number)
    product = [type(one) is Aggregate and one.to is Space.OWN for one in operators]
    linear = [
        made or isinstance(one, Add | Scale) for made, one in zip(product, operators, strict=True)
    ]
    after, before = [False] * len(operators), [False] * len(operators)
    for number, operator in enumerate(operators):
        after[number] = linear[number] and any(product[i] or after[i] for i in operator.inputs)
    for number in reversed(range(len(operators))):
        before[number] = linear[number] and any(product[r] or before[r] for r in readers[number])
    turned = {
        number
        for number in range(len(operators))
        if (after[number] and before[number])
        or (product[number] and (after[number] or before[number]))
    }

    def there(value: int) -> bool:
        """Whether a value is a matrix of columns, or is made one anyway."""
        return value in turned or any(reader in turned for reader in readers[value])

    for number, operator in enumerate(operators):
        if linear[number] and after[number] and all(map(there, operator.inputs)):
            turned.add(number)
    for number in reversed(range(len(operators))):
        alone = readers[number] and number not in outputs
        if linear[number] and alone and turned.issuperset(readers[number]):
            turned.add(number)
    return turned
