// Rows of messages in fewer bits: the formats of gcnmpi/core/precision.py, to the bit those of
// gcnmpi/kernels/host/messages.py. Every number depends on its row only; only products by
// themselves and integers follow each other, so no contraction of two operations into one changes
// a bit.
#pragma once

#include "parallel.hpp"
#include "simd.hpp"

namespace gcnmpi::TARGET {

// Numbers and scales lie anywhere in a message.
typedef std::uint16_t Half __attribute__((aligned(1), may_alias));

inline constexpr std::uint32_t INFINITE = 0x7f800000u;  // bits of a float: above are NaNs
inline constexpr std::uint32_t NOT_A_NUMBER = 0x7fc00000u;
inline constexpr std::int32_t TOP = 127 << 16;          // the largest number of a row, in 1/2^16

inline std::uint32_t bits_of(float x) {
    std::uint32_t bits;
    __builtin_memcpy(&bits, &x, sizeof bits);
    return bits;
}

inline float float_of(std::uint32_t bits) {
    float x;
    __builtin_memcpy(&x, &bits, sizeof x);
    return x;
}

// Bits of a number as a float32; a subnormal one is a zero, as it is on GPUs.
template <class T>
inline std::uint32_t sent_bits(T x) {
    const std::uint32_t bits = bits_of((float)x);
    return bits & INFINITE ? bits : bits & 0x80000000u;
}

// 2^k of a normal float.
inline float power_of_2(int k) { return float_of((std::uint32_t)(k + 127) << 23); }

// Bits of the largest absolute value: those of infinities and NaNs are above all others.
template <class T>
inline std::uint32_t largest_bits(const T* from, Size width) {
    std::uint32_t largest = 0;
#pragma omp simd reduction(max : largest)
    for (Size j = 0; j < width; ++j) {
        const std::uint32_t bits = bits_of((float)from[j]) & 0x7fffffffu;
        largest = bits > largest ? bits : largest;
    }
    return largest;
}

inline void clear(std::uint8_t* bytes, Size count) {
    for (Size i = 0; i < count; ++i) bytes[i] = 0;
}

// The upper half, rounded to nearest, ties to even.
template <class T>
inline void encode_bf16(const T* from, std::uint8_t* out, Size width) {
    Half* to = (Half*)out;
#pragma omp simd
    for (Size j = 0; j < width; ++j) {
        const std::uint32_t u = sent_bits(from[j]);
        const std::uint32_t nearest = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
        to[j] = (std::uint16_t)((u & 0x7fffffffu) > INFINITE ? (u >> 16) | 0x40u : nearest);
    }
}

// So many numbers at a time: with as many as fill a vector of bytes, GCC decodes what is left of
// narrow rows, or all of them, one by one.
inline constexpr int AT_ONCE = LANES<float>;

template <class T>
inline void decode_bf16(const std::uint8_t* in, T* to, Size width) {
    const Half* from = (const Half*)in;
#pragma omp simd safelen(AT_ONCE)
    for (Size j = 0; j < width; ++j) to[j] = (T)float_of((std::uint32_t)from[j] << 16);
}

// Half precision of x·2^s, where the row's largest number comes to lie in 2^14 .. 2^15; the last
// byte has what undoes it, 14 - s, or -128 for a row that is not finite.
template <class T>
inline void encode_fp16(const T* from, std::uint8_t* out, Size width) {
    const std::uint32_t largest = largest_bits(from, width);
    int exponent = (int)(largest >> 23) - 127;
    exponent = exponent < -112 ? -112 : exponent;
    const bool finite = largest < INFINITE;
    out[2 * width] = (std::uint8_t)(std::int8_t)(finite ? exponent : -128);
    if (!finite) return clear(out, 2 * width);
    const float factor = power_of_2(14 - exponent);
    Half* to = (Half*)out;
#pragma omp simd
    for (Size j = 0; j < width; ++j) {
        const std::uint32_t u = bits_of(float_of(sent_bits(from[j])) * factor), a = u & 0x7fffffffu;
        // Below 2^-14, the addition rounds to multiples of 2^-24.
        const std::uint32_t small = bits_of(float_of(a) + 0.5f) - (126u << 23);
        const std::uint32_t normal = (a - (112u << 23) + 0xfffu + ((a >> 13) & 1u)) >> 13;
        to[j] = (std::uint16_t)(((u >> 16) & 0x8000u) | (a < (113u << 23) ? small : normal));
    }
}

template <class T>
inline void decode_fp16(const std::uint8_t* in, T* to, Size width) {
    const int exponent = (std::int8_t)in[2 * width];
    const float factor = exponent < -112 ? float_of(NOT_A_NUMBER) : power_of_2(exponent - 14);
    const Half* from = (const Half*)in;
#pragma omp simd safelen(AT_ONCE)
    for (Size j = 0; j < width; ++j) {
        const std::uint32_t h = from[j], m = h & 0x7fffu;
        const std::uint32_t small = bits_of((float)(std::int32_t)m * power_of_2(-24));
        const std::uint32_t a = m < 0x400u ? small : (m << 13) + (112u << 23);
        to[j] = (T)(float_of(a | ((h & 0x8000u) << 16)) * factor);
    }
}

// Multiples of largest/127, up or down at random: on average the number itself. The last four
// bytes have the largest absolute value; NaN for a row that is not finite.
template <class T>
inline void encode_int8(
    const T* from, std::uint8_t* out, Size width, std::uint64_t key, const Dropout<T>& hash
) {
    const std::uint32_t bits = largest_bits(from, width);
    const bool finite = bits < INFINITE, tiny = bits < (27u << 23);  // 2^-100: 1/x has no float
    const float largest = tiny ? 0.0f : finite ? float_of(bits) : float_of(NOT_A_NUMBER);
    __builtin_memcpy(out + width, &largest, sizeof largest);
    if (!finite) return clear(out, width);
    const float factor = tiny ? 0.0f : (float)TOP / largest;
    const std::uint32_t low = (std::uint32_t)key, high = (std::uint32_t)(key >> 32);
    // Copies: bytes that are written might be those of `hash`.
    const std::uint32_t *columns = hash.columns, mix1 = hash.mix1, mix2 = hash.mix2;
#pragma omp simd
    for (Size j = 0; j < width; ++j) {
        std::uint32_t h = low ^ columns[j];
        h = (h ^ (h >> 16)) * mix1 + high;
        h = (h ^ (h >> 15)) * mix2;
        std::int32_t v = (std::int32_t)((float)from[j] * factor);
        v = v > TOP ? TOP : v < -TOP ? -TOP : v;
        out[j] = (std::uint8_t)((v + (std::int32_t)((h ^ (h >> 16)) >> 16)) >> 16);
    }
}

template <class T>
inline void decode_int8(const std::uint8_t* in, T* to, Size width) {
    float largest;
    __builtin_memcpy(&largest, in + width, sizeof largest);
    const float step = largest / 127.0f;
#pragma omp simd safelen(2 * AT_ONCE)
    for (Size j = 0; j < width; ++j) to[j] = (T)((float)(std::int8_t)in[j] * step);
}

template <class T>
void encode_rows(
    Rows<const T> x, Format format, Dropout<T> hash, std::uint8_t* out, Size row_bytes, int threads
) {
    for_ranges(x.rows, x.width, threads, [=](Size first, Size last) {
        for (Size row = first; row < last; ++row) {
            const T* from = x.data + row * x.stride;
            std::uint8_t* to = out + row * row_bytes;
            if (format == BF16) encode_bf16(from, to, x.width);
            if (format == FP16) encode_fp16(from, to, x.width);
            if (format == INT8) encode_int8(from, to, x.width, hash.rows[row], hash);
        }
    });
}

template <class T>
void decode_rows(
    const std::uint8_t* in, Size row_bytes, Format format, Rows<T> out, int threads
) {
    const auto over = [=](auto decode) {  // a loop for each, which has the registers to itself
        for_ranges(out.rows, out.width, threads, [=](Size first, Size last) {
            for (Size row = first; row < last; ++row)
                decode(in + row * row_bytes, out.data + row * out.stride, out.width);
        });
    };
    switch (format) {
        case BF16: return over([](auto... row) { decode_bf16<T>(row...); });
        case FP16: return over([](auto... row) { decode_fp16<T>(row...); });
        case INT8: return over([](auto... row) { decode_int8<T>(row...); });
    }
}

}  // namespace gcnmpi::TARGET
