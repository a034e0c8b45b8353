// Vectors of one instruction set, in GNU vector extensions: what differs between the sets is how
// the first few lanes are loaded and stored. Every file that includes this one is compiled once for
// each target; the namespace keeps the copies apart. Nothing here or below may use a template of
// the standard library: the linker would merge its copies, and an old CPU would run a new one's.
#pragma once

#if defined(__AVX2__) || defined(__AVX512F__)
#include <immintrin.h>
#endif

namespace gcnmpi::TARGET {

#if defined(__AVX512F__)
inline constexpr int BYTES = 64;
#elif defined(__AVX2__)
inline constexpr int BYTES = 32;
#else
inline constexpr int BYTES = 16;
#endif

template <class T>
struct VecOf {
    typedef T type __attribute__((vector_size(BYTES)));
};
template <class T>
using Vec = typename VecOf<T>::type;
template <class T>
inline constexpr int LANES = BYTES / sizeof(T);

template <class T>
inline Vec<T> load(const T* from) {
    Vec<T> v;
    __builtin_memcpy(&v, from, BYTES);
    return v;
}

template <class T>
inline void store(T* to, Vec<T> v) {
    __builtin_memcpy(to, &v, BYTES);
}

// The first n lanes of a vector, 0 <= n <= LANES; the others are loaded as 0 and never touched.
template <class T>
struct Tail {
    int n;
#if defined(__AVX512F__)
    Vec<T> load(const T* from) const {
        if constexpr (sizeof(T) == 4) {
            return (Vec<T>)_mm512_maskz_loadu_ps((__mmask16)((1u << n) - 1), from);
        } else {
            return (Vec<T>)_mm512_maskz_loadu_pd((__mmask8)((1u << n) - 1), from);
        }
    }
#elif defined(__AVX2__)
    Vec<T> load(const T* from) const {
        alignas(32) static constexpr int KEEP[16] = {-1, -1, -1, -1, -1, -1, -1, -1};
        const int kept = n * (int)(sizeof(T) / 4);  // lanes of 32 bits
        const __m256i mask = _mm256_loadu_si256((const __m256i*)(KEEP + 8 - kept));
        if constexpr (sizeof(T) == 4) {
            return (Vec<T>)_mm256_maskload_ps(from, mask);
        } else {
            return (Vec<T>)_mm256_maskload_pd(from, mask);
        }
    }
#else
    Vec<T> load(const T* from) const {
        Vec<T> v = {};
        for (int i = 0; i < n; ++i) v[i] = from[i];
        return v;
    }
#endif
    // Masked stores are slow on some CPUs: a half, a quarter and so on, as n has them.
    void store(T* to, Vec<T> v) const {
        if (n == LANES<T>) {
            __builtin_memcpy(to, &v, BYTES);
            return;
        }
        T all[LANES<T>];
        __builtin_memcpy(all, &v, BYTES);
        const T* from = all;
#pragma GCC unroll 4
        for (int lanes = LANES<T> / 2; lanes > 0; lanes /= 2)
            if (n & lanes) {
                __builtin_memcpy(to, from, lanes * sizeof(T));
                to += lanes;
                from += lanes;
            }
    }
};

}  // namespace gcnmpi::TARGET
