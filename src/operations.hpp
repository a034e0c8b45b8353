// The functions that the module calls: one table for each target and floating-point type.
// Matrices are row-major; a row stride counts numbers. Sizes are 64-bit throughout.
#pragma once

#include <cstdint>

namespace gcnmpi {

using Size = std::int64_t;

// Sums over rows are taken in at most so many groups of rows, which are then added in their order:
// the same bits for every number of threads.
inline constexpr Size GROUPS = 16;
inline constexpr Size WIDEST_PANEL = 64;  // numbers in four vectors of 64 bytes, at most

// Functions of single numbers.
enum class Function { GELU, SIGMOID, TANH };

// A dense matrix whose rows are contiguous, `stride` numbers apart.
template <class T>
struct Rows {
    T* data;
    Size rows, width, stride;
};

// A dense matrix of few numbers: entry (k, j) is data[k·row + j·step].
template <class T>
struct Weights {
    const T* data;
    Size rows, row, step;
};

// Where the entries of rows are: those of row i are begins[i] .. ends[i].
struct Extents {
    const Size* begins;
    const Size* ends;
    Size rows;

    // Where those of a row begin, or those of the last row end.
    Size before(Size row) const {
        if (rows == 0) return 0;
        return row == rows ? ends[row - 1] : begins[row];
    }
    // Entries, with those of other rows that lie between, and rows.
    Size work() const { return before(rows) - before(0) + rows; }
};

// Sparse rows, whose columns count from `first`. Without values, those of row i are all scale[i],
// or 1.
template <class T, class I>
struct Csr : Extents {
    const I* columns;
    const T* values;
    const T* scale;
    Size first;
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

enum Kind : int { NONE, RELU, ELU, LEAKY_RELU };
enum Format : int { BF16, FP16, INT8 };  // of the rows in messages: see messages.hpp

// The epilogue of a product, entry by entry: x = dropout(f(x + plus + bias)) with f of a kind,
// without bias where it is null and so on; or, where there is an `output` of that, its backward
// pass at x + plus, times `scale`. `slope` is that of f below 0.
template <class T>
struct Epilogue {
    const T* bias;
    Kind kind;
    Dropout<T> drop;
    Rows<const T> output, plus;
    T scale, slope;
};

// Which columns a row has, in their global order, and which rows a column has, in order; where
// each entry by rows is among those by columns stands in one of two arrays, the way back in one of
// the next two.
struct Pattern {
    const Size* starts;
    const std::int32_t* indices;
    const Size* column_starts;
    const std::int32_t* column_rows;
    const std::int32_t* places;
    const Size* long_places;
    const std::int32_t* back;
    const Size* long_back;
    Size rows, columns;
};

inline constexpr Size FACTS = 4;  // numbers for each row and head that a backward pass makes

// Attention over rows x of a pattern's columns: heads of c columns each, and the slope of
// leaky_relu. Column keys of dropout are those of (column, head).
template <class T>
struct Attention {
    Pattern pattern;
    Rows<const T> x;
    Size heads, c;
    T slope;
    Dropout<T> drop;
};

// Functions of the entries of a row, as gcnmpi/core/functions.py has them.
enum Reduction : int { SUM, MEAN, MAX, MIN, STD };
inline constexpr int REDUCTIONS = 5;

// In which column of the result each begins; -1 where it is not asked for. Variances up to the
// least one count as 0.
struct Reductions {
    Size at[REDUCTIONS];
    double least_variance;
};

// The factors of both moments and what is missing to 1; lr / (1 - beta1^t), sqrt(1 - beta2^t).
struct AdamStep {
    double beta1, rest1, beta2, rest2, size, root, eps;
};

// The numbers of the rows of each kind: those of kind k from starts[k] to starts[k + 1].
struct Kinds {
    const Size* order;
    const Size* starts;
    Size count;
};

// Arcs, from row to row: see arcs.hpp. Of the addends of `take`, one may be null.
template <class T>
struct ArcOperations {
    void (*take)(
        Pattern, Rows<const T> source, Rows<const T> target, Rows<T> out, Epilogue<T> then,
        int threads
    );
    void (*spmm_values)(
        Pattern, Rows<const T> values, Rows<const T> x, Rows<T> out, int threads
    );
    void (*spmm_values_t)(
        Pattern, Rows<const T> values, Rows<const T> x, Rows<T> out, int threads
    );
    void (*sddmm)(
        Pattern, Rows<const T> target, Rows<const T> source, Rows<T> out, int threads
    );
    void (*row_dots)(Rows<const T> x, Rows<const T> y, Rows<T> out, int threads);
    void (*scale_heads)(Rows<const T> values, Rows<const T> x, Rows<T> out, int threads);
    // See attention.hpp and attention_v2.hpp.
    void (*attend)(
        Attention<T>, Rows<const T> t, Rows<const T> s, Rows<T> out, Rows<T> shift, Rows<T> total,
        int threads
    );
    void (*attend_backward)(
        Attention<T>, Rows<const T> t, Rows<const T> s, Rows<const T> shift, Rows<const T> total,
        Rows<const T> y, Rows<const T> grad, Rows<T> dx, Rows<T> dt, Rows<T> ds, T* scratch,
        int threads
    );
    void (*attend_v2)(
        Attention<T>, Rows<const T> x2, const T* vector, Rows<T> out, Rows<T> shift, Rows<T> total,
        T* scratch, int threads
    );
    void (*attend_v2_backward)(
        Attention<T>, Rows<const T> x2, const T* vector, Rows<const T> shift, Rows<const T> total,
        Rows<const T> y, Rows<const T> grad, Rows<T> dx1, Rows<T> dx2, T* dvector, T* scratch,
        double* partial, int threads
    );
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
    // out = then(x·w + y·v) or then(out + x·w + y·v); y may have no columns. `packed` has room for
    // (x.width + y.width) × (out.width + WIDEST_PANEL).
    void (*gemm)(
        Rows<const T> x, Weights<T> w, Rows<const T> y, Weights<T> v, Rows<T> out, bool add,
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

    // Of entries of a row: see strips.hpp.
    void (*reduce)(Pattern, Reductions, Rows<const T> x, Rows<T> out, int threads);
    void (*reduce_backward)(
        Pattern, Reductions, Rows<const T> x, Rows<const T> out, Rows<const T> grad, Rows<T> dx,
        int threads
    );
    void (*softmax)(Pattern, Rows<const T> x, Rows<T> out, int threads);
    void (*softmax_backward)(
        Pattern, Rows<const T> y, Rows<const T> grad, Rows<T> out, int threads
    );
    // Of weights on top of each other: see kinds.hpp.
    void (*multiply_kinds)(
        Kinds, Rows<const T> x, Rows<const T> w, Size blocks, Rows<T> out, int threads
    );
    void (*kinds_gradient)(
        Kinds, Rows<const T> x, Rows<const T> grad, Size blocks, Rows<T> w, int threads
    );
    // See maximum.hpp.
    void (*max_aggregate)(
        Pattern, Rows<const T> x, Rows<T> out, Rows<std::int32_t> arg, int threads
    );
    void (*max_aggregate_backward)(
        Rows<const T> grad, Rows<const std::int32_t> arg, Rows<T> out, int threads
    );
    void (*head_dots)(Rows<const T> x, const T* vector, Rows<T> out, int threads);
    void (*head_dots_backward)(
        Rows<const T> x, const T* vector, Rows<const T> dout, Rows<T> dx, T* dvector, bool add,
        double* partial, int threads
    );

    // Norms: see norms.hpp.
    void (*row_sums)(Rows<const T> x, const T* mean, bool square, T* out, int threads);
    void (*normalise_rows)(
        Rows<const T> x, const T* mean, const T* rstd, const T* weight, const T* bias, Rows<T> out,
        int threads
    );
    void (*normalise_rows_sums)(
        Rows<const T> x, const T* mean, const T* rstd, const T* weight, Rows<const T> grad, T* out,
        int threads
    );
    void (*normalise_rows_backward)(
        Rows<const T> x, const T* mean, const T* rstd, const T* weight, Rows<const T> grad,
        const T* centre, const T* along, Rows<T> out, int threads
    );
    void (*normalised_column_sums)(
        Rows<const T> x, const T* mean, const T* rstd, Rows<const T> grad, T* dweight, T* dbias,
        int threads
    );
    void (*layer_norm)(
        Rows<const T> x, const T* weight, const T* bias, T eps, Rows<T> out, T* mean, T* rstd,
        int threads
    );
    void (*layer_norm_backward)(
        Rows<const T> x, const T* mean, const T* rstd, const T* weight, Rows<const T> grad,
        Rows<T> out, T* dweight, T* dbias, double* partial, int threads
    );
    void (*column_moments)(Rows<const T> x, const double* pivot, double* out, int threads);
    void (*column_grad_sums)(
        Rows<const T> x, const T* mean, const T* rstd, Rows<const T> grad, double* out, int threads
    );
    void (*scale_columns)(
        Rows<const T> x, const T* a, Rows<const T> y, const T* b, const T* c, Rows<T> out,
        int threads
    );

    // Entry by entry: see elementwise.hpp.
    void (*combine)(Rows<const T> x, T a, Rows<const T> y, T b, Rows<T> out, int threads);
    double (*dot)(Rows<const T> x, Rows<const T> y, int threads);
    double (*leaky_backward)(
        Rows<const T> x, Rows<const T> grad, T slope, Rows<T> out, int threads
    );
    void (*maximum)(const Rows<const T>* xs, Size count, Rows<T> out, int threads);
    void (*maximum_backward)(
        Rows<const T> grad, Rows<const T> out, const Rows<const T>* xs, Size i, Rows<T> dx,
        int threads
    );
    void (*mean_of_heads)(Rows<const T> x, Size heads, Rows<T> out, int threads);
    void (*mean_of_heads_backward)(Rows<const T> grad, Size heads, Rows<T> out, int threads);
    void (*function)(
        Function kind, Rows<const T> x, Rows<const T> grad, Rows<T> out, int threads
    );

    // Rows of messages, `row_bytes` apart. Of the dropout, `rows`, `columns` and the multipliers.
    void (*encode_rows)(
        Rows<const T> x, Format, Dropout<T> hash, std::uint8_t* out, Size row_bytes, int threads
    );
    void (*decode_rows)(
        const std::uint8_t* in, Size row_bytes, Format, Rows<T> out, int threads
    );

    const ArcOperations<T>* arcs;
};

#define GCNMPI_DECLARE(target)                     \
    namespace target {                             \
    extern const Operations<float> float_table;    \
    extern const Operations<double> double_table;  \
    extern const ArcOperations<float> float_arcs;  \
    extern const ArcOperations<double> double_arcs; \
    }
GCNMPI_DECLARE(generic)
GCNMPI_DECLARE(avx2)
GCNMPI_DECLARE(avx512)
#undef GCNMPI_DECLARE

}  // namespace gcnmpi
