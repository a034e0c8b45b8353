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

// Places of entries among those in another order, in one of two arrays.
struct Places {
    const std::int32_t* few;
    const Size* many;

    Size operator[](Size k) const { return few ? few[k] : many[k]; }
    Places from(Size k) const { return {few ? few + k : nullptr, many ? many + k : nullptr}; }
};
inline Places way(const Pattern& p, Size first) {
    return Places{p.places, p.long_places}.from(first);
}
inline Places way_back(const Pattern& p, Size first) {
    return Places{p.back, p.long_back}.from(first);
}

// Panels of H heads of V vectors each, of H / 2 and so on; gives the first head that is left over.
template <class T, int V, int H, class Body>
inline Size panels_of_heads(Size first, Size heads, const Body& body) {
    constexpr Size c = V * LANES<T>;
    if constexpr (H > 1) {
        for (; first + H <= heads; first += H) body.template run<V, H, false>(first, first * c, 0);
        return panels_of_heads<T, V, H / 2>(first, heads, body);
    }
    return first;
}

// Neither inlined nor cloned, as it is a lot of code.
template <class T, class Body>
[[gnu::noinline, gnu::noclone]] void over_heads(Size heads, Size c, const Body& body) {
    constexpr Size N = LANES<T>, MOST = Body::MOST;
    Size h = 0;
    if (c == N) h = panels_of_heads<T, 1, MOST>(h, heads, body);
    if (c == 2 * N) h = panels_of_heads<T, 2, MOST / 2>(h, heads, body);
    if (c == 4 * N) h = panels_of_heads<T, 4, MOST / 4>(h, heads, body);
    for (; h < heads; ++h) panels_of_head<T>(h, c, body);
}

