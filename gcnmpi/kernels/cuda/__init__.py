"""CUDA source of the element-wise and row-wise arithmetic of the GPU kernel.

A matrix is a pointer and two strides, counted in numbers; ``AT(x, i, j)`` is its entry. Threads of
a block are laid out as (columns, rows), so that neighbours in x read neighbours in a row; what goes
through a whole row has one thread a row, or several that add their numbers in a fixed order. No
kernel uses atomics: every result depends on the data only. Few use shared memory, in steps that all
threads of a block take together (:mod:`gcnmpi.kernels.cuda.text.loss`). CuPy compiles so that
subnormal numbers of float32 are zero.

There is no port to HIP. It would have to change the masks of ``__shfl_xor_sync``, which have 64
bits there and name all threads of a wavefront, the names and types of cuBLAS in graphs, and
``__launch_bounds__`` of ``GATHERS``.
"""

from __future__ import annotations

import re

from gcnmpi.core import rng
from gcnmpi.kernels.cuda.text import arcs as cuda_arcs
from gcnmpi.kernels.cuda.text import loss as cuda_loss
from gcnmpi.kernels.cuda.text import messages as cuda_messages
from gcnmpi.kernels.cuda.text import neighbours as cuda_neighbours
from gcnmpi.kernels.cuda.text import norms as cuda_norms
from gcnmpi.kernels.cuda.text import pieces as cuda_pieces
from gcnmpi.kernels.cuda.text import products as cuda_products

# Partial sums of a column, in float64, at most; rows that each adds, at least; of all columns.
PARTIALS, ADDED, MOST_PARTIALS = 1024, 16, 1 << 17
ACROSS = 8  # columns whose partial sums a block adds

_TYPES = {"float32": "float", "float64": "double"}


def source(dtype_name: str) -> str:
    """The translation unit for "float32" or "float64"."""
    return f"""
typedef {_TYPES[dtype_name]} T;
typedef long long I;
typedef int S32;
typedef unsigned char U8;
typedef unsigned int U32;
typedef unsigned long long U64;
#define MIX1 {rng.MIX1:#x}u
#define MIX2 {rng.MIX2:#x}u
#define GOLDEN {rng.GOLDEN:#x}ull
#define SPLIT1 {rng.SPLIT1:#x}ull
#define SPLIT2 {rng.SPLIT2:#x}ull
#define ACROSS {ACROSS}
{cuda_messages.DEFINES}{cuda_loss.DEFINES}{_sources()}"""


def declarations() -> dict[str, list[str]]:
    """The kernels in it, and the parameters that each declares: "const T* x", "I rows"."""
    found = re.findall(r"__global__ void (\w+)\(([^)]*)\)", _sources())
    return {
        name: [" ".join(one.replace("__restrict__", "").split()) for one in words.split(",")]
        for name, words in found
    }


def _sources() -> str:
    sums = cuda_pieces, cuda_products, cuda_neighbours, cuda_arcs
    others = (*sums, cuda_loss, cuda_messages, cuda_norms)
    return _KERNELS + "".join(other.KERNELS for other in others)


