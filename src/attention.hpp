// Attention over the entries of a row, forward and backward, in one gather of rows for each
// direction. An arc is an entry; what arcs need by themselves, a number for each head, is computed
// for a chunk of them in buffers on the stack, heads of an arc next to each other. A row, or a
// column in the backward pass, belongs to one thread: the bits do not depend on threads.
#pragma once

#include "heads.hpp"
#include "softmax.hpp"

namespace gcnmpi::TARGET {

inline constexpr Size MOST_ARCS = 64;  // of a chunk: their rows stay in the L1 or L2 cache
inline constexpr Size ALIGNMENT = 64;

inline Size arcs_of_chunk(Size heads) {
    const Size fitting = MOST_HEADS / heads;
    return fitting < MOST_ARCS ? fitting : MOST_ARCS;
}

// A number for each arc of a chunk and head, and room for the rest of a vector.
template <class T>
struct Buffer {
    alignas(ALIGNMENT) T numbers[MOST_HEADS + WIDEST_PANEL];
    T* operator+(Size first) { return numbers + first; }
    T& operator[](Size i) { return numbers[i]; }
};

template <class T>
inline T leaky(T z, T slope) { return z > 0 ? z : slope * z; }

// count numbers, and those up to a whole vector.
template <class T>
inline void exponentials(T* numbers, Size count) {
    for (Size f = 0; f < count; f += LANES<T>) store(numbers + f, exponential(load(numbers + f)));
}

// 0 for what is dropped; what is kept is not scaled.
template <class T>
inline void drop_weights(
    const Dropout<T>& drop, Size row, const std::int32_t* columns, Size arcs, Size heads, T* weights
) {
    const std::uint32_t low = (std::uint32_t)drop.rows[row];
    const std::uint32_t high = (std::uint32_t)(drop.rows[row] >> 32);
    for (Size k = 0; k < arcs; ++k) {
        const Size first = (Size)columns[k] * heads;
#pragma omp simd
        for (Size h = 0; h < heads; ++h)
            weights[k * heads + h] =
                keeps(drop, low, high, first + h) ? weights[k * heads + h] : T(0);
    }
}

// The same for arcs of one column and different rows.
template <class T>
inline void drop_weights_of_column(
    const Dropout<T>& drop, const std::int32_t* rows, Size column, Size arcs, Size heads, T* weights
) {
    for (Size k = 0; k < arcs; ++k) {
        const std::uint64_t key = drop.rows[rows[k]];
        const std::uint32_t low = (std::uint32_t)key, high = (std::uint32_t)(key >> 32);
#pragma omp simd
        for (Size h = 0; h < heads; ++h)
            weights[k * heads + h] =
                keeps(drop, low, high, column * heads + h) ? weights[k * heads + h] : T(0);
    }
}

template <class T>
struct Softmax {  // of a row: its largest score and the sum of exponentials, for each head
    T* shift;
    T* total;
};

// Weights of the arcs of a chunk, exp(score - shift), added to total, then dropped; and the sums of
// rows of x weighted so, to `out`.
template <class T>
void weigh_chunk(
    const Attention<T>& a, Size row, Size first, Size arcs, Softmax<T> of, T* weights, T* out,
    bool add
) {
    const Size heads = a.heads;
    exponentials(weights, arcs * heads);
    for (Size k = 0; k < arcs; ++k)
        for (Size h = 0; h < heads; ++h) of.total[h] += weights[k * heads + h];
    const std::int32_t* columns = a.pattern.indices + first;
    if (a.drop.rows) drop_weights(a.drop, row, columns, arcs, heads, weights);
    const Size left = a.pattern.starts[a.pattern.rows] - first;
    over_panels<T>(
        heads, a.c, WeightedSum<T>{{columns, arcs, left}, a.x, weights, heads, out, add}
    );
}

template <class T>
void divide_by_total(const Attention<T>& a, const T* total, T* out) {
    for (Size h = 0; h < a.heads; ++h) {
        const T factor = (a.drop.rows ? a.drop.scale : T(1)) / total[h];
#pragma omp simd
        for (Size j = 0; j < a.c; ++j) out[h * a.c + j] *= factor;
    }
}

template <class T>
void empty_row(const Attention<T>& a, Softmax<T> of, T* out) {
    for (Size h = 0; h < a.heads; ++h) of.shift[h] = of.total[h] = 0;
    for (Size j = 0; j < a.heads * a.c; ++j) out[j] = 0;
}

// e of the arcs of a chunk, as leaky_relu(s[i] + t[j]). HEADS: their number, 0 if not known here.
template <class T, int HEADS>
inline void scores(
    const std::int32_t* columns, Size arcs, Size left, Rows<const T> t, const T* s, T slope,
    Size given, T* e
) {
    constexpr Size AHEAD = 64;
    const Size heads = HEADS ? HEADS : given;
    for (Size k = 0; k < arcs; ++k) {
        if (k + AHEAD < left) __builtin_prefetch(t.data + (Size)columns[k + AHEAD] * t.stride);
        const T* from = t.data + (Size)columns[k] * t.stride;
#pragma GCC unroll 8
        for (Size h = 0; h < heads; ++h) e[k * heads + h] = leaky(from[h] + s[h], slope);
    }
}

template <class T>
inline void raise(const T* e, Size arcs, Size heads, T* highest) {
    for (Size k = 0; k < arcs; ++k)
        for (Size h = 0; h < heads; ++h)
            highest[h] = e[k * heads + h] > highest[h] ? e[k * heads + h] : highest[h];
}

template <class T>
inline void lower(T* e, Size arcs, Size heads, const T* by) {
    for (Size k = 0; k < arcs; ++k)
        for (Size h = 0; h < heads; ++h) e[k * heads + h] -= by[h];
}

template <class T, int HEADS>
void attend_row(
    const Attention<T>& a, Rows<const T> t, const T* s, Size row, Softmax<T> of, T* out
) {
    const Size heads = HEADS ? HEADS : a.heads, chunk = arcs_of_chunk(heads);
    const Size start = a.pattern.starts[row], stop = a.pattern.starts[row + 1];
    if (start == stop) return empty_row(a, of, out);
    const std::int32_t* columns = a.pattern.indices;
    const Size end = a.pattern.starts[a.pattern.rows];
    Buffer<T> weights;
    constexpr T INFINITE = __builtin_inff();
    for (Size h = 0; h < heads; ++h) {
        of.shift[h] = -INFINITE;
        of.total[h] = 0;
    }
    const bool once = stop - start <= chunk;
    for (Size first = start; first < stop; first += chunk) {
        const Size arcs = stop - first < chunk ? stop - first : chunk;
        scores<T, HEADS>(columns + first, arcs, end - first, t, s, a.slope, heads, weights + 0);
        raise(weights + 0, arcs, heads, of.shift);
    }
    for (Size first = start; first < stop; first += chunk) {
        const Size arcs = stop - first < chunk ? stop - first : chunk;
        if (!once) scores<T, HEADS>(columns + first, arcs, 0, t, s, a.slope, heads, weights + 0);
        lower(weights + 0, arcs, heads, of.shift);
        weigh_chunk(a, row, first, arcs, of, weights + 0, out, first > start);
    }
    divide_by_total(a, of.total, out);
}

template <class T, int HEADS>
void attend_rows(
    const Attention<T>& a, Rows<const T> t, Rows<const T> s, Rows<T> out, Rows<T> shift,
    Rows<T> total, Size first, Size last
) {
    for (Size row = first; row < last; ++row) {
        const Softmax<T> of = {shift.data + row * shift.stride, total.data + row * total.stride};
        attend_row<T, HEADS>(a, t, s.data + row * s.stride, row, of, out.data + row * out.stride);
    }
}

template <class T>
void attend(
    Attention<T> a, Rows<const T> t, Rows<const T> s, Rows<T> out, Rows<T> shift, Rows<T> total,
    int threads
) {
    over_rows(a.pattern, out.width, threads, [&](Size first, Size last) {
        switch (a.heads) {
            case 1: return attend_rows<T, 1>(a, t, s, out, shift, total, first, last);
            case 2: return attend_rows<T, 2>(a, t, s, out, shift, total, first, last);
            case 4: return attend_rows<T, 4>(a, t, s, out, shift, total, first, last);
            case 8: return attend_rows<T, 8>(a, t, s, out, shift, total, first, last);
            default: return attend_rows<T, 0>(a, t, s, out, shift, total, first, last);
        }
    });
}

// What a backward pass needs of a target vertex, next to each other, for each head: s, shift,
// 1 / total and <grad, y>.
template <class T>
T dot(const T* x, const T* y, Size n) {
    T sum = 0;
#pragma omp simd reduction(+ : sum)
    for (Size j = 0; j < n; ++j) sum += x[j] * y[j];
    return sum;
}

template <class T>
void gather_facts(
    const Attention<T>& a, Rows<const T> s, Rows<const T> shift, Rows<const T> total,
    Rows<const T> y, Rows<const T> grad, T* facts, int threads
) {
    for_ranges(shift.rows, y.width, threads, [&](Size first, Size last) {
        for (Size row = first; row < last; ++row) {
            T* to = facts + row * FACTS * a.heads;
            const T *g = grad.data + row * grad.stride, *from = y.data + row * y.stride;
            for (Size h = 0; h < a.heads; ++h) {
                const T sum = total.data[row * total.stride + h];
                to[h] = s.data ? s.data[row * s.stride + h] : T(0);
                to[a.heads + h] = shift.data[row * shift.stride + h];
                to[2 * a.heads + h] = sum > 0 ? 1 / sum : T(0);
                to[3 * a.heads + h] = dot(g + h * a.c, from + h * a.c, a.c);
            }
        }
    });
}

template <class T, int HEADS>
void attend_column(
    const Attention<T>& a, const T* t, Rows<const T> grad, const T* facts, Size column, T* dx,
    T* dt, T* scratch
) {
    constexpr Size AHEAD = 48;
    const Size heads = HEADS ? HEADS : a.heads, chunk = arcs_of_chunk(heads);
    const Pattern& p = a.pattern;
    const Size start = p.column_starts[column], stop = p.column_starts[column + 1];
    const Size end = p.column_starts[p.columns];
    Buffer<T> alpha, weights, along, bend, dots;
    for (Size h = 0; h < heads; ++h) dt[h] = 0;
    if (start == stop)
        for (Size j = 0; j < heads * a.c; ++j) dx[j] = 0;
    for (Size first = start; first < stop; first += chunk) {
        const Size arcs = stop - first < chunk ? stop - first : chunk, left = end - first;
        const std::int32_t* rows = p.column_rows + first;
        for (Size k = 0; k < arcs; ++k) {
            if (k + AHEAD < left)
                __builtin_prefetch(facts + (Size)rows[k + AHEAD] * FACTS * heads);
            const T* of = facts + (Size)rows[k] * FACTS * heads;
#pragma GCC unroll 8
            for (Size h = 0; h < heads; ++h) {
                const T z = of[h] + t[h], lean = z > 0 ? T(1) : a.slope;
                alpha[k * heads + h] = z * lean - of[heads + h];
                along[k * heads + h] = of[2 * heads + h];
                dots[k * heads + h] = of[3 * heads + h];
                bend[k * heads + h] = lean;
            }
        }
        const Size count = arcs * heads;
        exponentials(alpha + 0, count);
#pragma omp simd
        for (Size f = 0; f < count; ++f) {
            alpha[f] *= along[f];
            along[f] = dots[f];
            weights[f] = alpha[f];
            dots[f] = 0;
        }
        if (a.drop.rows) {
            drop_weights_of_column(a.drop, rows, column, arcs, heads, weights + 0);
#pragma omp simd
            for (Size f = 0; f < count; ++f) weights[f] *= a.drop.scale;
        }
        const T* x = a.x.data + column * a.x.stride;
        over_panels<T>(
            heads, a.c,
            DotsAndSum<T>{
                {rows, arcs, left}, grad, x, weights + 0, heads, dots + 0, dx, first > start
            }
        );
        T* de = scratch + first * heads;
#pragma omp simd
        for (Size f = 0; f < count; ++f)
            de[f] = (weights[f] * dots[f] - alpha[f] * along[f]) * bend[f];
        for (Size k = 0; k < arcs; ++k)
            for (Size h = 0; h < heads; ++h) dt[h] += de[k * heads + h];
    }
}

// out[i] = sum over the entries of row i of what stands in `scratch` by columns.
template <class T, class P, int HEADS>
void sum_entries(
    const Pattern& p, const P* places, Size given, const T* scratch, Rows<T> out, Size first,
    Size last
) {
    constexpr Size AHEAD = 64;
    const Size heads = HEADS ? HEADS : given, end = p.starts[p.rows];
    for (Size row = first; row < last; ++row) {
        T* to = out.data + row * out.stride;
        for (Size h = 0; h < heads; ++h) to[h] = 0;
        for (Size k = p.starts[row]; k < p.starts[row + 1]; ++k) {
            if (k + AHEAD < end) __builtin_prefetch(scratch + (Size)places[k + AHEAD] * heads);
            const T* from = scratch + (Size)places[k] * heads;
            for (Size h = 0; h < heads; ++h) to[h] += from[h];
        }
    }
}

template <class T, class P>
void sum_entries_of(
    const Pattern& p, const P* places, Size heads, const T* scratch, Rows<T> out, int threads
) {
    over_rows(p, heads, threads, [&](Size first, Size last) {
        switch (heads) {
            case 1: return sum_entries<T, P, 1>(p, places, heads, scratch, out, first, last);
            case 2: return sum_entries<T, P, 2>(p, places, heads, scratch, out, first, last);
            case 4: return sum_entries<T, P, 4>(p, places, heads, scratch, out, first, last);
            case 8: return sum_entries<T, P, 8>(p, places, heads, scratch, out, first, last);
            default: return sum_entries<T, P, 0>(p, places, heads, scratch, out, first, last);
        }
    });
}

template <class T, int HEADS>
void attend_columns(
    const Attention<T>& a, Rows<const T> t, Rows<const T> grad, const T* facts, Rows<T> dx,
    Rows<T> dt, T* scratch, Size first, Size last
) {
    for (Size column = first; column < last; ++column)
        attend_column<T, HEADS>(
            a, t.data + column * t.stride, grad, facts, column, dx.data + column * dx.stride,
            dt.data + column * dt.stride, scratch
        );
}

// scratch: (entries + FACTS · rows, heads) numbers.
template <class T>
void attend_backward(
    Attention<T> a, Rows<const T> t, Rows<const T> s, Rows<const T> shift, Rows<const T> total,
    Rows<const T> y, Rows<const T> grad, Rows<T> dx, Rows<T> dt, Rows<T> ds, T* scratch, int threads
) {
    const Pattern& p = a.pattern;
    T* facts = scratch + p.starts[p.rows] * a.heads;
    gather_facts(a, s, shift, total, y, grad, facts, threads);
    over_columns(p, dx.width, threads, [&](Size first, Size last) {
        switch (a.heads) {
            case 1: return attend_columns<T, 1>(a, t, grad, facts, dx, dt, scratch, first, last);
            case 2: return attend_columns<T, 2>(a, t, grad, facts, dx, dt, scratch, first, last);
            case 4: return attend_columns<T, 4>(a, t, grad, facts, dx, dt, scratch, first, last);
            case 8: return attend_columns<T, 8>(a, t, grad, facts, dx, dt, scratch, first, last);
            default: return attend_columns<T, 0>(a, t, grad, facts, dx, dt, scratch, first, last);
        }
    });
    if (p.long_places) {
        sum_entries_of(p, p.long_places, a.heads, scratch, ds, threads);
    } else {
        sum_entries_of(p, p.places, a.heads, scratch, ds, threads);
    }
}

}  // namespace gcnmpi::TARGET
