// What an epoch does beside the products, each in one pass over memory. Loops are written for the
// compiler's vectoriser; in place is fine, as an entry depends on no other.
#pragma once

#include "exponential.hpp"
#include "parallel.hpp"

namespace gcnmpi::TARGET {

// The hash of hash_block in gcnmpi/core/rng.py, to the bit.
template <class T>
inline bool keeps(const Dropout<T>& drop, std::uint32_t low, std::uint32_t high, Size j) {
    std::uint32_t h = low ^ drop.columns[j];
    h = (h ^ (h >> 16)) * drop.mix1 + high;
    h = (h ^ (h >> 15)) * drop.mix2;
    return (h ^ (h >> 16)) >= drop.limit;
}

template <class T>
void drop_rows(Rows<const T> x, Dropout<T> drop, Rows<T> out, Size first, Size last) {
    for (Size row = first; row < last; ++row) {
        const T* from = x.data + row * x.stride;
        T* to = out.data + row * out.stride;
        const std::uint32_t low = (std::uint32_t)drop.rows[row];
        const std::uint32_t high = (std::uint32_t)(drop.rows[row] >> 32);
#pragma omp simd
        for (Size j = 0; j < x.width; ++j)
            to[j] = keeps(drop, low, high, j) ? from[j] * drop.scale : T(0);
    }
}

template <class T, bool BIAS, Kind KIND>
void activate_rows(
    Rows<const T> x, const T* bias, T slope, Rows<T> out, Size first, Size last
) {
    for (Size row = first; row < last; ++row) {
        const T* from = x.data + row * x.stride;
        T* to = out.data + row * out.stride;
#pragma omp simd
        for (Size j = 0; j < x.width; ++j) {
            T value = from[j];
            if constexpr (BIAS) value += bias[j];
            if constexpr (KIND == RELU) value = value < 0 ? T(0) : value;  // NaN stays
            if constexpr (KIND == LEAKY_RELU) value = value > 0 ? value : slope * value;
            to[j] = value;
        }
    }
}

// By vectors, as the exponential is.
template <class T, bool BIAS>
void elu_rows(Rows<const T> x, const T* bias, T, Rows<T> out, Size first, Size last) {
    for (Size row = first; row < last; ++row) {
        const T* from = x.data + row * x.stride;
        T* to = out.data + row * out.stride;
        over_vectors<T>(x.width, [=](Size j, auto lanes) GCNMPI_INLINE {
            Vec<T> value = lanes.load(from + j);
            if constexpr (BIAS) value += lanes.load(bias + j);
            lanes.store(to + j, elu_of(value));
        });
    }
}

// Given by value: behind a reference, `scale` might be one of the numbers that are written.
template <class T>
void relu_backward_rows(
    Rows<const T> x, Rows<const T> output, T scale, Rows<T> out, Size first, Size last
) {
    for (Size row = first; row < last; ++row) {
        const T* from = x.data + row * x.stride;
        const T* o = output.data + row * output.stride;
        T* to = out.data + row * out.stride;
#pragma omp simd
        for (Size j = 0; j < x.width; ++j) to[j] = o[j] > 0 ? from[j] * scale : T(0);
    }
}

// Before dropout, the output is that of the activation, times 1 / (1 - p).
template <class T, Kind KIND>
void activation_backward_rows(
    Rows<const T> x, Rows<const T> output, T scale, T slope, Rows<T> out, Size first, Size last
) {
    const T less = T(1) / scale;
    for (Size row = first; row < last; ++row) {
        const T* from = x.data + row * x.stride;
        const T* o = output.data + row * output.stride;
        T* to = out.data + row * out.stride;
#pragma omp simd
        for (Size j = 0; j < x.width; ++j) {
            T value = from[j] * scale;
            if constexpr (KIND == ELU) value *= o[j] > 0 ? T(1) : o[j] * less + 1;
            if constexpr (KIND == LEAKY_RELU) value *= o[j] > 0 ? T(1) : slope;
            to[j] = value;
        }
    }
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

template <class T>
void back_to_rows(const Epilogue<T>& then, Rows<const T> x, Rows<T> out, Size first, Size last) {
    using Body = void (*)(Rows<const T>, Rows<const T>, T, T, Rows<T>, Size, Size);
    static constexpr Body BODIES[] = {
        activation_backward_rows<T, NONE>, nullptr, activation_backward_rows<T, ELU>,
        activation_backward_rows<T, LEAKY_RELU>,
    };
    if (then.kind == RELU) return relu_backward_rows(x, then.output, then.scale, out, first, last);
    BODIES[then.kind](x, then.output, then.scale, then.slope, out, first, last);
    if (!then.drop.rows) return;
    Dropout<T> drop = then.drop;
    drop.scale = 1;
    drop_rows(read_only(out), drop, out, first, last);
}

// Rows first .. last, while a product has them in the cache.
template <class T>
void apply_to_rows(const Epilogue<T>& then, Rows<const T> x, Rows<T> out, Size first, Size last) {
    using Body = void (*)(Rows<const T>, const T*, T, Rows<T>, Size, Size);
    static constexpr Body BODIES[4][2] = {
        {activate_rows<T, 0, NONE>, activate_rows<T, 1, NONE>},
        {activate_rows<T, 0, RELU>, activate_rows<T, 1, RELU>},
        {elu_rows<T, 0>, elu_rows<T, 1>},
        {activate_rows<T, 0, LEAKY_RELU>, activate_rows<T, 1, LEAKY_RELU>},
    };
    if (then.plus.data) {
        add_rows(x, then.plus, out, first, last);
        x = read_only(out);
    }
    if (then.output.data) return back_to_rows(then, x, out, first, last);
    if (then.bias || then.kind != NONE || !(then.plus.data || then.drop.rows)) {
        BODIES[then.kind][then.bias != nullptr](x, then.bias, then.slope, out, first, last);
        x = read_only(out);
    }
    if (then.drop.rows) drop_rows(x, then.drop, out, first, last);
}

template <class T>
void apply(Epilogue<T> then, Rows<const T> x, Rows<T> out, int threads) {
    for_ranges(x.rows, x.width, threads, [&](Size first, Size last) {
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
    for_ranges(out.rows, out.width, threads, [&](Size first, Size last) {
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
            double mine[STRIP] = {};
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
