"""Tables of the results of ``gcnmpi doctor``."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table

from gcnmpi.cluster.doctor import Finding, Link, Seat
from partition.terminal import print_wide


def print_findings(
    seats: Sequence[Seat], links: Sequence[Link], findings: Sequence[Finding]
) -> None:
    """Print the ranks, the links, and the findings."""
    table = Table("rank", "host", "cores", "GPUs", "free memory", box=None, pad_edge=False)
    for seat in seats:
        gpus = ", ".join(seat.gpus) or "-"
        free = f"{seat.free_memory / 2**30:.1f} GiB"
        table.add_row(str(seat.rank), seat.host, _ranges(seat.cores), gpus, free)
    first = seats[0]
    print(f"{len(seats)} ranks, {first.mpi}, gcnmpi {first.gcnmpi}")
    print_wide(table)
    if links:
        table = Table("from", "to", "one way", "MB/s", box=None, pad_edge=False)
        for link in links:
            time = f"{link.seconds * 1e6:.1f} µs"
            table.add_row(*_ends(link), time, f"{link.rate / 1e6:.0f}")
        print_wide(table)
    for finding in findings:
        print(f"{'PROBLEM' if finding.problem else 'advice'}: {finding.text}")
        print(f"  hint: {finding.advice}")
    problems = sum(finding.problem for finding in findings)
    print(f"{problems} problem{'s' * (problems != 1)}" if problems else "no problems")


def _ends(link: Link) -> tuple[str, str]:
    one, other = (
        f"{host} (rank {rank})" for host, rank in zip(link.hosts, link.ranks, strict=True)
    )
    return one, other


def _ranges(numbers: Sequence[int]) -> str:
    """Increasing numbers in short: "0-3,8"."""
    ranges: list[list[int]] = []
    for number in numbers:
        if ranges and ranges[-1][1] == number - 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    return ",".join(str(low) if low == high else f"{low}-{high}" for low, high in ranges)
