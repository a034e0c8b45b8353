// What the module calls: one table of functions for each target and floating-point type.
// Matrices are row-major; a row stride counts numbers. Sizes are 64-bit throughout.
#pragma once

#include <cstdint>

namespace gcnmpi {

using Size = std::int64_t;

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

template <class T>
struct AdamStep {
    T beta1, beta2, size, root, eps;  // size: lr / (1 - beta1^t); root: sqrt(1 - beta2^t)
};

template <class T>
struct Operations {
    void (*spmm32)(Csr<T, std::int32_t>, Rows<const T> x, Rows<T> out, bool add, int threads);
    void (*spmm64)(Csr<T, std::int64_t>, Rows<const T> x, Rows<T> out, bool add, int threads);
    // out = dropout(relu(x + bias)); without bias where it is null, and so on.
    void (*activate)(
        Rows<const T> x, const T* bias, bool relu, Dropout<T>, Rows<T> out, int threads
    );
    void (*relu_backward)(Rows<T> grad, Rows<const T> output, T scale, int threads);
    void (*take_rows)(
        Rows<const T> x, const Size* rows, Rows<T> out, Size column_stride, int threads
    );
    void (*column_sum)(Rows<const T> x, T* out, int threads);
    void (*sgd)(T* param, const T* grad, T* velocity, Size n, T lr, T mu, int threads);
    void (*adam)(T* param, const T* grad, T* first, T* second, Size n, AdamStep<T>, int threads);
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
