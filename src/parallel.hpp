// Loops over pieces of work, with OpenMP where it was found. The result of a piece never depends on
// the thread that runs it, nor on the number of threads.
#pragma once

#include "operations.hpp"

namespace gcnmpi::TARGET {

inline constexpr Size GRAIN = 1 << 15;  // numbers a piece: some microseconds, well above a fork

// Fewer pieces are done before a thread that sleeps has woken up.
inline constexpr Size WORTH_THREADS = 4;

inline Size pieces_of(Size work, Size most) {
    const Size pieces = work / GRAIN + 1;
    return pieces < most ? pieces : most;
}

// One function for all loops, as each would be compiled with and without threads.
[[gnu::noinline, gnu::noclone]] inline void call_with_pieces(
    Size pieces, int threads, void (*call)(const void*, Size), const void* body
) {
    if (threads == 1 || pieces < WORTH_THREADS) {
        for (Size piece = 0; piece < pieces; ++piece) call(body, piece);
        return;
    }
#pragma omp parallel for schedule(dynamic, 1) num_threads(threads)
    for (Size piece = 0; piece < pieces; ++piece) call(body, piece);
}

// A body is compiled once, so that sums are rounded in one order whatever the threads.
template <class Body>
void for_pieces(Size pieces, int threads, const Body& body) {
    const auto call = [](const void* of, Size piece) {
        const Body copy = *(const Body*)of;  // what is stored cannot be in it
        copy(piece);
    };
    call_with_pieces(pieces, threads, call, &body);
}

// body(first, last) over [0, n), of which each item is `weight` numbers.
template <class Body>
void for_ranges(Size n, Size weight, int threads, const Body& body) {
    const Size pieces = pieces_of(n * weight, n);
    for_pieces(pieces, threads, [=](Size piece) {
        body(n * piece / pieces, n * (piece + 1) / pieces);
    });
}

}  // namespace gcnmpi::TARGET
