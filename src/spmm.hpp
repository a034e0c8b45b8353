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
template <class T, class I, int FULL, bool PART, bool SCALED>
void panel(const Csr<T, I>& m, Size first, Size last, const Columns<T>& c) {
    constexpr Size AHEAD = LINES / ((FULL * BYTES + PART + LINE) / LINE);  // entries
    const Size end_of_all = m.before(m.rows);
    const Tail<T> tail = c.tail;
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
            if constexpr (SCALED) {
#pragma GCC unroll 8
                for (int f = 0; f < FULL; ++f) sums[f] += load(x + f * LANES<T>);
                if constexpr (PART) sums[FULL] += tail.load(x + FULL * LANES<T>);
            } else {
                const T value = m.values[k];
#pragma GCC unroll 8
                for (int f = 0; f < FULL; ++f) sums[f] += value * load(x + f * LANES<T>);
                if constexpr (PART) sums[FULL] += value * tail.load(x + FULL * LANES<T>);
            }
        }
        if constexpr (SCALED) {
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

template <class T, class I>
using Panel = void (*)(const Csr<T, I>&, Size, Size, const Columns<T>&);

template <class T, class I, bool PART, bool SCALED>
Panel<T, I> panel_of(Size full) {
    static constexpr Panel<T, I> PANELS[PANEL + 1] = {
        panel<T, I, 0, PART, SCALED>, panel<T, I, 1, PART, SCALED>, panel<T, I, 2, PART, SCALED>,
        panel<T, I, 3, PART, SCALED>, panel<T, I, 4, PART, SCALED>, panel<T, I, 5, PART, SCALED>,
        panel<T, I, 6, PART, SCALED>, panel<T, I, 7, PART, SCALED>, panel<T, I, 8, PART, SCALED>,
    };
    return PANELS[full];
}

template <class T, class I>
Panel<T, I> panel_of(const Csr<T, I>& m, Size full, bool part) {
    if (m.values)
        return part ? panel_of<T, I, true, false>(full) : panel_of<T, I, false, false>(full);
    return part ? panel_of<T, I, true, true>(full) : panel_of<T, I, false, true>(full);
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
    const Size lanes = LANES<T>, work = m.work() * out.width;
    const Size pieces = pieces_of(work, m.rows);
    const T* from = x.data - m.first * x.stride;  // where the row of column 0 would be
    for_pieces(pieces, threads, [&](Size piece) {
        const Size first = first_row(m, piece, pieces), last = first_row(m, piece + 1, pieces);
        for (Size start = 0; start < out.width; start += PANEL * lanes) {
            const Size left = out.width - start, full = left / lanes < PANEL ? left / lanes : PANEL;
            // The last panel takes what is left over along.
            const Size rest = left - full * lanes < lanes ? left - full * lanes : 0;
            const Columns<T> columns = {
                from + start, out.data + start, x.stride, out.stride, {(int)rest}, add,
            };
            panel_of(m, full, rest > 0)(m, first, last, columns);
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
