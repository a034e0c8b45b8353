// Dense products of which one side is narrow, as in X·W, X·Wᵀ and Xᵀ·G: X and G have many rows, W
// is small. A tile of the result stays in registers while the common dimension passes by; W is
// packed in panels of its columns first, X and G are read where they are. A tile reads too many
// rows at a time for the hardware to foresee the next ones, and all of them at once would fill the
// queue of misses: so every step asks for a few bytes of what comes after this block of rows.
#pragma once

#include "dense.hpp"
#include "simd.hpp"

namespace gcnmpi::TARGET {

// Rows of a tile of several vectors and of one: more would need more addresses than registers.
inline constexpr int TALL = 4, TALLER = 6;
inline constexpr int ACROSS = BYTES == 64 ? 4 : 2;  // vectors of a tile: AVX-512 has 32 registers
template <class T>
inline constexpr Size WIDE = ACROSS * LANES<T>;  // columns of a panel, at most
inline constexpr Size DEEP = 64;          // rows that are summed in registers, at most
inline constexpr Size CACHED = 32 << 10;  // bytes of rows that are to stay in the L1 cache

// Where the next block of rows is, and how many bytes of it to ask for at every step.
struct Coming {
    const char* at;
    Size pace;
};

// A factor as a tile reads it: entry (r, k) is data[r·row + k·step], k < depth; and what comes.
template <class T>
struct Factor {
    const T* data;
    Size row, step, depth;
    Coming* coming;
};

// sums[r][v] += Σ_k left(first + r, k) · right[k·right_step + v·LANES + lane]
template <class T, int R, int V>
[[gnu::always_inline]] inline void multiply(
    const Factor<T>& factor, Size first, const T* right, Size right_step, Vec<T> (&sums)[R][V]
) {
    const T* left = factor.data + first * factor.row;
    const Size row = factor.row, step = factor.step, depth = factor.depth;
    const char* at = factor.coming->at;
    const Size pace = factor.coming->pace;
    factor.coming->at += pace * depth;
#pragma GCC unroll 2
    for (Size k = 0; k < depth; ++k, left += step, right += right_step, at += pace) {
        __builtin_prefetch(at, 0, 2);
        Vec<T> across[V];
#pragma GCC unroll 4
        for (int v = 0; v < V; ++v) across[v] = load(right + v * LANES<T>);
#pragma GCC unroll 6
        for (int r = 0; r < R; ++r) {
            const T down = left[r * row];
#pragma GCC unroll 4
            for (int v = 0; v < V; ++v) sums[r][v] += down * across[v];
        }
    }
}

// R rows of the result from the first on, `width` columns of which fill V vectors. The rows of
// `right` are those that belong to `left` and then those that belong to `more`, if not null.
template <class T, int R, int V>
[[gnu::always_inline]] inline void tile(
    const Factor<T>& left, const Factor<T>* more, Size first, const T* right, Size right_step,
    T* out, Size stride, Size width, bool add
) {
    const Tail<T> tail = {(int)(width - (V - 1) * LANES<T>)};
    Vec<T> sums[R][V] = {};
    multiply<T, R, V>(left, first, right, right_step, sums);
    if (more) multiply<T, R, V>(*more, first, right + left.depth * right_step, right_step, sums);
#pragma GCC unroll 6
    for (int r = 0; r < R; ++r) {
        T* to = out + (first + r) * stride;
#pragma GCC unroll 4
        for (int v = 0; v < V - 1; ++v, to += LANES<T>) {
            if (add) sums[r][v] += load(to);
            store(to, sums[r][v]);
        }
        if (add) sums[r][V - 1] += tail.load(to);
        tail.store(to, sums[r][V - 1]);
    }
}

// As many rows as there are, in tiles of R or fewer rows.
template <class T, int R, int V>
[[gnu::noinline]] void tiles(
    const Factor<T>& left, const Factor<T>* more, const T* right, Size right_step, T* out,
    Size stride, Size width, bool add, Size rows, Size done = 0
) {
    const Factor<T> copy = left;  // what is stored cannot be in it
    for (; done + R <= rows; done += R)
        tile<T, R, V>(copy, more, done, right, right_step, out, stride, width, add);
    if constexpr (R > 1) {
        constexpr int FEWER = R > 4 ? 4 : R > 2 ? 2 : 1;
        if (done < rows)
            tiles<T, FEWER, V>(left, more, right, right_step, out, stride, width, add, rows, done);
    }
}

// A panel of at most V vectors of columns.
template <class T, int V = ACROSS>
void panel_of_columns(
    const Factor<T>& left, const Factor<T>* more, const T* right, Size right_step, T* out,
    Size stride, Size width, bool add, Size rows
) {
    if constexpr (V > 1)
        if (width <= (V - 1) * LANES<T>)
            return panel_of_columns<T, V - 1>(
                left, more, right, right_step, out, stride, width, add, rows
            );
    constexpr int R = V == 1 ? TALLER : TALL;
    tiles<T, R, V>(left, more, right, right_step, out, stride, width, add, rows);
}

// Bytes of x a step, in products with matrices of `width` columns: a step reads a number of each of
// a tile's rows, and each panel of columns reads them all.
template <class T>
Size pace_of(Rows<const T> x, Size width) {
    const Size panels = (width + WIDE<T> - 1) / WIDE<T>;
    const Size read = (width > LANES<T> ? TALL : TALLER) * (Size)sizeof(T);
    const Size steps = x.width * panels;
    return steps ? read * x.stride / steps + 1 : 0;
}

template <class T>
inline Coming rows_from(Rows<const T> x, Size first, Size pace) {
    return {(const char*)(x.data + (first < x.rows ? first : 0) * x.stride), pace};
}

// Columns of the panel that begins at `start`: whole vectors.
template <class T>
inline Size panel_width(Size columns, Size start) {
    const Size whole = (columns - start + LANES<T> - 1) / LANES<T> * LANES<T>;
    return whole < WIDE<T> ? whole : WIDE<T>;
}

// The rows of w in panels of columns, with zeros beyond the last column; a panel has `depth` rows,
// of which those of w begin at `first`.
template <class T>
void pack(Weights<T> w, Size columns, T* packed, Size depth, Size first) {
    for (Size start = 0; start < columns; start += WIDE<T>) {
        const Size width = panel_width<T>(columns, start);
        T* to = packed + start * depth + first * width;
        for (Size k = 0; k < w.rows; ++k, to += width)
            for (Size j = 0; j < width; ++j)
                to[j] = start + j < columns ? w.data[k * w.row + (start + j) * w.step] : T(0);
    }
}

// Pieces of rows, each times all panels of w; y·v, which is added in the registers, may be none.
template <class T>
void gemm(
    Rows<const T> x, Weights<T> w, Rows<const T> y, Weights<T> v, Rows<T> out, bool add,
    Epilogue<T> then, T* packed, int threads
) {
    const Size depth = x.width + y.width;
    const Size pace = pace_of(x, out.width), other_pace = pace_of(y, out.width);
    pack(w, out.width, packed, depth, 0);
    pack(v, out.width, packed, depth, x.width);
    for_ranges(x.rows, depth + out.width, threads, [&](Size first, Size last) {
        constexpr Size BLOCK = 96;  // rows that stay in the L2 cache: all panels pass over them
        for (Size row = first; row < last; row += BLOCK) {
            const Size rows = last - row < BLOCK ? last - row : BLOCK;
            Coming coming = rows_from(x, row + BLOCK, pace);
            Coming others = rows_from(y, row + BLOCK, other_pace);
            const Factor<T> left = {x.data + row * x.stride, x.stride, 1, x.width, &coming};
            const Factor<T> more = {y.data + row * y.stride, y.stride, 1, y.width, &others};
            for (Size start = 0; start < out.width; start += WIDE<T>) {
                const Size step = panel_width<T>(out.width, start);
                const Size width = out.width - start < step ? out.width - start : step;
                panel_of_columns<T>(
                    left, y.width ? &more : nullptr, packed + start * depth, step,
                    out.data + row * out.stride + start, out.stride, width, add, rows
                );
            }
            if (does_something(then)) apply_to_rows(then, read_only(out), out, row, row + rows);
        }
    });
}

// Rows are taken in groups that depend on the sizes only, each summed into its part of `partial`;
// the groups are added in their order. Sums of columns are taken in float64.
template <class T>
void gemm_over_rows(
    Rows<const T> x, Rows<const T> g, Rows<T> out, bool add, T* sums, T* partial,
    double* partial_sums, int threads
) {
    const Size row_bytes = (x.width + g.width + 1) * (Size)sizeof(T);
    const Size fitting = CACHED / row_bytes / 8 * 8;
    const Size block = fitting < 8 ? 8 : fitting > DEEP ? DEEP : fitting;
    const Size entries = x.width * g.width, pace = pace_of(x, g.width);
    const Size groups = pieces_of(x.rows * (x.width + g.width), GROUPS);
    for_pieces(groups, threads, [&](Size group) {
        alignas(64) T last_panel[DEEP * WIDE<T>];
        T* mine = partial + group * entries;
        double* my_sums = sums ? partial_sums + group * g.width : nullptr;
        const Size first = x.rows * group / groups, last = x.rows * (group + 1) / groups;
        for (Size i = 0; i < entries; ++i) mine[i] = T(0);
        for (Size j = 0; sums && j < g.width; ++j) my_sums[j] = 0;
        for (Size row = first; row < last; row += block) {
            const Size depth = last - row < block ? last - row : block;
            Coming coming = rows_from(x, row + block, pace);
            if (sums) add_rows_to(my_sums, g, row, row + depth);
            for (Size start = 0; start < g.width; start += WIDE<T>) {
                const T* right = g.data + row * g.stride + start;
                const Size whole = panel_width<T>(g.width, start);
                Size right_step = g.stride, width = whole;
                if (g.width - start < whole) {  // vectors would reach beyond the row
                    width = g.width - start;
                    for (Size k = 0; k < depth; ++k)
                        for (Size j = 0; j < whole; ++j)
                            last_panel[k * whole + j] = j < width ? right[k * g.stride + j] : T(0);
                    right = last_panel;
                    right_step = whole;
                }
                const Factor<T> left = {x.data + row * x.stride, 1, x.stride, depth, &coming};
                panel_of_columns<T>(
                    left, nullptr, right, right_step, mine + start, g.width, width, true, x.width
                );
            }
        }
    });
    if (sums) add_groups(partial_sums, groups, g.width, sums);
    for (Size i = 0; i < x.width; ++i) {
        T* to = out.data + i * out.stride;
        for (Size j = 0; j < g.width; ++j) {
            T sum = add ? to[j] : T(0);
            for (Size group = 0; group < groups; ++group)
                sum += partial[group * entries + i * g.width + j];
            to[j] = sum;
        }
    }
}

}  // namespace gcnmpi::TARGET
