// Attention of the second version: the score of an arc is vector · leaky_relu(x1[j] + x2[i]) for
// each head, so the backward pass gathers rows of two matrices by columns, and of one by rows.
#pragma once

#include "attention_back.hpp"

namespace gcnmpi::TARGET {

// scores = vector · leaky_relu(ends[end] + mine), a number for each arc and head. Where a head has
// more than one panel, they are added to.
template <class T>
struct Scores {
    static constexpr int MOST = PANEL;
    Arcs arcs;
    Size heads;
    Rows<const T> ends;
    const T *mine, *vector;
    T slope;
    T* scores;

    template <int V, int H, bool PART>
    void run(Size head, Size column, int rest) const {
        constexpr Size N = LANES<T>;
        const Tail<T> tail = {rest};
        const T *x0 = ends.data + column, *x = mine + column, *by = vector + column;
        for (Size k = 0; k < arcs.count; ++k) {
            prefetch_row<T, V * H, PART>(arcs, k, x0, ends.stride);
            const T* from = x0 + (Size)arcs.ends[k] * ends.stride;
            Vec<T> score[H] = {};
#pragma GCC unroll 8
            for (int h = 0; h < H; ++h) {
#pragma GCC unroll 8
                for (int v = 0; v < V; ++v) {
                    const Size f = (h * V + v) * N;
                    score[h] += load(by + f) * leaky<Vec<T>>(load(from + f) + load(x + f), slope);
                }
                if constexpr (PART) {
                    const Vec<T> z = tail.load(from + V * N) + tail.load(x + V * N);
                    score[h] += tail.load(by + V * N) * leaky<Vec<T>>(z, slope);
                }
            }
            T* to = scores + k * heads + head;
            if constexpr (H > 1) {
                store_sums<T, H>(score, to);
            } else {
                *to += sum_of_lanes<T>(score[0]);
            }
        }
    }
};

template <class T>
[[gnu::noinline]] void add_to(double* sums, const T* few, Size count) {
    for (Size j = 0; j < count; ++j) sums[j] += (double)few[j];
}

// With z = ends[end] + mine and d = de·vector·leaky_relu'(z): out = Σ weight·grad[end] + d, or
// out += that, where rows of COLUMN are summed, else without grad; and sums += Σ de·leaky_relu(z).
template <class T, bool COLUMN>
struct Bend {
    static constexpr int MOST = PANEL / 2;  // two sums or three for each vector
    Arcs arcs;
    Size heads;
    Rows<const T> ends, grad;
    const T *mine, *vector;
    T slope;
    const T *de, *weights;
    T* out;
    double* sums;
    bool add;

