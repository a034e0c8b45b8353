"""CUDA source of sums over entries with weights, and of epilogues; see ``text.pieces``.

A thread has one or 16 bytes of the numbers of a row. The product of a CSR matrix and a dense one
ends with what follows it. A matrix may have more entries than cuSPARSE takes, 2³¹ − 128.

An epilogue (:mod:`gcnmpi.kernels.epilogues`) is ``stage`` 0: nothing, 1: bias, activation and
dropout, 2: their derivative from their result; ``kind`` is the number of the activation.
"""

from __future__ import annotations

from gcnmpi.kernels.cuda.text.pieces import written

EPILOGUE = """I stage, I kind, T slope, I has_bias, const T* bias, I dropped, const U64* row_keys,
    const U32* column_keys, U32 limit, T scale, const T* output, I output_row, I output_column"""
PASSED = (
    "stage, kind, slope, has_bias, bias, dropped, row_keys, column_keys, limit, scale, output, "
    "output_row, output_column"
)

_EPILOGUES = r"""
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
"""

# Rows of x and out are contiguous; a thread has columns N·j to N·j + N − 1.
_SUMS = r"""
extern "C" GATHERS __global__ void @NAME@(
    @PIECES@, @TAKEN@, const T* __restrict__ x, I x_row, T* out, I out_row, @END@
    I rows, I columns) {
  @MINE@
  @BEGIN@
  fold<Numbers<@N@>>(@GIVEN@, [&](Piece piece) {
    Numbers<@N@> sum = {};
    gather(piece, [&](I e) { return @SOURCE@; }, [&](I e, I row) {
      return Weighed<@N@>{@WEIGHT@, *(const Numbers<@N@>*)(x + row * x_row + @N@ * j)};
    }, [&](const Weighed<@N@>& of) {
      UNROLL for (int k = 0; k < @N@; ++k) sum.at[k] += of.weight * of.numbers.at[k];
    });
    return sum;
  }, [&](I i, Numbers<@N@> sum) {
    Numbers<@N@>* const place = (Numbers<@N@>*)(out + i * out_row + @N@ * j);
    @FINISH@
    *place = sum;
  });
}
"""
_INDICES = "const S32* __restrict__ indices, "
_PLACES = "I has_places, const I* __restrict__ places"
_PLACE = "(has_places ? places[e] : e)"
# Of a matrix; with a weight for each head, of `width` columns, and entry; of rows of entries.
# Entries of columns have `places` among those by rows.
_KINDS = {
    "multiply_pieces": {
        "TAKEN": _INDICES + "const T* __restrict__ values",
        "BEGIN": "",
        "SOURCE": "indices[e]",
        "WEIGHT": "values[e]",
        "END": "I accumulate, @EPILOGUE@,",
        "FINISH": """if (accumulate) sum.add(*place);
    UNROLL for (int k = 0; k < @N@; ++k)
      sum.at[k] = finished(sum.at[k], i, @N@ * j + k, @PASSED@);""",
    },
    "weigh_pieces": {
        "TAKEN": _INDICES + _PLACES + ", const T* __restrict__ weights, I weights_row, "
        "I weights_column, I width",
        "BEGIN": "const T* const of_head = weights + @N@ * j / width * weights_column;",
        "SOURCE": "indices[e]",
        "WEIGHT": f"of_head[{_PLACE} * weights_row]",
        "END": "",
        "FINISH": "",
    },
    "sum_pieces": {
        "TAKEN": _PLACES,
        "BEGIN": "",
        "SOURCE": _PLACE,
        "WEIGHT": "1",
        "END": "",
        "FINISH": "",
    },
}

KERNELS = written(_EPILOGUES, EPILOGUE=EPILOGUE, PASSED=PASSED) + "".join(
    written(_SUMS, NAME=name + suffix, **kind, N=numbers, EPILOGUE=EPILOGUE, PASSED=PASSED)
    for name, kind in _KINDS.items()
    for suffix, numbers in (("", "1"), ("_16", "(16 / (int)sizeof(T))"))
)
