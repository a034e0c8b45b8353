// All that a CUDA source sees of CUDA when g++ compiles it: see runtime.cpp.
#pragma once
#include <cmath>
#include <utility>

#define __global__
#define __device__
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
// In a section of its own, so that the runtime knows where it is.
#define __shared__ static __attribute__((section("shared")))
#define OUTSIDE __attribute__((no_sanitize("thread", "undefined")))

struct Three { unsigned x, y, z; };
struct Here { Three thread, block, threads, blocks; };
extern "C" Here here;
extern "C" void barrier(int line);
extern "C" unsigned long long shuffle(unsigned long long mine, unsigned apart);

#define threadIdx here.thread
#define blockIdx here.block
#define blockDim here.threads
#define gridDim here.blocks
#define __syncthreads() barrier(__LINE__)

// Of all lanes of a warp that have not returned, and of numbers of 8 bytes at most.
template <class N> N __shfl_xor_sync(unsigned, N mine, int apart) {
  static_assert(sizeof(N) <= 8);
  unsigned long long bits = 0;
  __builtin_memcpy(&bits, &mine, sizeof(N));
  bits = shuffle(bits, apart);
  __builtin_memcpy(&mine, &bits, sizeof(N));
  return mine;
}

using std::erfc; using std::exp; using std::expm1; using std::log; using std::log1p; using std::sqrt;

template <class... P, std::size_t... N>
OUTSIDE void start(void (*kernel)(P...), void** given, std::index_sequence<N...>) {
  kernel(*(P*)given[N]...);
}
template <class... P>
OUTSIDE void start(void (*kernel)(P...), void** given) {
  start(kernel, given, std::index_sequence_for<P...>());
}
