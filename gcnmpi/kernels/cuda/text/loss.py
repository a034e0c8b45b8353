"""CUDA source of losses and of counts of right predictions, a launch each.

Threads of a block work together, in **steps**: what one writes to shared memory in a step, others
read in the next one (``EACH_THREAD`` { … } ``TOGETHER``). A row has ``LANES`` threads, so that
neighbours read next to each other; a block goes through rows apart from each other by all that the
grid has. Sums are made in a fixed order, in float64, and no atomics are used.
"""

from __future__ import annotations

from gcnmpi.kernels.interface.dense import ENTRY_LOSSES

BLOCKS, THREADS, LANES = 1024, 256, 8
COUNTS = 8  # masks, at most: a bit each

DEFINES = f"#define THREADS {THREADS}\n#define LANES {LANES}\n#define COUNTS {COUNTS}\n" + "".join(
    f"#define {name.upper()} {number}\n" for number, name in enumerate(ENTRY_LOSSES)
)

KERNELS = r"""
#define SLOTS (THREADS / LANES)

// Loss of whole rows and its gradient, which may lie where they are; rows with a label below 0 have
// none. One number a block.
// The label of a row counts right[label], every other column j spread[j]; these add up to `every`.
extern "C" GATHERS __global__ void softmax_cross_entropy(
    const T* z, I z_row, I z_column, I width, const S32* labels,
    const T* right, const T* spread, T every, T scale,
    T* grad, I grad_row, I grad_column, double* losses, I rows, I columns) {
  __shared__ T largest[THREADS], sums[THREADS];
  __shared__ double loss[THREADS];
  EACH_THREAD(t) { loss[t] = 0; } TOGETHER
  for (I first = (I)blockIdx.x * SLOTS; first < rows; first += (I)gridDim.x * SLOTS) {
    EACH_THREAD(t) {
      const I i = first + t / LANES;
      T best = 0;
      if (i < rows && labels[i] >= 0) {
        best = AT(z, i, 0);
        for (I j = t % LANES; j < width; j += LANES)
          if (AT(z, i, j) > best || AT(z, i, j) != AT(z, i, j)) best = AT(z, i, j);
      }
      largest[t] = best;
    } TOGETHER
    EACH_THREAD(t) {
      const I i = first + t / LANES;
      const int slot = t / LANES * LANES;
      T best = largest[slot], sum = 0;
      for (int l = 1; l < LANES; ++l)
        if (largest[slot + l] > best || largest[slot + l] != largest[slot + l])
          best = largest[slot + l];
      if (i < rows)
        for (I j = t % LANES; j < width; j += LANES) {
          const T below = best - AT(z, i, j), value = labels[i] >= 0 ? exp(-below) : (T)0;
          AT(grad, i, j) = value;
          sum += value;
          if (labels[i] >= 0 && spread[j] != 0) loss[t] += (double)(spread[j] * below);
          if (j == labels[i]) loss[t] += (double)(right[j] * below);
        }
      sums[t] = sum;
    } TOGETHER
    EACH_THREAD(t) {
      const I i = first + t / LANES;
      const int slot = t / LANES * LANES;
      if (i < rows && labels[i] >= 0) {
        T sum = 0;
        for (int l = 0; l < LANES; ++l) sum += sums[slot + l];
        const T own = right[labels[i]], weight = own + every;
        for (I j = t % LANES; j < width; j += LANES)
          AT(grad, i, j) = AT(grad, i, j) / sum * (weight * scale) -
              (j == labels[i] ? own + spread[j] : spread[j]) * scale;
        if (t == slot) loss[t] += (double)weight * log((double)sum);
      }
    } TOGETHER
  }
  ADD_UP(loss, 1)
  EACH_THREAD(t) { if (t == 0) losses[blockIdx.x] = loss[0]; } TOGETHER
}

// Loss of each number and its derivative; a label that is NaN is unknown. One number a block.
extern "C" __global__ void entry_losses(
    const T* z, I z_row, I z_column, const T* labels, const T* weights, S32 kind, T delta, T scale,
    T* grad, I grad_row, I grad_column, double* losses, I rows, I columns) {
  __shared__ double loss[THREADS];
  EACH_THREAD(t) {
    double sum = 0;
    for (I k = (I)blockIdx.x * THREADS + t; k < rows * columns; k += (I)gridDim.x * THREADS) {
      const I i = k / columns, j = k % columns;
      const T x = AT(z, i, j), y = labels[k], error = x - y;
      T value = 0, slope = 0;
      if (y != y) {
      } else if (kind == SIGMOID) {
        // e^-|x| overflows nowhere: log(1 + e^-x) = max(-x, 0) + log(1 + e^-|x|).
        const T small = exp(x < 0 ? x : -x), factor = 1 + (weights[j] - 1) * y;
        const T of_one = (x < 0 ? -x : (T)0) + log1p(small);
        value = (1 - y) * x + factor * of_one;
        slope = (1 - y) - factor * ((x < 0 ? (T)1 : small) / (1 + small));
      } else if (kind == SQUARED) {
        value = error * error;
        slope = 2 * error;
      } else if (kind == ABSOLUTE) {
        value = error < 0 ? -error : error;
        slope = error < 0 ? (T)-1 : error > 0 ? (T)1 : error;
      } else {
        slope = error < -delta ? -delta : error > delta ? delta : error;
        value = slope * (error - slope / 2);
      }
      AT(grad, i, j) = slope * scale;
      sum += (double)value;
    }
    loss[t] = sum;
  } TOGETHER
  ADD_UP(loss, 1)
  EACH_THREAD(t) { if (t == 0) losses[blockIdx.x] = loss[0]; } TOGETHER
}

// The sum of `length` numbers, by one block.
extern "C" __global__ void add_losses(const double* losses, double* out, I length) {
  __shared__ double sums[THREADS];
  EACH_THREAD(t) {
    double sum = 0;
    for (I k = t; k < length; k += THREADS) sum += losses[k];
    sums[t] = sum;
  } TOGETHER
  ADD_UP(sums, 1)
  EACH_THREAD(t) { if (t == 0) out[0] = sums[0]; } TOGETHER
}

// How many rows have their largest number, the first one on a tie, in the column of their label; a
// number for each bit of `masks`, each block.
extern "C" __global__ void count_right(
    const T* z, I z_row, I z_column, I width, const S32* labels, const U8* masks, I* counts,
    I rows, I columns) {
  __shared__ T largest[THREADS];
  __shared__ S32 places[THREADS], right[SLOTS];
  __shared__ I sums[COUNTS];
  EACH_THREAD(t) { if (t < COUNTS) sums[t] = 0; } TOGETHER
  for (I first = (I)blockIdx.x * SLOTS; first < rows; first += (I)gridDim.x * SLOTS) {
    EACH_THREAD(t) {
      const I i = first + t / LANES;
      S32 place = t % LANES;
      if (i < rows && place < width) {
        for (I j = place + LANES; j < width; j += LANES)
          if (AT(z, i, j) > AT(z, i, place)) place = (S32)j;
        largest[t] = AT(z, i, place);
      } else {
        place = -1;
      }
      places[t] = place;
    } TOGETHER
    EACH_THREAD(t) {
      const I i = first + t / LANES;
      if (t % LANES == 0) {
        int best = t;
        for (int l = t + 1; l < t + LANES; ++l)
          if (places[l] >= 0 && (largest[l] > largest[best] ||
              (largest[l] == largest[best] && places[l] < places[best]))) best = l;
        right[t / LANES] = i < rows && places[best] == labels[i] ? masks[i] : 0;
      }
    } TOGETHER
    EACH_THREAD(t) {
      if (t < COUNTS)
        for (int slot = 0; slot < SLOTS; ++slot) sums[t] += right[slot] >> t & 1;
    } TOGETHER
  }
  EACH_THREAD(t) { if (t < COUNTS) counts[(I)blockIdx.x * COUNTS + t] = sums[t]; } TOGETHER
}
"""
