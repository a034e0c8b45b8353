// Attention over the entries of a row, forward and backward, in one gather of rows for each
// direction. An arc is an entry. Numbers that each arc has by itself, one for each head, are
// computed by vectors for a chunk of arcs in buffers on the stack, where the heads of an arc lie
// next to each other; heads come in groups of a power of 2. A row, or a column in the backward
// pass, belongs to one thread: the bits do not depend on threads.
#pragma once

#include "heads.hpp"

namespace gcnmpi::TARGET {

inline constexpr Size CHUNK = 64;  // arcs: their rows stay in the L1 or L2 cache

// A number for each arc of a chunk and each of H heads, and room for the rest of a vector.
template <class T, int H>
struct Buffer {
    alignas(64) T numbers[CHUNK * H + WIDEST_PANEL];
    operator T*() { return numbers; }
};

// Some of the heads of an Attention: H from the head `first` on, whose columns x and others have.
template <class T>
struct Group {
    const Attention<T>& all;
    Size first;
    Rows<const T> x;

    const Pattern& pattern() const { return all.pattern; }
};

template <class T>
inline Rows<T> from_column(Rows<T> x, Size column) {
    return {x.data ? x.data + column : nullptr, x.rows, x.width, x.stride};
}

// body.run<H>(group) for groups of heads.
template <class T, class Body>
void over_groups(const Attention<T>& a, const Body& body) {
    for (Size h = 0; h < a.heads;) {
        const Group<T> group = {a, h, from_column(a.x, h * a.c)};
        const Size left = a.heads - h;
        if (left >= 8) {
            body.template run<8>(group);
            h += 8;
        } else if (left >= 4) {
            body.template run<4>(group);
            h += 4;
        } else if (left >= 2) {
            body.template run<2>(group);
            h += 2;
        } else {
            body.template run<1>(group);
            h += 1;
        }
    }
}

template <class V, class T>
inline V leaky(V z, T slope) { return z > 0 ? z : slope * z; }

template <class T>
inline Vec<T> plus(Vec<T> a, Vec<T> b) { return a + b; }

// weights of arcs from one row to `columns`; what is kept is multiplied by `scale`.
template <class T, int H>
[[gnu::noinline]] void drop_of_row(
    const Group<T>& g, Size row, const Arcs& arcs, T scale, T* weights
) {
    constexpr int N = LANES<T>, PART = H < N ? H : N;
    const Dropout<T>& drop = g.all.drop;
    const Keys<T> low = Keys<T>{} + (std::uint32_t)drop.rows[row];
    const Keys<T> high = Keys<T>{} + (std::uint32_t)(drop.rows[row] >> 32);
    over_packs<T, H>(arcs, [&](Size k, const std::int32_t* ends) {
#pragma GCC unroll 8
        for (int part = 0; part < Packing<T, H>::PARTS; ++part) {
            T* at = weights + k * H + part * N;
            const Keys<T> keys = packed<std::uint32_t, N, PART>([&](int i) {
                return drop.columns + (Size)ends[i] * g.all.heads + g.first + part * N;
            });
            store(at, kept<T>(drop, low, high, keys, load(at)) * scale);
        }
    });
}

// The same from many rows to one column.
template <class T, int H>
[[gnu::noinline]] void drop_of_column(
    const Group<T>& g, const Arcs& arcs, Size column, T* weights
) {
    constexpr int N = LANES<T>, PART = H < N ? H : N;
    const Dropout<T>& drop = g.all.drop;
    over_packs<T, H>(arcs, [&](Size k, const std::int32_t* ends) {
        Keys<T> low, high;
#pragma GCC unroll 16
        for (int i = 0; i < N; ++i) {
            const std::uint64_t key = drop.rows[ends[i / PART]];
            low[i] = (std::uint32_t)key;
            high[i] = (std::uint32_t)(key >> 32);
        }
#pragma GCC unroll 8
        for (int part = 0; part < Packing<T, H>::PARTS; ++part) {
            T* at = weights + k * H + part * N;
            const std::uint32_t* of = drop.columns + column * g.all.heads + g.first + part * N;
            const Keys<T> keys = packed<std::uint32_t, N, PART>([=](int) { return of; });
            store(at, kept<T>(drop, low, high, keys, load(at)) * drop.scale);
        }
    });
}

template <class T, int PARTS>
struct Repeated {  // a number for each head, repeated to vectors
    Vec<T> parts[PARTS] = {};
};
template <class T, int H>
using OfHeads = Repeated<T, Packing<T, H>::PARTS>;

// The largest of what is in the buffer, and before.
template <class T, int PARTS>
[[gnu::noinline]] Repeated<T, PARTS> raised(
    const T* buffer, Size count, Repeated<T, PARTS> highest
) {
    over_numbers<T, PARTS>(count, [&](Size at, int part, int lanes) {
        Vec<T>& most = highest.parts[part];
        most = lane_numbers<T>() < lanes ? larger<T>(load(buffer + at), most) : most;
    });
    return highest;
}

// Weights exp(e - shift) of the numbers e in the buffer, added to total; with LEAKY, the buffer has
// t and e is leaky_relu(t + s).
template <class T, int PARTS, bool LEAKY>
[[gnu::always_inline]] inline Repeated<T, PARTS> weigh(
    T* buffer, Size count, Repeated<T, PARTS> s, T slope, Repeated<T, PARTS> shift,
    Repeated<T, PARTS> total
) {
    over_numbers<T, PARTS>(count, [&](Size at, int part, int lanes) {
        Vec<T> e = load(buffer + at);
        if constexpr (LEAKY) e = leaky(e + s.parts[part], slope);
        Vec<T> weight = exponential(e - shift.parts[part]);
        if (lanes < LANES<T>) weight = first_lanes<T>(lanes, weight, T(0));
        total.parts[part] += weight;
        store(buffer + at, weight);
    });
    return total;
}

// Weights of the arcs in the buffer, then dropped; and the sums of rows of x weighted so, to `out`.
// `whole`: there are no other arcs in this row, and out is divided by the total.
template <class T, int H, bool LEAKY>
void weigh_chunk(
    const Group<T>& g, Size row, Size first, Size count, const OfHeads<T, H>& s,
    const OfHeads<T, H>& shift, OfHeads<T, H>& total, T* buffer, T* out, bool add, bool whole
) {
    constexpr int PARTS = Packing<T, H>::PARTS;
    const Size left = g.pattern().starts[g.pattern().rows] - first;
    const Arcs arcs = {g.pattern().indices + first, count, left};
    total = weigh<T, PARTS, LEAKY>(buffer, count * H, s, g.all.slope, shift, total);
    if (g.all.drop.rows) drop_of_row<T, H>(g, row, arcs, T(1), buffer);
    alignas(64) T factors[H < LANES<T> ? LANES<T> : H];
    if (whole)
        for (int part = 0; part < PARTS; ++part)
            store(
                factors + part * LANES<T>,
                g.all.drop.scale / folded_to<T, H>(total.parts[part], plus<T>)
            );
    over_heads<T>(
        H, g.all.c,
        WeightedSum<T, ValuesOf<T>>{
            arcs, g.x, {buffer, H}, whole ? factors : nullptr, out, add
        }
    );
}

// Each head of a row times its factor.
template <class T>
[[gnu::noinline]] void scale_row(T* out, Size heads, Size c, T scale, const T* total) {
    for (Size h = 0; h < heads; ++h) {
        const T factor = scale / total[h];
#pragma omp simd
        for (Size j = 0; j < c; ++j) out[h * c + j] *= factor;
    }
}

template <class T, int H>
void finish_row(
    const Group<T>& g, OfHeads<T, H>& shift, OfHeads<T, H>& total, bool whole, T* shift_to,
    T* total_to, T* out
) {
    for (int part = 0; part < Packing<T, H>::PARTS; ++part)
        total.parts[part] = folded_to<T, H>(total.parts[part], plus<T>);
    store_heads<T, H>(shift_to, shift.parts);
    store_heads<T, H>(total_to, total.parts);
    if (!whole) scale_row(out, H, g.all.c, g.all.drop.scale, total_to);
}

template <class T>
[[gnu::noinline]] void empty_row(const Group<T>& g, Size heads, T* shift, T* total, T* out) {
    for (Size h = 0; h < heads; ++h) shift[h] = total[h] = 0;
    for (Size j = 0; j < heads * g.all.c; ++j) out[j] = 0;
}

// Numbers of each head of the rows that arcs lead to, to the buffer; the largest of these.
template <class T, int H>
[[gnu::always_inline]] inline OfHeads<T, H> gather_heads(
    Arcs arcs, const T* from, Size stride, T* buffer, OfHeads<T, H> highest
) {
    constexpr Size AHEAD = 64;
    over_packs<T, H>(arcs, [&](Size k, const std::int32_t* ends) {
        for (int i = 0; i < Packing<T, H>::ARCS; ++i)
            if (k + i + AHEAD < arcs.left)
                __builtin_prefetch(from + (Size)arcs.ends[k + i + AHEAD] * stride);
#pragma GCC unroll 8
        for (int part = 0; part < Packing<T, H>::PARTS; ++part) {
            const Vec<T> v = packed<T, LANES<T>, H>([&](int i) {
                return from + (Size)ends[i] * stride + part * LANES<T>;
            });
            Vec<T>& most = highest.parts[part];
            const int lanes = (int)(arcs.count - k) * H;  // or more than a vector has
            most = lane_numbers<T>() < lanes ? larger<T>(v, most) : most;
            store(buffer + k * H + part * LANES<T>, v);
        }
    });
    return highest;
}

template <class T>
struct AttendRows {
    Rows<const T> t, s;
    Rows<T> out, shift, total;
    int threads;