// Inlined by order: GCC takes a function that only prefetches for one without effects, and leaves
// its calls out.
template <class T, int VECTORS, bool PART>
[[gnu::always_inline]] inline void prefetch_row(const Arcs& arcs, Size k, const T* x, Size stride) {
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

// Sums of blocks of S lanes next to each other: of a where the result's block is even, of b where
// it is odd.
template <class T, int S>
inline Vec<T> pair_sums(Vec<T> a, Vec<T> b) {
#if defined(__clang__)
    Vec<T> sums;
    for (int j = 0; j < LANES<T>; ++j) {
        const int from = j / (2 * S) * (2 * S) + j % S;
        sums[j] = j / S % 2 ? b[from] + b[from + S] : a[from] + a[from + S];
    }
    return sums;
#else
    Bits<T> low, high;
#pragma GCC unroll 16
    for (int j = 0; j < LANES<T>; ++j) {
        low[j] = j / (2 * S) * (2 * S) + j % S + (j / S % 2 ? LANES<T> : 0);
        high[j] = low[j] + S;
    }
    return __builtin_shuffle(a, b, low) + __builtin_shuffle(a, b, high);
#endif
}

// The sums of all lanes of each of COUNT vectors, a power of 2: of the first in the first lanes.
template <class T, int COUNT, int S = LANES<T> / 2>
inline Vec<T> sums_of_vectors(const Vec<T>* v) {
    if constexpr (COUNT == 1) {
        return v[0];
    } else {
        Vec<T> half[COUNT / 2];
#pragma GCC unroll 8
        for (int i = 0; i < COUNT / 2; ++i) half[i] = pair_sums<T, S>(v[i], v[i + COUNT / 2]);
        return sums_of_vectors<T, COUNT / 2, S / 2>(half);
    }
}

// All lanes whose numbers differ by multiples of H merged to one.
template <class T, int H, int APART = LANES<T> / 2, class Merge>
inline Vec<T> folded_to(Vec<T> v, Merge merge) {
    if constexpr (APART < H) {
        return v;
    } else {
        return folded_to<T, H, APART / 2>(merge(v, exchanged<T, APART>(v)), merge);
    }
}

// Lane i·LANES / COUNT to lane i.
template <class T, int COUNT>
inline Vec<T> condensed(Vec<T> v) {
#if defined(__clang__)
    Vec<T> moved = v;
    for (int j = 0; j < COUNT; ++j) moved[j] = v[j * (LANES<T> / COUNT)];
    return moved;
#else
    Bits<T> from;
#pragma GCC unroll 16
    for (int j = 0; j < LANES<T>; ++j) from[j] = j * (LANES<T> / COUNT) % LANES<T>;
    return __builtin_shuffle(v, from);
#endif
}

template <class T, int APART>
inline Vec<T> summed_blocks(Vec<T> v) {
    if constexpr (APART == 0) {
        return v;
    } else {
        return summed_blocks<T, APART / 2>(v + exchanged<T, APART>(v));
    }
}

// The sums of the lanes of each of H vectors, a power of 2, to H numbers.
template <class T, int H>
inline void store_sums(const Vec<T>* v, T* to) {
    constexpr int COUNT = H < LANES<T> ? H : LANES<T>;
#pragma GCC unroll 8
    for (int first = 0; first < H; first += COUNT) {
        const Vec<T> blocks = sums_of_vectors<T, COUNT>(v + first);
        const Vec<T> sums = summed_blocks<T, LANES<T> / COUNT / 2>(blocks);
        const Vec<T> dense = condensed<T, COUNT>(sums);
        __builtin_memcpy(to + first, &dense, COUNT * sizeof(T));
    }
}

// How the numbers of H heads, a power of 2, lie in vectors: those of some arcs in one, or those of
// one arc in several.
template <class T, int H>
struct Packing {
    static constexpr int N = LANES<T>;
    static constexpr int ARCS = N > H ? N / H : 1;
    static constexpr int PARTS = H > N ? H / N : 1;
};

// A vector of N numbers of type E: H each from where(0), where(1), …
template <class E, int N, int H, class Where>
inline auto packed(Where where) {
    using Result = typename Several<E, N>::type;
    constexpr int PIECE = H * (int)sizeof(E), ALL = N * (int)sizeof(E);
    if constexpr (PIECE >= ALL) {
        Result v;
        __builtin_memcpy(&v, where(0), ALL);
        return v;
#if defined(__AVX2__)
    } else if constexpr (PIECE == 16 && ALL == 32) {
        const __m128i first = _mm_loadu_si128((const __m128i*)where(0));
        const __m128i second = _mm_loadu_si128((const __m128i*)where(1));
        return (Result)_mm256_inserti128_si256(_mm256_castsi128_si256(first), second, 1);
#endif
    } else if constexpr (PIECE % 8 == 0) {
        typename Several<double, ALL / 8>::type v;
#pragma GCC unroll 16
        for (int i = 0; i < ALL / 8; ++i) {
            double two;
            __builtin_memcpy(&two, (const char*)where(i * 8 / PIECE) + i * 8 % PIECE, 8);
            v[i] = two;
        }
        return (Result)v;
    } else {
        Result v;
#pragma GCC unroll 16
        for (int i = 0; i < N; ++i) v[i] = *where(i);
        return v;
    }
}

// body(k, ends) for the arcs k, k + 1, … of every vector, and where they lead to. After the
// last one there are arcs of what comes next, or at the end of all the last one again.
template <class T, int H, class Body>
inline void over_packs(Arcs arcs, Body body) {
    constexpr int ARCS = Packing<T, H>::ARCS;
    std::int32_t last[ARCS];
    for (Size k = 0; k < arcs.count; k += ARCS) {
        const std::int32_t* ends = arcs.ends + k;
        if (k + ARCS > arcs.left) {
            for (int i = 0; i < ARCS; ++i) last[i] = ends[k + i < arcs.left ? i : 0];
            ends = last;
        }
        body(k, ends);
    }
}

// body(at, part, lanes) for the vectors of `count` numbers, those of an arc in PARTS of them; the
// last one may have fewer lanes.
template <class T, int PARTS, class Body>
inline void over_numbers(Size count, Body body) {
    constexpr Size N = LANES<T>;
    for (Size at = 0; at < count; at += PARTS * N)
#pragma GCC unroll 8
        for (int part = 0; part < PARTS; ++part)
            body(at + part * N, part, (int)(count - at < N ? count - at : N));
}

template <class T, int H>
inline void load_heads(const T* from, Vec<T>* to) {
#pragma GCC unroll 8
    for (int part = 0; part < Packing<T, H>::PARTS; ++part)
        to[part] = packed<T, LANES<T>, H>([=](int) { return from + part * LANES<T>; });
}

template <class T, int H>
inline void store_heads(T* to, const Vec<T>* from) {
    constexpr int N = LANES<T>;
    if constexpr (H < N) {
        __builtin_memcpy(to, from, H * sizeof(T));
    } else {
        for (int part = 0; part < H / N; ++part) store(to + part * N, from[part]);
    }
}

// Weights of arcs, one after the other.
template <class T>
struct ValuesOf {
    const T* values;
    Size stride;

    const T* operator()(Size k) const { return values + k * stride; }
    void prefetch(Size) const {}
};

// out = Σ weight·x[end], or out += that; a weight for each arc and head. Unless it is null, what is
// stored is multiplied by the factor of its head.
template <class T, class Weight>
struct WeightedSum {
    static constexpr int MOST = PANEL;
    Arcs arcs;
    Rows<const T> x;
    Weight weight;
    const T* factors;
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
            weight.prefetch(k);
            const T *from = x0 + (Size)arcs.ends[k] * x.stride, *values = weight(k) + head;
#pragma GCC unroll 8
            for (int h = 0; h < H; ++h) {
                const T value = values[h];
#pragma GCC unroll 8
                for (int v = 0; v < V; ++v)
                    sums[h * V + v] += value * load(from + (h * V + v) * N);
            }
            if constexpr (PART) sums[V] += values[0] * tail.load(from + V * N);
        }
        T* to = out + column;
#pragma GCC unroll 8
        for (int f = 0; f < V * H + PART; ++f) {
            if (factors) sums[f] *= factors[head + (PART ? 0 : f / V)];
            if (f == V * H) {
                if (add) sums[f] += tail.load(to + f * N);
                tail.store(to + f * N, sums[f]);
            } else {
                if (add) sums[f] += load(to + f * N);
                store(to + f * N, sums[f]);
            }
        }
    }
};

