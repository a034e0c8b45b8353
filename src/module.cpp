// The Python module: checks shapes, lets the interpreter go, calls the table of the chosen target.
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
namespace {

template <class T>
using Flat = nb::ndarray<T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
template <class T>
using Matrix = nb::ndarray<T, nb::ndim<2>, nb::device::cpu>;

void require(bool condition, const char* message) {
    if (!condition) throw std::invalid_argument(message);
}

template <class T>
Rows<T> rows_of(const Matrix<T>& array, bool any_columns = false) {
    const Size rows = (Size)array.shape(0), width = (Size)array.shape(1);
    const bool contiguous = rows == 0 || width <= 1 || array.stride(1) == 1;
    require(any_columns || contiguous, "rows are not contiguous");
    return {array.data(), rows, width, array.stride(0)};
}

template <class A, class B>
void require_same_shape(const A& a, const B& b) {
    require(a.shape(0) == b.shape(0) && a.shape(1) == b.shape(1), "shapes differ");
}

// Targets that were compiled and that this CPU runs, the best one first.
std::vector<std::string> targets() {
    std::vector<std::string> found;
#ifdef WITH_AVX512
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
        found.push_back("avx512");
#endif
#ifdef WITH_AVX2
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) found.push_back("avx2");
#endif
    found.push_back("generic");
    return found;
}

template <class T>
const Operations<T>& table_of(const std::string& target) {
    constexpr bool SINGLE = std::is_same_v<T, float>;
    bool known = false;
    for (const std::string& name : targets()) known = known || name == target;
    require(known, "this target was not compiled, or this CPU does not run it");
#define TABLE(name)                                     \
    if (target == #name) {                              \
        if constexpr (SINGLE) return name::float_table; \
        else return name::double_table;                 \
    }
#ifdef WITH_AVX512
    TABLE(avx512)
#endif
#ifdef WITH_AVX2
    TABLE(avx2)
#endif
#undef TABLE
    if constexpr (SINGLE) return generic::float_table;
    else return generic::double_table;
}

// The arrays of an epilogue, kept for as long as it is used.
template <class T>
struct EpilogueArrays {
    std::optional<Flat<const T>> bias;
    bool relu;
    std::optional<Flat<const std::uint64_t>> rows;
    std::optional<Flat<const std::uint32_t>> columns;
    std::uint32_t mix1, mix2, limit;
    T scale;
    std::optional<Matrix<const T>> output;

    static EpilogueArrays activation(
        std::optional<Flat<const T>> bias, bool relu,
        std::optional<Flat<const std::uint64_t>> rows,
        std::optional<Flat<const std::uint32_t>> columns, std::uint32_t mix1, std::uint32_t mix2,
        std::uint32_t limit, T scale
    ) {
        require(rows.has_value() == columns.has_value(), "keys of rows and of columns, or none");
        return {bias, relu, rows, columns, mix1, mix2, limit, scale, {}};
    }

    static EpilogueArrays relu_backward(Matrix<const T> output, T scale) {
        return {{}, false, {}, {}, 0, 0, 0, scale, output};
    }

    Epilogue<T> after(const Rows<T>& out) const {
        const auto fits = [](const auto& array, Size size) {
            return !array || (Size)array->shape(0) == size;
        };
        require(fits(bias, out.width), "a bias for each column");
        require(fits(rows, out.rows), "a key for each row");
        require(fits(columns, out.width), "a key for each column");
        Epilogue<T> then = {bias ? bias->data() : nullptr, relu, {}, {}, scale};
        if (rows) then.drop = {rows->data(), columns->data(), mix1, mix2, limit, scale};
        if (output) {
            then.output = rows_of(*output);
            const bool same = then.output.rows == out.rows && then.output.width == out.width;
            require(same, "shapes differ");
        }
        return then;
    }
};

template <class T>
using Then = std::optional<EpilogueArrays<T>>;

template <class T>
Epilogue<T> epilogue(const Then<T>& then, const Rows<T>& out) {
    return then ? then->after(out) : Epilogue<T>{};
}

// Memory for one call, kept for the next one of the same Python thread: two may use one kernel.
template <class T, int WHICH = 0>
T* scratch(std::size_t numbers) {
    static thread_local std::vector<T> kept;
    if (kept.size() < numbers) kept.resize(numbers);
    return kept.data();
}

template <class T>
class Native {
public:
    Native(const std::string& target, int threads)
        : table_(table_of<T>(target)), threads_(threads) {
        require(threads >= 1, "at least one thread");
    }

