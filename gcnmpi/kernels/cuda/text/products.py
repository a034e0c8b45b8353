"""CUDA source of the product of a CSR matrix and dense ones, and of epilogues.

Rows are cut into **pieces** of at most ``PIECE`` entries. Threads next to each other have the
numbers of a row next to each other, one or 16 bytes of them each, and go through a piece by
themselves: entry after entry, four gathers under way. A row of one piece is finished there, with
what follows the product. Of longer rows, pieces go to scratch memory and are added in their order
by another kernel. Nothing depends on the order in which threads run. Offsets have 64 bits, columns
32: a matrix may have more entries than cuSPARSE takes, 2³¹ − 128.

An epilogue (:mod:`gcnmpi.kernels.epilogues`) is ``stage`` 0: nothing, 1: bias, activation and
dropout, 2: their derivative from their result; ``kind`` is the number of the activation.
"""

from __future__ import annotations

PIECE = 512

EPILOGUE = """I stage, I kind, T slope, I has_bias, const T* bias, I dropped, const U64* row_keys,
    const U32* column_keys, U32 limit, T scale, const T* output, I output_row, I output_column"""
PASSED = (
    "stage, kind, slope, has_bias, bias, dropped, row_keys, column_keys, limit, scale, output, "
    "output_row, output_column"
)

_SOURCE = r"""
static DEVICE T finished(T value, I i, I j, @EPILOGUE@) {
  if (stage == 1) {
    if (has_bias) value += bias[j];
    if (kind == 1 && value < 0) value = 0;  // NaN stays
    if (kind == 2 && !(value > 0)) value = expm1(value);
    if (kind == 3 && !(value > 0)) value *= slope;
    if (dropped) value = keeps(row_keys[i], column_keys[j], limit) ? value * scale : (T)0;
  }
  if (stage == 2) {
    const T o = AT(output, i, j);
    value *= scale;
    if (kind == 1 && !(o > 0)) value = 0;
    if (kind == 2 && !(o > 0)) value *= o / scale + 1;
    if (kind == 3 && !(o > 0)) value *= slope;
    if (dropped && !keeps(row_keys[i], column_keys[j], limit)) value = 0;
  }
  return value;
}

extern "C" __global__ void follow(
    T* x, I x_row, I x_column, @EPILOGUE@, I rows, I columns) {
  const I i = ROW, j = COLUMN;
  if (i >= rows || j >= columns) return;
  AT(x, i, j) = finished(AT(x, i, j), i, j, @PASSED@);
}

template <int N> struct alignas(N * sizeof(T)) Numbers { T at[N]; };

// Piece p of the product with columns N·j to N·j + N − 1 of x; rows of x and out are contiguous.
template <int N>
static DEVICE void multiply_piece(
    I p, I j, const I* __restrict__ starts, const S32* __restrict__ targets,
    const S32* __restrict__ indices, const T* __restrict__ values, const T* __restrict__ x,
    I x_row, T* out, I out_row, T* scratch, I width, I accumulate, @EPILOGUE@) {
  const I stop = starts[p + 1];
  Numbers<N> sum = {};
  I e = starts[p];
  for (; e + 4 <= stop; e += 4) {
    Numbers<N> gathered[4];
    UNROLL for (int u = 0; u < 4; ++u)
      gathered[u] = *(const Numbers<N>*)(x + (I)indices[e + u] * x_row + N * j);
    UNROLL for (int u = 0; u < 4; ++u)
      UNROLL for (int k = 0; k < N; ++k) sum.at[k] += values[e + u] * gathered[u].at[k];
  }
  for (; e < stop; ++e) {
    const Numbers<N> gathered = *(const Numbers<N>*)(x + (I)indices[e] * x_row + N * j);
    UNROLL for (int k = 0; k < N; ++k) sum.at[k] += values[e] * gathered.at[k];
  }
  const I i = targets[p];
  if (i < 0) {  // a piece of a long row: place −1 − i of the scratch memory
    *(Numbers<N>*)(scratch + (-1 - i) * width + N * j) = sum;
    return;
  }
  Numbers<N>* const place = (Numbers<N>*)(out + i * out_row + N * j);
  if (accumulate) {
    const Numbers<N> before = *place;
    UNROLL for (int k = 0; k < N; ++k) sum.at[k] += before.at[k];
  }
  UNROLL for (int k = 0; k < N; ++k) sum.at[k] = finished(sum.at[k], i, N * j + k, @PASSED@);
  *place = sum;
}

extern "C" GATHERS __global__ void multiply_pieces(
    const I* __restrict__ starts, const S32* __restrict__ targets,
    const S32* __restrict__ indices, const T* __restrict__ values, const T* __restrict__ x,
    I x_row, T* out, I out_row, T* scratch, I width, I accumulate, @EPILOGUE@,
    I rows, I columns) {
  const I p = ROW, j = COLUMN;
  if (p >= rows || j >= columns) return;
  multiply_piece<1>(p, j, starts, targets, indices, values, x, x_row, out, out_row, scratch, width,
                    accumulate, @PASSED@);
}

// The same with 16 bytes a thread, for rows that begin at multiples of that.
extern "C" GATHERS __global__ void multiply_pieces_16(
    const I* __restrict__ starts, const S32* __restrict__ targets,
    const S32* __restrict__ indices, const T* __restrict__ values, const T* __restrict__ x,
    I x_row, T* out, I out_row, T* scratch, I width, I accumulate, @EPILOGUE@,
    I rows, I columns) {
  const I p = ROW, j = COLUMN;
  if (p >= rows || j >= columns) return;
  multiply_piece<16 / sizeof(T)>(p, j, starts, targets, indices, values, x, x_row, out, out_row,
                                 scratch, width, accumulate, @PASSED@);
}

// Long rows: the sums of their pieces, which follow each other in scratch memory.
extern "C" __global__ void add_pieces(
    const T* scratch, const I* first, const S32* long_rows, T* out, I out_row, I accumulate,
    @EPILOGUE@, I rows, I columns) {
  const I r = ROW, j = COLUMN;
  if (r >= rows || j >= columns) return;
  T sum = 0;
  for (I p = first[r]; p < first[r + 1]; ++p) sum += scratch[p * columns + j];
  const I i = long_rows[r];
  T* const place = out + i * out_row + j;
  if (accumulate) sum += *place;
  *place = finished(sum, i, j, @PASSED@);
}
"""

KERNELS = _SOURCE.replace("@EPILOGUE@", EPILOGUE).replace("@PASSED@", PASSED)