    template <int H>
    void row_of(const Group<T>& g, Size row) const {
        const Pattern& p = g.pattern();
        const Size start = p.starts[row], stop = p.starts[row + 1], end = p.starts[p.rows];
        T* shift_to = shift.data + row * shift.stride + g.first;
        T* total_to = total.data + row * total.stride + g.first;
        T* to = out.data + row * out.stride + g.first * g.all.c;
        if (start == stop) return empty_row<T>(g, H, shift_to, total_to, to);
        const std::int32_t* columns = p.indices;
        const T* from = t.data + g.first;
        constexpr T INFINITE = __builtin_inff();
        Buffer<T, H> buffer;
        OfHeads<T, H> mine, highest, sums;
        load_heads<T, H>(s.data + row * s.stride + g.first, mine.parts);
        for (Vec<T>& v : highest.parts) v -= INFINITE;
        const bool whole = stop - start <= CHUNK;
        for (Size first = start; first < stop; first += CHUNK) {
            const Size arcs = stop - first < CHUNK ? stop - first : CHUNK;
            const Arcs of = {columns + first, arcs, end - first};
            highest = gather_heads<T, H>(of, from, t.stride, buffer, highest);
        }
        for (int part = 0; part < Packing<T, H>::PARTS; ++part) {
            const Vec<T> most = folded_to<T, H>(highest.parts[part], larger<T>);
            highest.parts[part] = leaky(most + mine.parts[part], g.all.slope);
        }
        for (Size first = start; first < stop; first += CHUNK) {
            const Size arcs = stop - first < CHUNK ? stop - first : CHUNK;
            const Arcs of = {columns + first, arcs, end - first};
            if (!whole) gather_heads<T, H>(of, from, t.stride, buffer, highest);
            weigh_chunk<T, H, true>(
                g, row, first, arcs, mine, highest, sums, buffer, to, first > start, whole
            );
        }
        finish_row<T, H>(g, highest, sums, whole, shift_to, total_to, to);
    }

    template <int H>
    void run(const Group<T>& g) const {
        over_rows(g.pattern(), H * g.all.c, threads, [&](Size first, Size last) {
            for (Size row = first; row < last; ++row) row_of<H>(g, row);
        });
    }
};

template <class T>
void attend(
    Attention<T> a, Rows<const T> t, Rows<const T> s, Rows<T> out, Rows<T> shift, Rows<T> total,
    int threads
) {
    over_groups<T>(a, AttendRows<T>{t, s, out, shift, total, threads});
}

}  // namespace gcnmpi::TARGET
