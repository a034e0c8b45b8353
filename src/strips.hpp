// Functions of the entries of each row, column by column: reductions and softmax. A strip is some
// vectors of a row of numbers, for all entries of a row of the pattern; it passes by as often as a
// function needs it, while it is in the cache.
#pragma once

#include "heads.hpp"

namespace gcnmpi::TARGET {

// `count` times the vectors of a strip with `rest` lanes of one more, then `extra` lanes: where
// entries have few numbers, those of several fill a vector.
struct Strip {
    Size count;
    int rest, extra;
};

template <class T>
inline Vec<T> only(Whole<T>, Vec<T> v, T) { return v; }
template <class T>
inline Vec<T> only(Tail<T> lanes, Vec<T> v, T others) { return first_lanes<T>(lanes.n, v, others); }

// body(f, k, lanes) for the vectors f of the k-th entry, for all of them.
template <class T, int V, bool PART, class Body>
[[gnu::always_inline]] inline void over_strip(Strip strip, Body body) {
    for (Size k = 0; k < strip.count; ++k) {
#pragma GCC unroll 8
        for (int f = 0; f < V; ++f) body(f, k, Whole<T>{});
        if constexpr (PART) body(V, k, Tail<T>{strip.rest});
    }
    if (strip.extra) body(0, strip.count, Tail<T>{strip.extra});
}

// Where a strip begins, and how far its entries are apart.
template <class T>
struct Lines {
    T* data;
    Size stride;

    T* at(Size k, int f) const { return data + k * stride + f * LANES<T>; }
    Lines from(Size column) const { return {data + column, stride}; }
};

template <class T>
Lines<T> lines_of(Rows<T> x, Size row) { return {x.data + row * x.stride, x.stride}; }

// The reductions of the entries of a row, side by side: `kinds` says where, for each column.
template <class T, bool EXTREMES>
struct Reduced {
    static constexpr int MOST = PANEL / 2;
    const Reductions& kinds;
    Lines<const T> x;
    Size count;
    T* out;

    template <int V, int H, bool PART>
    void run(Size, Size column, int rest) const {
        constexpr int F = V * H + PART;
        constexpr T INFINITE = __builtin_inff();
        const Lines<const T> from = x.from(column);
        const Strip all = {count, rest, 0}, one = {1, rest, 0};
        Vec<T> sums[F] = {}, high[F], low[F];
#pragma GCC unroll 8
        for (int f = 0; f < F; ++f) {
            high[f] = Vec<T>{} - INFINITE;
            low[f] = Vec<T>{} + INFINITE;
        }
        over_strip<T, V * H, PART>(all, [&](int f, Size k, auto lanes) GCNMPI_INLINE {
            const Vec<T> next = lanes.load(from.at(k, f));
            sums[f] += next;
            if constexpr (EXTREMES) {  // NaN is passed on
                high[f] = (next > high[f]) | (next != next) ? next : high[f];
                low[f] = (next < low[f]) | (next != next) ? next : low[f];
            }
        });
        const auto keep = [&](Reduction kind, const Vec<T>* v) GCNMPI_INLINE {
            if (kinds.at[kind] < 0) return;
            T* to = out + kinds.at[kind] + column;
            over_strip<T, V * H, PART>(one, [&](int f, Size, auto lanes) GCNMPI_INLINE {
                lanes.store(to + f * LANES<T>, v[f]);
            });
        };
        if constexpr (EXTREMES) {
            keep(MAX, high);
            keep(MIN, low);
        }
        keep(SUM, sums);
#pragma GCC unroll 8
        for (int f = 0; f < F; ++f) sums[f] /= (T)count;
        keep(MEAN, sums);
        if (kinds.at[STD] < 0) return;
        Vec<T> squares[F] = {};
        over_strip<T, V * H, PART>(all, [&](int f, Size k, auto lanes) GCNMPI_INLINE {
            const Vec<T> apart = lanes.load(from.at(k, f)) - sums[f];
            squares[f] += apart * apart;
        });
#pragma GCC unroll 8
        for (int f = 0; f < F; ++f) {
            squares[f] /= (T)count;
            squares[f] = squares[f] <= (T)kinds.least_variance ? Vec<T>{} : squares[f];
            for (int i = 0; i < LANES<T>; ++i) squares[f][i] = square_root(squares[f][i]);
        }
        keep(STD, squares);
    }
};

template <class T, bool EXTREMES>
void reduce_rows(
    const Pattern& p, const Reductions& kinds, Rows<const T> x, Rows<T> out, Size first, Size last
) {
    for (Size row = first; row < last; ++row) {
        const Size start = p.starts[row], count = p.starts[row + 1] - start;
        T* to = out.data + row * out.stride;
        if (count) {
            const Reduced<T, EXTREMES> body = {kinds, lines_of(x, start), count, to};
            over_panels<T>(x.width, body);
        } else {
            for (Size j = 0; j < out.width; ++j) to[j] = 0;
        }
    }
}

template <class T>
void reduce(Pattern p, Reductions kinds, Rows<const T> x, Rows<T> out, int threads) {
    using Body = void (*)(const Pattern&, const Reductions&, Rows<const T>, Rows<T>, Size, Size);
    const auto wanted = [&](Reduction kind) { return kinds.at[kind] >= 0; };
    const Body body = wanted(MAX) || wanted(MIN) ? reduce_rows<T, true> : reduce_rows<T, false>;
    over_rows(p, x.width, threads, [&](Size first, Size last) {
        body(p, kinds, x, out, first, last);
    });
}

// The gradient of the entries of a row; of equals, the first one attains a maximum or minimum.
template <class T, bool EXTREMES, bool WIDE>
struct Reducing {
    static constexpr int MOST = PANEL / 2;
    const Reductions& kinds;
    Lines<const T> x;
    Size count;
    const T *out, *grad;
    Lines<T> dx;

