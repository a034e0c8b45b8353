// Maximum over the entries of a row, with the column that attains it: the first of equals, so the
// columns of a row come in their global order.
#pragma once

#include "heads.hpp"

namespace gcnmpi::TARGET {

template <class T>
struct Largest {
    static constexpr int MOST = PANEL / 2;  // a number and a column for each lane
    Arcs arcs;
    Rows<const T> x;
    T* out;
    std::int32_t* arg;

    template <int V, int H, bool PART>
    void run(Size, Size column, int rest) const {
        constexpr Size N = LANES<T>;
        constexpr int F = V * H + PART;
        const Tail<T> tail = {rest};
        const auto take = [&](const T* from, int f) {
            return f < V * H ? load(from + f * N) : tail.load(from + f * N);
        };
        const T* x0 = x.data + column;
        Vec<T> best[F];
        Bits<T> place[F];
        const T* from = x0 + (Size)arcs.ends[0] * x.stride;
#pragma GCC unroll 8
        for (int f = 0; f < F; ++f) {
            best[f] = take(from, f);
            place[f] = Bits<T>{} + arcs.ends[0];
        }
        for (Size k = 1; k < arcs.count; ++k) {
            prefetch_row<T, V * H, PART>(arcs, k, x0, x.stride);
            from = x0 + (Size)arcs.ends[k] * x.stride;
            const Bits<T> here = Bits<T>{} + arcs.ends[k];
#pragma GCC unroll 8
            for (int f = 0; f < F; ++f) {
                const Vec<T> next = take(from, f);
                const auto larger = (next > best[f]) | (next != next);  // NaN is passed on
                best[f] = larger ? next : best[f];
                place[f] = larger ? here : place[f];
            }
        }
#pragma GCC unroll 8
        for (int f = 0; f < F; ++f) {
            using Short = typename Several<std::int32_t, LANES<T>>::type;
            const Short places = __builtin_convertvector(place[f], Short);
            if (f < V * H) {
                store(out + column + f * N, best[f]);
                __builtin_memcpy(arg + column + f * N, &places, sizeof(places));
            } else {
                tail.store(out + column + f * N, best[f]);
                std::int32_t few[N];
                __builtin_memcpy(few, &places, sizeof(places));
                for (int lane = 0; lane < rest; ++lane) arg[column + f * N + lane] = few[lane];
            }
        }
    }
};

template <class T>
void max_aggregate(
    Pattern p, Rows<const T> x, Rows<T> out, Rows<std::int32_t> arg, int threads
) {
    over_rows(p, out.width, threads, [&](Size first, Size last) {
        const Size end = p.starts[p.rows];
        for (Size row = first; row < last; ++row) {
            const Size start = p.starts[row], count = p.starts[row + 1] - start;
            T* to = out.data + row * out.stride;
            std::int32_t* places = arg.data + row * arg.stride;
            if (count) {
                over_panels<T>(
                    out.width, Largest<T>{{p.indices + start, count, end - start}, x, to, places}
                );
                continue;
            }
            for (Size j = 0; j < out.width; ++j) {
                to[j] = 0;
                places[j] = -1;
            }
        }
    });
}

// Every number of grad goes to one place of out. Threads share the columns, and the rows of out if
// those are too few: an entry of out is a thread's own, and is summed in the order of the rows.
template <class T>
void max_aggregate_backward(
    Rows<const T> grad, Rows<const std::int32_t> arg, Rows<T> out, int threads
) {
    constexpr Size STRIP = LINE / sizeof(T);
    for_ranges(out.rows, out.width, threads, [&](Size first, Size last) {
        for (Size row = first; row < last; ++row)
            for (Size j = 0; j < out.width; ++j) out.data[row * out.stride + j] = 0;
    });
    const bool few = grad.rows * grad.width < GRAIN || threads == 1;
    Size strips = few ? 1 : (grad.width + STRIP - 1) / STRIP;
    if (strips > threads) strips = threads;
    const Size bands = few || !strips ? 1 : (threads + strips - 1) / strips;
    for_pieces(strips * bands, threads, [&](Size piece) {
        const Size strip = piece % strips, band = piece / strips;
        Size start = grad.width * strip / strips, stop = grad.width * (strip + 1) / strips;
        if (strip > 0) start = start / STRIP * STRIP;
        if (strip + 1 < strips) stop = stop / STRIP * STRIP;
        const Size first = out.rows * band / bands, last = out.rows * (band + 1) / bands;
        for (Size row = 0; row < grad.rows; ++row) {
            const T* from = grad.data + row * grad.stride;
            const std::int32_t* places = arg.data + row * arg.stride;
            for (Size j = start; j < stop; ++j)
                if (places[j] >= first && places[j] < last)
                    out.data[(Size)places[j] * out.stride + j] += from[j];
        }
    });
}

}  // namespace gcnmpi::TARGET