    template <class I>
    void spmm(
        Flat<const Size> starts, Flat<const I> columns, Flat<const T> values, Size width,
        Matrix<const T> x, Matrix<T> out, bool accumulate, const Then<T>& then
    ) const {
        const Csr<T, I> matrix = csr(starts, columns, values);
        require(matrix.rows == (Size)out.shape(0), "out has not the rows of the matrix");
        require(width == (Size)x.shape(0), "x has not as many rows as the matrix columns");
        require(x.shape(1) == out.shape(1), "widths differ");
        const Rows<const T> from = rows_of(x);
        const Rows<T> to = rows_of(out);
        const Epilogue<T> last = epilogue(then, to);
        const nb::gil_scoped_release released;
        if constexpr (std::is_same_v<I, std::int32_t>) {
            table_.spmm32(matrix, from, to, accumulate, last, threads_);
        } else {
            table_.spmm64(matrix, from, to, accumulate, last, threads_);
        }
    }

    template <class I>
    T gather(
        Flat<const Size> starts, Flat<const I> columns, Flat<const T> values, Size width,
        Matrix<const T> x, bool prefetch
    ) const {
        const Csr<T, I> matrix = csr(starts, columns, values);
        require(width == (Size)x.shape(0), "x has not as many rows as the matrix columns");
        const Rows<const T> from = rows_of(x);
        const nb::gil_scoped_release released;
        if constexpr (std::is_same_v<I, std::int32_t>) {
            return table_.gather32(matrix, from, prefetch, threads_);
        } else {
            return table_.gather64(matrix, from, prefetch, threads_);
        }
    }

    void apply(const EpilogueArrays<T>& then, Matrix<const T> x, Matrix<T> out) const {
        require_same_shape(x, out);
        const Rows<const T> from = rows_of(x);
        const Rows<T> to = rows_of(out);
        const Epilogue<T> step = then.after(to);
        const nb::gil_scoped_release released;
        table_.apply(step, from, to, threads_);
    }

    void take_rows(Matrix<const T> x, Flat<const Size> rows, Matrix<T> out) const {
        require(rows.shape(0) == out.shape(0) && x.shape(1) == out.shape(1), "shapes differ");
        const Rows<const T> from = rows_of(x);
        const Rows<T> to = rows_of(out, true);
        const Size column_stride = out.stride(1);
        const nb::gil_scoped_release released;
        table_.take_rows(from, rows.data(), to, column_stride, threads_);
    }

    void gemm(
        Matrix<const T> x, Matrix<const T> w, Matrix<T> out, bool accumulate, const Then<T>& then
    ) const {
        require(x.shape(0) == out.shape(0) && w.shape(1) == out.shape(1), "shapes differ");
        require(x.shape(1) == w.shape(0), "inner widths differ");
        const Rows<const T> from = rows_of(x);
        const Rows<T> to = rows_of(out);
        const Epilogue<T> last = epilogue(then, to);
        T* packed = scratch<T>((std::size_t)x.shape(1) * (w.shape(1) + WIDEST_PANEL));
        const Size down = w.stride(0), right = w.stride(1);
        const nb::gil_scoped_release released;
        table_.gemm(from, w.data(), down, right, to, accumulate, last, packed, threads_);
    }

    void gemm_over_rows(
        Matrix<const T> x, Matrix<const T> g, Matrix<T> out, bool accumulate,
        std::optional<Flat<T>> sums
    ) const {
        require(!sums || sums->shape(0) == g.shape(1), "a sum for each column");
        require(x.shape(1) == out.shape(0) && g.shape(1) == out.shape(1), "shapes differ");
        require(x.shape(0) == g.shape(0), "numbers of rows differ");
        const Rows<const T> left = rows_of(x), right = rows_of(g);
        const Rows<T> to = rows_of(out);
        T* added = sums ? sums->data() : nullptr;
        T* partial = scratch<T>((std::size_t)GROUPS * x.shape(1) * g.shape(1));
        double* partial_sums = nullptr;
        if (sums) partial_sums = scratch<double, 1>((std::size_t)GROUPS * g.shape(1));
        const nb::gil_scoped_release released;
        table_.gemm_over_rows(left, right, to, accumulate, added, partial, partial_sums, threads_);
    }

    double softmax_cross_entropy(
        Matrix<const T> logits, Flat<const std::int32_t> labels, T scale, Matrix<T> grad
    ) const {
        require_same_shape(logits, grad);
        require(labels.shape(0) == logits.shape(0), "a label for each row");
        const Rows<const T> from = rows_of(logits);
        const Rows<T> to = rows_of(grad);
        for (Size row = 0; row < from.rows; ++row)
            require(labels.data()[row] < from.width, "a label beyond the columns");
        const nb::gil_scoped_release released;
        return table_.softmax_cross_entropy(from, labels.data(), scale, to, threads_);
    }

    void column_sum(Matrix<const T> x, Flat<T> out) const {
        require(x.shape(1) == out.shape(0), "shapes differ");
        const Rows<const T> from = rows_of(x);
        const nb::gil_scoped_release released;
        table_.column_sum(from, out.data(), threads_);
    }

