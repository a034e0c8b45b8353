// Rows of vertices and rows of entries for Python.
#include "arrays.hpp"

namespace gcnmpi {
namespace {

template <class T>
using Given = Matrix<const T>;
template <class T>
using Perhaps = std::optional<Given<T>>;

constexpr const char* ENTRIES = "not the rows of the entries, or widths differ";
constexpr const char* TARGETS = "not the rows of the pattern, or widths differ";
constexpr const char* SOURCES = "not the columns of the pattern, or widths differ";

template <class M>
Size width_of(const M& array) { return (Size)array.shape(1); }

// Heads, of a number for each of them and rows that they share.
template <class A, class B>
void require_heads(const A& numbers, const B& rows) {
    require(width_of(numbers) > 0 && width_of(rows) % width_of(numbers) == 0, "heads do not fit");
}

template <class T>
void take(
    const Kernel<T>& kernel, const PatternArrays& arrays, const Perhaps<T>& source,
    const Perhaps<T>& target, Matrix<T> out, const Then<T>& then
) {
    const Pattern p = arrays.pattern();
    Rows<const T> from = {}, of = {};
    require(source || target, "rows of neither end");
    require_shape(out, arrays.entries(), width_of(out), ENTRIES);
    if (source) {
        require_shape(*source, p.columns, width_of(out), SOURCES);
        from = rows_of(*source);
    }
    if (target) {
        require_shape(*target, p.rows, width_of(out), TARGETS);
        of = rows_of(*target);
    }
    const Rows<T> to = rows_of(out);
    const Epilogue<T> last = epilogue(then, to);
    const nb::gil_scoped_release released;
    kernel.table.arcs->take(p, from, of, to, last, kernel.threads);
}

void require_way_back(const Pattern& p) {
    require(p.back || p.long_back, "the way back from the columns is not known");
}

template <class T>
void sum_sources(
    const Kernel<T>& kernel, const PatternArrays& arrays, Given<T> x, Matrix<T> out
) {
    const Pattern p = arrays.pattern();
    require_way_back(p);
    require_shape(x, arrays.entries(), width_of(out), ENTRIES);
    require_shape(out, p.columns, width_of(x), SOURCES);
    const auto from = rows_of(x);
    const auto to = rows_of(out);
    const nb::gil_scoped_release released;
    const Extents columns = {p.column_starts, p.column_starts + 1, p.columns};
    if (p.back) {
        const Csr<T, std::int32_t> sums = {columns, p.back, nullptr, nullptr, 0};
        kernel.table.spmm32(sums, from, to, false, {}, kernel.threads);
    } else {
        const Csr<T, Size> sums = {columns, p.long_back, nullptr, nullptr, 0};
        kernel.table.spmm64(sums, from, to, false, {}, kernel.threads);
    }
}

Reductions reductions(const std::vector<int>& kinds, Size width, double least_variance) {
    Reductions wanted = {{-1, -1, -1, -1, -1}, least_variance};
    for (std::size_t i = 0; i < kinds.size(); ++i) {
        require(kinds[i] >= SUM && kinds[i] <= STD, "no such reduction");
        require(wanted.at[kinds[i]] < 0, "a reduction is asked for twice");
        wanted.at[kinds[i]] = (Size)i * width;
    }
    return wanted;
}

template <class T>
void reduce(
    const Kernel<T>& kernel, const PatternArrays& arrays, const std::vector<int>& kinds,
    double least_variance, Given<T> x, Matrix<T> out
) {
    const Pattern p = arrays.pattern();
    const Reductions wanted = reductions(kinds, width_of(x), least_variance);
    require_shape(x, arrays.entries(), width_of(x), ENTRIES);
    require_shape(out, p.rows, (Size)kinds.size() * width_of(x), TARGETS);
    const auto from = rows_of(x);
    const auto to = rows_of(out);
    const nb::gil_scoped_release released;
    kernel.table.reduce(p, wanted, from, to, kernel.threads);
}

template <class T>
void reduce_backward(
    const Kernel<T>& kernel, const PatternArrays& arrays, const std::vector<int>& kinds,
    double least_variance, Given<T> x, Given<T> out, Given<T> grad, Matrix<T> dx
) {
    const Pattern p = arrays.pattern();
    const Reductions wanted = reductions(kinds, width_of(x), least_variance);
    require_shape(x, arrays.entries(), width_of(x), ENTRIES);
    require_shape(out, p.rows, (Size)kinds.size() * width_of(x), TARGETS);
    require_same_shape(grad, out);
    require_same_shape(dx, x);
    const auto from = rows_of(x), result = rows_of(out), back = rows_of(grad);
    const auto to = rows_of(dx);
    const nb::gil_scoped_release released;
    kernel.table.reduce_backward(p, wanted, from, result, back, to, kernel.threads);
}

template <class T>
void softmax(const Kernel<T>& kernel, const PatternArrays& arrays, Given<T> x, Matrix<T> out) {
    require_shape(x, arrays.entries(), width_of(x), ENTRIES);
    require_same_shape(out, x);
    const auto from = rows_of(x);
    const auto to = rows_of(out);
    const nb::gil_scoped_release released;
    kernel.table.softmax(arrays.pattern(), from, to, kernel.threads);
}

template <class T>
void softmax_backward(
    const Kernel<T>& kernel, const PatternArrays& arrays, Given<T> y, Given<T> grad, Matrix<T> out
) {
    require_shape(y, arrays.entries(), width_of(y), ENTRIES);
    require_same_shape(grad, y);
    require_same_shape(out, y);
    const auto from = rows_of(y), back = rows_of(grad);
    const auto to = rows_of(out);
    const nb::gil_scoped_release released;
    kernel.table.softmax_backward(arrays.pattern(), from, back, to, kernel.threads);
}

template <class T>
void spmm_values(
    const Kernel<T>& kernel, const PatternArrays& arrays, Given<T> values, Given<T> x,
    Matrix<T> out, bool transposed
) {
    const Pattern p = arrays.pattern();
    const ArcOperations<T>& arcs = *kernel.table.arcs;
    if (transposed) require_way_back(p);
    require_shape(values, arrays.entries(), width_of(values), ENTRIES);
    const Size ahead = transposed ? p.rows : p.columns, behind = transposed ? p.columns : p.rows;
    require_shape(x, ahead, width_of(x), "x has not the rows at these ends");
    require_shape(out, behind, width_of(x), "out has not the rows at these ends, or widths differ");
    require_heads(values, x);
    const auto weights = rows_of(values), from = rows_of(x);
    const auto to = rows_of(out);
    const nb::gil_scoped_release released;
    (transposed ? arcs.spmm_values_t : arcs.spmm_values)(p, weights, from, to, kernel.threads);
}

template <class T>
void sddmm(
    const Kernel<T>& kernel, const PatternArrays& arrays, Given<T> target, Given<T> source,
    Matrix<T> out
) {
    const Pattern p = arrays.pattern();
    require_shape(target, p.rows, width_of(source), TARGETS);
    require_shape(source, p.columns, width_of(source), SOURCES);
    require_shape(out, arrays.entries(), width_of(out), ENTRIES);
    require_heads(out, source);
    const auto of = rows_of(target), from = rows_of(source);
    const auto to = rows_of(out);
    const nb::gil_scoped_release released;
    kernel.table.arcs->sddmm(p, of, from, to, kernel.threads);
}

template <class T>
void row_dots(const Kernel<T>& kernel, Given<T> x, Given<T> y, Matrix<T> out) {
    require_same_shape(x, y);
    require(x.shape(0) == out.shape(0), "numbers of rows differ");
    require_heads(out, x);
    const auto from = rows_of(x), other = rows_of(y);
    const auto to = rows_of(out);
    const nb::gil_scoped_release released;
    kernel.table.arcs->row_dots(from, other, to, kernel.threads);
}

template <class T>
void scale_heads(const Kernel<T>& kernel, Given<T> values, Given<T> x, Matrix<T> out) {
    require_same_shape(x, out);
    require(values.shape(0) == x.shape(0), "numbers of rows differ");
    require_heads(values, x);
    const auto factors = rows_of(values), from = rows_of(x);
    const auto to = rows_of(out);
    const nb::gil_scoped_release released;
    kernel.table.arcs->scale_heads(factors, from, to, kernel.threads);
}

// The rows of each kind, which have to be below `rows`; weights have `inner` rows for each.
template <class M>
Kinds kinds_of(
    const Flat<const std::int64_t>& order, const Flat<const std::int64_t>& starts, Size rows,
    Size inner, Size width, Size blocks, const M& weights
) {
    const Size count = (Size)starts.shape(0) - 1;
    require(count >= 0 && (Size)order.shape(0) == rows, "not the kinds of the rows");
    require(starts.data()[0] == 0 && starts.data()[count] == rows, "not the kinds of the rows");
    for (Size k = 0; k < count; ++k)
        require(starts.data()[k] <= starts.data()[k + 1], "kinds do not follow each other");
    require(blocks > 0 && inner % blocks == 0 && width % blocks == 0, "blocks do not fit");
    require_shape(weights, count * inner, width / blocks, "not the weights of the kinds");
    return {order.data(), starts.data(), count};
}

template <class T>
void multiply_kinds(
    const Kernel<T>& kernel, const Flat<const std::int64_t>& order,
    const Flat<const std::int64_t>& starts, Given<T> x, Given<T> weights, Size blocks,
    Matrix<T> out
) {
    require(x.shape(0) == out.shape(0), "numbers of rows differ");
    const Size rows = (Size)x.shape(0), inner = width_of(x), width = width_of(out);
    const Kinds kinds = kinds_of(order, starts, rows, inner, width, blocks, weights);
    const auto from = rows_of(x), w = rows_of(weights);
    const auto to = rows_of(out);
    const nb::gil_scoped_release released;
    kernel.table.multiply_kinds(kinds, from, w, blocks, to, kernel.threads);
}

template <class T>
void kinds_gradient(
    const Kernel<T>& kernel, const Flat<const std::int64_t>& order,
    const Flat<const std::int64_t>& starts, Given<T> x, Given<T> grad, Size blocks,
    Matrix<T> weights
) {
    require(x.shape(0) == grad.shape(0), "numbers of rows differ");
    const Size rows = (Size)x.shape(0), inner = width_of(x), width = width_of(grad);
    const Kinds kinds = kinds_of(order, starts, rows, inner, width, blocks, weights);
    const auto from = rows_of(x), back = rows_of(grad);
    const auto w = rows_of(weights);
    const nb::gil_scoped_release released;
    kernel.table.kinds_gradient(kinds, from, back, blocks, w, kernel.threads);
}

}  // namespace

template <class T>
void bind_arcs(nb::class_<Kernel<T>>& kernel) {
    kernel
        .def("take", &take<T>, "pattern"_a, given("source").none(), given("target").none(),
             given("out"), "then"_a.none())
        .def("sum_sources", &sum_sources<T>, "pattern"_a, given("x"), given("out"))
        .def("reduce", &reduce<T>, "pattern"_a, "kinds"_a, "least_variance"_a, given("x"),
             given("out"))
        .def("reduce_backward", &reduce_backward<T>, "pattern"_a, "kinds"_a, "least_variance"_a,
             given("x"), given("out"), given("grad"), given("dx"))
        .def("softmax", &softmax<T>, "pattern"_a, given("x"), given("out"))
        .def("softmax_backward", &softmax_backward<T>, "pattern"_a, given("y"), given("grad"),
             given("out"))
        .def("spmm_values", &spmm_values<T>, "pattern"_a, given("values"), given("x"),
             given("out"), "transposed"_a)
        .def("sddmm", &sddmm<T>, "pattern"_a, given("target"), given("source"), given("out"))
        .def("row_dots", &row_dots<T>, given("x"), given("y"), given("out"))
        .def("scale_heads", &scale_heads<T>, given("values"), given("x"), given("out"))
        .def("multiply_kinds", &multiply_kinds<T>, given("order"), given("starts"), given("x"),
             given("weights"), "blocks"_a, given("out"))
        .def("kinds_gradient", &kinds_gradient<T>, given("order"), given("starts"), given("x"),
             given("grad"), "blocks"_a, given("weights"));
}

template void bind_arcs<float>(nb::class_<Kernel<float>>&);
template void bind_arcs<double>(nb::class_<Kernel<double>>&);

}  // namespace gcnmpi
