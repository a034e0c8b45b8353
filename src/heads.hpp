// Sums over the arcs of a row or a column, of rows whose columns belong to heads: head h has the
// columns h·c up to (h + 1)·c. A panel is some vectors of a row that stay in registers while all
// arcs of a chunk pass by: whole heads where they fit, parts of one head elsewhere.
#pragma once

#include "softmax.hpp"
#include "spmm.hpp"

namespace gcnmpi::TARGET {

// Arcs of a chunk: the rows they lead to, and how many there are from the first of them to the end
// of all, as far as may be looked ahead.
struct Arcs {
    const std::int32_t* ends;
    Size count, left;
};

// body.run<V, H, PART>(head, column, tail) for every panel: H heads of V vectors each from there
// on, or V vectors of one head, and the tail of one more if PART.
template <class T, int V, class Body>
inline void panels_of_heads(Size heads, const Body& body) {
    constexpr int MOST = Body::MOST / V;
    constexpr Size c = V * LANES<T>;
    Size h = 0;
    for (; h + MOST <= heads; h += MOST) body.template run<V, MOST, false>(h, h * c, 0);
    if constexpr (MOST > 4)
        if (h + 4 <= heads) {
            body.template run<V, 4, false>(h, h * c, 0);
            h += 4;
        }
    if constexpr (MOST > 2)
        if (h + 2 <= heads) {
            body.template run<V, 2, false>(h, h * c, 0);
            h += 2;
        }
    if constexpr (MOST > 1)
        if (h < heads) body.template run<V, 1, false>(h, h * c, 0);
}

template <class Body, bool PART, int V = 0>
inline void panel_of_head(Size full, const Body& body, Size head, Size column, int tail) {
    if constexpr (V <= Body::MOST) {
        if (full == V) return body.template run<V, 1, PART>(head, column, tail);
        panel_of_head<Body, PART, V + 1>(full, body, head, column, tail);
    }
}

// Not inlined: it is a lot of code.
template <class T, class Body>
__attribute__((noinline)) void over_panels(Size heads, Size c, const Body& body) {
    constexpr Size N = LANES<T>, MOST = Body::MOST;
    if (heads > 1 && c == N) return panels_of_heads<T, 1>(heads, body);
    if (heads > 1 && c == 2 * N) return panels_of_heads<T, 2>(heads, body);
    if (heads > 1 && c == 4 * N) return panels_of_heads<T, 4>(heads, body);
    for (Size h = 0; h < heads; ++h) {
        for (Size start = 0; start < c;) {
            const Size left = c - start, full = left / N < MOST ? left / N : MOST;
            const Size rest = left - full * N < N ? left - full * N : 0;
            if (rest) {
                panel_of_head<Body, true>(full, body, h, h * c + start, (int)rest);
            } else {
                panel_of_head<Body, false>(full, body, h, h * c + start, 0);
            }
            start += full * N + rest;
        }
    }
}

template <class T, int VECTORS, bool PART>
inline void prefetch_row(const Arcs& arcs, Size k, const T* x, Size stride) {
    constexpr Size AHEAD = LINES / ((VECTORS * BYTES + PART + LINE) / LINE);
    if (k + AHEAD >= arcs.left) return;
    const char* coming = (const char*)(x + (Size)arcs.ends[k + AHEAD] * stride);
#pragma GCC unroll 16
    for (Size byte = 0; byte < VECTORS * BYTES + PART; byte += LINE)
        __builtin_prefetch(coming + byte);
}

template <class T>
inline T sum_of_lanes(Vec<T> v) {
    return folded<T>(v, [](Vec<T> a, Vec<T> b) { return a + b; })[0];
}

// out = Σ weight·x[end], or out += that; a weight for each arc and head.
template <class T>
struct WeightedSum {
    static constexpr int MOST = PANEL;
    Arcs arcs;
    Rows<const T> x;
    const T* weights;
    Size heads;
    T* out;
    bool add;