    void sgd(
        Flat<T> param, Flat<const T> grad, std::optional<Flat<T>> velocity, T lr, double mu
    ) const {
        const std::size_t n = param.shape(0);
        require(grad.shape(0) == n && (!velocity || velocity->shape(0) == n), "shapes differ");
        T* speed = velocity ? velocity->data() : nullptr;
        const nb::gil_scoped_release released;
        table_.sgd(param.data(), grad.data(), speed, (Size)n, lr, mu, threads_);
    }

    void adam(
        Flat<T> param, Flat<const T> grad, Flat<T> first, Flat<T> second, double beta1,
        double beta2, double size, double root, double eps
    ) const {
        const std::size_t n = param.shape(0);
        require(grad.shape(0) == n && first.shape(0) == n && second.shape(0) == n, "shapes differ");
        const AdamStep step = {beta1, 1 - beta1, beta2, 1 - beta2, size, root, eps};
        const nb::gil_scoped_release released;
        T *m = first.data(), *v = second.data();
        table_.adam(param.data(), grad.data(), m, v, (Size)n, step, threads_);
    }

private:
    // Columns are looked at once, where the matrix is made, and not in every product.
    template <class I>
    static Csr<T, I> csr(
        const Flat<const Size>& starts, const Flat<const I>& columns, const Flat<const T>& values
    ) {
        require(starts.shape(0) > 0, "starts has an entry more than the matrix rows");
        const Size rows = (Size)starts.shape(0) - 1, entries = (Size)columns.shape(0);
        const bool fits = starts.data()[0] >= 0 && starts.data()[rows] <= entries;
        require(fits && values.shape(0) == columns.shape(0), "not as many columns and values");
        return {starts.data(), columns.data(), values.data(), rows};
    }

    const Operations<T>& table_;
    int threads_;
};

// An array, never converted: a result would go to the copy.
auto given(const char* name) { return nb::arg(name).noconvert(); }

template <class T>
void bind(nb::module_& module, const char* name, const char* epilogue) {
    using E = EpilogueArrays<T>;
    nb::class_<E>(module, epilogue)
        .def_static("activation", &E::activation, given("bias").none(), "relu"_a,
                    given("rows").none(), given("columns").none(), "mix1"_a, "mix2"_a, "limit"_a,
                    "scale"_a)
        .def_static("relu_backward", &E::relu_backward, given("output"), "scale"_a);
    using K = Native<T>;
    nb::class_<K>(module, name)
        .def(nb::init<const std::string&, int>(), "target"_a, "threads"_a)
        .def("spmm", &K::template spmm<std::int32_t>, given("starts"), given("columns"),
             given("values"), "width"_a, given("x"), given("out"), "accumulate"_a,
             "then"_a.none())
        .def("spmm", &K::template spmm<std::int64_t>, given("starts"), given("columns"),
             given("values"), "width"_a, given("x"), given("out"), "accumulate"_a,
             "then"_a.none())
        .def("gather", &K::template gather<std::int32_t>, given("starts"), given("columns"),
             given("values"), "width"_a, given("x"), "prefetch"_a)
        .def("gather", &K::template gather<std::int64_t>, given("starts"), given("columns"),
             given("values"), "width"_a, given("x"), "prefetch"_a)
        .def("apply", &K::apply, "then"_a, given("x"), given("out"))
        .def("take_rows", &K::take_rows, given("x"), given("rows"), given("out"))
        .def("gemm", &K::gemm, given("x"), given("w"), given("out"), "accumulate"_a,
             "then"_a.none())
        .def("gemm_over_rows", &K::gemm_over_rows, given("x"), given("g"), given("out"),
             "accumulate"_a, given("sums").none())
        .def("softmax_cross_entropy", &K::softmax_cross_entropy, given("logits"), given("labels"),
             "scale"_a, given("grad"))
        .def("column_sum", &K::column_sum, given("x"), given("out"))
        .def("sgd", &K::sgd, given("param"), given("grad"), given("velocity").none(), "lr"_a,
             "mu"_a)
        .def("adam", &K::adam, given("param"), given("grad"), given("first"), given("second"),
             "beta1"_a, "beta2"_a, "size"_a, "root"_a, "eps"_a);
}

}  // namespace
}  // namespace gcnmpi

NB_MODULE(_native, module) {
    module.def("targets", &gcnmpi::targets);
#ifdef _OPENMP
    module.attr("openmp") = true;
#else
    module.attr("openmp") = false;
#endif
    gcnmpi::bind<float>(module, "Float32", "Epilogue32");
    gcnmpi::bind<double>(module, "Float64", "Epilogue64");
}
