// Vectors of one instruction set, in GNU vector extensions: what differs between the sets is how
// the first few lanes are loaded and stored, and masks. Every file that includes this one is
// compiled once for each target; the namespace keeps the copies apart. Nothing here or below may
// use a template of the standard library: the linker would merge its copies, and an old CPU would
// run a new one's.
#pragma once

#include <cstdint>

#if defined(__AVX2__) || defined(__AVX512F__)
#include <immintrin.h>
#endif

// Of a lambda, whose vectors stay in registers.
#define GCNMPI_INLINE __attribute__((always_inline))

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

template <class E, int N>
struct Several {  // N numbers, not only as many as fill a vector
    typedef E type __attribute__((vector_size(N * sizeof(E))));
};

template <class T>
struct BitsOf;
template <>
struct BitsOf<float> {
    typedef std::int32_t type;
};
template <>
struct BitsOf<double> {
    typedef std::int64_t type;
};
template <class T>
using Bits = typename VecOf<typename BitsOf<T>::type>::type;

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

// Lane HALF and those after it, from lane 0 on.
template <class T, int HALF>
inline Vec<T> moved_down(Vec<T> v) {
#if defined(__clang__)
    Vec<T> moved;
    for (int j = 0; j < LANES<T>; ++j) moved[j] = v[(j + HALF) % LANES<T>];
    return moved;
#else
    Bits<T> from;
#pragma GCC unroll 16
    for (int j = 0; j < LANES<T>; ++j) from[j] = j + HALF;  // modulo their number
    return __builtin_shuffle(v, from);
#endif
}

// Each lane with the one whose number differs in the bit APART.
template <class T, int APART>
inline Vec<T> exchanged(Vec<T> v) {
#if defined(__clang__)
    Vec<T> other;
    for (int j = 0; j < LANES<T>; ++j) other[j] = v[j ^ APART];
    return other;
#else
    Bits<T> from;
#pragma GCC unroll 16
    for (int j = 0; j < LANES<T>; ++j) from[j] = j ^ APART;
    return __builtin_shuffle(v, from);
#endif
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
        if (n == LANES<T>) return TARGET::load(from);
        Vec<T> v = {};
        for (int i = 0; i < n; ++i) v[i] = from[i];
        return v;
    }
#endif
    // Masked stores are slow on some CPUs: a half, a quarter and so on, as n has them. Shuffled,
    // not taken from an array: GCC would then keep all the sums of a tile in memory.
    void store(T* to, Vec<T> v) const {
        if (n == LANES<T>) {
            __builtin_memcpy(to, &v, BYTES);
        } else {
            store_half<LANES<T> / 2>(to, v);
        }
    }

private:
    template <int HALF>
    void store_half(T* to, Vec<T> v) const {
        if (n & HALF) {
            __builtin_memcpy(to, &v, HALF * sizeof(T));
            to += HALF;
            v = moved_down<T, HALF>(v);
        }
        if constexpr (HALF > 1) store_half<HALF / 2>(to, v);
    }
};

template <class T>
using Keys = typename Several<std::uint32_t, LANES<T>>::type;

// v where a key is at least so much, else 0. Masks of AVX-512 are the same for numbers of any size,
// but in vector extensions they are vectors themselves, which would have to be widened.
template <class T>
inline Vec<T> where_at_least(Keys<T> keys, std::uint32_t limit, Vec<T> v) {
#if defined(__AVX512VL__)
    if constexpr (sizeof(T) == 8) {
        const __m256i least = _mm256_set1_epi32((int)limit);
        return (Vec<T>)_mm512_maskz_mov_pd(
            _mm256_cmpge_epu32_mask((__m256i)keys, least), (__m512d)v
        );
    }
#endif
    return __builtin_convertvector(keys >= limit, Bits<T>) ? v : Vec<T>{};
}

// All lanes, with the functions of Tail.
template <class T>
struct Whole {
    Vec<T> load(const T* from) const { return TARGET::load(from); }
    void store(T* to, Vec<T> v) const { TARGET::store(to, v); }
};

// body(j, lanes) for the vectors of a row of numbers, and for its last ones.
template <class T, class Body>
[[gnu::always_inline]] inline void over_vectors(std::int64_t width, Body body) {
    const int rest = width & (LANES<T> - 1);  // known before the loop
    for (std::int64_t j = 0; j < width - rest; j += LANES<T>) body(j, Whole<T>{});
    if (rest) body(width - rest, Tail<T>{rest});
}

#ifdef FEW_PANELS
inline constexpr int PANEL = 4;  // half of the code, of which much is rarely run
#else
inline constexpr int PANEL = 8;  // vectors of sums: with them, AVX2 uses 11 of 16 registers
#endif

// A panel of `full` whole vectors, V or more, and `rest` lanes of one more.
template <class Body, int V = 0>
[[gnu::always_inline]] inline void panel_of_head(
    const Body& body, std::int64_t head, std::int64_t column, int full, int rest
) {
    if constexpr (V < Body::MOST)
        if (full > V) return panel_of_head<Body, V + 1>(body, head, column, full, rest);
    if constexpr (V > 0 && (V & (V - 1)) == 0)
        if (!rest) return body.template run<V, 1, false>(head, column, 0);
    body.template run<V, 1, true>(head, column, rest);
}

// body.run<V, H, PART>(head, column, rest) for the panels of a head of c columns: V vectors, and
// the first lanes of one more if PART; H is more than 1 in heads.hpp only. Widths that are a power
// of 2 have code for whole vectors; elsewhere the last vector counts as one with a rest, as there
// would be much code.
template <class T, class Body>
[[gnu::always_inline]] inline void panels_of_head(
    std::int64_t head, std::int64_t c, const Body& body
) {
    constexpr int N = LANES<T>, MOST = Body::MOST;
    for (std::int64_t start = 0; start < c;) {
        const std::int64_t left = c - start;
        int full = left / N < MOST ? (int)(left / N) : MOST;
        int rest = left - full * N < N ? (int)(left - full * N) : 0;
        if (!rest && (full & (full - 1))) {
            --full;
            rest = N;
        }
        panel_of_head(body, head, head * c + start, full, rest);
        start += full * N + rest;
    }
}

// Neither inlined nor cloned, as it is a lot of code.
template <class T, class Body>
[[gnu::noinline, gnu::noclone]] void over_panels(std::int64_t width, const Body& body) {
    panels_of_head<T>(0, width, body);
}

}  // namespace gcnmpi::TARGET
