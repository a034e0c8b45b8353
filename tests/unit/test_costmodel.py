"""The cost model by hand: times of single steps, a toy scheme, matrices as the model makes them."""

import dataclasses
import json
from types import SimpleNamespace

import pytest
from refusals import refuses

from gcnmpi.bench.calibrate import Sample, fit_sparse
from gcnmpi.core.volume import Volume
from gcnmpi.nn.compile import Target, compile_network
from gcnmpi.nn.describe import network_of
from gcnmpi.options.config import LoadingConfig, from_table
from gcnmpi.planner.case import Case, Workload
from gcnmpi.planner.costmodel import predict
from gcnmpi.planner.machine import LATER, Machine, read_machine, write_machine
from gcnmpi.planner.memory import _first_memory, features_memory, loss_memory, memory
from gcnmpi.schemes.forecast import Dense, Span, Sparse

NOTHING_COSTS = Machine(**dict.fromkeys((f.name for f in dataclasses.fields(Machine)), 0.0)
                        | {"bandwidth_intra": 1e9, "bandwidth_inter": 1e9})  # fmt: skip


def machine(**constants):
    return dataclasses.replace(NOTHING_COSTS, **constants)


def test_a_reduction_is_a_ring_or_doubling():
    some = machine(bandwidth_intra=1.0, latency_intra=1.0)
    assert some.all_reduce_seconds(8, 1, 4) == 0
    assert some.all_reduce_seconds(8, 4, 4) == pytest.approx(2 * 3 * (1 + 2))  # ring
    assert some.all_reduce_seconds(1, 4, 4) == pytest.approx(2 * (1 + 1))  # doubling


class Toy:
    """Whole rows on two ranks; rank 1 has twice the work, and only receives."""

    orders = ("combine",)
    own_buffers, whole_rows = True, True
    facts = SimpleNamespace(valued=False, scaled=None, itemsize=8)
    layout_of = staticmethod(lambda place: None)
    ranks = staticmethod(lambda: [0, 1])
    span = staticmethod(lambda product, k: [Span(2, 1)])
    shape = staticmethod(lambda rank, place, width: (10, width))
    entries = loaded = staticmethod(lambda rank: 30 * (1 + rank))
    matrix_bytes = staticmethod(lambda rank, index: 30 * (1 + rank) * (index + 8))
    scaled_bytes = buffers = staticmethod(lambda rank, product, *sizes: 0)
    weight_numbers = staticmethod(lambda rank, k, d_in, d_out: d_in * d_out)

    def reduction_scratch(self, rank, product, k, *sizes):
        return 10 * sizes[0] if product == "aggregate" else 0

    def volume(self, rank, product, k, *sizes):
        moved = self.reduction_scratch(rank, product, k, *sizes)
        return Volume(0, moved, 0) if rank else Volume(moved, 0, moved > 0)

    def work(self, rank, product, k, *sizes):
        assert product in ("aggregate", "aggregate_t", "combine", "combine_t", "weight_grad")
        return [Sparse(10, 20, 30 * (1 + rank), sizes[0])] if "aggregate" in product else []


TABLE = {"model": {"hidden": [6], "cache_input": False}, "dtype": "float64",
         "kernel": "graphblas", "loading": {"max_buffer_mb": 1e-6}}  # fmt: skip
CONFIG = from_table(TABLE)


def work_of(config, features, classes=3):
    return Workload(config, 20, network_of(config.model, features, classes), train_share=0.5)


def case_of(work, machine):
    program = compile_network(work.network, Target(Toy.orders, Toy.layout_of), work.config.model)
    return Case(Toy(), 2, work, machine, 2, program)


WORK = work_of(CONFIG, 8)


def test_an_epoch_waits_for_the_slowest_rank_of_each_product():
    some = machine(sparse_number=1.0, bandwidth_intra=1.0)
    cost = predict(case_of(WORK, some))
    # Combining first: M·X of widths 6 and 3, forward and back. Forward, rank 0 takes
    # 30·w + 10·w seconds, rank 1 60·w; back, rank 1 decides too.
    assert cost.phases["sparse"] == 2 * 60 * (6 + 3)
    assert cost.phases["transfer"] == 90  # what rank 1 receives, which decides
    assert (cost.sent, cost.received, cost.messages) == (90, 90, 2)
    assert cost.reduced_bytes == 8 * (8 * 6 + 6 + 6 * 3 + 3 + 1)
    assert cost.seconds == pytest.approx(sum(cost.phases.values()))


