// Sparse × dense. The sums of a row stay in registers while its entries pass by once, so x is read
// and out written once a panel of columns; the rows of x that come next are prefetched. A row is
// summed by one thread, in the order of its entries: the bits do not depend on threads.
#pragma once

#include "dense.hpp"
#include "simd.hpp"

namespace gcnmpi::TARGET {

inline constexpr int PANEL = 8;   // vectors of sums: with them, AVX2 uses 11 of 16 registers
inline constexpr Size LINE = 64;   // bytes of a cache line
inline constexpr Size LINES = 128; // of x, on their way between a prefetch and its use

template <class T>
struct Columns {  // one panel of x and out
    const T* x;
    T* out;
    Size x_stride, out_stride;
    Tail<T> tail;
    bool add;
};

// Rows first .. last of one panel: FULL vectors, and the first lanes of one more if PART.
template <class T, class I, int FULL, bool PART>
void panel(const Csr<T, I>& m, Size first, Size last, const Columns<T>& c) {
    constexpr Size AHEAD = LINES / ((FULL * BYTES + PART + LINE) / LINE);  // entries
    const Size end_of_all = m.before(m.rows);
    const Tail<T> tail = c.tail;
    const T one = 1;
    const T* values = m.values ? m.values : &one;
    const Size step = m.values != nullptr;
    for (Size row = first; row < last; ++row) {
        Vec<T> sums[FULL + 1] = {};
        const Size start = m.begins[row], stop = m.ends[row];
        for (Size k = start; k < stop; ++k) {
            if (k + AHEAD < end_of_all) {
                const char* coming = (const char*)(c.x + (Size)m.columns[k + AHEAD] * c.x_stride);
#pragma GCC unroll 16
                for (Size byte = 0; byte < FULL * BYTES + PART; byte += LINE)
                    __builtin_prefetch(coming + byte);
            }
            const T* x = c.x + (Size)m.columns[k] * c.x_stride;
            const T value = values[k * step];
#pragma GCC unroll 8
            for (int f = 0; f < FULL; ++f) sums[f] += value * load(x + f * LANES<T>);
            if constexpr (PART) sums[FULL] += value * tail.load(x + FULL * LANES<T>);
        }
        if (!m.values) {
            const T scale = m.scale[row];
#pragma GCC unroll 8
            for (int f = 0; f < FULL + PART; ++f) sums[f] *= scale;
        }
        T* out = c.out + row * c.out_stride;
        T* end = out + FULL * LANES<T>;
        if (c.add) {
            if (start == stop) continue;
#pragma GCC unroll 8
            for (int f = 0; f < FULL; ++f) sums[f] += load(out + f * LANES<T>);
            if constexpr (PART) sums[FULL] += tail.load(end);
        }
#pragma GCC unroll 8
        for (int f = 0; f < FULL; ++f) store(out + f * LANES<T>, sums[f]);
        if constexpr (PART) tail.store(end, sums[FULL]);
    }
}

// Where columns take 64 bits, which they hardly ever do, vectors pass by one by one.
template <class I>
inline constexpr int MOST_OF = sizeof(I) == 4 ? PANEL : 1;

template <class T, class I>
using Panel = void (*)(const Csr<T, I>&, Size, Size, const Columns<T>&);

template <class T, class I, int FULL = MOST_OF<I>>
Panel<T, I> panel_of(Size full, bool part) {
    if constexpr (FULL > 0)
        if (full < FULL) return panel_of<T, I, FULL - 1>(full, part);
    return part ? panel<T, I, FULL, true> : panel<T, I, FULL, false>;
}

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
    constexpr Size MOST = MOST_OF<I>;
    const Size lanes = LANES<T>, work = m.work() * out.width;
    const Size pieces = pieces_of(work, m.rows);
    const T* from = x.data - m.first * x.stride;  // where the row of column 0 would be
    for_pieces(pieces, threads, [&](Size piece) {
        const Size first = first_row(m, piece, pieces), last = first_row(m, piece + 1, pieces);
        for (Size start = 0; start < out.width; start += MOST * lanes) {
            const Size left = out.width - start, full = left / lanes < MOST ? left / lanes : MOST;
            // The last panel takes what is left over along.
            const Size rest = left - full * lanes < lanes ? left - full * lanes : 0;
            const Columns<T> columns = {
                from + start, out.data + start, x.stride, out.stride, {(int)rest}, add,
            };
            panel_of<T, I>(full, rest > 0)(m, first, last, columns);
            if (rest) break;
        }
        if (does_something(then)) apply_to_rows(then, read_only(out), out, first, last);
    });
}

// What a product cannot do without, and nothing else: a number of every line of the rows of x that
// it gathers, in its order. With prefetches or without, whichever is faster on a matrix.
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
