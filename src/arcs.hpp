// Rows of vertices and rows of entries: taken from both ends of an entry, summed by rows and by
// columns, multiplied. An arc is an entry. A row, or a column, belongs to one thread: the bits do
// not depend on threads.
#pragma once

#include "heads.hpp"

namespace gcnmpi::TARGET {

inline constexpr Size NEAR = 1 << 12;  // numbers that stay in the L1 cache between two steps
inline constexpr Size SOON = 64;       // arcs whose single numbers are on their way

// out[e] = source[column] + target[row] or one of both, for the arcs of a row.
template <class T, bool SOURCE, bool OTHER>
void take_row(
    const Arcs& arcs, Rows<const T> source, const T* target, T* out, Size stride, Size width
) {
    constexpr Size LINES = 64;  // of the source on their way, beside those that are written
    const Size bytes = width * (Size)sizeof(T), ahead = LINES / (bytes / LINE + 1) + 1;
    for (Size k = 0; k < arcs.count; ++k) {
        if (SOURCE && k + ahead < arcs.left) {
            const char* coming = (const char*)(source.data + arcs.ends[k + ahead] * source.stride);
            for (Size byte = 0; byte < bytes; byte += LINE) __builtin_prefetch(coming + byte);
        }
        const T* from = SOURCE ? source.data + arcs.ends[k] * source.stride : nullptr;
        T* to = out + k * stride;
        if (width == 1) {  // scores: a number takes less than a vector of which it is a lane
            *to = (SOURCE ? *from : T(0)) + (OTHER ? *target : T(0));
            continue;
        }
        over_vectors<T>(width, [=](Size j, auto lanes) GCNMPI_INLINE {
            Vec<T> v = {};
            if constexpr (SOURCE) v += lanes.load(from + j);
            if constexpr (OTHER) v += lanes.load(target + j);
            lanes.store(to + j, v);
        });
    }
}

// What follows is applied while the rows are in the cache.
template <class T>
void take(
    Pattern p, Rows<const T> source, Rows<const T> target, Rows<T> out, Epilogue<T> then,
    int threads
) {
    const auto run = !source.data  ? take_row<T, false, true>
                     : target.data ? take_row<T, true, true>
                                   : take_row<T, true, false>;
    const Size most = out.width < NEAR ? NEAR / (out.width + 1) + 1 : 1;  // arcs at a time
    const Size end = p.starts[p.rows];
    over_rows(p, out.width, threads, [&](Size first, Size last) {
        Size done = p.starts[first];
        for (Size row = first; row < last; ++row) {
            const T* mine = target.data ? target.data + row * target.stride : nullptr;
            for (Size e = p.starts[row], stop = p.starts[row + 1]; e < stop;) {
                const Size count = stop - e < most ? stop - e : most;
                T* to = out.data + e * out.stride;
                run({p.indices + e, count, end - e}, source, mine, to, out.stride, out.width);
                e += count;
                if (does_something(then) && (e - done >= most)) {
                    apply_to_rows(then, read_only(out), out, done, e);
                    done = e;
                }
            }
        }
        if (does_something(then)) apply_to_rows(then, read_only(out), out, done, p.starts[last]);
    });
}

// Weights of arcs: the values of entries, which stand in another order.
template <class T>
struct ValuesAt {
    Rows<const T> values;
    ArcsTo<Places> places;

