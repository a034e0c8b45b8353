// Products of rows of several kinds, each with the weight of its kind. Rows are read where they
// are, those of a kind together, so that its weight stays in the cache.
#pragma once

#include "parallel.hpp"
#include "simd.hpp"

namespace gcnmpi::TARGET {

inline constexpr int ABREAST = 8;  // rows that share what is loaded of a weight

// to[r] = from[r]·w for so many rows, with w (inner, width).
template <class T, int ROWS>
void multiply_rows(
    const T* const* from, T* const* to, const T* w, Size stride, Size inner, Size width
) {
    over_vectors<T>(width, [=](Size j, auto lanes) GCNMPI_INLINE {
        Vec<T> sums[ROWS] = {};
        for (Size i = 0; i < inner; ++i) {
            const Vec<T> v = lanes.load(w + i * stride + j);
#pragma GCC unroll 8
            for (int r = 0; r < ROWS; ++r) sums[r] += from[r][i] * v;
        }
#pragma GCC unroll 8
        for (int r = 0; r < ROWS; ++r) lanes.store(to[r] + j, sums[r]);
    });
}

template <class T>
void multiply_kinds(
    Kinds kinds, Rows<const T> x, Rows<const T> w, Size blocks, Rows<T> out, int threads
) {
    const Size inner = x.width / blocks, width = out.width / blocks;
    for_ranges(kinds.starts[kinds.count], inner * width / 16 + 1, threads, [&](Size at, Size last) {
        Size kind = 0;
        while (at < last) {
            while (kinds.starts[kind + 1] <= at) ++kind;
            const Size stop = kinds.starts[kind + 1] < last ? kinds.starts[kind + 1] : last;
            while (at < stop) {
                const Size count = stop - at < ABREAST ? 1 : ABREAST;
                for (Size b = 0; b < blocks; ++b) {
                    const T* weight = w.data + (kind * x.width + b * inner) * w.stride;
                    const T* from[ABREAST];
                    T* to[ABREAST];
                    for (Size r = 0; r < count; ++r) {
                        const Size row = kinds.order[at + r];
                        from[r] = x.data + row * x.stride + b * inner;
                        to[r] = out.data + row * out.stride + b * width;
                    }
                    const auto run =
                        count == 1 ? multiply_rows<T, 1> : multiply_rows<T, ABREAST>;
                    run(from, to, weight, w.stride, inner, width);
                }
                at += count;
            }
        }
    });
}

// w[i] = Σ x[r][i]·grad[r] for so many i from `first` on, over the rows of a kind.
template <class T, int COLUMNS>
void sum_products(
    const Size* order, Size rows, const T* x, Size x_stride, const T* grad, Size grad_stride, T* w,
    Size stride, Size width
) {
    over_vectors<T>(width, [=](Size j, auto lanes) GCNMPI_INLINE {
        Vec<T> sums[COLUMNS] = {};
        for (Size r = 0; r < rows; ++r) {
            const T* from = x + order[r] * x_stride;
            const Vec<T> v = lanes.load(grad + order[r] * grad_stride + j);
#pragma GCC unroll 8
            for (int i = 0; i < COLUMNS; ++i) sums[i] += from[i] * v;
        }
#pragma GCC unroll 8
        for (int i = 0; i < COLUMNS; ++i) lanes.store(w + i * stride + j, sums[i]);
    });
}

// Each thread has some rows of the weights, of which it adds up all: bits do not depend on threads.
template <class T>
void kinds_gradient(
    Kinds kinds, Rows<const T> x, Rows<const T> grad, Size blocks, Rows<T> w, int threads
) {
    const Size inner = x.width / blocks, width = grad.width / blocks;
    const Size tiles = (inner + ABREAST - 1) / ABREAST * blocks, all = kinds.count * tiles;
    const Size work = kinds.starts[kinds.count] * grad.width / (all + 1) + 1;
    for_ranges(all, work, threads, [&](Size at, Size last) {
        for (; at < last; ++at) {
            const Size kind = at / tiles, tile = at % tiles, b = tile % blocks;
            const Size begin = kinds.starts[kind], rows = kinds.starts[kind + 1] - begin;
            const Size first = tile / blocks * ABREAST;
            const T* back = grad.data + b * width;
            const auto sum = [&](auto run, Size i) GCNMPI_INLINE {
                const Size column = b * inner + i;
                T* to = w.data + (kind * x.width + column) * w.stride;
                run(kinds.order + begin, rows, x.data + column, x.stride, back, grad.stride, to,
                    w.stride, width);
            };
            if (first + ABREAST <= inner) {
                sum(sum_products<T, ABREAST>, first);
            } else {
                for (Size i = first; i < inner; ++i) sum(sum_products<T, 1>, i);
            }
        }
    });
}

}  // namespace gcnmpi::TARGET