def test_passes_over_matrices_by_hand():
    """Bias and ReLU of H¹, 10 × 6, bias of H², 10 × 3; ReLU back; loss and update."""
    works = (dataclasses.replace(WORK, train_share=share) for share in (0.5, 0.0))
    costs = (predict(case_of(work, machine(copy_byte=1.0))) for work in works)
    passes, idle = (cost.phases["passes"] for cost in costs)
    assert passes - idle == 8 * 12 * 0.5 * 30
    update = 10 * (8 * 6 + 6 + 6 * 3 + 3)
    assert idle == 8 * (5 * 60 + 3 * 30 + 3 * 60 + update)


def test_memory_by_hand():
    numbers = 8 * 6 + 6 + 6 * 3 + 3
    # Features 8; H·W and Z of both layers, where gradients go too; the loss twice 5 rows of 3.
    dense = 10 * (8 + 6 + 6 + 3 + 3) + 2 * 5 * 3  # float64
    reduced = 8 * (numbers + 1)
    sparse = 60 * (8 + 8) + 2 * 8 * 10
    part_vector = 4 * 20 // 2
    scratch = reduced // 2  # of MPI for the sum of gradients; of products it takes at most 60
    rest = 1000 + part_vector + sparse + 8 * dense + reduced + scratch
    for train, copies in (
        ({}, 4), ({"optimizer": "adamw"}, 4), ({"optimizer": "sgd"}, 2),
        ({"optimizer": "sgd", "momentum": 0.9}, 3),
    ):  # fmt: skip
        work = work_of(from_table(TABLE | {"train": train}), 8)
        assert memory(case_of(work, machine(process_bytes=1000))) == rest + 8 * copies * numbers


WIDE = from_table({"dtype": "float64", "model": {"hidden": [6]}})


def wide(features=320, **changes):
    return case_of(work_of(dataclasses.replace(WIDE, **changes), features), Machine())


def test_the_constants_are_found_again():
    true = Machine(product_call=1e-5, sparse_entry=3e-9, sparse_number=2e-10, sparse_miss=5e-10,
                   sparse_row=4e-10, cache_bytes=2.0**20)  # fmt: skip
    shapes = ((10, 10, 20), (1000, 10**4, 10**5), (10**5, 1000, 10**5), (1000, 10**6, 10**5),
              (1000, 1000, 10**6))  # fmt: skip
    works = [Sparse(*shape, width) for shape in shapes for width in (1, 8, 64)]
    samples = [Sample(work, true.sparse_seconds(work, 4)) for work in works]
    for name, value in fit_sparse(samples, 4).items():
        assert value == pytest.approx(getattr(true, name), rel=1e-6), name


def test_the_file_of_a_machine(tmp_path):
    path, fast = tmp_path / "machine.json", machine(dense_flop=3.0)
    facts = {"hosts": ["a"], "kernel": "scipy", "dtype": "float32", "threads": 1}
    write_machine(path, fast, facts)
    found, said = read_machine(path)
    assert (found, said["hosts"]) == (fast, ["a"])

    def read(**changes):
        path.write_text(json.dumps(said | changes))
        return read_machine(path)[0]

    constants = said["constants"]
    earlier = {name: value for name, value in constants.items() if name not in LATER}
    assert read(constants=earlier).dense_flop == 3  # of an earlier release
    for changes, says in (
        ({"format": "x"}, "does not describe a machine"),
        ({"version": 9}, "version 9"),
        ({"constants": {}}, "does not hold the constants"),
        ({"constants": earlier | {"batch_hip": 1}}, "does not hold the constants"),
        ({"constants": constants | {"copy_byte": -1}}, "copy_byte is not a positive number"),
        ({"constants": constants | {"bandwidth_inter": 0}}, "bandwidth_inter is 0"),
    ):
        refuses(says, read, **changes)
    path.write_text("{")
    refuses("is not JSON", read_machine, path)
    refuses("nothere.json", read_machine, tmp_path / "nothere.json")


