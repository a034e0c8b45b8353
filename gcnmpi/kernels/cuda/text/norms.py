"""CUDA source of norms, activations and entry-wise arithmetic; conventions as in ``kernels.cuda``.

A number for each row is a contiguous array; where an array may be missing, a flag says so.
"""

KERNELS = r"""
#define HAT(i, j) ((AT(x, i, j) - (has_mean ? mean[i] : (T)0)) * rstd[i])

extern "C" __global__ void row_sums(
    const T* x, I x_row, I x_column, I width, I has_mean, const T* mean, I square, T* out,
    I rows, I columns) {
  LANE;
  T sum = 0;
  for (I j = lane; j < width; j += columns) {
    const T value = AT(x, i, j) - (has_mean ? mean[i] : (T)0);
    sum += square ? value * value : value;
  }
  sum = of_lanes(sum, columns);
  if (lane == 0) out[i] = sum;
}

// A row at a time: its mean, the inverse of its deviation, and what comes of both.
extern "C" __global__ void layer_norm(
    const T* x, I x_row, I x_column, I width, T factor, T eps, const T* weight, const T* bias,
    T* mean, T* rstd, T* out, I out_row, I out_column, I rows, I columns) {
  LANE;
  T sum = 0, squares = 0;
  for (I j = lane; j < width; j += columns) sum += AT(x, i, j);
  const T centre = factor * of_lanes(sum, columns);
  for (I j = lane; j < width; j += columns)
    squares += (AT(x, i, j) - centre) * (AT(x, i, j) - centre);
  const T scale = 1 / sqrt(of_lanes(squares, columns) * factor + eps);
  for (I j = lane; j < width; j += columns)
    AT(out, i, j) = (AT(x, i, j) - centre) * scale * weight[j] + bias[j];
  if (lane) return;
  mean[i] = centre;
  rstd[i] = scale;
}

extern "C" __global__ void normalise_by_rows(
    const T* x, I x_row, I x_column, I has_mean, const T* mean, const T* rstd, I has_weight,
    const T* weight, I has_bias, const T* bias, T* out, I out_row, I out_column,
    I rows, I columns) {
  const I i = ROW, j = COLUMN;
  if (i >= rows || j >= columns) return;
  AT(out, i, j) = HAT(i, j) * (has_weight ? weight[j] : (T)1) + (has_bias ? bias[j] : (T)0);
}

// Sums of g = grad · weight and of g · x̂ to `out`, or else the gradient of x where these are those
// of whole rows, times a factor.
extern "C" __global__ void normalised_row_sums(
    const T* x, I x_row, I x_column, I width, I has_mean, const T* mean, const T* rstd,
    I has_weight, const T* weight, const T* grad, I grad_row, I grad_column, I has_out, T* out,
    T factor, T* dx, I dx_row, I dx_column, I rows, I columns) {
  LANE;
  T plain = 0, along = 0;
  for (I j = lane; j < width; j += columns) {
    const T g = AT(grad, i, j) * (has_weight ? weight[j] : (T)1);
    plain += g;
    along += g * HAT(i, j);
  }
  plain = of_lanes(plain, columns);
  along = of_lanes(along, columns);
  if (has_out) {
    if (lane) return;
    out[2 * i] = plain;
    out[2 * i + 1] = along;
  } else {
    for (I j = lane; j < width; j += columns) {
      const T g = AT(grad, i, j) * (has_weight ? weight[j] : (T)1);
      AT(dx, i, j) = rstd[i] * (g - factor * (plain + HAT(i, j) * along));
    }
  }
}

extern "C" __global__ void normalise_rows_backward(
    const T* x, I x_row, I x_column, I has_mean, const T* mean, const T* rstd, I has_weight,
    const T* weight, const T* grad, I grad_row, I grad_column, I has_low,
    const T* low, I low_row, I low_column, const T* along, I along_row, I along_column,
    T* out, I out_row, I out_column, I rows, I columns) {
  const I i = ROW, j = COLUMN;
  if (i >= rows || j >= columns) return;
  const T g = AT(grad, i, j) * (has_weight ? weight[j] : (T)1);
  const T less = (has_low ? AT(low, i, 0) : (T)0) + HAT(i, j) * AT(along, i, 0);
  AT(out, i, j) = rstd[i] * (g - less);
}

// Partial sums of two numbers of every column, next to each other for all columns. `kind` 0: g and
// g·x̂ of norms over rows; 1: the same with a mean and rstd for each column.
extern "C" __global__ void grad_partials(
    const T* x, I x_row, I x_column, I has_mean, const T* mean, const T* rstd, I kind,
    const T* grad, I grad_row, I grad_column, I width, I length, double* partial,
    I rows, I columns) {
  const I i = ROW, j = COLUMN;
  if (i >= rows || j >= columns) return;
  double plain = 0, along = 0;
  for (I r = i; r < length; r += rows) {
    const T g = AT(grad, r, j);
    plain += (double)g;
    along += (double)(g * (kind ? (AT(x, r, j) - mean[j]) * rstd[j] : HAT(r, j)));
  }
  partial[2 * i * width + j] = plain;
  partial[(2 * i + 1) * width + j] = along;
}

extern "C" __global__ void moment_partials(
    const T* x, I x_row, I x_column, const double* pivot, I width, I length, double* partial,
    I rows, I columns) {
  const I i = ROW, j = COLUMN;
  if (i >= rows || j >= columns) return;
  double plain = 0, squares = 0;
  for (I r = i; r < length; r += rows) {
    const double apart = (double)AT(x, r, j) - pivot[j];
    plain += apart;
    squares += apart * apart;
  }
  partial[2 * i * width + j] = plain;
  partial[(2 * i + 1) * width + j] = squares;
}

// Of each column, as the host computes them: see NormOperations.
extern "C" __global__ void move_moments(
    const double* sums, double n, double momentum, double equal, T* mean, T* variance,
    double* moments, I rows, I columns) {
  const I j = ROW;
  if (j >= rows) return;
  const double shift = sums[j] / n;
  const double spread = sums[rows + j] / n - shift * shift;
  const double centre = moments[j] + shift, least = equal * centre * (equal * centre);
  moments[j] = centre;
  moments[rows + j] = spread <= least ? 0 : spread;
  mean[j] = (T)((double)mean[j] + momentum * (centre - (double)mean[j]));
  const double unbiased = moments[rows + j] * (n / (n > 2 ? n - 1 : 1));
  variance[j] = (T)((double)variance[j] + momentum * (unbiased - (double)variance[j]));
}

extern "C" __global__ void moment_factors(
    double* moments, double eps, I exact, const T* weight, const T* bias, T* scale, T* shift,
    I rows, I columns) {
  const I j = ROW;
  if (j >= rows) return;
  const double variance = moments[rows + j];
  const double rstd = exact && variance == 0 ? 0 : 1 / sqrt(variance + eps);
  const double factor = (double)weight[j] * rstd;
  moments[rows + j] = rstd;
  scale[j] = (T)factor;
  shift[j] = (T)((double)bias[j] - moments[j] * factor);
}

extern "C" __global__ void moment_slopes(
    const double* sums, double n, const double* moments, double eps, const T* weight,
    T* a, T* b, T* c, I rows, I columns) {
  const I j = ROW;
  if (j >= rows) return;
  const double rstd = moments[rows + j];
  const double factor = (double)weight[j] * rstd * (n == 2 ? eps * rstd * rstd : 1);
  const double along = n == 2 ? 0 : -factor * rstd * sums[rows + j] / n;
  a[j] = (T)factor;
  b[j] = (T)along;
  c[j] = (T)(-factor * sums[j] / n - along * moments[j]);
}

extern "C" __global__ void scale_columns(
    const T* x, I x_row, I x_column, const T* a, I has_y, const T* y, I y_row, I y_column,
    const T* b, const T* c, T* out, I out_row, I out_column, I rows, I columns) {
  const I i = ROW, j = COLUMN;
  if (i >= rows || j >= columns) return;
  AT(out, i, j) = a[j] * AT(x, i, j) + (has_y ? b[j] * AT(y, i, j) : (T)0) + c[j];
}

extern "C" __global__ void combine(
    const T* x, I x_row, I x_column, T a, I has_y, const T* y, I y_row, I y_column, T b,
    T* out, I out_row, I out_column, I rows, I columns) {
  const I i = ROW, j = COLUMN;
  if (i >= rows || j >= columns) return;
  const T value = a * AT(x, i, j);
  AT(out, i, j) = has_y ? value + b * AT(y, i, j) : value;
}

extern "C" __global__ void scale_by_sum(
    const T* x, I x_row, I x_column, double factor, const T* plus, T* out, I out_row, I out_column,
    I rows, I columns) {
  const I i = ROW, j = COLUMN;
  if (i >= rows || j >= columns) return;
  AT(out, i, j) = (T)(factor + (double)*plus) * AT(x, i, j);
}

// Partial sums of x·y, of all entries or of those where x is negative.
extern "C" __global__ void dot_partials(
    const T* x, I x_row, I x_column, const T* y, I y_row, I y_column, I negative, I length,
    double* partial, I rows, I columns) {
  const I i = ROW, j = COLUMN;
  if (i >= rows || j >= columns) return;
  double sum = 0;
  for (I r = i; r < length; r += rows)
    if (!negative || AT(x, r, j) < 0) sum += (double)AT(x, r, j) * (double)AT(y, r, j);
  partial[i * columns + j] = sum;
}

extern "C" __global__ void larger(
    const T* x, I x_row, I x_column, T* out, I out_row, I out_column, I rows, I columns) {
  const I i = ROW, j = COLUMN;
  if (i >= rows || j >= columns) return;
  const T value = AT(x, i, j);
  if (value > AT(out, i, j) || value != value) AT(out, i, j) = value;
}

// dx = grad where x is best, or 0 where x is best if there was one before.
extern "C" __global__ void where_largest(
    const T* x, I x_row, I x_column, const T* best, I best_row, I best_column,
    const T* grad, I grad_row, I grad_column, I before, T* dx, I dx_row, I dx_column,
    I rows, I columns) {
  const I i = ROW, j = COLUMN;
  if (i >= rows || j >= columns) return;
  const bool hit = AT(x, i, j) == AT(best, i, j);
  if (before) {
    if (hit) AT(dx, i, j) = 0;
  } else {
    AT(dx, i, j) = hit ? AT(grad, i, j) : (T)0;
  }
}

// kind 0: elu, 1: leaky, 2: gelu; with a gradient, that of 1 and 2.
extern "C" __global__ void activate_more(
    const T* x, I x_row, I x_column, I kind, T slope, I has_slopes, const T* slopes, I has_grad,
    const T* grad, I grad_row, I grad_column, T* out, I out_row, I out_column, I rows, I columns) {
  const I i = ROW, j = COLUMN;
  if (i >= rows || j >= columns) return;
  if (has_slopes) slope = *slopes;
  const T z = AT(x, i, j);
  T value = z;
  if (kind == 2) {
    const T share = (T)0.5 * erfc(z * (T)-0.70710678118654752440);
    const T density = (T)0.39894228040143267794 * exp((T)-0.5 * z * z);
    value = has_grad ? AT(grad, i, j) * (share + z * density) : z * share;
  } else if (has_grad) {
    value = z > 0 ? AT(grad, i, j) : slope * AT(grad, i, j);
  } else if (!(z > 0)) {
    value = kind == 0 ? expm1(z) : slope * z;
  }
  AT(out, i, j) = value;
}

extern "C" __global__ void mean_of_heads(
    const T* x, I x_row, I x_column, I heads, T factor, T* out, I out_row, I out_column,
    I rows, I columns) {
  const I i = ROW, j = COLUMN;
  if (i >= rows || j >= columns) return;
  T sum = 0;
  for (I h = 0; h < heads; ++h) sum += AT(x, i, h * columns + j);
  AT(out, i, j) = sum * factor;
}

extern "C" __global__ void mean_of_heads_backward(
    const T* grad, I grad_row, I grad_column, I width, T factor, T* out, I out_row, I out_column,
    I rows, I columns) {
  const I i = ROW, j = COLUMN;
  if (i >= rows || j >= columns) return;
  AT(out, i, j) = AT(grad, i, j % width) * factor;
}
"""