    template <int V, int H, bool PART>
    void run(Size head, Size column, int rest) const {
        constexpr Size N = LANES<T>;
        constexpr int F = V * H + PART;
        const Tail<T> tail = {rest};
        const auto take = [tail](const T* from, int f) {
            return f < V * H ? load(from + f * N) : tail.load(from + f * N);
        };
        const T *x0 = ends.data + column, *x = mine + column, *by = vector + column;
        const T* g0 = COLUMN ? grad.data + column : nullptr;
        Vec<T> bent[F] = {}, back[F] = {}, moved[F] = {};
        for (Size k = 0; k < arcs.count; ++k) {
            if constexpr (!COLUMN) prefetch_row<T, V * H, PART>(arcs, k, x0, ends.stride);
            const T* from = x0 + (Size)arcs.ends[k] * ends.stride;
            const T* g = COLUMN ? g0 + (Size)arcs.ends[k] * grad.stride : nullptr;
            const T* slopes = de + k * heads + head;
            const T* by_weight = COLUMN ? weights + k * heads + head : nullptr;
#pragma GCC unroll 8
            for (int f = 0; f < F; ++f) {
                const int h = PART ? 0 : f / V;
                const T steep = slopes[h], flat = slopes[h] * slope;
                const Vec<T> z = take(from, f) + take(x, f);
                const Vec<T> lean = z > 0 ? Vec<T>{} + steep : Vec<T>{} + flat;
                bent[f] += lean;
                if constexpr (COLUMN) {
                    back[f] += by_weight[h] * take(g, f);
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
            if (f < V * H) {
                store(to + f * N, result);
            } else {
                tail.store(to + f * N, result);
            }
        }
        if constexpr (COLUMN) {
            T few[F * N];
#pragma GCC unroll 8
            for (int f = 0; f < F; ++f) store(few + f * N, moved[f]);
            add_to(sums + column, few, V * H * N + rest);
        }
    }
};

// The gradients of the scores of a chunk of arcs to a column, which stand in `alpha` first.
template <class T, int H>
struct WeightGradients {
    Buffer<T, H> alpha, weights, dots, along;

    // α, also to `weights`, which dropout may change.
    [[gnu::always_inline]] void begin(const T* facts, Arcs arcs) {
        over_facts<T, H>(facts, arcs, [&](Size at, int, auto fact) GCNMPI_INLINE {
            const Vec<T> v = exponential(load<T>(alpha + at) - fact(1)) * fact(2);
            store(alpha + at, v);
            store(weights + at, v);
            store(along + at, fact(3));
        });
    }

    void finish(Size count, T* to) const {
        const T *a = alpha.numbers, *w = weights.numbers, *d = dots.numbers, *y = along.numbers;
        over_vectors<T>(count, [=](Size at, auto lanes) GCNMPI_INLINE {
            const Vec<T> product = load(w + at) * load(d + at);
            lanes.store(to + at, product - load(a + at) * load(y + at));
        });
    }
};

// Numbers of the arcs of a row from where they stand by columns.
template <class T, int H>
[[gnu::always_inline]] inline void take_numbers(
    const Pattern& p, Size first, Size arcs, const T* from, T* to
) {
    constexpr Size AHEAD = 64;
    const Places places = way(p, first);
    const Size left = p.starts[p.rows] - first;
    for (Size k = 0; k < arcs; ++k) {
        if (k + AHEAD < left) __builtin_prefetch(from + places[k + AHEAD] * H);
        __builtin_memcpy(to + k * H, from + places[k] * H, H * sizeof(T));
    }
}

template <class T>
struct AttendRowsV2 {
    Rows<const T> x2;
    const T* vector;
    Rows<T> out, shift, total;
    T* scratch;
    int threads;

    template <int H>
    void row_of(const Group<T>& g, Size row) const {
        const Pattern& p = g.pattern();
        const Size start = p.starts[row], stop = p.starts[row + 1], end = p.starts[p.rows];
        const Size at = g.first * g.all.c;
        T* shift_to = shift.data + row * shift.stride + g.first;
        T* total_to = total.data + row * total.stride + g.first;
        T* to = out.data + row * out.stride + at;
        if (start == stop) return empty_row<T>(g, H, shift_to, total_to, to);
        constexpr T INFINITE = __builtin_inff();
        const bool whole = stop - start <= CHUNK;
        Buffer<T, H> buffer;
        OfHeads<T, H> highest, sums;
        for (Vec<T>& v : highest.parts) v -= INFINITE;
        for (Size first = start; first < stop; first += CHUNK) {
            const Size arcs = stop - first < CHUNK ? stop - first : CHUNK;
            const Arcs of = {p.indices + first, arcs, end - first};
            const T* mine = x2.data + row * x2.stride + at;
            __builtin_memset(buffer, 0, arcs * H * sizeof(T));
            over_heads<T>(
                H, g.all.c,
                Scores<T>{of, H, g.x, mine, vector + at, g.all.slope, buffer}
            );
            highest = raised<T>(buffer, arcs * H, highest);
            if (!whole) __builtin_memcpy(scratch + first * H, buffer, arcs * H * sizeof(T));
        }
        for (Vec<T>& v : highest.parts) v = folded_to<T, H>(v, larger<T>);
        for (Size first = start; first < stop; first += CHUNK) {
            const Size arcs = stop - first < CHUNK ? stop - first : CHUNK;
            if (!whole) __builtin_memcpy(buffer, scratch + first * H, arcs * H * sizeof(T));
            weigh_chunk<T, H, false>(
                g, row, first, arcs, {}, highest, sums, buffer, to, first > start, whole
            );
        }
        finish_row<T, H>(g, highest, sums, whole, shift_to, total_to, to);
    }

    template <int H>
    void run(const Group<T>& g) const {
        over_rows(g.pattern(), 2 * H * g.all.c, threads, [&](Size first, Size last) {
            for (Size row = first; row < last; ++row) row_of<H>(g, row);
        });
    }
};

template <class T>
void attend_v2(
    Attention<T> a, Rows<const T> x2, const T* vector, Rows<T> out, Rows<T> shift, Rows<T> total,
    T* scratch, int threads
) {
    over_groups<T>(a, AttendRowsV2<T>{x2, vector, out, shift, total, scratch, threads});
}

template <class T>
struct AttendColumnsV2 {
    Rows<const T> x2;
    const T* vector;
    Rows<const T> shift, total, y, grad;
    Rows<T> dx1, dx2;
    T *dvector, *scratch;
    double* partial;
    int threads;

    // dx1, the part of dvector of a group of columns, and the gradients of the scores.
    template <int H>
    void column_of(const Group<T>& g, const T* facts, double* of_vector, Size column) const {
        const Pattern& p = g.pattern();
        const Size start = p.column_starts[column], stop = p.column_starts[column + 1];
        const Size at = g.first * g.all.c, end = p.column_starts[p.columns];
        const Rows<const T> targets = from_column(x2, at), back = from_column(grad, at);
        const T* mine = g.x.data + column * g.x.stride;
        T* to = dx1.data + column * dx1.stride + at;
        if (start == stop)
            for (Size j = 0; j < H * g.all.c; ++j) to[j] = 0;
        WeightGradients<T, H> scores;
        for (Size first = start; first < stop; first += CHUNK) {
            const Size arcs = stop - first < CHUNK ? stop - first : CHUNK;
            const std::int32_t* rows = p.column_rows + first;
            const Arcs of = {rows, arcs, end - first};
            __builtin_memset(scores.alpha, 0, arcs * H * sizeof(T));
            if (!g.all.c) __builtin_memset(scores.dots, 0, arcs * H * sizeof(T));
            over_heads<T>(
                H, g.all.c, Scores<T>{of, H, targets, mine, vector + at, g.all.slope, scores.alpha}
            );
            over_heads<T>(
                H, g.all.c, Dots<T>{of, {mine, 1, g.all.c, 0}, back, g.all.c, scores.dots, H}
            );
            scores.begin(facts, of);
            if (g.all.drop.rows) drop_of_column<T, H>(g, of, column, scores.weights);
            T* de = scratch + first * H;
            scores.finish(arcs * H, de);
            over_heads<T>(
                H, g.all.c,
                Bend<T, true>{
                    of, H, targets, back, mine, vector + at, g.all.slope, de, scores.weights, to,
                    of_vector, first > start
                }
            );
        }
    }

    template <int H>
    void row_of(const Group<T>& g, Size row) const {
        const Pattern& p = g.pattern();
        const Size start = p.starts[row], stop = p.starts[row + 1], end = p.starts[p.rows];
        const Size at = g.first * g.all.c;
        T* to = dx2.data + row * dx2.stride + at;
        if (start == stop)
            for (Size j = 0; j < H * g.all.c; ++j) to[j] = 0;
        Buffer<T, H> de;
        for (Size first = start; first < stop; first += CHUNK) {
            const Size arcs = stop - first < CHUNK ? stop - first : CHUNK;
            take_numbers<T, H>(p, first, arcs, scratch, de);
            const Arcs of = {p.indices + first, arcs, end - first};
            const T* mine = x2.data + row * x2.stride + at;
            over_heads<T>(
                H, g.all.c,
                Bend<T, false>{
                    of, H, g.x, {}, mine, vector + at, g.all.slope, de, nullptr, to, nullptr,
                    first > start
                }
            );
        }
    }

    template <int H>
    void run(const Group<T>& g) const {
        const Pattern& p = g.pattern();
        T* facts = scratch + p.starts[p.rows] * g.all.heads;
        make_facts(g, H, Rows<const T>{}, shift, total, y, grad, facts, threads);
        const Size width = H * g.all.c, at = g.first * g.all.c;
        const Extents m = {p.column_starts, p.column_starts + 1, p.columns};
        const Size groups = pieces_of(m.work() * width, GROUPS);
        for_pieces(groups, threads, [&](Size piece) {
            double* sums = partial + piece * width;
            for (Size j = 0; j < width; ++j) sums[j] = 0;
            const Size last = first_row(m, piece + 1, groups);
            for (Size column = first_row(m, piece, groups); column < last; ++column)
                column_of<H>(g, facts, sums, column);
        });
        for (Size j = 0; j < width; ++j) {
            double sum = 0;
            for (Size piece = 0; piece < groups; ++piece) sum += partial[piece * width + j];
            dvector[at + j] += (T)sum;
        }
        over_rows(p, width, threads, [&](Size first, Size last) {
            for (Size row = first; row < last; ++row) row_of<H>(g, row);
        });
    }
};

// scratch: (entries + FACTS · rows, heads) numbers; partial: GROUPS × width.
template <class T>
void attend_v2_backward(
    Attention<T> a, Rows<const T> x2, const T* vector, Rows<const T> shift, Rows<const T> total,
    Rows<const T> y, Rows<const T> grad, Rows<T> dx1, Rows<T> dx2, T* dvector, T* scratch,
    double* partial, int threads
) {
    over_groups<T>(
        a,
        AttendColumnsV2<T>{
            x2, vector, shift, total, y, grad, dx1, dx2, dvector, scratch, partial, threads
        }
    );
}

}  // namespace gcnmpi::TARGET
