// Norms over the columns of a row and over the rows of a column, and scores of vertices. Sums over
// rows are made in float64, in groups of rows: the same bits for every number of threads.
#pragma once

#include "dense.hpp"

namespace gcnmpi::TARGET {

struct Pair {  // of sums
    double first, second;
};

// first[j] and second[j] = sums over all rows of what body(row, column to start from) adds.
// Columns pass by a few at a time, and so do rows: a sum in memory can be added to once in several
// cycles only.
template <class Out, class Body>
void pairs_of_sums(Size rows, Size width, Out* first, Out* second, int threads, Body body) {
    constexpr Size STRIP = 64;
    for (Size start = 0; start < width; start += STRIP) {
        const Size columns = width - start < STRIP ? width - start : STRIP;
        double partial[2][GROUPS * STRIP] = {};
        const Size groups = pieces_of(rows * columns, GROUPS);
        for_pieces(groups, threads, [=, &partial](Size group) {
            double mine[2][STRIP] = {};
            const auto add = [&](auto... of_row) GCNMPI_INLINE {
                for (Size j = 0; j < columns; ++j) {
                    Pair sums = {mine[0][j], mine[1][j]};
                    ((sums = of_row(sums, j)), ...);
                    mine[0][j] = sums.first;
                    mine[1][j] = sums.second;
                }
            };
            const Size last = rows * (group + 1) / groups;
            Size row = rows * group / groups;
            for (; row + 4 <= last; row += 4)
                add(body(row, start), body(row + 1, start), body(row + 2, start),
                    body(row + 3, start));
            for (; row < last; ++row) add(body(row, start));
            for (int which = 0; which < 2; ++which)
                for (Size j = 0; j < columns; ++j)
                    partial[which][group * columns + j] = mine[which][j];
        });
        add_groups(partial[0], groups, columns, first + start);
        add_groups(partial[1], groups, columns, second + start);
    }
}

// Sum of x or, if `square`, of (x - mean)²; mean may be null.
template <class T>
void row_sums(Rows<const T> x, const T* mean, bool square, T* out, int threads) {
    for_ranges(x.rows, x.width, threads, [=](Size first, Size last) {
        for (Size row = first; row < last; ++row) {
            const T *from = x.data + row * x.stride, centre = mean ? mean[row] : T(0);
            T sum = 0;
            if (square) {
#pragma omp simd reduction(+ : sum)
                for (Size j = 0; j < x.width; ++j) sum += (from[j] - centre) * (from[j] - centre);
            } else {
#pragma omp simd reduction(+ : sum)
                for (Size j = 0; j < x.width; ++j) sum += from[j];
            }
            out[row] = sum;
        }
    });
}

template <class T>
inline void normalise_row(
    const T* x, T mean, T rstd, const T* weight, const T* bias, T* out, Size width
) {
    if (weight && bias) {
#pragma omp simd
        for (Size j = 0; j < width; ++j) out[j] = (x[j] - mean) * rstd * weight[j] + bias[j];
        return;
    }
#pragma omp simd
    for (Size j = 0; j < width; ++j) out[j] = (x[j] - mean) * rstd;
    if (weight)
        for (Size j = 0; j < width; ++j) out[j] *= weight[j];
    if (bias)
        for (Size j = 0; j < width; ++j) out[j] += bias[j];
}

template <class T>
void normalise_rows(
    Rows<const T> x, const T* mean, const T* rstd, const T* weight, const T* bias, Rows<T> out,
    int threads
) {
    for_ranges(x.rows, x.width, threads, [=](Size first, Size last) {
        for (Size row = first; row < last; ++row)
            normalise_row(
                x.data + row * x.stride, mean ? mean[row] : T(0), rstd[row], weight, bias,
                out.data + row * out.stride, x.width
            );
    });
}

// Sums of g·w and g·w·x̂.
template <class T>
struct RowSums {
    T plain, along;
};

template <class T>
inline RowSums<T> sums_of_row(
    const T* x, T mean, T rstd, const T* weight, const T* grad, Size width
) {
    T plain = 0, along = 0;
    if (weight) {
#pragma omp simd reduction(+ : plain, along)
        for (Size j = 0; j < width; ++j) {
            const T g = grad[j] * weight[j];
            plain += g;
            along += g * (x[j] - mean);
        }
    } else {
#pragma omp simd reduction(+ : plain, along)
        for (Size j = 0; j < width; ++j) {
            plain += grad[j];
            along += grad[j] * (x[j] - mean);
        }
    }
    return {plain, along * rstd};
}

template <class T>
inline void normalise_row_backward(
    const T* x, T mean, T rstd, const T* weight, const T* grad, RowSums<T> less, T* out, Size width
) {
    const T along = less.along * rstd;
    if (weight) {
#pragma omp simd
        for (Size j = 0; j < width; ++j)
            out[j] = rstd * (grad[j] * weight[j] - less.plain - (x[j] - mean) * along);
    } else {
#pragma omp simd
        for (Size j = 0; j < width; ++j)
            out[j] = rstd * (grad[j] - less.plain - (x[j] - mean) * along);
    }
}

// out (rows, 2).
template <class T>
void normalise_rows_sums(
    Rows<const T> x, const T* mean, const T* rstd, const T* weight, Rows<const T> grad, T* out,
    int threads
) {
    for_ranges(x.rows, x.width, threads, [=](Size first, Size last) {
        for (Size row = first; row < last; ++row) {
            const RowSums<T> sums = sums_of_row(
                x.data + row * x.stride, mean ? mean[row] : T(0), rstd[row], weight,
                grad.data + row * grad.stride, x.width
            );
            out[2 * row] = sums.plain;
            out[2 * row + 1] = sums.along;
        }
    });
}

template <class T>
void normalise_rows_backward(
    Rows<const T> x, const T* mean, const T* rstd, const T* weight, Rows<const T> grad,
    const T* centre, const T* along, Rows<T> out, int threads
) {
    for_ranges(x.rows, x.width, threads, [=](Size first, Size last) {
        for (Size row = first; row < last; ++row)
            normalise_row_backward(
                x.data + row * x.stride, mean ? mean[row] : T(0), rstd[row], weight,
                grad.data + row * grad.stride, RowSums<T>{centre ? centre[row] : T(0), along[row]},
                out.data + row * out.stride, x.width
            );
    });
}

template <class T>
void normalised_column_sums(
    Rows<const T> x, const T* mean, const T* rstd, Rows<const T> grad, T* dweight, T* dbias,
    int threads
) {
    pairs_of_sums(
        x.rows, x.width, dweight, dbias, threads,
        [=](Size row, Size start) {
            const T *from = x.data + row * x.stride + start;
            const T *g = grad.data + row * grad.stride + start;
            const T centre = mean ? mean[row] : T(0), factor = rstd[row];
            return [=](Pair sums, Size j) GCNMPI_INLINE {
                sums.first += (double)(g[j] * ((from[j] - centre) * factor));
                sums.second += (double)g[j];
                return sums;
            };
        }
    );
}

template <class T>
void layer_norm(
    Rows<const T> x, const T* weight, const T* bias, T eps, Rows<T> out, T* mean, T* rstd,
    int threads
) {
    const T width = x.width ? (T)x.width : T(1);
    for_ranges(x.rows, x.width, threads, [=](Size first, Size last) {
        for (Size row = first; row < last; ++row) {
            const T* from = x.data + row * x.stride;
            T sum = 0, squares = 0;
#pragma omp simd reduction(+ : sum)
            for (Size j = 0; j < x.width; ++j) sum += from[j];
            const T centre = sum / width;
#pragma omp simd reduction(+ : squares)
            for (Size j = 0; j < x.width; ++j)
                squares += (from[j] - centre) * (from[j] - centre);
            mean[row] = centre;
            rstd[row] = 1 / square_root(squares / width + eps);
            T* to = out.data + row * out.stride;
            normalise_row(from, centre, rstd[row], weight, bias, to, x.width);
        }
    });
}

// One pass: the sums for weight and bias take a row before it is overwritten, as out may be where x
// or grad is; `partial` has room for 2 × GROUPS × width.
template <class T>
void layer_norm_backward(
    Rows<const T> x, const T* mean, const T* rstd, const T* weight, Rows<const T> grad, Rows<T> out,
    T* dweight, T* dbias, double* partial, int threads
) {
    const Size columns = x.width, groups = pieces_of(x.rows * columns, GROUPS);
    const T width = columns ? (T)columns : T(1);
    for_pieces(groups, threads, [=](Size group) {
        double *along = partial + group * columns, *plain = along + groups * columns;
        for (Size j = 0; j < columns; ++j) along[j] = plain[j] = 0;
        for (Size row = x.rows * group / groups; row < x.rows * (group + 1) / groups; ++row) {
            const T *from = x.data + row * x.stride, *g = grad.data + row * grad.stride;
            const T centre = mean[row], factor = rstd[row];
#pragma omp simd
            for (Size j = 0; j < columns; ++j) {
                along[j] += (double)(g[j] * ((from[j] - centre) * factor));
                plain[j] += (double)g[j];
            }
            RowSums<T> sums = sums_of_row(from, centre, factor, weight, g, columns);
            sums = {sums.plain / width, sums.along / width};
            T* to = out.data + row * out.stride;
            normalise_row_backward(from, centre, factor, weight, g, sums, to, columns);
        }
    });
    add_groups(partial, groups, columns, dweight);
    add_groups(partial + groups * columns, groups, columns, dbias);
}

template <class T>
void column_moments(Rows<const T> x, const double* pivot, double* out, int threads) {
    pairs_of_sums(
        x.rows, x.width, out, out + x.width, threads,
        [=](Size row, Size start) {
            const T* from = x.data + row * x.stride + start;
            return [=](Pair sums, Size j) GCNMPI_INLINE {
                const double apart = (double)from[j] - pivot[start + j];
                sums.first += apart;
                sums.second += apart * apart;
                return sums;
            };
        }
    );
}

template <class T>
void column_grad_sums(
    Rows<const T> x, const T* mean, const T* rstd, Rows<const T> grad, double* out, int threads
) {
    pairs_of_sums(
        x.rows, x.width, out, out + x.width, threads,
        [=](Size row, Size start) {
            const T* from = x.data + row * x.stride + start;
            const T* g = grad.data + row * grad.stride + start;
            return [=](Pair sums, Size j) GCNMPI_INLINE {
                sums.first += (double)g[j];
                sums.second += (double)(g[j] * ((from[j] - mean[start + j]) * rstd[start + j]));
                return sums;
            };
        }
    );
}

// out = a·x + b·y + c by columns; without y, a·x + c.
template <class T>
void scale_columns(
    Rows<const T> x, const T* a, Rows<const T> y, const T* b, const T* c, Rows<T> out, int threads
) {
    for_ranges(x.rows, x.width, threads, [=](Size first, Size last) {
        for (Size row = first; row < last; ++row) {
            const T* from = x.data + row * x.stride;
            T* to = out.data + row * out.stride;
            if (y.data) {
                const T* other = y.data + row * y.stride;
#pragma omp simd
                for (Size j = 0; j < x.width; ++j) to[j] = a[j] * from[j] + b[j] * other[j] + c[j];
            } else {
#pragma omp simd
                for (Size j = 0; j < x.width; ++j) to[j] = a[j] * from[j] + c[j];
            }
        }
    });
}

// Scores of vertices: out[j, h] = x[j]ʰ·vector[h].
template <class T>
void head_dots(Rows<const T> x, const T* vector, Rows<T> out, int threads) {
    const Size heads = out.width, c = heads ? x.width / heads : 0;
    for_ranges(x.rows, x.width, threads, [=](Size first, Size last) {
        for (Size row = first; row < last; ++row) {
            const T* from = x.data + row * x.stride;
            T* to = out.data + row * out.stride;
            for (Size h = 0; h < heads; ++h) to[h] = dot(from + h * c, vector + h * c, c);
        }
    });
}

// dx = dout·vector or dx += that; dvector += the sums of dout·x, of which `partial` has room for
// GROUPS × width.
template <class T>
void head_dots_backward(
    Rows<const T> x, const T* vector, Rows<const T> dout, Rows<T> dx, T* dvector, bool add,
    double* partial, int threads
) {
    const Size heads = dout.width, width = x.width, c = heads ? width / heads : 0;
    const Size groups = pieces_of(x.rows * width, GROUPS);
    for_pieces(groups, threads, [=](Size group) {
        double* sums = partial + group * width;
        for (Size j = 0; j < width; ++j) sums[j] = 0;
        for (Size row = x.rows * group / groups; row < x.rows * (group + 1) / groups; ++row) {
            const T *from = x.data + row * x.stride, *d = dout.data + row * dout.stride;
            T* to = dx.data + row * dx.stride;
            for (Size h = 0; h < heads; ++h) {
                const T factor = d[h];
#pragma omp simd
                for (Size j = h * c; j < (h + 1) * c; ++j) {
                    sums[j] += (double)(factor * from[j]);
                    to[j] = (add ? to[j] : T(0)) + factor * vector[j];
                }
            }
        }
    });
    for (Size j = 0; j < width; ++j) {
        double sum = 0;
        for (Size group = 0; group < groups; ++group) sum += partial[group * width + j];
        dvector[j] += (T)sum;
    }
}

}  // namespace gcnmpi::TARGET