_KERNELS = r"""
#define DEVICE __device__ __forceinline__
#define UNROLL _Pragma("unroll")
#define ONE_BY_ONE _Pragma("unroll 1")  // where more of it would take too many registers
#define GATHERS __launch_bounds__(256, 4)  // 64 registers: for several gathers at a time
#define EACH_THREAD(t) if (const int t = (int)threadIdx.x; true)
#define TOGETHER __syncthreads();
// To the first `few` of a block's numbers in shared memory, those that are as many apart.
#define ADD_UP(sums, few) \
  for (int half = THREADS / 2; half >= few; half /= 2) { \
    EACH_THREAD(t) { if (t < half) sums[t] += sums[t + half]; } TOGETHER \
  }
#define AT(x, i, j) x[(i) * x##_row + (j) * x##_column]
#define ROW ((I)blockIdx.x * blockDim.y + threadIdx.y)
#define COLUMN ((I)blockIdx.y * blockDim.x + threadIdx.x)
// For `columns` threads a row of numbers: one where the matrix lies column by column.
#define LANE if (ROW >= rows) return; \
  const I i = ROW, lane = COLUMN

// Whether dropout keeps a number: the hash of rng.hash_block, to the bit, unsigned arithmetic only.
static DEVICE bool keeps(U64 key, U32 column, U32 limit) {
  U32 h = (U32)key ^ column;
  h ^= h >> 16;
  h *= MIX1;
  h += (U32)(key >> 32);
  h ^= h >> 15;
  h *= MIX2;
  h ^= h >> 16;
  return h >= limit;
}

// The sum over so many threads next to each other, a power of 2, the same in each.
template <class N> static DEVICE N of_lanes(N sum, I lanes) {
  for (int apart = (int)lanes / 2; apart > 0; apart /= 2)
    sum += __shfl_xor_sync(0xffffffffu, sum, apart);
  return sum;
}

// Element-wise on (rows, columns).

extern "C" __global__ void dropout(
    const T* x, I x_row, I x_column, const U64* row_keys, const U32* column_keys,
    U32 limit, T scale, T* out, I out_row, I out_column, I rows, I columns) {
  const I i = ROW, j = COLUMN;
  if (i >= rows || j >= columns) return;
  AT(out, i, j) = keeps(row_keys[i], column_keys[j], limit) ? AT(x, i, j) * scale : (T)0;
}

// Of the entries of a sparse matrix, whose rows and columns are given.
extern "C" __global__ void drop_entries(
    const T* values, const S32* in_row, const S32* in_column, const U64* row_keys,
    const U32* column_keys, U32 limit, T scale, T* out, I rows, I columns) {
  const I e = ROW;
  if (e >= rows) return;
  const bool kept = keeps(row_keys[in_row[e]], column_keys[in_column[e]], limit);
  out[e] = kept ? values[e] * scale : (T)0;
}

extern "C" __global__ void take_rows(
    const T* x, I x_row, I x_column, const I* rows_taken,
    T* out, I out_row, I out_column, I rows, I columns) {
  const I i = ROW, j = COLUMN;
  if (i >= rows || j >= columns) return;
  AT(out, i, j) = AT(x, rows_taken[i], j);
}

extern "C" __global__ void put_rows(
    const T* x, I x_row, I x_column, const I* rows_put,
    T* out, I out_row, I out_column, I rows, I columns) {
  const I i = ROW, j = COLUMN;
  if (i >= rows || j >= columns) return;
  AT(out, rows_put[i], j) = AT(x, i, j);
}

extern "C" __global__ void normalise_rows(
    T* x, I x_row, I x_column, const T* sums, T scale, I rows, I columns) {
  const I i = ROW, j = COLUMN;
  if (i >= rows || j >= columns) return;
  AT(x, i, j) = AT(x, i, j) / sums[i] * scale;
}

// Partial sums: thread (p, j) adds rows p, p + partials, … of column j in float64.
extern "C" __global__ void partial_sums(
    const T* x, I x_row, I x_column, I logarithms, I length, double* partial, I rows, I columns) {
  const I i = ROW, j = COLUMN;
  if (i >= rows || j >= columns) return;
  double sum = 0;
  for (I r = i; r < length; r += rows) {
    const double value = (double)AT(x, r, j);
    sum += logarithms ? log(value) : value;
  }
  partial[i * columns + j] = sum;
}

// The sums of columns of partial ones, to `wide` or to `out`. A block has ACROSS columns; a thread
// adds partial sums of one that are THREADS / ACROSS apart.
extern "C" __global__ void add_partial_sums(
    const double* partial, I partial_row, I partials, I has_wide, double* wide, T* out, I stride,
    I columns) {
  __shared__ double sums[THREADS];
  const I j = (I)blockIdx.x * ACROSS + threadIdx.x % ACROSS;
  EACH_THREAD(t) {
    double sum = 0;
    for (I p = t / ACROSS; p < partials && j < columns; p += THREADS / ACROSS)
      sum += partial[p * partial_row + j];
    sums[t] = sum;
  } TOGETHER
  ADD_UP(sums, ACROSS)
  if (threadIdx.x >= ACROSS || j >= columns) return;
  if (has_wide) wide[j * stride] = sums[threadIdx.x];
  else out[j * stride] = (T)sums[threadIdx.x];
}

// One thread a number (columns = 1).

static DEVICE U64 splitmix(U64 k) {
  k += GOLDEN;
  k = (k ^ (k >> 30)) * SPLIT1;
  k = (k ^ (k >> 27)) * SPLIT2;
  return k ^ (k >> 31);
}

// rng.row_keys; a graph reads the number of the epoch from memory.
extern "C" __global__ void make_row_keys(
    const U64* vertices, U64 seed, U64 epoch, I has_stored, const U64* stored, U64 layer, U64* keys,
    I rows, I columns) {
  const I i = ROW;
  if (i >= rows) return;
  const U64 number = has_stored ? *stored : epoch;
  const U64 start = splitmix(splitmix(splitmix(seed) ^ number) ^ layer);
  keys[i] = splitmix(vertices[i] * GOLDEN + start);
}

extern "C" __global__ void subtract_at(
    T* x, I x_row, I x_column, const I* places, const I* places_column, T value,
    I rows, I columns) {
  const I i = ROW;
  if (i >= rows) return;
  AT(x, places[i], places_column[i]) -= value;
}

// Moving averages are made in float64 and rounded once: in float32, a factor such as 0.999 is so
// far from it that what it adds up to, 1 / (1 - 0.999), is wrong in the fifth digit.

extern "C" __global__ void sgd_step(
    T* param, T* grad, I has_velocity, T* velocity, T lr, double mu, I rows, I columns) {
  const I i = ROW;
  if (i >= rows) return;
  T v = grad[i];
  if (has_velocity) velocity[i] = v = (T)(mu * (double)velocity[i] + (double)v);
  param[i] -= lr * v;
}

// x / its length · longest if it is longer; `squares` is its length squared.
extern "C" __global__ void shorten(
    T* x, const double* squares, double longest, double tiny, I rows, I columns) {
  const I i = ROW;
  if (i >= rows) return;
  const double length = sqrt(squares[0]) + tiny;
  if (length > longest) x[i] *= (T)(longest / length);
}

extern "C" __global__ void adam_step(
    T* param, const T* grad, T* first, T* second, double beta1, double rest1, double beta2,
    double rest2, T size, T correction, T eps, I rows, I columns) {
  const I i = ROW;
  if (i >= rows) return;
  const double g = grad[i];
  const T m = first[i] = (T)(beta1 * (double)first[i] + rest1 * g);
  const T v = second[i] = (T)(beta2 * (double)second[i] + rest2 * g * g);
  param[i] -= size * m / (sqrt(v) / correction + eps);
}

extern "C" __global__ void row_max(
    const T* x, I x_row, I x_column, I width, T lowest, T* out, I rows, I columns) {
  LANE;
  T best = lowest;
  for (I j = lane; j < width; j += columns) {
    const T value = AT(x, i, j);
    if (value > best || value != value) best = value;
  }
  for (int apart = (int)columns / 2; apart > 0; apart /= 2) {
    const T value = __shfl_xor_sync(0xffffffffu, best, apart);
    if (value > best || value != value) best = value;
  }
  if (lane == 0) out[i] = best;
}

// The first of equals.
extern "C" __global__ void row_argmax(
    const T* x, I x_row, I x_column, I width, I* out, I rows, I columns) {
  LANE;
  I place = lane < width ? lane : 0;
  for (I j = place + columns; j < width; j += columns)
    if (AT(x, i, j) > AT(x, i, place)) place = j;
  T best = AT(x, i, place);
  for (int apart = (int)columns / 2; apart > 0; apart /= 2) {
    const T value = __shfl_xor_sync(0xffffffffu, best, apart);
    const I other = __shfl_xor_sync(0xffffffffu, place, apart);
    if (value > best || (value == best && other < place)) {
      best = value;
      place = other;
    }
  }
  if (lane == 0) out[i] = place;
}

extern "C" __global__ void exp_shifted(
    const T* x, I x_row, I x_column, I width, const T* shift,
    T* out, I out_row, I out_column, T* sums, I rows, I columns) {
  LANE;
  T sum = 0;
  for (I j = lane; j < width; j += columns) {
    const T value = exp(AT(x, i, j) - shift[i]);
    AT(out, i, j) = value;
    sum += value;
  }
  sum = of_lanes(sum, columns);
  if (lane == 0) sums[i] = sum;
}

extern "C" __global__ void pick(
    const T* x, I x_row, I x_column, I width, const I* places, I first, T* out,
    I rows, I columns) {
  const I i = ROW;
  if (i >= rows) return;
  const I j = places[i] - first;
  out[i] = j >= 0 && j < width ? AT(x, i, j) : (T)0;
}
"""
