// What the module calls: one table of functions for each target and floating-point type.
// Matrices are row-major; a row stride counts numbers. Sizes are 64-bit throughout.
#pragma once

#include <cstdint>

namespace gcnmpi {

using Size = std::int64_t;

// Sums over rows are taken in at most so many groups of rows, which are then added in their order:
// the same bits for every number of threads.
inline constexpr Size GROUPS = 16;
inline constexpr Size WIDEST_PANEL = 32;  // numbers in two vectors of 64 bytes, at most

// A dense matrix whose rows are contiguous, `stride` numbers apart.
template <class T>
struct Rows {
    T* data;
    Size rows, width, stride;
};

// Compressed sparse rows: row i has the entries starts[i] .. starts[i + 1].
template <class T, class I>
struct Csr {
    const Size* starts;
    const I* columns;
    const T* values;
    Size rows;
};

// Keys of dropout (null: none), the multipliers of their hash, the hash below which an entry is
// dropped, and what the others are multiplied by.
template <class T>
struct Dropout {
    const std::uint64_t* rows;
    const std::uint32_t* columns;
    std::uint32_t mix1, mix2, limit;
    T scale;
};

// What follows a product, entry by entry: x = dropout(relu(x + bias)), without bias where it is
// null and so on; or, where there is an `output` of that, its backward pass, times `scale`.
template <class T>
struct Epilogue {
    const T* bias;
    bool relu;
    Dropout<T> drop;
    Rows<const T> output;
    T scale;
};

// The factors of both moments and what is missing to 1; lr / (1 - beta1^t), sqrt(1 - beta2^t).
struct AdamStep {
    double beta1, rest1, beta2, rest2, size, root, eps;
};

template <class T>
struct Operations {
    // out = then(m·x) or then(out + m·x).
    void (*spmm32)(
        Csr<T, std::int32_t>, Rows<const T> x, Rows<T> out, bool add, Epilogue<T> then, int threads
    );
    void (*spmm64)(
        Csr<T, std::int64_t>, Rows<const T> x, Rows<T> out, bool add, Epilogue<T> then, int threads
    );
    // The sum of a number of every cache line of the rows that a product gathers: a measure for it.
    T (*gather32)(Csr<T, std::int32_t>, Rows<const T> x, bool prefetch, int threads);
    T (*gather64)(Csr<T, std::int64_t>, Rows<const T> x, bool prefetch, int threads);
    void (*apply)(Epilogue<T>, Rows<const T> x, Rows<T> out, int threads);
    void (*take_rows)(
        Rows<const T> x, const Size* rows, Rows<T> out, Size column_stride, int threads
    );
    // out = then(x·w) or then(out + x·w), where w(k, j) = w[k·w_row + j·w_step]. `packed` has room
    // for x.width × (out.width + WIDEST_PANEL).
    void (*gemm)(
        Rows<const T> x, const T* w, Size w_row, Size w_step, Rows<T> out, bool add,
        Epilogue<T> then, T* packed, int threads
    );
    // out = xᵀ·g or out += xᵀ·g, and sums = the sums of g's columns unless it is null; `partial`
    // has room for GROUPS × x.width × g.width, `partial_sums`, if needed, for GROUPS × g.width.
    void (*gemm_over_rows)(
        Rows<const T> x, Rows<const T> g, Rows<T> out, bool add, T* sums, T* partial,
        double* partial_sums, int threads
    );
    // Sum of −log softmax(z)[label] over the rows of a label >= 0, and its gradient · scale.
    double (*softmax_cross_entropy)(
        Rows<const T> logits, const std::int32_t* labels, T scale, Rows<T> grad, int threads
    );
    void (*column_sum)(Rows<const T> x, T* out, int threads);
    void (*sgd)(T* param, const T* grad, T* velocity, Size n, T lr, double mu, int threads);
    void (*adam)(T* param, const T* grad, T* first, T* second, Size n, AdamStep, int threads);
};

#define GCNMPI_DECLARE(target)                     \
    namespace target {                             \
    extern const Operations<float> float_table;    \
    extern const Operations<double> double_table;  \
    }
GCNMPI_DECLARE(generic)
GCNMPI_DECLARE(avx2)
GCNMPI_DECLARE(avx512)
#undef GCNMPI_DECLARE

}  // namespace gcnmpi