    template <int V, int H, bool PART>
    void run(Size, Size column, int rest) const {
        constexpr int F = V * H + PART;
        const Lines<const T> from = x.from(column);
        const Lines<T> to = dx.from(column);
        const Strip all = {count, rest, 0}, one = {1, rest, 0};
        // Of each kind that is wanted, its result and the gradient of that.
        Vec<T> of[REDUCTIONS][F] = {}, back[REDUCTIONS][F] = {}, same[F], mean[F] = {}, slope[F];
#pragma GCC unroll 8
        for (int kind = 0; kind < REDUCTIONS; ++kind) {
            if (kinds.at[kind] < 0) continue;
            over_strip<T, V * H, PART>(one, [&](int f, Size, auto lanes) GCNMPI_INLINE {
                const Size j = kinds.at[kind] + column + f * LANES<T>;
                of[kind][f] = lanes.load(out + j);
                back[kind][f] = lanes.load(grad + j);
            });
        }
        if constexpr (WIDE)
            over_strip<T, V * H, PART>(all, [&](int f, Size k, auto lanes) GCNMPI_INLINE {
                mean[f] += lanes.load(from.at(k, f));
            });
#pragma GCC unroll 8
        for (int f = 0; f < F; ++f) {
            same[f] = back[SUM][f] + back[MEAN][f] / (T)count;
            mean[f] /= (T)count;
            slope[f] = of[STD][f] > 0 ? back[STD][f] / (of[STD][f] * (T)count) : Vec<T>{};
        }
        over_strip<T, V * H, PART>(all, [&](int f, Size k, auto lanes) GCNMPI_INLINE {
            Vec<T> d = same[f];
            if constexpr (EXTREMES || WIDE) {
                const Vec<T> v = lanes.load(from.at(k, f));
                if constexpr (EXTREMES) {
                    d += first_hit(v, of[MAX][f], back[MAX][f]);
                    d += first_hit(v, of[MIN][f], back[MIN][f]);
                }
                if constexpr (WIDE) d += (v - mean[f]) * slope[f];
            }
            lanes.store(to.at(k, f), d);
        });
    }

    // The gradient where v is what was attained, or NaN; once only.
    [[gnu::always_inline]] static Vec<T> first_hit(Vec<T> v, Vec<T> attained, Vec<T>& back) {
        const auto hit = (v == attained) | (v != v);
        const Vec<T> found = hit ? back : Vec<T>{};
        back = hit ? Vec<T>{} : back;
        return found;
    }
};

template <class T, bool EXTREMES, bool WIDE>
void reduce_rows_backward(
    const Pattern& p, const Reductions& kinds, Rows<const T> x, Rows<const T> out,
    Rows<const T> grad, Rows<T> dx, Size first, Size last
) {
    for (Size row = first; row < last; ++row) {
        const Size start = p.starts[row], count = p.starts[row + 1] - start;
        if (!count) continue;
        const Reducing<T, EXTREMES, WIDE> body = {
            kinds, lines_of(x, start), count, out.data + row * out.stride,
            grad.data + row * grad.stride, lines_of(dx, start),
        };
        over_panels<T>(x.width, body);
    }
}

template <class T>
void reduce_backward(
    Pattern p, Reductions kinds, Rows<const T> x, Rows<const T> out, Rows<const T> grad,
    Rows<T> dx, int threads
) {
    using Body = void (*)(
        const Pattern&, const Reductions&, Rows<const T>, Rows<const T>, Rows<const T>, Rows<T>,
        Size, Size
    );
    const auto wanted = [&](Reduction kind) { return kinds.at[kind] >= 0; };
    static constexpr Body BODIES[2][2] = {
        {reduce_rows_backward<T, 0, 0>, reduce_rows_backward<T, 0, 1>},
        {reduce_rows_backward<T, 1, 0>, reduce_rows_backward<T, 1, 1>},
    };
    const Body body = BODIES[wanted(MAX) || wanted(MIN)][wanted(STD)];
    over_rows(p, x.width, threads, [&](Size first, Size last) {
        body(p, kinds, x, out, grad, dx, first, last);
    });
}

// body.run<V, PART, H>(column, strip): a panel of V vectors, or vectors of entries of H numbers.
template <class Body>
struct Strips {
    static constexpr int MOST = PANEL / 2;
    const Body& body;
    Size count;

