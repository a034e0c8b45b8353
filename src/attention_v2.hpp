// Attention of the second version: the score of an arc is vector · leaky_relu(x1[j] + x2[i]) for
// each head, so the backward pass gathers rows of two matrices by columns, and of one by rows.
#pragma once

#include "attention.hpp"

namespace gcnmpi::TARGET {

template <class T>
inline Vec<T> leaky(Vec<T> z, T slope) { return z > 0 ? z : slope * z; }

// scores += vector · leaky_relu(one[end] + other), a number for each arc and head; and, unless
// `grad` is null, dots += <grad[end], one>, where it is `one` that belongs to all arcs.
template <class T, bool DOTS>
struct Scores {
    static constexpr int MOST = PANEL;
    Arcs arcs;
    Rows<const T> ends, grad;
    const T *mine, *vector;
    T slope;
    Size heads;
    T *scores, *dots;

    template <int V, int H, bool PART>
    void run(Size head, Size column, int rest) const {
        constexpr Size N = LANES<T>;
        const Tail<T> tail = {rest};
        const T *x0 = ends.data + column, *g0 = DOTS ? grad.data + column : nullptr;
        const T *x = mine + column, *by = vector + column;
        for (Size k = 0; k < arcs.count; ++k) {
            prefetch_row<T, V * H, PART>(arcs, k, x0, ends.stride);
            if constexpr (DOTS) prefetch_row<T, V * H, PART>(arcs, k, g0, grad.stride);
            const T* from = x0 + (Size)arcs.ends[k] * ends.stride;
            const T* g = DOTS ? g0 + (Size)arcs.ends[k] * grad.stride : nullptr;
#pragma GCC unroll 8
            for (int h = 0; h < H; ++h) {
                Vec<T> score = {}, dot = {};
#pragma GCC unroll 8
                for (int v = 0; v < V; ++v) {
                    const Size f = (h * V + v) * N;
                    const Vec<T> here = load(x + f);
                    score += load(by + f) * leaky<T>(load(from + f) + here, slope);
                    if constexpr (DOTS) dot += load(g + f) * here;
                }
                if constexpr (PART) {
                    const Vec<T> here = tail.load(x + V * N);
                    const Vec<T> z = tail.load(from + V * N) + here;
                    score += tail.load(by + V * N) * leaky<T>(z, slope);
                    if constexpr (DOTS) dot += tail.load(g + V * N) * here;
                }
                scores[k * heads + head + h] += sum_of_lanes<T>(score);
                if constexpr (DOTS) dots[k * heads + head + h] += sum_of_lanes<T>(dot);
            }
        }
    }
};

// With z = ends[end] + mine and d = de·vector·leaky_relu'(z): out = Σ weight·grad[end] + d, or
// out += that, without grad if it is not given; and sums += Σ de·leaky_relu(z), if that is given.
template <class T, bool COLUMN>
struct Bend {
    static constexpr int MOST = PANEL / 2;  // two sums for each vector
    Arcs arcs;
    Rows<const T> ends, grad;
    const T *mine, *vector;
    T slope;
    Size heads;
    const T *de, *weights;
    T* out;
    double* sums;
    bool add;

