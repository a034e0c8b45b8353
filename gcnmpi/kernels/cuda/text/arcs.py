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
extern "C" __global__ void reduce_rows(
    const I* starts, const T* x, I x_row, I x_column, I sum_at, I mean_at, I max_at, I min_at,
    I std_at, T least_variance, T* out, I out_row, I out_column, I rows, I columns) {
  const I i = ROW, j = COLUMN;
  if (i >= rows || j >= columns) return;
  const I first = starts[i], stop = starts[i + 1];
  const T count = first < stop ? (T)(stop - first) : (T)1;
  T sum = 0, high = 0, low = 0, squares = 0;
  for (I e = first; e < stop; ++e) {
    const T value = AT(x, e, j);
    sum += value;
    if (e == first || value > high || value != value) high = value;
    if (e == first || value < low || value != value) low = value;
  }
  const T mean = sum / count;
  if (sum_at >= 0) AT(out, i, sum_at + j) = sum;
  if (mean_at >= 0) AT(out, i, mean_at + j) = mean;
  if (max_at >= 0) AT(out, i, max_at + j) = high;
  if (min_at >= 0) AT(out, i, min_at + j) = low;
  if (std_at < 0) return;
  for (I e = first; e < stop; ++e) squares += (AT(x, e, j) - mean) * (AT(x, e, j) - mean);
  const T variance = squares / count;
  AT(out, i, std_at + j) = variance <= least_variance ? (T)0 : sqrt(variance);
}

extern "C" __global__ void reduce_rows_backward(
    const I* starts, const T* x, I x_row, I x_column, I sum_at, I mean_at, I max_at, I min_at,
    I std_at, const T* out, I out_row, I out_column, const T* grad, I grad_row, I grad_column,
    T* dx, I dx_row, I dx_column, I rows, I columns) {
  const I i = ROW, j = COLUMN;
  if (i >= rows || j >= columns) return;
  const I first = starts[i], stop = starts[i + 1];
  const T count = (T)(stop - first);
  T same = 0, mean = 0, slope = 0;
  if (sum_at >= 0) same += AT(grad, i, sum_at + j);
  if (mean_at >= 0) same += AT(grad, i, mean_at + j) / count;
  if (std_at >= 0) {
    const T deviation = AT(out, i, std_at + j);
    for (I e = first; e < stop; ++e) mean += AT(x, e, j);
    mean /= count;
    if (deviation > 0) slope = AT(grad, i, std_at + j) / (deviation * count);
  }
  bool high = max_at >= 0, low = min_at >= 0;  // of equals, the first one
  for (I e = first; e < stop; ++e) {
    const T value = AT(x, e, j);
    T d = same + (std_at >= 0 ? (value - mean) * slope : (T)0);
    if (high && (value == AT(out, i, max_at + j) || value != value)) {
      d += AT(grad, i, max_at + j);
      high = false;
    }
    if (low && (value == AT(out, i, min_at + j) || value != value)) {
      d += AT(grad, i, min_at + j);
      low = false;
    }
    AT(dx, e, j) = d;
  }
}

extern "C" __global__ void softmax_entries(
    const I* starts, const T* x, I x_row, I x_column, T lowest, T* out, I out_row, I out_column,
    I rows, I columns) {
  const I i = ROW, j = COLUMN;
  if (i >= rows || j >= columns) return;
  T most = lowest, sum = 0;
  for (I e = starts[i]; e < starts[i + 1]; ++e)
    if (AT(x, e, j) > most) most = AT(x, e, j);
  for (I e = starts[i]; e < starts[i + 1]; ++e) {
    const T value = exp(AT(x, e, j) - most);
    AT(out, e, j) = value;
    sum += value;
  }
  for (I e = starts[i]; e < starts[i + 1]; ++e) AT(out, e, j) /= sum;
}

extern "C" __global__ void softmax_entries_backward(
    const I* starts, const T* y, I y_row, I y_column, const T* grad, I grad_row, I grad_column,
    T* out, I out_row, I out_column, I rows, I columns) {
  const I i = ROW, j = COLUMN;
  if (i >= rows || j >= columns) return;
  T along = 0;
  for (I e = starts[i]; e < starts[i + 1]; ++e) along += AT(y, e, j) * AT(grad, e, j);
  for (I e = starts[i]; e < starts[i + 1]; ++e)
    AT(out, e, j) = AT(y, e, j) * (AT(grad, e, j) - along);
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
