// Products of rows of several kinds, each with the weight of its kind. Rows are read where they
// are, those of a kind together, so that its weight stays in the cache.
#pragma once

#include "parallel.hpp"
#include "simd.hpp"
#include "spmm.hpp"

namespace gcnmpi::TARGET {

inline constexpr int ABREAST = 8;     // rows that share what is loaded of a weight
inline constexpr Size NEAR_ROWS = 64; // rows that all tiles of a gradient take from the cache

// Rows that lie anywhere are asked for before they are read.
template <class T>
inline void ask_for(const T* row, Size width) {
    for (Size byte = 0; byte < width * (Size)sizeof(T); byte += LINE)
        __builtin_prefetch((const char*)row + byte, 0, 2);
}

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
                        if (at + r + ABREAST < stop) {
                            const Size next = kinds.order[at + r + ABREAST];
                            ask_for(x.data + next * x.stride + b * inner, inner);
                            __builtin_prefetch(out.data + next * out.stride + b * width, 1, 2);
                        }
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

// w[i] = Σ x[r][i]·grad[r] for so many i, over some rows of a kind; or w[i] += that.
template <class T, int COLUMNS>
void sum_products(
    const Size* order, Size rows, const T* x, Size x_stride, const T* grad, Size grad_stride, T* w,
    Size stride, Size width, bool add
) {
    over_vectors<T>(width, [=](Size j, auto lanes) GCNMPI_INLINE {
        Vec<T> sums[COLUMNS] = {};
        if (add) {
#pragma GCC unroll 8
            for (int i = 0; i < COLUMNS; ++i) sums[i] = lanes.load(w + i * stride + j);
        }
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

// Each thread has some rows of the weights, of which it adds up all, row after row: bits depend
// neither on threads nor on how many rows are near.
template <class T>
void kinds_gradient(
    Kinds kinds, Rows<const T> x, Rows<const T> grad, Size blocks, Rows<T> w, int threads
) {
    const Size inner = x.width / blocks, width = grad.width / blocks;
    const Size tiles = (inner + ABREAST - 1) / ABREAST * blocks, all = kinds.count * tiles;
    const Size most = threads == 1 ? 1 : 4 * (Size)threads, pieces = most < all ? most : all;
    // A tile: so many rows of the weight of a kind, from those of x and grad that are near.
    const auto add_tile = [&](Size kind, Size tile, const Size* order, Size rows, bool add) {
        const Size b = tile % blocks, first = tile / blocks * ABREAST;
        const auto sum = [&](auto run, Size i) GCNMPI_INLINE {
            const Size column = b * inner + i;
            T* to = w.data + (kind * x.width + column) * w.stride;
            run(order, rows, x.data + column, x.stride, grad.data + b * width, grad.stride, to,
                w.stride, width, add);
        };
        if (first + ABREAST <= inner) {
            sum(sum_products<T, ABREAST>, first);
        } else {
            for (Size i = first; i < inner; ++i) sum(sum_products<T, 1>, i);
        }
    };
    for_pieces(pieces, threads, [&](Size piece) {
        const Size last = all * (piece + 1) / pieces;
        for (Size at = all * piece / pieces; at < last;) {
            const Size kind = at / tiles, begin = kinds.starts[kind], end = kinds.starts[kind + 1];
            const Size stop = (kind + 1) * tiles < last ? (kind + 1) * tiles : last;
            Size row = begin;
            do {  // once without rows, which gives zeros
                const Size rows = end - row < NEAR_ROWS ? end - row : NEAR_ROWS;
                Size asked = row + NEAR_ROWS;  // the next ones, some with each tile
                const Size next = asked + NEAR_ROWS < end ? asked + NEAR_ROWS : end;
                for (Size tile = at; tile < stop; ++tile) {
                    for (Size i = 0; i <= NEAR_ROWS / (stop - at) && asked < next; ++i, ++asked) {
                        ask_for(x.data + kinds.order[asked] * x.stride, x.width);
                        ask_for(grad.data + kinds.order[asked] * grad.stride, grad.width);
                    }
                    add_tile(kind, tile % tiles, kinds.order + row, rows, row > begin);
                }
                row += NEAR_ROWS;
            } while (row < end);
            at = stop;
        }
    });
}

}  // namespace gcnmpi::TARGET