// dots = <row[end], x>, a number for each arc and head, or dots += that where a head has more than
// one panel; and out = Σ weight·row[end] or out += that.
template <class T>
struct DotsOfArcs {
    static constexpr int MOST = PANEL;
    Arcs arcs;
    Size heads;
    Rows<const T> rows;
    const T *x, *weights;
    T *dots, *out;
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
            Vec<T> products[H] = {};
#pragma GCC unroll 8
            for (int h = 0; h < H; ++h) {
                const T value = weight[h];
#pragma GCC unroll 8
                for (int v = 0; v < V; ++v) {
                    const Vec<T> row = load(from + (h * V + v) * N);
                    sums[h * V + v] += value * row;
                    products[h] += row * load(mine + (h * V + v) * N);
                }
                if constexpr (PART) {
                    const Vec<T> row = tail.load(from + V * N);
                    sums[V] += value * row;
                    products[0] += row * end_of_mine;
                }
            }
            if constexpr (H > 1) {
                store_sums<T, H>(products, dots + k * heads + head);
            } else {
                dots[k * heads + head] += sum_of_lanes<T>(products[0]);
            }
        }
        T* to = out + column;
#pragma GCC unroll 8
        for (int f = 0; f < V * H; ++f) {
            if (add) sums[f] += load(to + f * N);
            store(to + f * N, sums[f]);
        }
        if constexpr (PART) {
            if (add) sums[V] += tail.load(to + V * N);
            tail.store(to + V * N, sums[V]);
        }
    }
};

// out[k, h] = a[k]ʰ · b[end]ʰ for the arcs of a chunk, heads of c columns; where there are no ends,
// of the same rows of a and b.
template <class T>
struct Dots {
    static constexpr int MOST = PANEL;
    Arcs arcs;
    Rows<const T> a, b;
    Size c;
    T* out;
    Size stride;

    template <int V, int H, bool PART>
    void run(Size head, Size column, int rest) const {
        constexpr Size N = LANES<T>;
        const Tail<T> tail = {rest};
        const bool add = column != head * c;
        const T *a0 = a.data + column, *b0 = b.data + column;
        for (Size k = 0; k < arcs.count; ++k) {
            if (arcs.ends) prefetch_row<T, V * H, PART>(arcs, k, b0, b.stride);
            const T *x = a0 + k * a.stride, *y = b0 + (arcs.ends ? arcs.ends[k] : k) * b.stride;
            T* to = out + k * stride + head;
            Vec<T> products[H] = {};
#pragma GCC unroll 8
            for (int h = 0; h < H; ++h) {
#pragma GCC unroll 8
                for (int v = 0; v < V; ++v) {
                    const Size at = (h * V + v) * N;
                    products[h] += load(x + at) * load(y + at);
                }
                if constexpr (PART) products[0] += tail.load(x + V * N) * tail.load(y + V * N);
            }
            if constexpr (H > 1) {
                store_sums<T, H>(products, to);
            } else {
                const T sum = sum_of_lanes<T>(products[0]);
                *to = add ? *to + sum : sum;
            }
        }
    }
};

// body(first, last) over rows in pieces of about equal numbers of entries plus rows.
template <class Body>
void over_rows(const Pattern& p, Size width, int threads, Body body) {
    const Extents m = {p.starts, p.starts + 1, p.rows};
    const Size pieces = pieces_of(m.work() * width, m.rows);
    for_pieces(pieces, threads, [&](Size piece) {
        body(first_row(m, piece, pieces), first_row(m, piece + 1, pieces));
    });
}

template <class Body>
void over_columns(const Pattern& p, Size width, int threads, Body body) {
    over_rows(
        Pattern{p.column_starts, p.column_rows, {}, {}, {}, {}, {}, {}, p.columns, 0}, width,
        threads, body
    );
}

}  // namespace gcnmpi::TARGET
