// The arguments that the module takes from Python: arrays, as the compiled functions want them, and
// epilogues.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <optional>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

#include "operations.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace gcnmpi {

template <class T>
using Flat = nb::ndarray<T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
template <class T>
using Matrix = nb::ndarray<T, nb::ndim<2>, nb::device::cpu>;
template <class T>
using Bytes = nb::ndarray<T, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

inline void require(bool condition, const char* message) {
    if (!condition) throw std::invalid_argument(message);
}

template <class T>
Rows<T> rows_of(const Matrix<T>& array, bool any_columns = false) {
    const Size rows = (Size)array.shape(0), width = (Size)array.shape(1);
    const bool contiguous = rows == 0 || width <= 1 || array.stride(1) == 1;
    require(any_columns || contiguous, "rows are not contiguous");
    return {array.data(), rows, width, array.stride(0)};
}

template <class T>
Weights<T> weights_of(const Matrix<const T>& array) {
    return {array.data(), (Size)array.shape(0), array.stride(0), array.stride(1)};
}

template <class A, class B>
void require_same_shape(const A& a, const B& b) {
    require(a.shape(0) == b.shape(0) && a.shape(1) == b.shape(1), "shapes differ");
}

// The arrays of an epilogue, kept for as long as it is used.
template <class T>
struct EpilogueArrays {
    std::optional<Flat<const T>> bias;
    int kind;
    std::optional<Flat<const std::uint64_t>> rows;
    std::optional<Flat<const std::uint32_t>> columns;
    std::uint32_t mix1, mix2, limit;
    T scale, slope;
    std::optional<Matrix<const T>> output, plus;

    static EpilogueArrays activation(
        std::optional<Flat<const T>> bias, int kind,
        std::optional<Flat<const std::uint64_t>> rows,
        std::optional<Flat<const std::uint32_t>> columns, std::uint32_t mix1, std::uint32_t mix2,
        std::uint32_t limit, T scale, T slope
    ) {
        require(kind >= NONE && kind <= LEAKY_RELU, "no such activation");
        require(rows.has_value() == columns.has_value(), "keys of rows and of columns, or none");
        return {bias, kind, rows, columns, mix1, mix2, limit, scale, slope, {}, {}};
    }

    // `forward` without a bias, and what it gave.
    static EpilogueArrays backward(EpilogueArrays forward, Matrix<const T> output, T scale) {
        forward.output = output;
        forward.scale = scale;
        return forward;
    }

    // The same of a sum.
    static EpilogueArrays of_sum(EpilogueArrays then, Matrix<const T> plus) {
        then.plus = plus;
        return then;
    }

    Epilogue<T> after(const Rows<T>& out) const {
        const auto fits = [](const auto& array, Size size) {
            return !array || (Size)array->shape(0) == size;
        };
        require(fits(bias, out.width), "a bias for each column");
        require(fits(rows, out.rows), "a key for each row");
        require(fits(columns, out.width), "a key for each column");
        Epilogue<T> then = {bias ? bias->data() : nullptr, (Kind)kind, {}, {}, {}, scale, slope};
        if (rows) then.drop = {rows->data(), columns->data(), mix1, mix2, limit, scale};
        const auto as_out = [&out](const Matrix<const T>& array) {
            const Rows<const T> rows = rows_of(array);
            require(rows.rows == out.rows && rows.width == out.width, "shapes differ");
            return rows;
        };
        if (output) then.output = as_out(*output);
        if (plus) then.plus = as_out(*plus);
        return then;
    }
};

template <class T>
using Then = std::optional<EpilogueArrays<T>>;

template <class T>
Epilogue<T> epilogue(const Then<T>& then, const Rows<T>& out) {
    return then ? then->after(out) : Epilogue<T>{};
}

using Short = std::int32_t;
using Indices = Flat<const Short>;
inline constexpr Size SOON = 32;  // entries between a prefetch and its use