    T operator()(Size k, Size h) const { return values.data[places.ends[k] * values.stride + h]; }
    [[gnu::always_inline]] void prefetch(Size k) const {
        if (k + SOON < places.left)
            __builtin_prefetch(values.data + places.ends[k + SOON] * values.stride);
    }
};

// Sums by columns: of rows at the other ends of their entries, or of rows of the entries.
template <class T>
void sum_by_columns(
    const Pattern& p, Size heads, Size c, Rows<const T> values, Rows<const T> x, bool of_entries,
    Rows<T> out, int threads
) {
    const Size end = p.column_starts[p.columns];
    over_columns(p, out.width, threads, [&](Size first, Size last) {
        for (Size j = first; j < last; ++j) {
            const Size start = p.column_starts[j], count = p.column_starts[j + 1] - start;
            const ArcsTo<Places> places = {way_back(p, start), count, end - start};
            const Places rows = {p.column_rows + start, nullptr};
            const ArcsTo<Places> arcs = {of_entries ? places.ends : rows, count, end - start};
            T* to = out.data + j * out.stride;
            over_heads<T>(
                heads, c,
                WeightedSum<T, ValuesAt<T>, Places>{arcs, x, {values, places}, nullptr, to, false}
            );
        }
    });
}

template <class T>
void sum_sources(Pattern p, Rows<const T> x, Rows<T> out, int threads) {
    const T one = 1;
    sum_by_columns(p, 1, out.width, {&one, 1, 1, 0}, x, true, out, threads);
}

template <class T>
void spmm_values(Pattern p, Rows<const T> values, Rows<const T> x, Rows<T> out, int threads) {
    const Size heads = values.width, c = out.width / heads, end = p.starts[p.rows];
    over_rows(p, out.width, threads, [&](Size first, Size last) {
        for (Size row = first; row < last; ++row) {
            const Size start = p.starts[row], count = p.starts[row + 1] - start;
            const ValuesOf<T> weights = {values.data + start * values.stride, values.stride};
            const Arcs arcs = {p.indices + start, count, end - start};
            T* to = out.data + row * out.stride;
            over_heads<T>(
                heads, c, WeightedSum<T, ValuesOf<T>>{arcs, x, weights, nullptr, to, false}
            );
        }
    });
}

template <class T>
void spmm_values_t(Pattern p, Rows<const T> values, Rows<const T> x, Rows<T> out, int threads) {
    const Size heads = values.width;
    sum_by_columns(p, heads, out.width / heads, values, x, false, out, threads);
}

template <class T>
void no_dots(Rows<T> out, Size first, Size last) {
    for (Size row = first; row < last; ++row)
        for (Size h = 0; h < out.width; ++h) out.data[row * out.stride + h] = 0;
}

template <class T>
void sddmm(Pattern p, Rows<const T> target, Rows<const T> source, Rows<T> out, int threads) {
    const Size heads = out.width, c = source.width / heads, end = p.starts[p.rows];
    if (!c) return no_dots(out, 0, end);
    over_rows(p, source.width, threads, [&](Size first, Size last) {
        for (Size row = first; row < last; ++row) {
            const Size start = p.starts[row], count = p.starts[row + 1] - start;
            const Arcs arcs = {p.indices + start, count, end - start};
            const Rows<const T> mine = {target.data + row * target.stride, 1, source.width, 0};
            T* to = out.data + start * out.stride;
            over_heads<T>(heads, c, Dots<T>{arcs, mine, source, c, to, out.stride});
        }
    });
}

// body(first, count) for rows of so many numbers that stay in the L1 cache while panels pass.
template <class Body>
void over_near_rows(Size rows, Size width, int threads, Body body) {
    const Size most = width < NEAR ? NEAR / (width + 1) + 1 : 1;
    for_ranges(rows, width, threads, [&](Size first, Size last) {
        for (; first < last; first += most) body(first, last - first < most ? last - first : most);
    });
}

template <class T>
void multiply(Rows<const T> x, Rows<const T> y, Rows<T> out, int threads) {  // in place is fine
    for_ranges(x.rows, x.width, threads, [&](Size first, Size last) {
        for (Size row = first; row < last; ++row) {
            const T* one = x.data + row * x.stride;
            const T* other = y.data + row * y.stride;
            T* to = out.data + row * out.stride;
#pragma GCC ivdep
            for (Size i = 0; i < x.width; ++i) to[i] = one[i] * other[i];
        }
    });
}

template <class T>
Rows<const T> from_row(Rows<const T> x, Size row) {
    return {x.data + row * x.stride, x.rows - row, x.width, x.stride};
}

template <class T>
void row_dots(Rows<const T> x, Rows<const T> y, Rows<T> out, int threads) {
    const Size heads = out.width, c = x.width / heads;
    if (c == 1) return multiply(x, y, out, threads);
    if (!c) return no_dots(out, 0, out.rows);
    over_near_rows(x.rows, x.width, threads, [&](Size first, Size count) {
        T* to = out.data + first * out.stride;
        const Arcs pairs = {nullptr, count, 0};
        over_heads<T>(heads, c, Dots<T>{pairs, from_row(x, first), from_row(y, first), c, to, out.stride});
    });
}

template <class T>
void scale_heads(Rows<const T> values, Rows<const T> x, Rows<T> out, int threads) {  // in place too
    const Size heads = values.width, c = x.width / heads;
    if (c == 1) return multiply(values, x, out, threads);
    for_ranges(x.rows, x.width, threads, [&](Size first, Size last) {
        for (Size row = first; row < last; ++row) {
            for (Size h = 0; h < heads; ++h) {
                const T factor = values.data[row * values.stride + h];
                const T* from = x.data + row * x.stride + h * c;
                T* to = out.data + row * out.stride + h * c;
                over_vectors<T>(c, [=](Size j, auto lanes) GCNMPI_INLINE {
                    lanes.store(to + j, factor * lanes.load(from + j));
                });
            }
        }
    });
}

}  // namespace gcnmpi::TARGET
