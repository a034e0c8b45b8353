// Entry-wise arithmetic of several matrices, and activations whose derivative needs their input.
#pragma once

#include "dense.hpp"
#include "softmax.hpp"

namespace gcnmpi::TARGET {

// body(first number of a row of each, ...) for all rows.
template <class T, class Body>
void over_whole_rows(Size rows, Size width, int threads, Body body) {
    for_ranges(rows, width, threads, [=](Size first, Size last) {
        for (Size row = first; row < last; ++row) body(row);
    });
}

// out = a·x + b·y; without y, a·x.
template <class T>
void combine(Rows<const T> x, T a, Rows<const T> y, T b, Rows<T> out, int threads) {
    over_whole_rows<T>(x.rows, x.width, threads, [=](Size row) {
        const T* from = x.data + row * x.stride;
        T* to = out.data + row * out.stride;
        if (y.data) {
            const T* other = y.data + row * y.stride;
#pragma omp simd
            for (Size j = 0; j < x.width; ++j) to[j] = a * from[j] + b * other[j];
        } else {
#pragma omp simd
            for (Size j = 0; j < x.width; ++j) to[j] = a * from[j];
        }
    });
}

// The sum of a row's numbers over all rows, in float64 and in groups of rows.
template <class Body>
double sum_over_rows(Size rows, Size width, int threads, Body body) {
    double totals[GROUPS] = {};
    const Size groups = pieces_of(rows * width, GROUPS);
    for_pieces(groups, threads, [&](Size group) {
        double sum = 0;
        for (Size row = rows * group / groups; row < rows * (group + 1) / groups; ++row)
            sum += body(row);
        totals[group] = sum;
    });
    double total = 0;
    for (Size group = 0; group < groups; ++group) total += totals[group];
    return total;
}

template <class T>
double dot_of_all(Rows<const T> x, Rows<const T> y, int threads) {
    return sum_over_rows(x.rows, x.width, threads, [=](Size row) {
        const T *from = x.data + row * x.stride, *other = y.data + row * y.stride;
        double sum = 0;
#pragma omp simd reduction(+ : sum)
        for (Size j = 0; j < x.width; ++j) sum += (double)from[j] * (double)other[j];
        return sum;
    });
}

template <class T>
double leaky_backward(Rows<const T> x, Rows<const T> grad, T slope, Rows<T> out, int threads) {
    return sum_over_rows(x.rows, x.width, threads, [=](Size row) {
        const T *from = x.data + row * x.stride, *g = grad.data + row * grad.stride;
        T* to = out.data + row * out.stride;
        // Two loops: where `to` lies shall not decide how the sum is made.
        double sum = 0;
#pragma omp simd reduction(+ : sum)
        for (Size j = 0; j < x.width; ++j)
            sum += from[j] < 0 ? (double)from[j] * (double)g[j] : 0.0;
#pragma omp simd
        for (Size j = 0; j < x.width; ++j) to[j] = from[j] > 0 ? g[j] : slope * g[j];
        return sum;
    });
}

template <class T>
void maximum(const Rows<const T>* xs, Size count, Rows<T> out, int threads) {
    over_whole_rows<T>(out.rows, out.width, threads, [=](Size row) {
        T* to = out.data + row * out.stride;
        over_vectors<T>(out.width, [=](Size j, auto lanes) GCNMPI_INLINE {
            Vec<T> most = lanes.load(xs->data + row * xs->stride + j);
            for (Size k = 1; k < count; ++k) {
                const Vec<T> next = lanes.load(xs[k].data + row * xs[k].stride + j);
                most = (next > most) | (next != next) ? next : most;
            }
            lanes.store(to + j, most);
        });
    });
}

template <class T>
void maximum_backward(
    Rows<const T> grad, Rows<const T> out, const Rows<const T>* xs, Size i, Rows<T> dx, int threads
) {
    over_whole_rows<T>(dx.rows, dx.width, threads, [=](Size row) {
        const T *g = grad.data + row * grad.stride, *best = out.data + row * out.stride;
        T* to = dx.data + row * dx.stride;
        const T* mine = xs[i].data + row * xs[i].stride;
#pragma omp simd
        for (Size j = 0; j < dx.width; ++j) to[j] = mine[j] == best[j] ? g[j] : T(0);
        for (Size k = 0; k < i; ++k) {
            const T* other = xs[k].data + row * xs[k].stride;
#pragma omp simd
            for (Size j = 0; j < dx.width; ++j) to[j] = other[j] == best[j] ? T(0) : to[j];
        }
    });
}

template <class T>
void mean_of_heads(Rows<const T> x, Size heads, Rows<T> out, int threads) {
    const Size c = out.width;
    const T factor = T(1) / (T)heads;
    over_whole_rows<T>(x.rows, x.width, threads, [=](Size row) {
        const T* from = x.data + row * x.stride;
        T* to = out.data + row * out.stride;
        for (Size h = 0; h < heads; ++h) {
            const T last = h + 1 == heads ? factor : T(1);
#pragma omp simd
            for (Size j = 0; j < c; ++j) to[j] = ((h ? to[j] : T(0)) + from[h * c + j]) * last;
        }
    });
}

template <class T>
void mean_of_heads_backward(Rows<const T> grad, Size heads, Rows<T> out, int threads) {
    const Size c = grad.width;
    const T factor = T(1) / (T)heads;
    over_whole_rows<T>(out.rows, out.width, threads, [=](Size row) {
        const T* g = grad.data + row * grad.stride;
        T* to = out.data + row * out.stride;
        for (Size h = 0; h < heads; ++h)
#pragma omp simd
            for (Size j = 0; j < c; ++j) to[h * c + j] = g[j] * factor;
    });
}

// Φ(x), the normal distribution, given E = exp(-x²/2). Cephes, ndtr: with z = |x|/√2, below 1 by
// erf(z) = z·T(z²)/U(z²), above by erfc(z) = E·P(z)/Q(z), further out by E·R(z)/S(z).
template <class T, int N>
inline Vec<T> polynomial(Vec<T> x, const double (&coefficients)[N]) {
    Vec<T> value = Vec<T>{} + (T)coefficients[0];
#pragma GCC unroll 16
    for (int i = 1; i < N; ++i) value = value * x + (T)coefficients[i];
    return value;
}

template <class T>
inline Vec<T> distribution(Vec<T> x, Vec<T> power) {
    constexpr double P[] = {
        2.46196981473530512524e-10, 5.64189564831068821977e-1, 7.46321056442269912687e0,
        4.86371970985681366614e1,   1.96520832956077098242e2,  5.26445194995477358631e2,
        9.34528527171957607540e2,   1.02755188689515710272e3,  5.57535335369399327526e2,
    };
    constexpr double Q[] = {
        1.0, 1.32281951154744992508e1, 8.67072140885989742329e1, 3.54937778887819891062e2,
        9.75708501743205489753e2, 1.82390916687909736289e3, 2.24633760818710981792e3,
        1.65666309194161350182e3, 5.57535340817727675546e2,
    };
    constexpr double R[] = {
        5.64189583547755073984e-1, 1.27536670759978104416e0, 5.01905042251180477414e0,
        6.16021097993053585195e0,  7.40974269950448939160e0, 2.97886665372100240670e0,
    };
    constexpr double S[] = {
        1.0, 2.26052863220117276590e0, 9.39603524938001434673e0, 1.20489539808096656605e1,
        1.70814450747565897222e1, 9.60896809063285878198e0, 3.36907645100081516050e0,
    };
    constexpr double NEAR[] = {
        9.60497373987051638749e0, 9.00260197203842689217e1, 2.23200534594684319226e3,
        7.00332514112805075473e3, 5.55923013010394962768e4,
    };
    constexpr double UNDER[] = {
        1.0, 3.35617141647503099647e1, 5.21357949780152679795e2, 4.59432382970980127987e3,
        2.26290000613890934246e4, 4.92673942608635921086e4,
    };
    constexpr T ROOT_HALF = (T)0.70710678118654752440;
    // Beyond 27, erfc is 0 in float64, and powers of z could overflow.
    const Vec<T> scaled = (x < 0 ? -x : x) * ROOT_HALF, most = Vec<T>{} + T(30);
    const Vec<T> z = scaled > most ? most : scaled, zz = z * z;
    const auto negative = x < 0;
    const Vec<T> small = T(0.5) * z * polynomial<T>(zz, NEAR) / polynomial<T>(zz, UNDER);
    const Vec<T> tail = T(0.5) * power *
                        (z < 8 ? polynomial<T>(z, P) / polynomial<T>(z, Q)
                               : polynomial<T>(z, R) / polynomial<T>(z, S));
    const Vec<T> inner = negative ? T(0.5) - small : T(0.5) + small;
    const Vec<T> outer = negative ? tail : T(1) - tail;
    const Vec<T> value = z < 1 ? inner : outer;
    return x != x ? x : value;
}

// Functions of single numbers: of(x), or g times the derivative at x.

// x·Φ(x), or g·(Φ(x) + x·φ(x)).
struct Gelu {
    template <class T, bool BACKWARD>
    static Vec<T> of(Vec<T> x, Vec<T> grad) {
        constexpr T DENSITY = (T)0.39894228040143267794;  // φ(0)
        const Vec<T> power = exponential(x * x * T(-0.5)), share = distribution<T>(x, power);
        if constexpr (BACKWARD) return grad * (share + x * power * DENSITY);
        return x * share;
    }
};

// With e = exp(-|x|): 1 / (1 + e), or e / (1 + e) below 0; its derivative is e / (1 + e)².
struct Sigmoid {
    template <class T, bool BACKWARD>
    static Vec<T> of(Vec<T> x, Vec<T> grad) {
        const Vec<T> e = exponential(x < 0 ? x : -x), share = T(1) / (e + T(1));
        if constexpr (BACKWARD) return grad * (e * share * share);
        return x < 0 ? e * share : share;
    }
};

// With d = exp(-2·|x|) - 1, which has all of its digits about 0: -d / (2 + d) with the sign of x.
struct Tanh {
    template <class T, bool BACKWARD>
    static Vec<T> of(Vec<T> x, Vec<T> grad) {
        const auto e = parts_of((x < 0 ? x : -x) * T(2));
        const Vec<T> d = e.part * e.power + (e.power - T(1)), share = T(1) / (d + T(2));
        if constexpr (BACKWARD) return grad * (T(4) * (d + T(1)) * share * share);
        return (x < 0 ? d : -d) * share;
    }
};

template <class F, class T, bool BACKWARD>
void function_rows(Rows<const T> x, Rows<const T> grad, Rows<T> out, int threads) {
    over_whole_rows<T>(x.rows, 8 * x.width, threads, [=](Size row) {
        const T* from = x.data + row * x.stride;
        const T* g = BACKWARD ? grad.data + row * grad.stride : from;
        T* to = out.data + row * out.stride;
        over_vectors<T>(x.width, [=](Size j, auto lanes) GCNMPI_INLINE {
            lanes.store(
                to + j, F::template of<T, BACKWARD>(lanes.load(from + j), lanes.load(g + j))
            );
        });
    });
}

template <class F, class T>
void function_of(Rows<const T> x, Rows<const T> grad, Rows<T> out, int threads) {
    if (grad.data) {
        function_rows<F, T, true>(x, grad, out, threads);
    } else {
        function_rows<F, T, false>(x, grad, out, threads);
    }
}

template <class T>
void function(Function kind, Rows<const T> x, Rows<const T> grad, Rows<T> out, int threads) {
    switch (kind) {
        case Function::GELU: return function_of<Gelu>(x, grad, out, threads);
        case Function::SIGMOID: return function_of<Sigmoid>(x, grad, out, threads);
        case Function::TANH: return function_of<Tanh>(x, grad, out, threads);
    }
}

}  // namespace gcnmpi::TARGET