    template <int V, int H, bool PART>
    void run(Size, Size column, int rest) const {
        body.template run<V * H, PART, 0>(column, Strip{count, rest, 0});
    }
};

template <class T, class Body>
void over_strips(Size count, Size width, bool dense, const Body& body) {
    constexpr Size N = LANES<T>;
    if (dense && width < N && N % (width ? width : N) == 0) {
        const Strip strip = {count * width / N, 0, (int)(count * width % N)};
        if (width == 1) return body.template run<1, false, 1>(0, strip);
        if constexpr (N > 2)
            if (width == 2) return body.template run<1, false, 2>(0, strip);
        if constexpr (N > 4)
            if (width == 4) return body.template run<1, false, 4>(0, strip);
        if constexpr (N > 8) return body.template run<1, false, 8>(0, strip);
    }
    over_panels<T>(width, Strips<Body>{body, count});
}

// Of every H-th lane one number, which stands in all of these.
template <class T, int H, class Merge>
[[gnu::always_inline]] inline void fold(Vec<T>* v, Merge merge) {
    if constexpr (H > 0) *v = folded_to<T, H>(*v, merge);
}

template <class T>
inline Vec<T> sum_of(Vec<T> a, Vec<T> b) { return a + b; }

template <class T>
struct Softmax {
    Lines<const T> x;
    Lines<T> out;

    template <int V, bool PART, int H>
    void run(Size column, Strip strip) const {
        constexpr T INFINITE = __builtin_inff();
        const Size dense = LANES<T>;
        const Lines<const T> from = {x.data + column, H ? dense : x.stride};
        const Lines<T> to = {out.data + column, H ? dense : out.stride};
        Vec<T> most[V + PART], sums[V + PART] = {};
#pragma GCC unroll 8
        for (Vec<T>& v : most) v = Vec<T>{} - INFINITE;
        over_strip<T, V, PART>(strip, [&](int f, Size k, auto lanes) GCNMPI_INLINE {
            most[f] = larger<T>(only<T>(lanes, lanes.load(from.at(k, f)), -INFINITE), most[f]);
        });
        fold<T, H>(most, larger<T>);
        over_strip<T, V, PART>(strip, [&](int f, Size k, auto lanes) GCNMPI_INLINE {
            const Vec<T> e = exponential(lanes.load(from.at(k, f)) - most[f]);
            sums[f] += only<T>(lanes, e, 0);
            lanes.store(to.at(k, f), e);
        });
        fold<T, H>(sums, sum_of<T>);
#pragma GCC unroll 8
        for (Vec<T>& v : sums) v = T(1) / v;
        over_strip<T, V, PART>(strip, [&](int f, Size k, auto lanes) GCNMPI_INLINE {
            lanes.store(to.at(k, f), lanes.load(to.at(k, f)) * sums[f]);
        });
    }
};

template <class T>
struct SoftmaxBackward {
    Lines<const T> y, grad;
    Lines<T> out;

    template <int V, bool PART, int H>
    void run(Size column, Strip strip) const {
        const Size dense = LANES<T>;
        const Lines<const T> from = {y.data + column, H ? dense : y.stride};
        const Lines<const T> back = {grad.data + column, H ? dense : grad.stride};
        const Lines<T> to = {out.data + column, H ? dense : out.stride};
        Vec<T> along[V + PART] = {};
        over_strip<T, V, PART>(strip, [&](int f, Size k, auto lanes) GCNMPI_INLINE {
            along[f] += lanes.load(from.at(k, f)) * lanes.load(back.at(k, f));
        });
        fold<T, H>(along, sum_of<T>);
        over_strip<T, V, PART>(strip, [&](int f, Size k, auto lanes) GCNMPI_INLINE {
            const Vec<T> g = lanes.load(back.at(k, f));
            lanes.store(to.at(k, f), lanes.load(from.at(k, f)) * (g - along[f]));
        });
    }
};

// make(start) is what runs for the entries of a row from there on.
template <class T, class Make>
void over_rows_of_entries(const Pattern& p, Size width, bool dense, int threads, Make make) {
    over_rows(p, width, threads, [&](Size first, Size last) {
        for (Size row = first; row < last; ++row) {
            const Size start = p.starts[row], count = p.starts[row + 1] - start;
            if (count) over_strips<T>(count, width, dense, make(start));
        }
    });
}

template <class T>
void softmax(Pattern p, Rows<const T> x, Rows<T> out, int threads) {
    const bool dense = x.stride == x.width && out.stride == x.width;
    over_rows_of_entries<T>(p, x.width, dense, threads, [&](Size start) {
        return Softmax<T>{lines_of(x, start), lines_of(out, start)};
    });
}

template <class T>
void softmax_backward(
    Pattern p, Rows<const T> y, Rows<const T> grad, Rows<T> out, int threads
) {
    const Size width = y.width;
    const bool dense = y.stride == width && grad.stride == width && out.stride == width;
    over_rows_of_entries<T>(p, width, dense, threads, [&](Size start) {
        return SoftmaxBackward<T>{lines_of(y, start), lines_of(grad, start), lines_of(out, start)};
    });
}

}  // namespace gcnmpi::TARGET
