"""CUDA source of maximum and attention; conventions are those of ``kernels.cuda``.

Numbers of an entry are those of a thread for each head, or of ``lanes`` threads next to each other
where they are sums over the columns of a head: these are added in the same order every time.
``targets`` has the row of each entry, ``indices`` its column. Sums and maxima over the entries of
a row are made by pieces: see ``text.pieces``.
"""

from gcnmpi.kernels.cuda.text.pieces import written

_SOURCE = r"""
static DEVICE T leaky_of(T z, T slope) { return z > 0 ? z : slope * z; }

// Of heads of `width` columns; the numbers of x and y from a pointer on are `x_column` apart.
static DEVICE T dot_of_head(
    const T* x, I x_column, const T* y, I y_column, I h, I width, S32 lane, S32 lanes) {
  T sum = 0;
  x += (h * width + lane) * x_column;
  y += (h * width + lane) * y_column;
  const I x_step = lanes * x_column, y_step = lanes * y_column;
  for (S32 j = lane; j < (S32)width; j += lanes, x += x_step, y += y_step) sum += *x * *y;
  return of_lanes(sum, lanes);
}

// A thread's row or entry i, head h and lane of `lanes`. (A division in 64 bits takes some ten
// times as many instructions.)
#define HEADS \
  const U32 column = (U32)COLUMN; \
  const I i = ROW, h = column / (U32)lanes; \
  if (i >= rows || column >= columns) return; \
  const S32 lane = (S32)(column - (U32)h * (U32)lanes)

struct alignas(2 * sizeof(T)) Best {
  enum { AT_ONCE = 4 };
  T value;
  S32 place;
  DEVICE void add(const Best& next) {
    if (place < 0 || next.value > value || next.value != next.value) *this = next;
  }
};

extern "C" GATHERS __global__ void max_rows(
    @PIECES@, const S32* __restrict__ indices, const T* __restrict__ x, I x_row, I x_column,
    T* out, I out_row, I out_column, S32* arg, I arg_row, I arg_column, I rows, I columns) {
  @MINE@
  fold<Best>(@GIVEN@, [&](Piece piece) {
    Best best = {0, -1};
    gather(piece, [&](I e) { return indices[e]; }, [&](I, I row) {
      return Best{AT(x, row, j), (S32)row};
    }, [&](const Best& next) { best.add(next); });
    return best;
  }, [&](I i, Best best) {
    AT(out, i, j) = best.value;
    AT(arg, i, j) = best.place;
  });
}

extern "C" GATHERS __global__ void max_columns(
    @PIECES@, const S32* __restrict__ indices, const T* __restrict__ grad, I grad_row,
    I grad_column, const S32* __restrict__ arg, I arg_row, I arg_column,
    T* out, I out_row, I out_column, I rows, I columns) {
  @MINE@
  fold<Numbers<1>>(@GIVEN@, [&](Piece piece) {
    Numbers<1> sum = {};
    gather(piece, [&](I e) { return indices[e]; }, [&](I, I row) {
      return Numbers<1>{AT(arg, row, j) == piece.row ? AT(grad, row, j) : (T)0};
    }, [&](const Numbers<1>& next) { sum.add(next); });
    return sum;
  }, [&](I i, Numbers<1> sum) { AT(out, i, j) = sum.at[0]; });
}

extern "C" __global__ void head_dots(
    const T* x, I x_row, I x_column, const T* vector, I width, S32 lanes,
    T* out, I out_row, I out_column, I rows, I columns) {
  HEADS;
  const T sum = dot_of_head(x + i * x_row, x_column, vector, 1, h, width, lane, lanes);
  if (lane == 0) AT(out, i, h) = sum;
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
    const S32* __restrict__ targets, const S32* __restrict__ indices,
    const T* __restrict__ t, I t_row, I t_column, const T* __restrict__ s, I s_row, I s_column,
    T slope, T* e, I rows, I columns) {
  const I k = ROW, h = COLUMN;
  if (k >= rows || h >= columns) return;
  e[k * columns + h] = leaky_of(AT(t, (I)indices[k], h) + AT(s, (I)targets[k], h), slope);
}

extern "C" __global__ void scores_v2(
    const S32* __restrict__ targets, const S32* __restrict__ indices,
    const T* __restrict__ x, I x_row, I x_column, const T* __restrict__ y, I y_row, I y_column,
    const T* __restrict__ vector, I width, S32 lanes, T slope, T* e, I rows, I columns) {
  HEADS;
  const T* const one = x + indices[i] * x_row;
  const T* const other = y + targets[i] * y_row;
  T sum = 0;
  for (I j = h * width + lane; j < (h + 1) * width; j += lanes)
    sum += vector[j] * leaky_of(one[j * x_column] + other[j * y_column], slope);
  sum = of_lanes(sum, lanes);
  if (lane == 0) e[i * ((U32)columns / (U32)lanes) + h] = sum;
}

// The largest of some numbers and the sum of exp(number - largest).
struct alignas(2 * sizeof(T)) Softmax {
  enum { AT_ONCE = 1 };
  T most, sum;
  DEVICE void add(const Softmax& next) {
    const bool more = next.most > most;
    const T factor = exp(more ? most - next.most : next.most - most);
    sum = more ? sum * factor + next.sum : sum + next.sum * factor;
    if (more) most = next.most;
  }
};

// Of the entries of a piece, a number of each column of which is `x_row` from the next one.
static DEVICE Softmax softmax_of(Piece piece, const T* x, I x_row, T lowest) {
  const I first = piece.start, stop = first + piece.length;
  Softmax of = {piece.length ? lowest : (T)0, 0};
  for (I e = first; e < stop; ++e)
    if (x[e * x_row] > of.most) of.most = x[e * x_row];
  const T from = of.most > lowest ? of.most : (T)0;
  ONE_BY_ONE for (I e = first; e < stop; ++e) of.sum += exp(x[e * x_row] - from);
  return of;
}

extern "C" __global__ void softmax_of_rows(
    @PIECES@, const T* __restrict__ e, T lowest, T* shift, I shift_row, I shift_column,
    T* total, I total_row, I total_column, I rows, I columns) {
  @MINE@
  fold<Softmax>(@GIVEN@, [&](Piece piece) {
    return softmax_of(piece, e + j, columns, lowest);
  }, [&](I i, Softmax of) {
    AT(shift, i, j) = of.most;
    AT(total, i, j) = of.sum;
  });
}

// In place, from e: the weight of an entry, before dropout; and after it, to `kept`.
extern "C" __global__ void weights_of_entries(
    const S32* __restrict__ targets, const S32* __restrict__ indices,
    const T* __restrict__ shift, I shift_row, I shift_column,
    const T* __restrict__ total, I total_row, I total_column, I drop,
    const U64* __restrict__ row_keys, const U32* __restrict__ column_keys, U32 limit, T scale,
    T* e, T* kept, I rows, I columns) {
  const I k = ROW, h = COLUMN;
  if (k >= rows || h >= columns) return;
  const I i = targets[k];
  const T weight = exp(e[k * columns + h] - AT(shift, i, h)) / AT(total, i, h);
  const bool stays = !drop || keeps(row_keys[i], column_keys[indices[k] * columns + h], limit);
  e[k * columns + h] = weight;
  kept[k * columns + h] = stays ? weight * scale : (T)0;
}

// Backwards. In place, from weights: the gradient of e of every entry, by rows, from the products
// `along` of its row's gradient and result; where there is a t, that before leaky_relu.
extern "C" __global__ void gradients_of_scores(
    const S32* __restrict__ targets, const S32* __restrict__ indices,
    const T* __restrict__ x, I x_row, I x_column,
    const T* __restrict__ grad, I grad_row, I grad_column, I width, S32 lanes,
    const T* __restrict__ along, I along_row, I along_column, const T* __restrict__ kept,
    I has_t, const T* __restrict__ t, I t_row, I t_column,
    const T* __restrict__ s, I s_row, I s_column, T slope, T* de, I rows, I columns) {
  HEADS;
  const I source = indices[i], target = targets[i];
  const T dot = dot_of_head(
      grad + target * grad_row, grad_column, x + source * x_row, x_column, h, width, lane, lanes);
  if (lane) return;
  const I place = i * ((U32)columns / (U32)lanes) + h;
  T value = kept[place] * dot - de[place] * AT(along, target, h);
  if (has_t && !(AT(t, source, h) + AT(s, target, h) > 0)) value *= slope;
  de[place] = value;
}

struct alignas(2 * sizeof(T)) Bent {
  enum { AT_ONCE = 4 };
  T lean, along;
  DEVICE void add(const Bent& next) { lean += next.lean, along += next.along; }
};

// out = sum of de·vector·leaky_relu'(x[i] + y[end]) over the entries of i, or out += that; moved =
// sum of de·leaky_relu of the same. With `places`, the entries are those of a column.
extern "C" GATHERS __global__ void bend_v2(
    @PIECES@, const S32* __restrict__ indices, I has_places, const I* __restrict__ places,
    const T* __restrict__ de, I heads, I width, const T* __restrict__ x, I x_row, I x_column,
    const T* __restrict__ y, I y_row, I y_column, const T* __restrict__ vector, T slope,
    T* out, I out_row, I out_column, T* moved, I moved_row, I moved_column, I rows, I columns) {
  @MINE@
  const T* const of_head = de + j / width;
  fold<Bent>(@GIVEN@, [&](Piece piece) {
    const T mine = AT(x, (I)piece.row, j);
    Bent sum = {};
    gather(piece, [&](I e) { return indices[e]; }, [&](I e, I row) {
      return Bent{of_head[(has_places ? places[e] : e) * heads], AT(y, row, j)};
    }, [&](const Bent& of) {
      const T z = mine + of.along, lean = of.lean * (z > 0 ? (T)1 : slope);
      sum.lean += lean;
      sum.along += lean * z;
    });
    return sum;
  }, [&](I i, Bent sum) {
    sum.lean *= vector[j];
    AT(out, i, j) = has_places ? AT(out, i, j) + sum.lean : sum.lean;
    if (has_places) AT(moved, i, j) = sum.along;
  });
}
"""

KERNELS = written(_SOURCE)
