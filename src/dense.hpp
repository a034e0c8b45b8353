// The operations of an epoch beside the products, each in one pass over memory. Loops are written
// for the compiler's vectoriser; in place is fine, as an entry depends on no other.
#pragma once

#include "exponential.hpp"
#include "parallel.hpp"

namespace gcnmpi::TARGET {

template <class T>
inline Keys<T> load_keys(const std::uint32_t* from, Whole<T>) {
    Keys<T> keys;
    __builtin_memcpy(&keys, from, sizeof keys);
    return keys;
}
template <class T>
inline Keys<T> load_keys(const std::uint32_t* from, Tail<T> lanes) {
    const Vec<float> bits = Tail<float>{lanes.n}.load((const float*)from);
    Keys<T> keys;
    __builtin_memcpy(&keys, &bits, sizeof keys);
    return keys;
}

// Dropout: kept where the hash of hash_block in gcnmpi/core/rng.py says so, to the bit.
template <class T>
inline Vec<T> kept(const Dropout<T>& drop, Keys<T> low, Keys<T> high, Keys<T> column, Vec<T> v) {
    Keys<T> h = low ^ column;
    h = (h ^ (h >> 16)) * drop.mix1 + high;
    h = (h ^ (h >> 15)) * drop.mix2;
    return where_at_least<T>(h ^ (h >> 16), drop.limit, v);
}

// body(j, lanes, vectors of x) for the rows first .. last, then dropout unless DROP is false.
template <class T, bool DROP, class Body>
[[gnu::always_inline]] inline void over_entries(
    Rows<const T> x, Dropout<T> drop, Rows<T> out, Size first, Size last, Body body
) {
    for (Size row = first; row < last; ++row) {
        const T* from = x.data + row * x.stride;
        T* to = out.data + row * out.stride;
        const std::uint64_t key = DROP ? drop.rows[row] : 0;
        const Keys<T> low = Keys<T>{} + (std::uint32_t)key;
        const Keys<T> high = Keys<T>{} + (std::uint32_t)(key >> 32);
        over_vectors<T>(x.width, [=](Size j, auto lanes) GCNMPI_INLINE {
            Vec<T> value = body(row, j, lanes, lanes.load(from + j));
            if constexpr (DROP)
                value = kept<T>(drop, low, high, load_keys<T>(drop.columns + j, lanes), value);
            lanes.store(to + j, value);
        });
    }
}

template <class T, Kind KIND, bool BIAS, bool DROP>
void activate_rows(const Epilogue<T>& then, Rows<const T> x, Rows<T> out, Size first, Size last) {
    const T *bias = then.bias, slope = then.slope, scale = then.drop.scale;
    over_entries<T, DROP>(
        x, then.drop, out, first, last,
        [=](Size, Size j, auto lanes, Vec<T> value) GCNMPI_INLINE {
            if constexpr (BIAS) value += lanes.load(bias + j);
            if constexpr (KIND == RELU) value = value < 0 ? Vec<T>{} : value;  // NaN stays
            if constexpr (KIND == ELU) value = elu_of(value);
            if constexpr (KIND == LEAKY_RELU) value = value > 0 ? value : slope * value;
            return DROP ? value * scale : value;
        }
    );
}

// Before dropout, the output is that of the activation, times 1 / (1 - p). That of ReLU tells of
// dropout, too.
template <class T, Kind KIND, bool DROP>
void activation_backward_rows(
    const Epilogue<T>& then, Rows<const T> x, Rows<T> out, Size first, Size last
) {
    const Rows<const T> output = then.output;
    const T scale = then.scale, less = T(1) / scale, slope = then.slope;
    over_entries<T, DROP>(
        x, then.drop, out, first, last,
        [=](Size row, Size j, auto lanes, Vec<T> value) GCNMPI_INLINE {
            const Vec<T> o = lanes.load(output.data + row * output.stride + j);
            value *= scale;
            if constexpr (KIND == RELU) value = o > 0 ? value : Vec<T>{};
            if constexpr (KIND == ELU) value *= o > 0 ? Vec<T>{} + T(1) : o * less + 1;
            if constexpr (KIND == LEAKY_RELU) value *= o > 0 ? Vec<T>{} + T(1) : Vec<T>{} + slope;
            return value;
        }
    );
}

template <class T>
inline bool does_something(const Epilogue<T>& then) {
    return then.bias || then.kind != NONE || then.drop.rows || then.output.data || then.plus.data;
}

template <class T>
void add_rows(Rows<const T> x, Rows<const T> plus, Rows<T> out, Size first, Size last) {
    for (Size row = first; row < last; ++row) {
        const T *from = x.data + row * x.stride, *more = plus.data + row * plus.stride;
        T* to = out.data + row * out.stride;
#pragma omp simd
        for (Size j = 0; j < x.width; ++j) to[j] = from[j] + more[j];
    }
}

template <class T>
Rows<const T> read_only(Rows<T> x) {
    return {x.data, x.rows, x.width, x.stride};
}

// Rows first .. last, while a product has them in the cache.
template <class T>
void apply_to_rows(const Epilogue<T>& then, Rows<const T> x, Rows<T> out, Size first, Size last) {
    using Body = void (*)(const Epilogue<T>&, Rows<const T>, Rows<T>, Size, Size);
    static constexpr Body FORWARD[4][2][2] = {
        {{activate_rows<T, NONE, 0, 0>, activate_rows<T, NONE, 0, 1>},
         {activate_rows<T, NONE, 1, 0>, activate_rows<T, NONE, 1, 1>}},
        {{activate_rows<T, RELU, 0, 0>, activate_rows<T, RELU, 0, 1>},
         {activate_rows<T, RELU, 1, 0>, activate_rows<T, RELU, 1, 1>}},
        {{activate_rows<T, ELU, 0, 0>, activate_rows<T, ELU, 0, 1>},
         {activate_rows<T, ELU, 1, 0>, activate_rows<T, ELU, 1, 1>}},
        {{activate_rows<T, LEAKY_RELU, 0, 0>, activate_rows<T, LEAKY_RELU, 0, 1>},
         {activate_rows<T, LEAKY_RELU, 1, 0>, activate_rows<T, LEAKY_RELU, 1, 1>}},
    };
    static constexpr Body BACKWARD[4][2] = {
        {activation_backward_rows<T, NONE, 0>, activation_backward_rows<T, NONE, 1>},
        {activation_backward_rows<T, RELU, 0>, activation_backward_rows<T, RELU, 0>},
        {activation_backward_rows<T, ELU, 0>, activation_backward_rows<T, ELU, 1>},
        {activation_backward_rows<T, LEAKY_RELU, 0>, activation_backward_rows<T, LEAKY_RELU, 1>},
    };
    const bool bias = then.bias, drop = then.drop.rows;
    if (then.plus.data) {
        add_rows(x, then.plus, out, first, last);
        x = read_only(out);
    }
    if (then.output.data) return BACKWARD[then.kind][drop](then, x, out, first, last);
    if (then.plus.data && !bias && then.kind == NONE && !drop) return;
    FORWARD[then.kind][bias][drop](then, x, out, first, last);
}

template <class T>
void apply(Epilogue<T> then, Rows<const T> x, Rows<T> out, int threads) {
    for_ranges(x.rows, x.width, threads, [=](Size first, Size last) {
        apply_to_rows(then, x, out, first, last);
    });
}

template <class T>
void take_rows(Rows<const T> x, const Size* rows, Rows<T> out, Size column_stride, int threads) {
    constexpr Size LINE = 64, LINES = 64;  // of x, on their way between a prefetch and its use
    const Size bytes = out.width * (Size)sizeof(T);
    const Size lines = bytes / LINE + 1;
    const Size ahead = lines < LINES ? LINES / lines : 1;
    const Size ends = (lines < LINES ? lines : LINES) * LINE;
    for_ranges(out.rows, out.width, threads, [=](Size first, Size last) {
        for (Size i = first; i < last; ++i) {
            if (i + ahead < out.rows) {
                const char* coming = (const char*)(x.data + rows[i + ahead] * x.stride);
                for (Size byte = 0; byte < ends; byte += LINE) __builtin_prefetch(coming + byte);
            }
            const T* from = x.data + rows[i] * x.stride;
            T* to = out.data + i * out.stride;
            if (column_stride == 1) {
                __builtin_memcpy(to, from, (std::size_t)out.width * sizeof(T));
            } else {
                for (Size j = 0; j < out.width; ++j) to[j * column_stride] = from[j];
            }
        }
    });
}

template <class T>
T dot(const T* x, const T* y, Size n) {
    T sum = 0;
#pragma omp simd reduction(+ : sum)
    for (Size j = 0; j < n; ++j) sum += x[j] * y[j];
    return sum;
}

// In float64, four rows at a time: a sum in memory can be added to once in several cycles only.
template <class T>
void add_rows_to(double* sums, Rows<const T> x, Size first, Size last) {
    Size row = first;
    for (; row + 4 <= last; row += 4) {
        const T *a = x.data + row * x.stride, *b = a + x.stride, *c = b + x.stride;
        const T* d = c + x.stride;
#pragma omp simd
        for (Size j = 0; j < x.width; ++j)
            sums[j] += ((double)a[j] + (double)b[j]) + ((double)c[j] + (double)d[j]);
    }
    for (; row < last; ++row) {
        const T* from = x.data + row * x.stride;
#pragma omp simd
        for (Size j = 0; j < x.width; ++j) sums[j] += from[j];
    }
}

// Groups of rows in their order: the same bits for every number of threads.
template <class T>
[[gnu::noinline]] void add_groups(const double* partial, Size groups, Size width, T* out) {
    for (Size j = 0; j < width; ++j) {
        double sum = 0;
        for (Size group = 0; group < groups; ++group) sum += partial[group * width + j];
        out[j] = (T)sum;
    }
}

// Columns pass by a few at a time, so the sums need no memory.
template <class T>
void column_sum(Rows<const T> x, T* out, int threads) {
    constexpr Size STRIP = 64;
    for (Size start = 0; start < x.width; start += STRIP) {
        const Size width = x.width - start < STRIP ? x.width - start : STRIP;
        const Rows<const T> strip = {x.data + start, x.rows, width, x.stride};
        double partial[GROUPS * STRIP] = {};
        const Size groups = pieces_of(x.rows * width, GROUPS);
        for_pieces(groups, threads, [&](Size group) {
            alignas(64) double mine[STRIP] = {};  // a vector of sums is in one line of a cache
            add_rows_to(mine, strip, x.rows * group / groups, x.rows * (group + 1) / groups);
            for (Size j = 0; j < width; ++j) partial[group * width + j] = mine[j];
        });
        add_groups(partial, groups, width, out + start);
    }
}

// A moving average in float64, rounded once: in float32, a factor such as 0.999 is so far from it
// that what it adds up to, 1 / (1 - 0.999), is wrong in the fifth digit.
template <class T>
void sgd(T* param, const T* grad, T* velocity, Size n, T lr, double mu, int threads) {
    for_ranges(n, 1, threads, [=](Size first, Size last) {
        if (velocity == nullptr) {
#pragma omp simd
            for (Size i = first; i < last; ++i) param[i] -= lr * grad[i];
        } else {
#pragma omp simd
            for (Size i = first; i < last; ++i) {
                velocity[i] = (T)(mu * (double)velocity[i] + (double)grad[i]);
                param[i] -= lr * velocity[i];
            }
        }
    });
}

inline float square_root(float x) { return __builtin_sqrtf(x); }
inline double square_root(double x) { return __builtin_sqrt(x); }

template <class T>
void adam(T* param, const T* grad, T* first, T* second, Size n, AdamStep step, int threads) {
    const T size = (T)(step.size * step.root), eps = (T)(step.eps * step.root);
    for_ranges(n, 1, threads, [=](Size begin, Size end) {
#pragma omp simd
        for (Size i = begin; i < end; ++i) {
            const double g = grad[i];
            first[i] = (T)(step.beta1 * (double)first[i] + step.rest1 * g);
            second[i] = (T)(step.beta2 * (double)second[i] + step.rest2 * g * g);
            param[i] -= size * first[i] / (square_root(second[i]) + eps);
        }
    });
}

}  // namespace gcnmpi::TARGET