// The arrays of sparse rows, kept as long as they are used. Columns are looked at once, where the
// matrix is made, and not in every product.
template <class T>
struct SparseArrays {
    Flat<const Size> begins, ends;
    std::optional<Indices> columns;
    std::optional<Flat<const Size>> long_columns;
    std::optional<Flat<const T>> values, scale;
    Size first, width;

    static SparseArrays of(
        Flat<const Size> begins, Flat<const Size> ends, std::optional<Indices> columns,
        std::optional<Flat<const Size>> long_columns, std::optional<Flat<const T>> values,
        std::optional<Flat<const T>> scale, Size first, Size width
    ) {
        require(begins.shape(0) == ends.shape(0), "each row begins and ends");
        require(columns.has_value() != long_columns.has_value(), "columns of one of two kinds");
        const Size rows = (Size)begins.shape(0);
        const std::size_t entries = columns ? columns->shape(0) : long_columns->shape(0);
        for (Size row = 0; row < rows; ++row) {
            const Size begin = begins.data()[row], end = ends.data()[row];
            require(begin >= 0 && begin <= end && end <= (Size)entries, "rows leave the entries");
        }
        if (values) {
            require(values->shape(0) == entries, "not as many columns and values");
        } else {
            require(scale && (Size)scale->shape(0) == rows, "values, or a number for each row");
        }
        return {begins, ends, columns, long_columns, values, scale, first, width};
    }

    template <class I>
    Csr<T, I> csr() const {
        const auto data = [](const auto& array) { return array ? array->data() : nullptr; };
        const I* found = nullptr;
        if constexpr (std::is_same_v<I, Size>) {
            found = data(long_columns);
        } else {
            found = data(columns);
        }
        return {
            {begins.data(), ends.data(), (Size)begins.shape(0)},
            found,
            data(values),
            data(scale),
            first,
        };
    }
};

// The arrays of a pattern, kept as long as it is used; they are checked where they are made.
struct PatternArrays {
    Flat<const Size> starts;
    Indices indices;
    Flat<const Size> column_starts;
    Indices column_rows;
    std::optional<Indices> places;
    std::optional<Flat<const Size>> long_places;
    std::optional<Indices> back;
    std::optional<Flat<const Size>> long_back;

    Pattern pattern() const {
        const auto data = [](const auto& array) { return array ? array->data() : nullptr; };
        return {
            starts.data(), indices.data(), column_starts.data(), column_rows.data(), data(places),
            data(long_places), data(back), data(long_back), (Size)starts.shape(0) - 1,
            (Size)column_starts.shape(0) - 1,
        };
    }
    Size entries() const { return (Size)indices.shape(0); }
};

template <class M>
void require_shape(const M& array, Size rows, Size width, const char* message) {
    require((Size)array.shape(0) == rows && (Size)array.shape(1) == width, message);
}

// Memory for one call, kept for the next one of the same Python thread: two may use one kernel.
template <class T, int WHICH = 0>
T* scratch(std::size_t numbers) {
    static thread_local std::vector<T> kept;
    if (kept.size() < numbers) kept.resize(numbers);
    return kept.data();
}

// The functions of a target, and how many threads they have.
template <class T>
struct Kernel {
    const Operations<T>& table;
    int threads;
};

// Methods that are bound beside those of the derived class, each group in a file of its own.
template <class T>
void bind_arcs(nb::class_<Kernel<T>>& kernel);
template <class T>
void bind_neighbours(nb::class_<Kernel<T>>& kernel);
template <class T>
void bind_norms(nb::class_<Kernel<T>>& kernel);
template <class T>
void bind_messages(nb::class_<Kernel<T>>& kernel);
void bind_pattern(nb::module_& module);
void bind_numbers(nb::module_& module);
void bind_rows(nb::module_& module);
void bind_sampling(nb::module_& module);

// An array, never converted: a result would go to the copy.
inline auto given(const char* name) { return nb::arg(name).noconvert(); }

}  // namespace gcnmpi
