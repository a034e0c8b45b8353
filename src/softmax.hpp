// Softmax and cross-entropy of whole rows, in one pass over memory.
#pragma once

#include "exponential.hpp"
#include "parallel.hpp"

namespace gcnmpi::TARGET {

template <class T>
inline Bits<T> lane_numbers() {
    Bits<T> lane;
    for (int j = 0; j < LANES<T>; ++j) lane[j] = j;
    return lane;
}

template <class T>
inline Vec<T> first_lanes(int n, Vec<T> v, T others) {
    return lane_numbers<T>() < n ? v : Vec<T>{} + others;
}

// All lanes merged to one number, which stands in all of them unless one is NaN: each with the lane
// whose number differs in one bit, then in the next.
template <class T, int APART = LANES<T> / 2, class Merge>
inline Vec<T> folded(Vec<T> v, Merge merge) {
    if constexpr (APART == 0) {
        return v;
    } else {
        const Vec<T> other = exchanged<T, APART>(v);
        return folded<T, APART / 2>(merge(v, other), merge);
    }
}

// A NaN is lost here; it comes back in the exponentials.
template <class T>
inline Vec<T> larger(Vec<T> a, Vec<T> b) {
    return a > b ? a : b;
}

// Logarithms are slow: one of a product of many factors, each from 1 to the width.
struct LogSum {
    double sum = 0, product = 1;

    void add(double factor, double summand) {
        sum += summand;
        product *= factor;
        if (product > 0x1p900) {
            sum += __builtin_log(product);
            product = 1;
        }
    }
    double total() const { return sum + __builtin_log(product); }
};

template <class T>
struct CrossEntropy {
    Rows<const T> logits;
    const std::int32_t* labels;
    T scale;
    Rows<T> grad;
};

inline constexpr int TOGETHER = 4;  // rows: one alone would wait for itself at every step

// Rows that fit into one vector: the gradient (softmax(z) − onehot(label)) · scale, and
// −log softmax(z)[label] to the sum. Logits and gradient may be the same rows.
template <class T, int ROWS>
void vectors(const CrossEntropy<T>& of, const Size* rows, LogSum& loss) {
    constexpr int N = LANES<T>;
    constexpr T INFINITE = __builtin_inff();
    const Tail<T> tail = {(int)of.logits.width};
    Vec<T> z[ROWS], sums[ROWS];
    T without[ROWS];
#pragma GCC unroll 4
    for (int r = 0; r < ROWS; ++r) {
        const T* from = of.logits.data + rows[r] * of.logits.stride;
        z[r] = tail.n == N ? load(from) : first_lanes<T>(tail.n, tail.load(from), -INFINITE);
        const Vec<T> largest = folded<T>(z[r], larger<T>);
        without[r] = largest[0] - from[of.labels[rows[r]]];
        z[r] -= largest;
    }
#pragma GCC unroll 4
    for (int r = 0; r < ROWS; ++r) {
        z[r] = exponential(z[r]);
        if (tail.n < N) z[r] = first_lanes<T>(tail.n, z[r], T(0));
    }
#pragma GCC unroll 4
    for (int r = 0; r < ROWS; ++r)
        sums[r] = folded<T>(z[r], [](Vec<T> a, Vec<T> b) { return a + b; });
#pragma GCC unroll 4
    for (int r = 0; r < ROWS; ++r) {
        const auto hot = lane_numbers<T>() == (typename BitsOf<T>::type)of.labels[rows[r]];
        T* to = of.grad.data + rows[r] * of.grad.stride;
        tail.store(to, z[r] * (of.scale / sums[r]) - (hot ? Vec<T>{} + of.scale : Vec<T>{}));
        loss.add(sums[r][0], without[r]);
    }
}

// The same for a row of more than one vector.
template <class T>
void wide_row(const CrossEntropy<T>& of, Size row, LogSum& loss) {
    constexpr Size N = LANES<T>;
    constexpr T INFINITE = __builtin_inff();
    const Size width = of.logits.width, label = of.labels[row];
    const T* z = of.logits.data + row * of.logits.stride;
    T* to = of.grad.data + row * of.grad.stride;
    // The last lanes, up to a whole vector of them, stay in a register.
    const Size before = (width - 1) / N * N;
    const Tail<T> tail = {(int)(width - before)};
    Vec<T> rest = first_lanes<T>(tail.n, tail.load(z + before), -INFINITE), most = rest, sums = {};
    for (Size j = 0; j < before; j += N) most = larger<T>(load(z + j), most);
    const Vec<T> largest = folded<T>(most, larger<T>);
    const T without = largest[0] - z[label];  // before `to`, which may be z
    for (Size j = 0; j < before; j += N) {
        const Vec<T> e = exponential(load(z + j) - largest);
        sums += e;
        store(to + j, e);
    }
    rest = first_lanes<T>(tail.n, exponential(rest - largest), T(0));
    sums = folded<T>(sums + rest, [](Vec<T> a, Vec<T> b) { return a + b; });
    const Vec<T> share = of.scale / sums;
    for (Size j = 0; j < before; j += N) store(to + j, load(to + j) * share);
    tail.store(to + before, rest * share);
    to[label] -= of.scale;
    loss.add(sums[0], without);
}

// The sum over rows of a label >= 0; the gradient of the others is 0. Rows are added in groups that
// depend on the sizes only, so the bits do not depend on threads.
template <class T>
double softmax_cross_entropy(
    Rows<const T> logits, const std::int32_t* labels, T scale, Rows<T> grad, int threads
) {
    const CrossEntropy<T> of = {logits, labels, scale, grad};
    const bool narrow = logits.width <= LANES<T>;
    double totals[GROUPS] = {};
    const Size groups = pieces_of(logits.rows * logits.width, GROUPS);
    for_pieces(groups, threads, [&](Size group) {
        LogSum loss;
        Size waiting[TOGETHER], count = 0;
        const Size last = logits.rows * (group + 1) / groups;
        for (Size row = logits.rows * group / groups; row < last; ++row) {
            if (labels[row] < 0) {
                T* to = grad.data + row * grad.stride;
                for (Size j = 0; j < grad.width; ++j) to[j] = T(0);
            } else if (!narrow) {
                wide_row(of, row, loss);
            } else {
                waiting[count++] = row;
                if (count == TOGETHER) {
                    vectors<T, TOGETHER>(of, waiting, loss);
                    count = 0;
                }
            }
        }
        for (Size i = 0; i < count; ++i) vectors<T, 1>(of, waiting + i, loss);
        totals[group] = loss.total();
    });
    double total = 0;
    for (Size group = 0; group < groups; ++group) total += totals[group];
    return total;
}

}  // namespace gcnmpi::TARGET
