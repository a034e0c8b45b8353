// The exponential function of a vector of numbers that are not positive, and what is made of it.
#pragma once

#include "simd.hpp"

namespace gcnmpi::TARGET {

// e^x = (1 + part)·power, the second a power of 2.
template <class T>
struct Exponential {
    Vec<T> part, power;
};

// Of x <= 0 (NaN stays); power is 0 where e^x is hardly a normal number: x = n·log 2 + r, with
// |r| <= log 2 / 2. The sum of a number of 2^p and a small one rounds the latter to a whole number,
// which then stands in the lowest bits.
inline Exponential<float> parts_of(Vec<float> x) {
    const Vec<float> lowest = Vec<float>{} - 87.0f;  // the smallest normal number is not far
    const auto gone = x < lowest;
    x = gone ? lowest : x;
    const Vec<float> shifted = x * 1.44269504f + 12582912.0f, n = shifted - 12582912.0f;
    const Vec<float> r = x - n * 0.693359375f + n * 2.12194440e-4f;
    // Cephes, expf: within an ulp or so.
    Vec<float> p = 1.9875691500e-4f * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    // Without a sign, so that lanes with other numbers, whose result nobody takes, may overflow.
    const Vec<float> power =
        (Vec<float>)(((VecOf<std::uint32_t>::type)shifted << 23) + 0x3f800000u);
    return {p * r * r + r, gone ? Vec<float>{} : power};
}

inline Exponential<double> parts_of(Vec<double> x) {
    const Vec<double> lowest = Vec<double>{} - 708.0;
    const auto gone = x < lowest;
    x = gone ? lowest : x;
    const Vec<double> shifted = x * 1.4426950408889634 + 6755399441055744.0;
    const Vec<double> n = shifted - 6755399441055744.0;
    const Vec<double> r = x - n * 6.93145751953125e-1 - n * 1.42860682030941723212e-6;
    // Cephes, exp: e^r = 1 + 2·P / (Q - P), where P is odd and Q even.
    const Vec<double> rr = r * r;
    Vec<double> p = 1.26177193074810590878e-4 * rr + 3.02994407707441961300e-2;
    p = (p * rr + 9.99999999999999999910e-1) * r;
    Vec<double> q = 3.00198505138664455042e-6 * rr + 2.52448340349684104192e-3;
    q = q * rr + 2.27265548208155028766e-1;
    q = q * rr + 2.0;
    const Vec<double> power =
        (Vec<double>)(((VecOf<std::uint64_t>::type)shifted << 52) + 0x3ff0000000000000u);
    return {2.0 * p / (q - p), gone ? Vec<double>{} : power};
}

// e^x for x <= 0.
template <class V>
inline V exponential(V x) {
    const auto e = parts_of(x);
    return (e.part + 1) * e.power;
}

// x where it is positive, e^x - 1 elsewhere, without cancellation about 0.
template <class V>
inline V elu_of(V x) {
    const auto e = parts_of(x > 0 ? V{} : x);
    return x > 0 ? x : e.part * e.power + (e.power - 1);
}

}  // namespace gcnmpi::TARGET