    template <int V, int H, bool PART>
    void run(Size head, Size column, int rest) const {
        constexpr Size N = LANES<T>;
        constexpr int F = V * H + PART;
        const Tail<T> tail = {rest};
        const auto take = [&](const T* from, int f) {
            return f < V * H ? load(from + f * N) : tail.load(from + f * N);
        };
        const T *x0 = ends.data + column, *x = mine + column, *by = vector + column;
        const T* g0 = COLUMN ? grad.data + column : nullptr;
        Vec<T> bent[F] = {}, back[F] = {}, moved[F] = {};
        for (Size k = 0; k < arcs.count; ++k) {
            if constexpr (!COLUMN) prefetch_row<T, V * H, PART>(arcs, k, x0, ends.stride);
            const T* from = x0 + (Size)arcs.ends[k] * ends.stride;
            const T* g = COLUMN ? g0 + (Size)arcs.ends[k] * grad.stride : nullptr;
#pragma GCC unroll 8
            for (int f = 0; f < F; ++f) {
                const Size of = k * heads + head + (PART ? 0 : f / V);
                const Vec<T> z = take(from, f) + take(x, f), one = Vec<T>{} + T(1);
                const Vec<T> lean = de[of] * (z > 0 ? one : one * slope);
                bent[f] += lean;
                if constexpr (COLUMN) {
                    back[f] += weights[of] * take(g, f);
                    moved[f] += lean * z;
                }
            }
        }
        T* to = out + column;
#pragma GCC unroll 8
        for (int f = 0; f < F; ++f) {
            Vec<T> result = bent[f] * take(by, f);
            if constexpr (COLUMN) result += back[f];
            if (add) result += take(to, f);
            const int lanes = f < V * H ? (int)N : rest;
            if (f < V * H) {
                store(to + f * N, result);
            } else {
                tail.store(to + f * N, result);
            }
            if constexpr (COLUMN)
                for (int lane = 0; lane < lanes; ++lane)
                    sums[column + f * N + lane] += (double)moved[f][lane];
        }
    }
};

template <class T>
void attend_v2(
    Attention<T> a, Rows<const T> x2, const T* vector, Rows<T> out, Rows<T> shift, Rows<T> total,
    T* scratch, int threads
) {
    const Size heads = a.heads, chunk = arcs_of_chunk(heads);
    const Pattern& p = a.pattern;
    over_rows(p, 2 * out.width, threads, [&](Size first_of_piece, Size last_of_piece) {
        const Size end = p.starts[p.rows];
        Buffer<T> weights;
        for (Size row = first_of_piece; row < last_of_piece; ++row) {
            const Size start = p.starts[row], stop = p.starts[row + 1];
            const Softmax<T> of = {
                shift.data + row * shift.stride, total.data + row * total.stride,
            };
            T* to = out.data + row * out.stride;
            if (start == stop) {
                empty_row(a, of, to);
                continue;
            }
            constexpr T INFINITE = __builtin_inff();
            for (Size h = 0; h < heads; ++h) {
                of.shift[h] = -INFINITE;
                of.total[h] = 0;
            }
            for (Size first = start; first < stop; first += chunk) {
                const Size arcs = stop - first < chunk ? stop - first : chunk;
                T* e = scratch + first * heads;
                for (Size f = 0; f < arcs * heads; ++f) e[f] = 0;
                const T* mine = x2.data + row * x2.stride;
                over_panels<T>(
                    heads, a.c,
                    Scores<T, false>{
                        {p.indices + first, arcs, end - first}, a.x, {}, mine, vector, a.slope,
                        heads, e, nullptr
                    }
                );
                raise(e, arcs, heads, of.shift);
            }
            for (Size first = start; first < stop; first += chunk) {
                const Size arcs = stop - first < chunk ? stop - first : chunk;
                const T* e = scratch + first * heads;
                for (Size f = 0; f < arcs * heads; ++f) weights[f] = e[f];
                lower(weights + 0, arcs, heads, of.shift);
                weigh_chunk(a, row, first, arcs, of, weights + 0, to, first > start);
            }
            divide_by_total(a, of.total, to);
        }
    });
}

// By columns: dx1, the part of dvector of a group of columns, and the gradients of the scores.
template <class T>
void attend_v2_columns(
    const Attention<T>& a, Rows<const T> x2, const T* vector, Rows<const T> grad, const T* facts,
    Rows<T> dx1, double* sums, T* scratch, Size first_column, Size last_column
) {
    const Pattern& p = a.pattern;
    const Size heads = a.heads, chunk = arcs_of_chunk(heads), end = p.column_starts[p.columns];
    Buffer<T> alpha, weights, dots;
    for (Size column = first_column; column < last_column; ++column) {
        const Size start = p.column_starts[column], stop = p.column_starts[column + 1];
        const T* mine = a.x.data + column * a.x.stride;
        T* dx = dx1.data + column * dx1.stride;
        if (start == stop)
            for (Size j = 0; j < heads * a.c; ++j) dx[j] = 0;
        for (Size first = start; first < stop; first += chunk) {
            const Size arcs = stop - first < chunk ? stop - first : chunk, count = arcs * heads;
            const std::int32_t* rows = p.column_rows + first;
            const Arcs of = {rows, arcs, end - first};
            for (Size f = 0; f < count; ++f) alpha[f] = dots[f] = 0;
            over_panels<T>(
                heads, a.c,
                Scores<T, true>{
                    of, x2, grad, mine, vector, a.slope, heads, alpha + 0, dots + 0
                }
            );
            const auto facts_of = [&](Size k) { return facts + (Size)rows[k] * FACTS * heads; };
            for (Size k = 0; k < arcs; ++k) lower(alpha + k * heads, 1, heads, facts_of(k) + heads);
            exponentials(alpha + 0, count);
            for (Size k = 0; k < arcs; ++k)
                for (Size h = 0; h < heads; ++h)
                    weights[k * heads + h] = alpha[k * heads + h] *= facts_of(k)[2 * heads + h];
            if (a.drop.rows) {
                drop_weights_of_column(a.drop, rows, column, arcs, heads, weights + 0);
                for (Size f = 0; f < count; ++f) weights[f] *= a.drop.scale;
            }
            T* de = scratch + first * heads;
            for (Size k = 0; k < arcs; ++k)
                for (Size h = 0; h < heads; ++h) {
                    const Size f = k * heads + h;
                    de[f] = weights[f] * dots[f] - alpha[f] * facts_of(k)[3 * heads + h];
                }
            over_panels<T>(
                heads, a.c,
                Bend<T, true>{
                    of, x2, grad, mine, vector, a.slope, heads, de, weights + 0, dx, sums,
                    first > start
                }
            );
        }
    }
}

// By rows: dx2.
template <class T, class P>
void attend_v2_rows(
    const Attention<T>& a, const P* places, Rows<const T> x2, const T* vector, const T* scratch,
    Rows<T> dx2, Size first_row, Size last_row
) {
    constexpr Size AHEAD = 64;
    const Pattern& p = a.pattern;
    const Size heads = a.heads, chunk = arcs_of_chunk(heads), end = p.starts[p.rows];
    Buffer<T> de;
    for (Size row = first_row; row < last_row; ++row) {
        const Size start = p.starts[row], stop = p.starts[row + 1];
        T* to = dx2.data + row * dx2.stride;
        if (start == stop)
            for (Size j = 0; j < heads * a.c; ++j) to[j] = 0;
        for (Size first = start; first < stop; first += chunk) {
            const Size arcs = stop - first < chunk ? stop - first : chunk;
            for (Size k = 0; k < arcs; ++k) {
                const Size next = first + k + AHEAD;
                if (next < end) __builtin_prefetch(scratch + (Size)places[next] * heads);
                const T* from = scratch + (Size)places[first + k] * heads;
                for (Size h = 0; h < heads; ++h) de[k * heads + h] = from[h];
            }
            const T* mine = x2.data + row * x2.stride;
            over_panels<T>(
                heads, a.c,
                Bend<T, false>{
                    {p.indices + first, arcs, end - first}, a.x, {}, mine, vector, a.slope, heads,
                    de + 0, nullptr, to, nullptr, first > start
                }
            );
        }
    }
}

// scratch: (entries + FACTS · rows, heads) numbers; partial: GROUPS × width.
template <class T>
void attend_v2_backward(
    Attention<T> a, Rows<const T> x2, const T* vector, Rows<const T> shift, Rows<const T> total,
    Rows<const T> y, Rows<const T> grad, Rows<T> dx1, Rows<T> dx2, T* dvector, T* scratch,
    double* partial, int threads
) {
    const Pattern& p = a.pattern;
    T* facts = scratch + p.starts[p.rows] * a.heads;
    gather_facts(a, Rows<const T>{}, shift, total, y, grad, facts, threads);
    const Size width = dx1.width;
    const Csr<T, std::int32_t> m = {p.column_starts, p.column_rows, nullptr, p.columns};
    const Size groups = pieces_of((m.starts[m.rows] + m.rows) * width, GROUPS);
    for_pieces(groups, threads, [&](Size group) {
        double* sums = partial + group * width;
        for (Size j = 0; j < width; ++j) sums[j] = 0;
        attend_v2_columns(
            a, x2, vector, grad, facts, dx1, sums, scratch, first_row(m, group, groups),
            first_row(m, group + 1, groups)
        );
    });
    for (Size j = 0; j < width; ++j) {
        double sum = 0;
        for (Size group = 0; group < groups; ++group) sum += partial[group * width + j];
        dvector[j] += (T)sum;
    }
    over_rows(p, width, threads, [&](Size first, Size last) {
        if (p.long_places) {
            attend_v2_rows(a, p.long_places, x2, vector, scratch, dx2, first, last);
        } else {
            attend_v2_rows(a, p.places, x2, vector, scratch, dx2, first, last);
        }
    });
}

}  // namespace gcnmpi::TARGET
