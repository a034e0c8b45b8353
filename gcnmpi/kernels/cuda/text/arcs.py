"""CUDA source of operations between rows of vertices and rows of entries.

Conventions are those of ``kernels.cuda`` and ``text.neighbours``.
"""

from __future__ import annotations

from gcnmpi.kernels.cuda.text.pieces import written
from gcnmpi.kernels.cuda.text.products import EPILOGUE, PASSED

_SOURCE = r"""
// The rows of both ends of every entry, added; then what follows.
extern "C" __global__ void take_ends(
    const S32* __restrict__ targets, const S32* __restrict__ indices,
    I has_source, const T* __restrict__ source, I source_row, I source_column,
    I has_target, const T* __restrict__ target, I target_row, I target_column,
    T* out, I out_row, I out_column, @EPILOGUE@, I rows, I columns) {
  const I e = ROW, j = COLUMN;
  if (e >= rows || j >= columns) return;
  const T mine = has_target ? AT(target, (I)targets[e], j) : (T)0;
  const T value = has_source ? AT(source, (I)indices[e], j) + mine : mine;
  AT(out, e, j) = finished(value, e, j, @PASSED@);
}

// Functions of the entries of a row; the results of each begin in a column, or there are none (-1).
struct Reduced {
  enum { AT_ONCE = 1 };
  T count, sum, squares, high, low;  // squares of distances from the mean
  DEVICE void add(const Reduced& next) {
    const T apart = next.sum * count - sum * next.count;
    squares += next.squares + apart * apart / (count * next.count * (count + next.count));
    if (next.high > high || next.high != next.high) high = next.high;
    if (next.low < low || next.low != next.low) low = next.low;
    sum += next.sum;
    count += next.count;
  }
};

extern "C" GATHERS __global__ void reduce_rows(
    @PIECES@, const T* __restrict__ x, I x_row, I x_column, I sum_at, I mean_at, I max_at, I min_at,
    I std_at, T least_variance, T* out, I out_row, I out_column, I rows, I columns) {
  @MINE@
  fold<Reduced>(@GIVEN@, [&](Piece piece) {
    const I first = piece.start, stop = first + piece.length;
    Reduced of = {(T)piece.length, 0, 0, 0, 0};
    ONE_BY_ONE for (I e = first; e < stop; ++e) {
      const T value = AT(x, e, j);
      of.sum += value;
      if (e == first || value > of.high || value != value) of.high = value;
      if (e == first || value < of.low || value != value) of.low = value;
    }
    if (std_at < 0 || first == stop) return of;
    const T mean = of.sum / of.count;
    ONE_BY_ONE for (I e = first; e < stop; ++e) {
      const T apart = AT(x, e, j) - mean;
      of.squares += apart * apart;
    }
    return of;
  }, [&](I i, Reduced of) {
    const T count = of.count > 0 ? of.count : (T)1, variance = of.squares / count;
    if (sum_at >= 0) AT(out, i, sum_at + j) = of.sum;
    if (mean_at >= 0) AT(out, i, mean_at + j) = of.sum / count;
    if (max_at >= 0) AT(out, i, max_at + j) = of.high;
    if (min_at >= 0) AT(out, i, min_at + j) = of.low;
    if (std_at >= 0) AT(out, i, std_at + j) = variance <= least_variance ? (T)0 : sqrt(variance);
  });
}

// Where the largest and the smallest are, or -1: of equals, the first ones.
struct Reached {
  enum { AT_ONCE = 1 };
  I high, low;
  T count, sum;
  DEVICE void add(const Reached& next) {
    if (high < 0) high = next.high;
    if (low < 0) low = next.low;
    count += next.count;
    sum += next.sum;
  }
};

extern "C" GATHERS __global__ void reduce_rows_backward(
    @PIECES@, I whole, const T* __restrict__ x, I x_row, I x_column, I sum_at, I mean_at,
    I max_at, I min_at, I std_at, const T* __restrict__ out, I out_row, I out_column,
    const T* __restrict__ grad, I grad_row, I grad_column, T* dx, I dx_row, I dx_column,
    I rows, I columns) {
  @MINE@
  fold_back<Reached>(@GIVEN@, whole, [&](Piece piece) {
    const I i = piece.row;
    Reached of = {-1, -1, (T)piece.length, 0};
    ONE_BY_ONE for (I e = piece.start; e < piece.start + piece.length; ++e) {
      const T value = AT(x, e, j);
      of.sum += value;
      if (max_at >= 0 && of.high < 0 && (value == AT(out, i, max_at + j) || value != value))
        of.high = e;
      if (min_at >= 0 && of.low < 0 && (value == AT(out, i, min_at + j) || value != value))
        of.low = e;
    }
    return of;
  }, [&](Piece piece, Reached of) {
    const I i = piece.row;
    const T mean = of.sum / of.count;
    T same = 0, slope = 0;
    if (sum_at >= 0) same += AT(grad, i, sum_at + j);
    if (mean_at >= 0) same += AT(grad, i, mean_at + j) / of.count;
    if (std_at >= 0) {
      const T deviation = AT(out, i, std_at + j);
      if (deviation > 0) slope = AT(grad, i, std_at + j) / (deviation * of.count);
    }
    ONE_BY_ONE for (I e = piece.start; e < piece.start + piece.length; ++e) {
      T d = same + (std_at >= 0 ? (AT(x, e, j) - mean) * slope : (T)0);
      if (e == of.high) d += AT(grad, i, max_at + j);
      if (e == of.low) d += AT(grad, i, min_at + j);
      AT(dx, e, j) = d;
    }
  });
}

extern "C" GATHERS __global__ void softmax_entries(
    @PIECES@, I whole, const T* x, I x_row, I x_column, T lowest, T* out, I out_row, I out_column,
    I rows, I columns) {
  @MINE@
  fold_back<Softmax>(@GIVEN@, whole, [&](Piece piece) {
    return softmax_of(piece, x + j * x_column, x_row, lowest);
  }, [&](Piece piece, Softmax of) {
    ONE_BY_ONE for (I e = piece.start; e < piece.start + piece.length; ++e)
      AT(out, e, j) = exp(AT(x, e, j) - of.most) / of.sum;
  });
}

extern "C" GATHERS __global__ void softmax_entries_backward(
    @PIECES@, I whole, const T* y, I y_row, I y_column, const T* grad, I grad_row, I grad_column,
    T* out, I out_row, I out_column, I rows, I columns) {
  @MINE@
  fold_back<Numbers<1>>(@GIVEN@, whole, [&](Piece piece) {
    Numbers<1> along = {};
    ONE_BY_ONE for (I e = piece.start; e < piece.start + piece.length; ++e)
      along.at[0] += AT(y, e, j) * AT(grad, e, j);
    return along;
  }, [&](Piece piece, Numbers<1> along) {
    ONE_BY_ONE for (I e = piece.start; e < piece.start + piece.length; ++e)
      AT(out, e, j) = AT(y, e, j) * (AT(grad, e, j) - along.at[0]);
  });
}

// Heads have `width` columns.

extern "C" __global__ void dots_of_ends(
    const S32* __restrict__ targets, const S32* __restrict__ indices,
    const T* __restrict__ target, I target_row, I target_column,
    const T* __restrict__ source, I source_row, I source_column, I width, S32 lanes,
    T* out, I out_row, I out_column, I rows, I columns) {
  HEADS;
  const T sum = dot_of_head(target + targets[i] * target_row, target_column,
                            source + indices[i] * source_row, source_column, h, width, lane, lanes);
  if (lane == 0) AT(out, i, h) = sum;
}

extern "C" __global__ void row_dots(
    const T* x, I x_row, I x_column, const T* y, I y_row, I y_column, I width, S32 lanes,
    T* out, I out_row, I out_column, I rows, I columns) {
  HEADS;
  const T sum = dot_of_head(
      x + i * x_row, x_column, y + i * y_row, y_column, h, width, lane, lanes);
  if (lane == 0) AT(out, i, h) = sum;
}

extern "C" __global__ void scale_heads(
    const T* values, I values_row, I values_column, I width, const T* x, I x_row, I x_column,
    T* out, I out_row, I out_column, I rows, I columns) {
  const I i = ROW, j = COLUMN;
  if (i >= rows || j >= columns) return;
  AT(out, i, j) = AT(values, i, j / width) * AT(x, i, j);
}
"""

KERNELS = written(_SOURCE, EPILOGUE=EPILOGUE, PASSED=PASSED)
