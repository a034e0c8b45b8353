"""CUDA source of maximum and attention; conventions are those of ``kernels.cuda``.

A thread has a row or a column of the pattern and one number of it, and goes through the entries by
itself: no atomics, the same order every time. A score or a dot, which is a sum over the columns of
a head, has a thread for each head.
"""

KERNELS = r"""
static DEVICE T leaky_of(T z, T slope) { return z > 0 ? z : slope * z; }

extern "C" __global__ void max_rows(
    const I* starts, const S32* indices, const T* x, I x_row, I x_column,
    T* out, I out_row, I out_column, S32* arg, I arg_row, I arg_column, I rows, I columns) {
  const I i = ROW, j = COLUMN;
  if (i >= rows || j >= columns) return;
  T best = 0;
  S32 place = -1;
  for (I k = starts[i]; k < starts[i + 1]; ++k) {
    const T next = AT(x, (I)indices[k], j);
    if (place < 0 || next > best || next != next) {
      best = next;
      place = indices[k];
    }
  }
  AT(out, i, j) = best;
  AT(arg, i, j) = place;
}

extern "C" __global__ void max_columns(
    const I* starts, const S32* indices, const T* grad, I grad_row, I grad_column,
    const S32* arg, I arg_row, I arg_column, T* out, I out_row, I out_column, I rows, I columns) {
  const I i = ROW, j = COLUMN;
  if (i >= rows || j >= columns) return;
  T sum = 0;
  for (I k = starts[i]; k < starts[i + 1]; ++k) {
    const I row = indices[k];
    if (AT(arg, row, j) == i) sum += AT(grad, row, j);
  }
  AT(out, i, j) = sum;
}

extern "C" __global__ void head_dots(
    const T* x, I x_row, I x_column, const T* vector, I width, T* out, I out_row, I out_column,
    I rows, I columns) {
  const I i = ROW, h = COLUMN;
  if (i >= rows || h >= columns) return;
  T sum = 0;
  for (I j = h * width; j < (h + 1) * width; ++j) sum += AT(x, i, j) * vector[j];
  AT(out, i, h) = sum;
}

extern "C" __global__ void head_dots_backward(
    const T* dout, I dout_row, I dout_column, const T* vector, I width, I add,
    T* dx, I dx_row, I dx_column, I rows, I columns) {
  const I i = ROW, j = COLUMN;
  if (i >= rows || j >= columns) return;
  const T value = AT(dout, i, j / width) * vector[j];
  AT(dx, i, j) = add ? AT(dx, i, j) + value : value;
}

extern "C" __global__ void head_dots_partials(
    const T* dout, I dout_row, I dout_column, const T* x, I x_row, I x_column, I width, I length,
    double* partial, I rows, I columns) {
  const I i = ROW, j = COLUMN;
  if (i >= rows || j >= columns) return;
  double sum = 0;
  for (I r = i; r < length; r += rows)
    sum += (double)AT(dout, r, j / width) * (double)AT(x, r, j);
  partial[i * columns + j] = sum;
}

// e of every entry, by rows: of the first version, and of the second.
extern "C" __global__ void scores(
    const I* starts, const S32* indices, const T* t, I t_row, I t_column,
    const T* s, I s_row, I s_column, T slope, T* e, I rows, I columns) {
  const I i = ROW, h = COLUMN;
  if (i >= rows || h >= columns) return;
  for (I k = starts[i]; k < starts[i + 1]; ++k)
    e[k * columns + h] = leaky_of(AT(t, (I)indices[k], h) + AT(s, i, h), slope);
}

extern "C" __global__ void scores_v2(
    const I* starts, const S32* indices, const T* x, I x_row, I x_column,
    const T* y, I y_row, I y_column, const T* vector, I width, T slope, T* e, I rows, I columns) {
  const I i = ROW, h = COLUMN;
  if (i >= rows || h >= columns) return;
  for (I k = starts[i]; k < starts[i + 1]; ++k) {
    T sum = 0;
    for (I j = h * width; j < (h + 1) * width; ++j)
      sum += vector[j] * leaky_of(AT(x, (I)indices[k], j) + AT(y, i, j), slope);
    e[k * columns + h] = sum;
  }
}

extern "C" __global__ void softmax_of_rows(
    const I* starts, const T* e, T lowest, T* shift, I shift_row, I shift_column,
    T* total, I total_row, I total_column, I rows, I columns) {
  const I i = ROW, h = COLUMN;
  if (i >= rows || h >= columns) return;
  T most = lowest, sum = 0;
  for (I k = starts[i]; k < starts[i + 1]; ++k)
    if (e[k * columns + h] > most) most = e[k * columns + h];
  for (I k = starts[i]; k < starts[i + 1]; ++k) sum += exp(e[k * columns + h] - most);
  AT(shift, i, h) = starts[i] < starts[i + 1] ? most : (T)0;
  AT(total, i, h) = sum;
}

// In place, from e: the weight of an entry, before dropout; and after it, to `kept`.
extern "C" __global__ void weights_of_rows(
    const I* starts, const S32* indices, const T* shift, I shift_row, I shift_column,
    const T* total, I total_row, I total_column, I drop, const U64* row_keys,
    const U32* column_keys, U32 limit, T scale, T* e, T* kept, I rows, I columns) {
  const I i = ROW, h = COLUMN;
  if (i >= rows || h >= columns) return;
  for (I k = starts[i]; k < starts[i + 1]; ++k) {
    const T weight = exp(e[k * columns + h] - AT(shift, i, h)) / AT(total, i, h);
    const bool stays = !drop || keeps(row_keys[i], column_keys[indices[k] * columns + h], limit);
    e[k * columns + h] = weight;
    kept[k * columns + h] = stays ? weight * scale : (T)0;
  }
}

extern "C" __global__ void weighted_rows(
    const I* starts, const S32* indices, const T* weights, I weights_row, I weights_column, I width,
    const T* x, I x_row, I x_column, T* out, I out_row, I out_column, I rows, I columns) {
  const I i = ROW, j = COLUMN;
  if (i >= rows || j >= columns) return;
  T sum = 0;
  for (I k = starts[i]; k < starts[i + 1]; ++k)
    sum += AT(weights, k, j / width) * AT(x, (I)indices[k], j);
  AT(out, i, j) = sum;
}

// Backwards. `places_back` has, for each entry by columns, where it is by rows.

// In place, from weights: the gradient of e of every entry, by rows.
extern "C" __global__ void gradients_of_scores(
    const I* starts, const S32* indices, const T* x, I x_row, I x_column,
    const T* y, I y_row, I y_column, const T* grad, I grad_row, I grad_column, I width,
    const T* kept, T* de, I rows, I columns) {
  const I i = ROW, h = COLUMN;
  if (i >= rows || h >= columns) return;
  T along = 0;
  for (I j = h * width; j < (h + 1) * width; ++j) along += AT(grad, i, j) * AT(y, i, j);
  for (I k = starts[i]; k < starts[i + 1]; ++k) {
    T dot = 0;
    for (I j = h * width; j < (h + 1) * width; ++j)
      dot += AT(grad, i, j) * AT(x, (I)indices[k], j);
    de[k * columns + h] = kept[k * columns + h] * dot - de[k * columns + h] * along;
  }
}

extern "C" __global__ void bend_scores(
    const I* starts, const S32* indices, const T* t, I t_row, I t_column,
    const T* s, I s_row, I s_column, T slope, T* de, T* ds, I ds_row, I ds_column,
    I rows, I columns) {
  const I i = ROW, h = COLUMN;
  if (i >= rows || h >= columns) return;
  T sum = 0;
  for (I k = starts[i]; k < starts[i + 1]; ++k) {
    if (!(AT(t, (I)indices[k], h) + AT(s, i, h) > 0)) de[k * columns + h] *= slope;
    sum += de[k * columns + h];
  }
  AT(ds, i, h) = sum;
}

extern "C" __global__ void sum_columns(
    const I* starts, const I* places_back, const T* x, I x_row, I x_column,
    T* out, I out_row, I out_column, I rows, I columns) {
  const I i = ROW, h = COLUMN;
  if (i >= rows || h >= columns) return;
  T sum = 0;
  for (I k = starts[i]; k < starts[i + 1]; ++k) sum += AT(x, places_back[k], h);
  AT(out, i, h) = sum;
}

extern "C" __global__ void weighted_columns(
    const I* starts, const S32* indices, const I* places_back,
    const T* weights, I weights_row, I weights_column, I width,
    const T* grad, I grad_row, I grad_column, T* out, I out_row, I out_column, I rows, I columns) {
  const I i = ROW, j = COLUMN;
  if (i >= rows || j >= columns) return;
  T sum = 0;
  for (I k = starts[i]; k < starts[i + 1]; ++k)
    sum += AT(weights, places_back[k], j / width) * AT(grad, (I)indices[k], j);
  AT(out, i, j) = sum;
}

// out = sum of de·vector·leaky_relu'(x[i] + y[end]) over the entries of i, or out += that; moved =
// sum of de·leaky_relu of the same. With `back`, the entries are those of a column.
extern "C" __global__ void bend_v2(
    const I* starts, const S32* indices, const I* places_back, I back, const T* de, I heads,
    I width, const T* x, I x_row, I x_column, const T* y, I y_row, I y_column, const T* vector,
    T slope, I add, T* out, I out_row, I out_column, T* moved, I moved_row, I moved_column,
    I rows, I columns) {
  const I i = ROW, j = COLUMN;
  if (i >= rows || j >= columns) return;
  T sum = 0, along = 0;
  for (I k = starts[i]; k < starts[i + 1]; ++k) {
    const T z = AT(x, i, j) + AT(y, (I)indices[k], j);
    const T lean = de[(back ? places_back[k] : k) * heads + j / width] * (z > 0 ? (T)1 : slope);
    sum += lean;
    along += lean * z;
  }
  sum *= vector[j];
  AT(out, i, j) = add ? AT(out, i, j) + sum : sum;
  if (back) AT(moved, i, j) = along;
}
"""