    template <int V, int H, bool PART>
    void run(Size head, Size column, int rest) const {
        constexpr Size N = LANES<T>;
        const Tail<T> tail = {rest};
        const T* x0 = x.data + column;
        Vec<T> sums[V * H + 1] = {};
        for (Size k = 0; k < arcs.count; ++k) {
            prefetch_row<T, V * H, PART>(arcs, k, x0, x.stride);
            const T* from = x0 + (Size)arcs.ends[k] * x.stride;
            const T* weight = weights + k * heads + head;
#pragma GCC unroll 8
            for (int h = 0; h < H; ++h) {
                const T value = weight[h];
#pragma GCC unroll 8
                for (int v = 0; v < V; ++v)
                    sums[h * V + v] += value * load(from + (h * V + v) * N);
            }
            if constexpr (PART) sums[V] += weight[0] * tail.load(from + V * N);
        }
        T* to = out + column;
#pragma GCC unroll 8
        for (int f = 0; f < V * H; ++f)
            store(to + f * N, add ? sums[f] + load(to + f * N) : sums[f]);
        if constexpr (PART)
            tail.store(to + V * N, add ? sums[V] + tail.load(to + V * N) : sums[V]);
    }
};

// dots += <row[end], x>, a number for each arc and head; out = Σ weight·row[end] or out += that.
template <class T>
struct DotsAndSum {
    static constexpr int MOST = PANEL;
    Arcs arcs;
    Rows<const T> rows;
    const T* x;
    const T* weights;
    Size heads;
    T* dots;
    T* out;
    bool add;

    template <int V, int H, bool PART>
    void run(Size head, Size column, int rest) const {
        constexpr Size N = LANES<T>;
        const Tail<T> tail = {rest};
        const T *rows0 = rows.data + column, *mine = x + column;
        Vec<T> sums[V * H + 1] = {}, end_of_mine = {};
        if constexpr (PART) end_of_mine = tail.load(mine + V * N);
        for (Size k = 0; k < arcs.count; ++k) {
            prefetch_row<T, V * H, PART>(arcs, k, rows0, rows.stride);
            const T* from = rows0 + (Size)arcs.ends[k] * rows.stride;
            const T* weight = weights + k * heads + head;
            T* dot = dots + k * heads + head;
#pragma GCC unroll 8
            for (int h = 0; h < H; ++h) {
                const T value = weight[h];
                Vec<T> product = {};
#pragma GCC unroll 8
                for (int v = 0; v < V; ++v) {
                    const Vec<T> row = load(from + (h * V + v) * N);
                    sums[h * V + v] += value * row;
                    product += row * load(mine + (h * V + v) * N);
                }
                if constexpr (PART) {
                    const Vec<T> row = tail.load(from + V * N);
                    sums[V] += value * row;
                    product += row * end_of_mine;
                }
                dot[h] += sum_of_lanes<T>(product);
            }
        }
        T* to = out + column;
#pragma GCC unroll 8
        for (int f = 0; f < V * H; ++f)
            store(to + f * N, add ? sums[f] + load(to + f * N) : sums[f]);
        if constexpr (PART)
            tail.store(to + V * N, add ? sums[V] + tail.load(to + V * N) : sums[V]);
    }
};

// body(first, last) over rows in pieces of about equal numbers of entries plus rows.
template <class Body>
void over_rows(const Pattern& p, Size width, int threads, Body body) {
    const Csr<float, std::int32_t> m = {p.starts, p.indices, nullptr, p.rows};
    const Size pieces = pieces_of((m.starts[m.rows] + m.rows) * width, m.rows);
    for_pieces(pieces, threads, [&](Size piece) {
        body(first_row(m, piece, pieces), first_row(m, piece + 1, pieces));
    });
}

template <class Body>
void over_columns(const Pattern& p, Size width, int threads, Body body) {
    over_rows(
        Pattern{p.column_starts, p.column_rows, nullptr, nullptr, nullptr, nullptr, p.columns, 0},
        width, threads, body
    );
}

}  // namespace gcnmpi::TARGET
