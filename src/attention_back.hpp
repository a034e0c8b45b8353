// The backward pass of attention: gradients by columns and by rows.
#pragma once

#include "attention.hpp"

namespace gcnmpi::TARGET {

// The numbers of a target vertex that a backward pass needs, next to each other, for each head of a
// group: s, shift, 1 / total and <grad, y>.
template <class T>
void make_facts(
    const Group<T>& group, Size heads, Rows<const T> s, Rows<const T> shift, Rows<const T> total,
    Rows<const T> y, Rows<const T> grad, T* facts, int threads
) {
    const Size c = group.all.c, head = group.first;
    for_ranges(shift.rows, heads * c, threads, [&](Size first, Size last) {
        for (Size row = first; row < last; ++row) {
            T* to = facts + row * FACTS * heads;
            const T *g = grad.data + row * grad.stride, *from = y.data + row * y.stride;
            for (Size h = 0; h < heads; ++h) {
                const T sum = total.data[row * total.stride + head + h];
                to[h] = s.data ? s.data[row * s.stride + head + h] : T(0);
                to[heads + h] = shift.data[row * shift.stride + head + h];
                to[2 * heads + h] = sum > 0 ? 1 / sum : T(0);
                to[3 * heads + h] = dot(g + (head + h) * c, from + (head + h) * c, c);
            }
        }
    });
}

// body(at, fact) for the vectors of a chunk of arcs, where fact(which) are those of their rows.
template <class T, int H, class Body>
[[gnu::always_inline]] inline void over_facts(const T* facts, Arcs arcs, Body body) {
    constexpr int N = LANES<T>;
    constexpr Size AHEAD = 48;
    over_packs<T, H>(arcs, [&](Size k, const std::int32_t* rows) GCNMPI_INLINE {
        for (int i = 0; i < Packing<T, H>::ARCS; ++i)
            if (k + i + AHEAD < arcs.left)
                __builtin_prefetch(facts + (Size)arcs.ends[k + i + AHEAD] * FACTS * H);
#pragma GCC unroll 8
        for (int part = 0; part < Packing<T, H>::PARTS; ++part)
            body(k * H + part * N, part, [&](int which) GCNMPI_INLINE {
                return packed<T, N, H>([&](int i) {
                    return facts + ((Size)rows[i] * FACTS + which) * H + part * N;
                });
            });
    });
}

// The gradients of e of a chunk of arcs, before leaky_relu: of the weights α that softmax gives,
// de = α′·<grad, x> - α·<grad, y>, times the slope. They are the same bits whichever of its ends
// an arc is looked at from.
template <class T, int H>
struct ScoreGradients {
    Buffer<T, H> weights, along, bend, dots;

    // Of the arcs in a vector at `at`: z = s + t, and what is known of their rows.
    void begin(Size at, Vec<T> z, Vec<T> shift, Vec<T> inverse, Vec<T> dot, T slope) {
        const Vec<T> one = Vec<T>{} + T(1), lean = z > 0 ? one : one * slope;
        const Vec<T> alpha = exponential(z * lean - shift) * inverse;
        store(weights + at, alpha);
        store(along + at, alpha * dot);
        store(bend + at, lean);
        store(dots + at, Vec<T>{});
    }

    // Of arcs to a column, whose t is `mine`.
    [[gnu::always_inline]] void begin(const T* facts, Arcs arcs, OfHeads<T, H> mine, T slope) {
        over_facts<T, H>(facts, arcs, [&](Size at, int part, auto fact) GCNMPI_INLINE {
            begin(at, fact(0) + mine.parts[part], fact(1), fact(2), fact(3), slope);
        });
    }

    // The gradients to `to`, and their sums to those of the arcs before.
    OfHeads<T, H> finish(Size count, T* to, OfHeads<T, H> sums) const {
        over_numbers<T, Packing<T, H>::PARTS>(count, [&](Size at, int part, int lanes) {
            const Vec<T> product = load<T>(weights.numbers + at) * load<T>(dots.numbers + at);
            Vec<T> v = (product - load<T>(along.numbers + at)) * load<T>(bend.numbers + at);
            if (lanes < LANES<T>) {
                v = first_lanes<T>(lanes, v, T(0));
                Tail<T>{lanes}.store(to + at, v);
            } else {
                store(to + at, v);
            }
            sums.parts[part] += v;
        });
        return sums;
    }
};

// out[i] = sum over the entries of row i of what stands in `scratch` by columns.
template <class T, class P, int H>
void sum_entries(const Pattern& p, const P* places, const T* scratch, Rows<T> out, int threads) {
    constexpr int ARCS = Packing<T, H>::ARCS;
    constexpr Size AHEAD = 64;
    over_rows(p, H, threads, [=, &p](Size first_row, Size last_row) {
        const Size end = p.starts[p.rows];
        for (Size row = first_row; row < last_row; ++row) {
            const Size stop = p.starts[row + 1];
            OfHeads<T, H> sums;
            for (Size k = p.starts[row]; k < stop; k += ARCS) {
                P last[ARCS];
                const P* of = places + k;
                if (k + ARCS > end) {
                    for (int i = 0; i < ARCS; ++i) last[i] = of[k + i < end ? i : 0];
                    of = last;
                }
                if (k + ARCS + AHEAD <= end)
                    for (int i = 0; i < ARCS; ++i)
                        __builtin_prefetch(scratch + (Size)of[i + AHEAD] * H);
#pragma GCC unroll 8
                for (int part = 0; part < Packing<T, H>::PARTS; ++part) {
                    Vec<T> v = packed<T, LANES<T>, H>([&](int i) {
                        return scratch + (Size)of[i] * H + part * LANES<T>;
                    });
                    if (k + ARCS > stop) v = first_lanes<T>((int)(stop - k) * H, v, T(0));
                    sums.parts[part] += v;
                }
            }
            for (Vec<T>& v : sums.parts) v = folded_to<T, H>(v, plus<T>);
            store_heads<T, H>(out.data + row * out.stride, sums.parts);
        }
    });
}

// Gradients of x and t by columns, of s by rows: of what stands by columns in `scratch`, or,
// without it, of what is computed again. With one narrow head and 10^8 arcs, that takes no longer
// than to write a number for each arc and to find it again.
template <class T>
struct AttendBack {
    Rows<const T> t, s, shift, total, y, grad;
    Rows<T> dx, dt, ds;
    T *scratch, *facts;
    int threads;

