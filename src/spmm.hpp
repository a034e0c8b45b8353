// Sparse × dense. The sums of a row stay in registers while its entries pass by once, so x is read
// and out written once a panel of columns; the rows of x that come next are prefetched. A row is
// summed by one thread, in the order of its entries: the bits do not depend on threads.
#pragma once

#include "dense.hpp"
#include "simd.hpp"

namespace gcnmpi::TARGET {

inline constexpr Size LINE = 64;   // bytes of a cache line
inline constexpr Size LINES = 128; // of x, on their way between a prefetch and its use

// Rows first .. last of the result. Where columns take 64 bits, which they hardly ever do, vectors
// pass by one by one.
template <class T, class I, bool VALUES>
struct ProductRows {
    static constexpr int MOST = sizeof(I) == 4 ? PANEL : 1;
    const Csr<T, I>& m;
    Size first, last;
    Rows<const T> x;
    Rows<T> out;
    bool add;

    template <int V, int, bool PART>
    void run(Size, Size column, int rest) const {
        constexpr Size AHEAD = LINES / ((V * BYTES + PART + LINE) / LINE);  // entries
        // Copies: what is stored might be those behind references.
        const Size end_of_all = m.before(m.rows), x_stride = x.stride, out_stride = out.stride;
        const Size *begins = m.begins, *ends = m.ends;
        T* const out0 = out.data + column;
        const bool adds = add;
        const Tail<T> tail = {rest};
        const I* columns = m.columns;
        const T *values = m.values, *scales = m.scale;
        const T* x0 = x.data + column - m.first * x_stride;  // where the row of column 0 would be
        for (Size row = first; row < last; ++row) {
            Vec<T> sums[V + 1] = {};
            const Size start = begins[row], stop = ends[row];
            for (Size k = start; k < stop; ++k) {
                if (k + AHEAD < end_of_all) {
                    const char* coming = (const char*)(x0 + (Size)columns[k + AHEAD] * x_stride);
#pragma GCC unroll 16
                    for (Size byte = 0; byte < V * BYTES + PART; byte += LINE)
                        __builtin_prefetch(coming + byte);
                }
                const T* from = x0 + (Size)columns[k] * x_stride;
                const T value = VALUES ? values[k] : T(1);
#pragma GCC unroll 8
                for (int v = 0; v < V; ++v) sums[v] += value * load(from + v * LANES<T>);
                if constexpr (PART) sums[V] += value * tail.load(from + V * LANES<T>);
            }
            if (!VALUES && scales) {
                const T scale = scales[row];
#pragma GCC unroll 8
                for (int v = 0; v < V + PART; ++v) sums[v] *= scale;
            }
            T *to = out0 + row * out_stride, *end = to + V * LANES<T>;
            if (adds) {
                if (start == stop) continue;
#pragma GCC unroll 8
                for (int v = 0; v < V; ++v) sums[v] += load(to + v * LANES<T>);
                if constexpr (PART) sums[V] += tail.load(end);
            }
#pragma GCC unroll 8
            for (int v = 0; v < V; ++v) store(to + v * LANES<T>, sums[v]);
            if constexpr (PART) tail.store(end, sums[V]);
        }
    }
};

// The first row of a piece: pieces have about equal numbers of entries plus rows.
inline Size first_row(const Extents& m, Size piece, Size pieces) {
    const double share = (double)piece / (double)pieces;
    const Size wanted = (Size)((double)m.work() * share), none = m.before(0);
    Size low = 0, high = m.rows;
    while (low < high) {
        const Size middle = (low + high) / 2;
        if (m.begins[middle] - none + middle < wanted) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return piece == pieces ? m.rows : low;
}

template <class T, class I>
void spmm(
    Csr<T, I> m, Rows<const T> x, Rows<T> out, bool add, Epilogue<T> then, int threads
) {
    const Size pieces = pieces_of(m.work() * out.width, m.rows);
    for_pieces(pieces, threads, [&](Size piece) {
        const Size first = first_row(m, piece, pieces), last = first_row(m, piece + 1, pieces);
        if (m.values) {
            over_panels<T>(out.width, ProductRows<T, I, true>{m, first, last, x, out, add});
        } else {
            over_panels<T>(out.width, ProductRows<T, I, false>{m, first, last, x, out, add});
        }
        if (does_something(then)) apply_to_rows(then, read_only(out), out, first, last);
    });
}

// The least that a product has to read, and nothing else: a number of every line of the rows of x
// that it gathers, in its order. With prefetches or without, whichever is faster on a matrix.
template <class T, class I>
T gather(Csr<T, I> m, Rows<const T> x, bool prefetch, int threads) {
    constexpr Size PER_LINE = LINE / sizeof(T), WAYS = 4;
    const Size lines = (x.width + PER_LINE - 1) / PER_LINE, pieces = m.rows < GROUPS ? 1 : GROUPS;
    const Size ahead = prefetch && lines ? LINES / lines : 0, end_of_all = m.before(m.rows);
    T totals[GROUPS] = {};
    for_pieces(pieces, threads, [&](Size piece) {
        const Size last = m.before(first_row(m, piece + 1, pieces));
        T sums[WAYS] = {};
        for (Size k = m.before(first_row(m, piece, pieces)); k < last; k += WAYS) {
            const Size ways = last - k < WAYS ? last - k : WAYS;
            if (ahead && k + ahead + WAYS <= end_of_all)
                for (Size w = 0; w < WAYS; ++w)
                    for (Size line = 0; line < lines; ++line)
                        __builtin_prefetch(
                            x.data + (Size)m.columns[k + ahead + w] * x.stride + line * PER_LINE
                        );
            for (Size line = 0; line < lines; ++line)
                for (Size w = 0; w < ways; ++w)
                    sums[w] += x.data[(Size)m.columns[k + w] * x.stride + line * PER_LINE];
        }
        for (Size w = 0; w < WAYS; ++w) totals[piece] += sums[w];
    });
    T total = 0;
    for (Size piece = 0; piece < pieces; ++piece) total += totals[piece];
    return total;
}

}  // namespace gcnmpi::TARGET
