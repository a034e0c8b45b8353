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
        Matrix<const T> x, Matrix<T> out, bool accumulate
    ) const {
        const Csr<T, I> matrix = {
            starts.data(), columns.data(), values.data(), (Size)starts.shape(0) - 1,
        };
        require(matrix.rows == (Size)out.shape(0), "out has not the rows of the matrix");
        require(width == (Size)x.shape(0), "x has not as many rows as the matrix columns");
        require(x.shape(1) == out.shape(1), "widths differ");
        const Rows<const T> from = rows_of(x);
        const Rows<T> to = rows_of(out);
        const nb::gil_scoped_release released;
        if constexpr (std::is_same_v<I, std::int32_t>) {
            table_.spmm32(matrix, from, to, accumulate, threads_);
        } else {
            table_.spmm64(matrix, from, to, accumulate, threads_);
        }
    }

    void activate(
        Matrix<const T> x, std::optional<Flat<const T>> bias, bool relu, Matrix<T> out
    ) const {
        activate_with(x, bias, relu, {nullptr, nullptr, 0, 0, 0, T(1)}, out);
    }

    void activate_and_drop(
        Matrix<const T> x, std::optional<Flat<const T>> bias, bool relu, Matrix<T> out,
        Flat<const std::uint64_t> rows, Flat<const std::uint32_t> columns, std::uint32_t mix1,
        std::uint32_t mix2, std::uint32_t limit, T scale
    ) const {
        require(rows.shape(0) == x.shape(0), "a key for each row");
        require(columns.shape(0) == x.shape(1), "a key for each column");
        activate_with(x, bias, relu, {rows.data(), columns.data(), mix1, mix2, limit, scale}, out);
    }

    void relu_backward(Matrix<T> grad, Matrix<const T> output, T scale) const {
        require_same_shape(grad, output);
        const Rows<T> to = rows_of(grad);
        const Rows<const T> from = rows_of(output);
        const nb::gil_scoped_release released;
        table_.relu_backward(to, from, scale, threads_);
    }

    void take_rows(Matrix<const T> x, Flat<const Size> rows, Matrix<T> out) const {
        require(rows.shape(0) == out.shape(0) && x.shape(1) == out.shape(1), "shapes differ");
        const Rows<const T> from = rows_of(x);
        const Rows<T> to = rows_of(out, true);
        const Size column_stride = out.stride(1);
        const nb::gil_scoped_release released;
        table_.take_rows(from, rows.data(), to, column_stride, threads_);
    }

    void column_sum(Matrix<const T> x, Flat<T> out) const {
        require(x.shape(1) == out.shape(0), "shapes differ");
        const Rows<const T> from = rows_of(x);
        const nb::gil_scoped_release released;
        table_.column_sum(from, out.data(), threads_);
    }

    void sgd(
        Flat<T> param, Flat<const T> grad, std::optional<Flat<T>> velocity, T lr, T mu
    ) const {
        const std::size_t n = param.shape(0);
        require(grad.shape(0) == n && (!velocity || velocity->shape(0) == n), "shapes differ");
        T* speed = velocity ? velocity->data() : nullptr;
        const nb::gil_scoped_release released;
        table_.sgd(param.data(), grad.data(), speed, (Size)n, lr, mu, threads_);
    }

    void adam(
        Flat<T> param, Flat<const T> grad, Flat<T> first, Flat<T> second, T beta1, T beta2, T size,
        T root, T eps
    ) const {
        const std::size_t n = param.shape(0);
        require(grad.shape(0) == n && first.shape(0) == n && second.shape(0) == n, "shapes differ");
        const AdamStep<T> step = {beta1, beta2, size, root, eps};
        const nb::gil_scoped_release released;
        T *m = first.data(), *v = second.data();
        table_.adam(param.data(), grad.data(), m, v, (Size)n, step, threads_);
    }

private:
    void activate_with(
        const Matrix<const T>& x, const std::optional<Flat<const T>>& bias, bool relu,
        Dropout<T> drop, const Matrix<T>& out
    ) const {
        require_same_shape(x, out);
        require(!bias || bias->shape(0) == x.shape(1), "a bias for each column");
        const Rows<const T> from = rows_of(x);
        const Rows<T> to = rows_of(out);
        const T* added = bias ? bias->data() : nullptr;
        const nb::gil_scoped_release released;
        table_.activate(from, added, relu, drop, to, threads_);
    }

    const Operations<T>& table_;
    int threads_;
};

// An array, never converted: a result would go to the copy.
auto given(const char* name) { return nb::arg(name).noconvert(); }

template <class T>
void bind(nb::module_& module, const char* name) {
    using K = Native<T>;
    nb::class_<K>(module, name)
        .def(nb::init<const std::string&, int>(), "target"_a, "threads"_a)
        .def("spmm", &K::template spmm<std::int32_t>, given("starts"), given("columns"),
             given("values"), "width"_a, given("x"), given("out"), "accumulate"_a)
        .def("spmm", &K::template spmm<std::int64_t>, given("starts"), given("columns"),
             given("values"), "width"_a, given("x"), given("out"), "accumulate"_a)
        .def("activate", &K::activate, given("x"), given("bias").none(), "relu"_a, given("out"))
        .def("activate_and_drop", &K::activate_and_drop, given("x"), given("bias").none(),
             "relu"_a, given("out"), given("rows"), given("columns"), "mix1"_a, "mix2"_a,
             "limit"_a, "scale"_a)
        .def("relu_backward", &K::relu_backward, given("grad"), given("output"), "scale"_a)
        .def("take_rows", &K::take_rows, given("x"), given("rows"), given("out"))
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
    gcnmpi::bind<float>(module, "Float32");
    gcnmpi::bind<double>(module, "Float64");
}
