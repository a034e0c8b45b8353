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

// The epilogue is applied while the rows are in the cache.
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
    Places places;
    Size left;

    const T* operator()(Size k) const { return values.data + places[k] * values.stride; }
    [[gnu::always_inline]] void prefetch(Size k) const {
        if (k + SOON < left) __builtin_prefetch(values.data + places[k + SOON] * values.stride);
    }
};

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
    const Size heads = values.width, c = out.width / heads, end = p.column_starts[p.columns];
    over_columns(p, out.width, threads, [&](Size first, Size last) {
        for (Size j = first; j < last; ++j) {
            const Size start = p.column_starts[j], count = p.column_starts[j + 1] - start;
            const ValuesAt<T> weights = {values, way_back(p, start), end - start};
            const Arcs arcs = {p.column_rows + start, count, end - start};
            T* to = out.data + j * out.stride;
            over_heads<T>(
                heads, c, WeightedSum<T, ValuesAt<T>>{arcs, x, weights, nullptr, to, false}
            );
        }
    });
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
        const Rows<const T> a = from_row(x, first), b = from_row(y, first);
        over_heads<T>(heads, c, Dots<T>{pairs, a, b, c, to, out.stride});
    });
}

template <class T>
struct Multiples {  // of heads, a factor for each; in place is fine
    static constexpr int MOST = PANEL / 2;
    Rows<const T> factors, x;
    Rows<T> out;
    Size start, count;

    template <int V, int H, bool PART>
    void run(Size head, Size column, int rest) const {
        constexpr Size N = LANES<T>;
        const Tail<T> tail = {rest};
        const Multiples of = *this;  // what is stored cannot be in it
        for (Size row = of.start; row < of.start + of.count; ++row) {
            const T* factor = of.factors.data + row * of.factors.stride + head;
            const T* from = of.x.data + row * of.x.stride + column;
            T* to = of.out.data + row * of.out.stride + column;
#pragma GCC unroll 8
            for (int f = 0; f < V * H; ++f)
                store(to + f * N, factor[f / (V ? V : 1)] * load(from + f * N));
            if constexpr (PART) tail.store(to + V * N, factor[0] * tail.load(from + V * N));
        }
    }
};

template <class T>
void scale_heads(Rows<const T> values, Rows<const T> x, Rows<T> out, int threads) {
    const Size heads = values.width, c = x.width / heads;
    if (c == 1) return multiply(values, x, out, threads);
    over_near_rows(x.rows, x.width, threads, [&](Size first, Size count) {
        over_heads<T>(heads, c, Multiples<T>{values, x, out, first, count});
    });
}

}  // namespace gcnmpi::TARGET