def test_products_by_hand():
    work = Sparse(rows=10, inner=100, entries=50, width=4)
    for constants, seconds in (
        ({"product_call": 3}, 3), ({"sparse_entry": 2}, 100), ({"sparse_number": 2}, 400),
        ({"sparse_row": 2}, 80), ({"sparse_miss": 1, "cache_bytes": 1600}, 0),
        # An operand of 1600 bytes, of which 400 are in the cache.
        ({"sparse_miss": 1, "cache_bytes": 400}, 150),
    ):  # fmt: skip
        assert machine(**constants).sparse_seconds(work, 4) == seconds
    # Of 5 columns, or of 17, a vector or two of 16 numbers are computed.
    by_width = [machine(dense_flop=1).dense_seconds(Dense(2, 3, w), 4) for w in (5, 16, 17)]
    assert by_width == [192, 192, 384]
    assert machine(copy_byte=1).dense_seconds(Dense(2, 3, 5), 4) == 4 * (6 + 15 + 10)


def test_messages_by_hand():
    some = machine(bandwidth_intra=100.0, bandwidth_inter=10.0)
    for spans, per_node, seconds in (
        # Within a node of 8 ranks: the node's own bandwidth.
        ([Span(8, 1)], 8, 5), ([Span(2, 4)], 8, 5),
        # Across nodes: groups that share the links of one (Plexus, equation 4.6).
        ([Span(16, 1)], 8, 50), ([Span(8, 2)], 8, 100), ([Span(4, 4)], 8, 200),
        ([Span(2, 8)], 8, 400),
        # Several groups move a part each.
        ([Span(2, 1), Span(2, 2)], 2, (5 + 100) / 2),
    ):  # fmt: skip
        assert some.transfer_seconds(Volume(500, 300, 7), spans, per_node) == pytest.approx(seconds)
    some = machine(bandwidth_intra=100.0, bandwidth_inter=10.0, latency_inter=3.0)
    every = [Span(5, 1, all_pairs=True)]
    # Of 4 others 1 is on the node; 2 ranks share its link.
    expected = 0.75 * (100 * 2 / 10 + 3.0) + 0.25 * (100 / 100)
    assert some.transfer_seconds(Volume(100, 0, 1), every, 2) == pytest.approx(expected)
    assert some.transfer_seconds(Volume(100, 0, 1), every, 8) == pytest.approx(1.0)


def test_what_features_and_a_loss_hold_by_hand():
    stored = 10 * 320 * 4
    # In float64 they are converted once they are there; in float32 they are packed and mapped.
    assert features_memory(wide(), 0) == stored + 2 * stored
    assert features_memory(wide(dtype="float32"), 0) == stored + 2 * stored
    tiny = LoadingConfig(max_buffer_mb=1 / 2**20)  # a byte
    assert features_memory(wide(dtype="float32", loading=tiny), 0) == stored + stored // 16
    weights = 2 * (320 * 6 + 6 + 6 * 3 + 3)
    # In 5 pieces of 64 columns: H⁰, into which M·H⁰ is written, and both of a piece.
    assert _first_memory(wide(), 0) == 8 * (10 * 320 + 2 * 10 * 64 + weights) + 10 * 64
    weights = 2 * (100 * 6 + 6 + 6 * 3 + 3)
    assert _first_memory(wide(100), 0) == 8 * (2 * 10 * 100 + weights) + 10 * 100
    case = wide(dtype="float32", kernel="scipy")
    trained = case.train_rows(0) * 3
    assert loss_memory(case, 0) == 2 * 4 * trained
    assert loss_memory(wide(dtype="float32", kernel="native"), 0) == 4 * 10
    for size in (4, 8):
        numbers = dataclasses.replace(case, work=dataclasses.replace(case.work, target_bytes=size))
        assert loss_memory(numbers, 0) == 10 * 3 * size + trained * (size + 1)
