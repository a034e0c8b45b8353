// The backward pass of attention: gradients by columns and by rows.
#pragma once

#include "attention.hpp"

namespace gcnmpi::TARGET {

// What a backward pass needs of a target vertex, next to each other, for each head of a group: s,
// shift, 1 / total and <grad, y>.
template <class T>
T dot(const T* x, const T* y, Size n) {
    T sum = 0;
#pragma omp simd reduction(+ : sum)
    for (Size j = 0; j < n; ++j) sum += x[j] * y[j];
    return sum;
}

template <class T, int H>
void gather_facts(
    const Group<T>& group, Rows<const T> s, Rows<const T> shift, Rows<const T> total,
    Rows<const T> y, Rows<const T> grad, T* facts, int threads
) {
    const Size c = group.all.c, head = group.first;
    for_ranges(shift.rows, H * c, threads, [&](Size first, Size last) {
        for (Size row = first; row < last; ++row) {
            T* to = facts + row * FACTS * H;
            const T *g = grad.data + row * grad.stride, *from = y.data + row * y.stride;
            for (Size h = 0; h < H; ++h) {
                const T sum = total.data[row * total.stride + head + h];
                to[h] = s.data ? s.data[row * s.stride + head + h] : T(0);
                to[H + h] = shift.data[row * shift.stride + head + h];
                to[2 * H + h] = sum > 0 ? 1 / sum : T(0);
                to[3 * H + h] = dot(g + (head + h) * c, from + (head + h) * c, c);
            }
        }
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

    // The gradients to `to`, and their sums to those of the arcs before.
    void finish(Size arcs, T* to, OfHeads<T, H>& sums) const {
        over_packs<T, H>(arcs, [&](Size k, auto, int lanes) {
#pragma GCC unroll 8
            for (int part = 0; part < Packing<T, H>::PARTS; ++part) {
                const Size at = k * H + part * LANES<T>;
                const Vec<T> product = load<T>(weights.numbers + at) * load<T>(dots.numbers + at);
                Vec<T> v = (product - load<T>(along.numbers + at)) * load<T>(bend.numbers + at);
                if (lanes < LANES<T>) {
                    v = first_lanes<T>(lanes, v, T(0));
                    Tail<T>{lanes}.store(to + at, v);
                } else {
                    store(to + at, v);
                }
                sums.parts[part] += v;
            }
        });
    }
};

// out[i] = sum over the entries of row i of what stands in `scratch` by columns.
template <class T, class P, int H>
void sum_entries(const Pattern& p, const P* places, const T* scratch, Rows<T> out, int threads) {
    constexpr Size AHEAD = 64;
    over_rows(p, H, threads, [&](Size first_row, Size last_row) {
        const Size end = p.starts[p.rows];
        for (Size row = first_row; row < last_row; ++row) {
            const Size start = p.starts[row];
            OfHeads<T, H> sums;
            over_packs<T, H>(p.starts[row + 1] - start, [&](Size k, auto arc, int lanes) {
                for (int i = 0; i < Packing<T, H>::ARCS; ++i)
                    if (start + k + i + AHEAD < end)
                        __builtin_prefetch(scratch + (Size)places[start + k + i + AHEAD] * H);
#pragma GCC unroll 8
                for (int part = 0; part < Packing<T, H>::PARTS; ++part) {
                    Vec<T> v = packed<T, LANES<T>, H>([&](int i) {
                        return scratch + (Size)places[start + arc(i)] * H + part * LANES<T>;
                    });
                    if (lanes < LANES<T>) v = first_lanes<T>(lanes, v, T(0));
                    sums.parts[part] += v;
                }
            });
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
        constexpr int N = LANES<T>;
        constexpr Size AHEAD = 48;
        const Pattern& p = g.pattern();
        const Size start = p.column_starts[column], stop = p.column_starts[column + 1];
        const Size end = p.column_starts[p.columns];
        const Rows<const T> back = from_column(grad, g.first * g.all.c);
        T* to = dx.data + column * dx.stride + g.first * g.all.c;
        if (start == stop)
            for (Size j = 0; j < H * g.all.c; ++j) to[j] = 0;
        ScoreGradients<T, H> scores;
        Buffer<T, H> of_chunk;
        OfHeads<T, H> mine, sums;
        load_heads<T, H>(t.data + column * t.stride + g.first, mine.parts);
        for (Size first = start; first < stop; first += CHUNK) {
            const Size arcs = stop - first < CHUNK ? stop - first : CHUNK, left = end - first;
            const std::int32_t* rows = p.column_rows + first;
            over_packs<T, H>(arcs, [&](Size k, auto arc, int) {
                for (int i = 0; i < Packing<T, H>::ARCS; ++i)
                    if (k + i + AHEAD < left)
                        __builtin_prefetch(facts + (Size)rows[k + i + AHEAD] * FACTS * H);
#pragma GCC unroll 8
                for (int part = 0; part < Packing<T, H>::PARTS; ++part) {
                    const auto fact = [&](int which) {
                        return packed<T, N, H>([&](int i) {
                            return facts + ((Size)rows[arc(i)] * FACTS + which) * H + part * N;
                        });
                    };
                    const Vec<T> z = fact(0) + mine.parts[part];
                    scores.begin(k * H + part * N, z, fact(1), fact(2), fact(3), g.all.slope);
                }
            });
            if (g.all.drop.rows) drop_of_column<T, H>(g, rows, column, arcs, scores.weights);
            const T* x = g.x.data + column * g.x.stride;
            over_panels<T>(
                H, g.all.c,
                DotsOfArcs<T, H, true>{
                    {rows, arcs, left}, back, x, scores.weights, scores.dots, to, first > start
                }
            );
            scores.finish(arcs, scratch ? scratch + first * H : of_chunk, sums);
        }
        for (Vec<T>& v : sums.parts) v = folded_to<T, H>(v, plus<T>);
        store_heads<T, H>(dt.data + column * dt.stride + g.first, sums.parts);
    }

    template <int H>
    void row_of(const Group<T>& g, Size row) const {
        constexpr int N = LANES<T>;
        constexpr Size AHEAD = 64;
        const Pattern& p = g.pattern();
        const Size start = p.starts[row], stop = p.starts[row + 1], end = p.starts[p.rows];
        const T *mine = grad.data + row * grad.stride + g.first * g.all.c, *from = t.data + g.first;
        ScoreGradients<T, H> scores;
        Buffer<T, H> of_chunk;
        OfHeads<T, H> known[FACTS], sums;
        for (Size which = 0; which < FACTS; ++which)
            load_heads<T, H>(facts + (row * FACTS + which) * H, known[which].parts);
        for (Size first = start; first < stop; first += CHUNK) {
            const Size arcs = stop - first < CHUNK ? stop - first : CHUNK, left = end - first;
            const std::int32_t* columns = p.indices + first;
            over_packs<T, H>(arcs, [&](Size k, auto arc, int) {
                for (int i = 0; i < Packing<T, H>::ARCS; ++i)
                    if (k + i + AHEAD < left)
                        __builtin_prefetch(from + (Size)columns[k + i + AHEAD] * t.stride);
#pragma GCC unroll 8
                for (int part = 0; part < Packing<T, H>::PARTS; ++part) {
                    const Vec<T> z = known[0].parts[part] + packed<T, N, H>([&](int i) {
                        return from + (Size)columns[arc(i)] * t.stride + part * N;
                    });
                    scores.begin(
                        k * H + part * N, z, known[1].parts[part], known[2].parts[part],
                        known[3].parts[part], g.all.slope
                    );
                }
            });
            if (g.all.drop.rows)
                drop_of_row<T, H>(g, row, columns, arcs, g.all.drop.scale, scores.weights);
            over_panels<T>(
                H, g.all.c,
                DotsOfArcs<T, H, false>{
                    {columns, arcs, left}, g.x, mine, nullptr, scores.dots, nullptr, false
                }
            );
            scores.finish(arcs, of_chunk, sums);
        }
        for (Vec<T>& v : sums.parts) v = folded_to<T, H>(v, plus<T>);
        store_heads<T, H>(ds.data + row * ds.stride + g.first, sums.parts);
    }

    template <int H>
    void run(const Group<T>& g) const {
        const Pattern& p = g.pattern();
        gather_facts<T, H>(g, s, shift, total, y, grad, facts, threads);
        over_columns(p, H * g.all.c, threads, [&](Size first, Size last) {
            for (Size column = first; column < last; ++column) column_of<H>(g, column);
        });
        const Rows<T> to = from_column(ds, g.first);
        if (!scratch) {
            over_rows(p, H * g.all.c, threads, [&](Size first, Size last) {
                for (Size row = first; row < last; ++row) row_of<H>(g, row);
            });
        } else if (p.long_places) {
            sum_entries<T, Size, H>(p, p.long_places, scratch, to, threads);
        } else {
            sum_entries<T, std::int32_t, H>(p, p.places, scratch, to, threads);
        }
    }
};

// scratch: (FACTS · rows, heads) numbers, and as many rows before as entries where it is known
// where entries are among those by columns.
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
