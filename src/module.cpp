// The Python module: checks shapes, lets the interpreter go, calls the table of the chosen target.
#include "arrays.hpp"

namespace gcnmpi {
namespace {

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
class Native : public Kernel<T> {
    using Kernel<T>::table;
    using Kernel<T>::threads;

public:
    Native(const std::string& target, int threads)
        : Kernel<T>{table_of<T>(target), threads} {
        require(threads >= 1, "at least one thread");
    }

    void spmm(
        const SparseArrays<T>& matrix, Matrix<const T> x, Matrix<T> out, bool accumulate,
        const Then<T>& then
    ) const {
        require(matrix.begins.shape(0) == out.shape(0), "out has not the rows of the matrix");
        require(matrix.width == (Size)x.shape(0), "x has not as many rows as the matrix columns");
        require(x.shape(1) == out.shape(1), "widths differ");
        const Rows<const T> from = rows_of(x);
        const Rows<T> to = rows_of(out);
        const Epilogue<T> last = epilogue(then, to);
        const nb::gil_scoped_release released;
        if (matrix.columns) {
            table.spmm32(matrix.template csr<std::int32_t>(), from, to, accumulate, last, threads);
        } else {
            table.spmm64(matrix.template csr<Size>(), from, to, accumulate, last, threads);
        }
    }

    T gather(const SparseArrays<T>& matrix, Matrix<const T> x, bool prefetch) const {
        require(matrix.width == (Size)x.shape(0), "x has not as many rows as the matrix columns");
        const Rows<const T> from = rows_of(x);
        const nb::gil_scoped_release released;
        if (matrix.columns)
            return table.gather32(matrix.template csr<std::int32_t>(), from, prefetch, threads);
        return table.gather64(matrix.template csr<Size>(), from, prefetch, threads);
    }

    void apply(const EpilogueArrays<T>& then, Matrix<const T> x, Matrix<T> out) const {
        require_same_shape(x, out);
        const Rows<const T> from = rows_of(x);
        const Rows<T> to = rows_of(out);
        const Epilogue<T> step = then.after(to);
        const nb::gil_scoped_release released;
        table.apply(step, from, to, threads);
    }

    void take_rows(Matrix<const T> x, Flat<const Size> rows, Matrix<T> out) const {
        require(rows.shape(0) == out.shape(0) && x.shape(1) == out.shape(1), "shapes differ");
        const Rows<const T> from = rows_of(x);
        const Rows<T> to = rows_of(out, true);
        const Size column_stride = out.stride(1);
        const nb::gil_scoped_release released;
        table.take_rows(from, rows.data(), to, column_stride, threads);
    }

    void gemm(
        Matrix<const T> x, Matrix<const T> w, std::optional<Matrix<const T>> y,
        std::optional<Matrix<const T>> v, Matrix<T> out, bool accumulate, const Then<T>& then
    ) const {
        require(x.shape(0) == out.shape(0) && w.shape(1) == out.shape(1), "shapes differ");
        require(x.shape(1) == w.shape(0), "inner widths differ");
        require(y.has_value() == v.has_value(), "one of two factors is missing");
        const Rows<const T> from = rows_of(x);
        Rows<const T> other = {};
        Weights<T> others = {};
        if (y) {
            require(y->shape(0) == out.shape(0) && v->shape(1) == out.shape(1), "shapes differ");
            require(y->shape(1) == v->shape(0), "inner widths differ");
            other = rows_of(*y);
            others = weights_of(*v);
        }
        const Rows<T> to = rows_of(out);
        const Epilogue<T> last = epilogue(then, to);
        const std::size_t depth = from.width + other.width;
        T* packed = scratch<T>(depth * (w.shape(1) + WIDEST_PANEL));
        const Weights<T> weights = weights_of(w);
        const nb::gil_scoped_release released;
        table.gemm(from, weights, other, others, to, accumulate, last, packed, threads);
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
        table.gemm_over_rows(left, right, to, accumulate, added, partial, partial_sums, threads);
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
        return table.softmax_cross_entropy(from, labels.data(), scale, to, threads);
    }

    void column_sum(Matrix<const T> x, Flat<T> out) const {
        require(x.shape(1) == out.shape(0), "shapes differ");
        const Rows<const T> from = rows_of(x);
        const nb::gil_scoped_release released;
        table.column_sum(from, out.data(), threads);
    }

    void sgd(
        Flat<T> param, Flat<const T> grad, std::optional<Flat<T>> velocity, T lr, double mu
    ) const {
        const std::size_t n = param.shape(0);
        require(grad.shape(0) == n && (!velocity || velocity->shape(0) == n), "shapes differ");
        T* speed = velocity ? velocity->data() : nullptr;
        const nb::gil_scoped_release released;
        table.sgd(param.data(), grad.data(), speed, (Size)n, lr, mu, threads);
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
        table.adam(param.data(), grad.data(), m, v, (Size)n, step, threads);
    }
};

template <class T>
void bind(nb::module_& module, const char* name, const char* epilogue, const char* sparse) {
    using S = SparseArrays<T>;
    nb::class_<S>(module, sparse)
        .def_static("of", &S::of, given("begins"), given("ends"), given("columns").none(),
                    given("long_columns").none(), given("values").none(), given("scale").none(),
                    "first"_a, "width"_a);
    using E = EpilogueArrays<T>;
    nb::class_<E>(module, epilogue)
        .def_static("activation", &E::activation, given("bias").none(), "kind"_a,
                    given("rows").none(), given("columns").none(), "mix1"_a, "mix2"_a, "limit"_a,
                    "scale"_a, "slope"_a)
        .def_static("backward", &E::backward, "forward"_a, given("output"), "scale"_a)
        .def_static("of_sum", &E::of_sum, "then"_a, given("plus"));
    nb::class_<Kernel<T>> base(module, (std::string(name) + "Base").c_str());
    bind_arcs(base);
    bind_neighbours(base);
    bind_norms(base);
    bind_messages(base);
    using K = Native<T>;
    nb::class_<K, Kernel<T>>(module, name)
        .def(nb::init<const std::string&, int>(), "target"_a, "threads"_a)
        .def("spmm", &K::spmm, "matrix"_a, given("x"), given("out"), "accumulate"_a,
             "then"_a.none())
        .def("gather", &K::gather, "matrix"_a, given("x"), "prefetch"_a)
        .def("apply", &K::apply, "then"_a, given("x"), given("out"))
        .def("take_rows", &K::take_rows, given("x"), given("rows"), given("out"))
        .def("gemm", &K::gemm, given("x"), given("w"), given("y").none(),
             given("v").none(), given("out"), "accumulate"_a, "then"_a.none())
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
#ifndef GCNMPI_SANITIZE
    // Objects that a program still refers to when it ends may never be given back: PyTorch keeps
    // the contexts of autograd functions, and so kernels, once the interpreter has begun to end.
    nb::set_leak_warnings(false);
#endif
    module.def("targets", &gcnmpi::targets);
#ifdef _OPENMP
    module.attr("openmp") = true;
#else
    module.attr("openmp") = false;
#endif
    gcnmpi::bind_pattern(module);
    gcnmpi::bind_numbers(module);
    gcnmpi::bind_rows(module);
    gcnmpi::bind_sampling(module);
    gcnmpi::bind<float>(module, "Float32", "Epilogue32", "Sparse32");
    gcnmpi::bind<double>(module, "Float64", "Epilogue64", "Sparse64");
}