    template <int H>
    void column_of(const Group<T>& g, Size column) const {
        const Pattern& p = g.pattern();
        const Size start = p.column_starts[column], stop = p.column_starts[column + 1];
        const Size end = p.column_starts[p.columns];
        const Rows<const T> back = from_column(grad, g.first * g.all.c);
        const T* x = g.x.data + column * g.x.stride;
        T* to = dx.data + column * dx.stride + g.first * g.all.c;
        if (start == stop)
            for (Size j = 0; j < H * g.all.c; ++j) to[j] = 0;
        ScoreGradients<T, H> scores;
        Buffer<T, H> of_chunk;
        OfHeads<T, H> mine, sums;
        load_heads<T, H>(t.data + column * t.stride + g.first, mine.parts);
        for (Size first = start; first < stop; first += CHUNK) {
            const Size count = stop - first < CHUNK ? stop - first : CHUNK;
            const Arcs arcs = {p.column_rows + first, count, end - first};
            scores.begin(facts, arcs, mine, g.all.slope);
            if (g.all.drop.rows) drop_of_column<T, H>(g, arcs, column, scores.weights);
            over_heads<T>(
                H, g.all.c,
                DotsOfArcs<T>{arcs, H, back, x, scores.weights, scores.dots, to, first > start}
            );
            sums = scores.finish(count * H, scratch ? scratch + first * H : of_chunk, sums);
        }
        for (Vec<T>& v : sums.parts) v = folded_to<T, H>(v, plus<T>);
        store_heads<T, H>(dt.data + column * dt.stride + g.first, sums.parts);
    }

    // With one head.
    void row_of(const Group<T>& g, Size row) const {
        const Pattern& p = g.pattern();
        const Size start = p.starts[row], stop = p.starts[row + 1], end = p.starts[p.rows];
        const Rows<const T> mine = {grad.data + row * grad.stride, 1, g.all.c, 0};
        ScoreGradients<T, 1> scores;
        Buffer<T, 1> of_chunk;
        OfHeads<T, 1> known[FACTS], sums;
        for (Size which = 0; which < FACTS; ++which)
            load_heads<T, 1>(facts + row * FACTS + which, known[which].parts);
        for (Size first = start; first < stop; first += CHUNK) {
            const Size count = stop - first < CHUNK ? stop - first : CHUNK;
            const Arcs arcs = {p.indices + first, count, end - first};
            gather_heads<T, 1>(arcs, t.data, t.stride, scores.weights, sums);
            over_numbers<T, 1>(count, [&](Size at, int, int) {
                const Vec<T> z = known[0].parts[0] + load(scores.weights + at);
                const auto of = [&](int which) { return known[which].parts[0]; };
                scores.begin(at, z, of(1), of(2), of(3), g.all.slope);
            });
            if (g.all.drop.rows)
                drop_of_row<T, 1>(g, row, arcs, g.all.drop.scale, scores.weights);
            over_heads<T>(1, g.all.c, Dots<T>{arcs, mine, g.x, g.all.c, scores.dots, 1});
            sums = scores.finish(count, of_chunk, sums);
        }
        ds.data[row * ds.stride] = sum_of_lanes<T>(sums.parts[0]);
    }

    template <int H>
    void run(const Group<T>& g) const {
        const Pattern& p = g.pattern();
        make_facts(g, H, s, shift, total, y, grad, facts, threads);
        over_columns(p, H * g.all.c, threads, [&](Size first, Size last) {
            for (Size column = first; column < last; ++column) column_of<H>(g, column);
        });
        const Rows<T> to = from_column(ds, g.first);
        if (scratch && p.long_places) {
            return sum_entries<T, Size, H>(p, p.long_places, scratch, to, threads);
        } else if (scratch) {
            return sum_entries<T, std::int32_t, H>(p, p.places, scratch, to, threads);
        }
        over_rows(p, H * g.all.c, threads, [&](Size first, Size last) {
            for (Size row = first; row < last; ++row) row_of(g, row);
        });
    }
};

// scratch: (FACTS · rows, heads) numbers, and as many rows before as entries where it is known
// where entries are among those by columns, as it is where there are several heads.
template <class T>
void attend_backward(
    Attention<T> a, Rows<const T> t, Rows<const T> s, Rows<const T> shift, Rows<const T> total,
    Rows<const T> y, Rows<const T> grad, Rows<T> dx, Rows<T> dt, Rows<T> ds, T* scratch, int threads
) {
    const Pattern& p = a.pattern;
    const bool known = p.places || p.long_places;
    T* facts = known ? scratch + p.starts[p.rows] * a.heads : scratch;
    T* entries = known ? scratch : nullptr;
    over_groups<T>(
        a, AttendBack<T>{t, s, shift, total, y, grad, dx, dt, ds, entries, facts, threads}
    );
}

}  // namespace gcnmpi::TARGET
