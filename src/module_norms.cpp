// Norms and entry-wise arithmetic for Python. Numbers of rows are (rows, 1) arrays.
#include "arrays.hpp"

namespace gcnmpi {
namespace {

template <class T>
using PerRow = nb::ndarray<T, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
template <class T>
using Maybe = std::optional<T>;
template <class T>
using Some = std::vector<Matrix<const T>>;

template <class A>
auto data_of(const Maybe<A>& array) {
    return array ? array->data() : nullptr;
}

template <class A>
void require_per_row(const A& array, std::size_t rows, std::size_t width = 1) {
    require(array.shape(0) == rows && array.shape(1) == width, "not as many numbers as rows");
}

template <class A>
void require_per_row(const Maybe<A>& array, std::size_t rows) {
    if (array) require_per_row(*array, rows);
}

template <class A>
void require_per_column(const A& array, std::size_t width) {
    require(array.shape(0) == width, "not as many numbers as columns");
}

template <class A>
void require_per_column(const Maybe<A>& array, std::size_t width) {
    if (array) require_per_column(*array, width);
}

template <class T>
void row_sums(
    const Kernel<T>& kernel, Matrix<const T> x, Maybe<PerRow<const T>> mean, bool square,
    PerRow<T> out
) {
    require_per_row(mean, x.shape(0));
    require_per_row(out, x.shape(0));
    const auto from = rows_of(x);
    const nb::gil_scoped_release released;
    kernel.table.row_sums(from, data_of(mean), square, out.data(), kernel.threads);
}

template <class T>
void normalise_rows(
    const Kernel<T>& kernel, Matrix<const T> x, Maybe<PerRow<const T>> mean, PerRow<const T> rstd,
    Maybe<Flat<const T>> weight, Maybe<Flat<const T>> bias, Matrix<T> out
) {
    require_same_shape(x, out);
    require_per_row(mean, x.shape(0));
    require_per_row(rstd, x.shape(0));
    require_per_column(weight, x.shape(1));
    require_per_column(bias, x.shape(1));
    const auto from = rows_of(x);
    const auto to = rows_of(out);
    const nb::gil_scoped_release released;
    kernel.table.normalise_rows(
        from, data_of(mean), rstd.data(), data_of(weight), data_of(bias), to, kernel.threads
    );
}

template <class T>
void normalise_rows_sums(
    const Kernel<T>& kernel, Matrix<const T> x, Maybe<PerRow<const T>> mean, PerRow<const T> rstd,
    Maybe<Flat<const T>> weight, Matrix<const T> grad, PerRow<T> out
) {
    require_same_shape(x, grad);
    require_per_row(mean, x.shape(0));
    require_per_row(rstd, x.shape(0));
    require_per_row(out, x.shape(0), 2);
    require_per_column(weight, x.shape(1));
    const auto from = rows_of(x), back = rows_of(grad);
    const nb::gil_scoped_release released;
    kernel.table.normalise_rows_sums(
        from, data_of(mean), rstd.data(), data_of(weight), back, out.data(), kernel.threads
    );
}

template <class T>
void normalise_rows_backward(
    const Kernel<T>& kernel, Matrix<const T> x, Maybe<PerRow<const T>> mean, PerRow<const T> rstd,
    Maybe<Flat<const T>> weight, Matrix<const T> grad, Maybe<PerRow<const T>> centre,
    PerRow<const T> along, Matrix<T> out
) {
    require_same_shape(x, grad);
    require_same_shape(x, out);
    require_per_row(mean, x.shape(0));
    require_per_row(rstd, x.shape(0));
    require_per_row(centre, x.shape(0));
    require_per_row(along, x.shape(0));
    require_per_column(weight, x.shape(1));
    const auto from = rows_of(x), back = rows_of(grad);
    const auto to = rows_of(out);
    const nb::gil_scoped_release released;
    kernel.table.normalise_rows_backward(
        from, data_of(mean), rstd.data(), data_of(weight), back, data_of(centre), along.data(), to,
        kernel.threads
    );
}

template <class T>
void normalised_column_sums(
    const Kernel<T>& kernel, Matrix<const T> x, Maybe<PerRow<const T>> mean, PerRow<const T> rstd,
    Matrix<const T> grad, Flat<T> dweight, Flat<T> dbias
) {
    require_same_shape(x, grad);
    require_per_row(mean, x.shape(0));
    require_per_row(rstd, x.shape(0));
    require_per_column(dweight, x.shape(1));
    require_per_column(dbias, x.shape(1));
    const auto from = rows_of(x), back = rows_of(grad);
    const nb::gil_scoped_release released;
    kernel.table.normalised_column_sums(
        from, data_of(mean), rstd.data(), back, dweight.data(), dbias.data(), kernel.threads
    );
}

template <class T>
void layer_norm(
    const Kernel<T>& kernel, Matrix<const T> x, Flat<const T> weight, Flat<const T> bias, T eps,
    Matrix<T> out, PerRow<T> mean, PerRow<T> rstd
) {
    require_same_shape(x, out);
    require_per_row(mean, x.shape(0));
    require_per_row(rstd, x.shape(0));
    require_per_column(weight, x.shape(1));
    require_per_column(bias, x.shape(1));
    const auto from = rows_of(x);
    const auto to = rows_of(out);
    const nb::gil_scoped_release released;
    kernel.table.layer_norm(
        from, weight.data(), bias.data(), eps, to, mean.data(), rstd.data(), kernel.threads
    );
}

template <class T>
void layer_norm_backward(
    const Kernel<T>& kernel, Matrix<const T> x, PerRow<const T> mean, PerRow<const T> rstd,
    Flat<const T> weight, Matrix<const T> grad, Matrix<T> out, Flat<T> dweight, Flat<T> dbias
) {
    require_same_shape(x, grad);
    require_same_shape(x, out);
    require_per_row(mean, x.shape(0));
    require_per_row(rstd, x.shape(0));
    require_per_column(weight, x.shape(1));
    require_per_column(dweight, x.shape(1));
    require_per_column(dbias, x.shape(1));
    const auto from = rows_of(x), back = rows_of(grad);
    const auto to = rows_of(out);
    double* partial = scratch<double, 1>((std::size_t)(2 * GROUPS * (Size)x.shape(1)));
    const nb::gil_scoped_release released;
    kernel.table.layer_norm_backward(
        from, mean.data(), rstd.data(), weight.data(), back, to, dweight.data(), dbias.data(),
        partial, kernel.threads
    );
}

template <class T>
void column_moments(
    const Kernel<T>& kernel, Matrix<const T> x, Flat<const double> pivot, PerRow<double> out
) {
    require_per_column(pivot, x.shape(1));
    require_per_row(out, 2, x.shape(1));
    const auto from = rows_of(x);
    const nb::gil_scoped_release released;
    kernel.table.column_moments(from, pivot.data(), out.data(), kernel.threads);
}

template <class T>
void column_grad_sums(
    const Kernel<T>& kernel, Matrix<const T> x, Flat<const T> mean, Flat<const T> rstd,
    Matrix<const T> grad, PerRow<double> out
) {
    require_same_shape(x, grad);
    require_per_column(mean, x.shape(1));
    require_per_column(rstd, x.shape(1));
    require_per_row(out, 2, x.shape(1));
    const auto from = rows_of(x), back = rows_of(grad);
    const nb::gil_scoped_release released;
    kernel.table.column_grad_sums(
        from, mean.data(), rstd.data(), back, out.data(), kernel.threads
    );
}

template <class T>
void scale_columns(
    const Kernel<T>& kernel, Matrix<const T> x, Flat<const T> a, Maybe<Matrix<const T>> y,
    Maybe<Flat<const T>> b, Flat<const T> c, Matrix<T> out
) {
    require_same_shape(x, out);
    require(y.has_value() == b.has_value(), "a factor for each matrix");
    if (y) require_same_shape(x, *y);
    require_per_column(a, x.shape(1));
    require_per_column(b, x.shape(1));
    require_per_column(c, x.shape(1));
    const auto from = rows_of(x), other = y ? rows_of(*y) : Rows<const T>{};
    const auto to = rows_of(out);
    const nb::gil_scoped_release released;
    kernel.table.scale_columns(from, a.data(), other, data_of(b), c.data(), to, kernel.threads);
}

template <class T>
void combine(
    const Kernel<T>& kernel, Matrix<const T> x, T a, Maybe<Matrix<const T>> y, T b, Matrix<T> out
) {
    require_same_shape(x, out);
    if (y) require_same_shape(x, *y);
    const auto from = rows_of(x), other = y ? rows_of(*y) : Rows<const T>{};
    const auto to = rows_of(out);
    const nb::gil_scoped_release released;
    kernel.table.combine(from, a, other, b, to, kernel.threads);
}

template <class T>
double dot(const Kernel<T>& kernel, Matrix<const T> x, Matrix<const T> y) {
    require_same_shape(x, y);
    const auto from = rows_of(x), other = rows_of(y);
    const nb::gil_scoped_release released;
    return kernel.table.dot(from, other, kernel.threads);
}

template <class T>
double leaky_backward(
    const Kernel<T>& kernel, Matrix<const T> x, Matrix<const T> grad, T slope, Matrix<T> out
) {
    require_same_shape(x, grad);
    require_same_shape(x, out);
    const auto from = rows_of(x), back = rows_of(grad);
    const auto to = rows_of(out);
    const nb::gil_scoped_release released;
    return kernel.table.leaky_backward(from, back, slope, to, kernel.threads);
}

template <class T>
std::vector<Rows<const T>> rows_of_all(const Some<T>& xs, const Matrix<T>& out) {
    std::vector<Rows<const T>> found;
    for (const Matrix<const T>& x : xs) {
        require_same_shape(x, out);
        found.push_back(rows_of(x));
    }
    require(!found.empty(), "the maximum of nothing");
    return found;
}

template <class T>
void maximum(const Kernel<T>& kernel, const Some<T>& xs, Matrix<T> out) {
    const std::vector<Rows<const T>> from = rows_of_all(xs, out);
    const auto to = rows_of(out);
    const nb::gil_scoped_release released;
    kernel.table.maximum(from.data(), (Size)from.size(), to, kernel.threads);
}

template <class T>
void maximum_backward(
    const Kernel<T>& kernel, Matrix<const T> grad, Matrix<const T> out, const Some<T>& xs, Size i,
    Matrix<T> dx
) {
    require_same_shape(grad, dx);
    require_same_shape(out, dx);
    const std::vector<Rows<const T>> all = rows_of_all(xs, dx);
    require(i >= 0 && i < (Size)all.size(), "no such matrix");
    const auto back = rows_of(grad), best = rows_of(out);
    const auto to = rows_of(dx);
    const nb::gil_scoped_release released;
    kernel.table.maximum_backward(back, best, all.data(), i, to, kernel.threads);
}

template <class T>
void mean_of_heads(const Kernel<T>& kernel, Matrix<const T> x, Size heads, Matrix<T> out) {
    require(heads > 0 && (Size)x.shape(1) == heads * (Size)out.shape(1), "heads do not fit");
    require(x.shape(0) == out.shape(0), "numbers of rows differ");
    const auto from = rows_of(x);
    const auto to = rows_of(out);
    const nb::gil_scoped_release released;
    kernel.table.mean_of_heads(from, heads, to, kernel.threads);
}

template <class T>
void mean_of_heads_backward(
    const Kernel<T>& kernel, Matrix<const T> grad, Size heads, Matrix<T> out
) {
    require(heads > 0 && (Size)out.shape(1) == heads * (Size)grad.shape(1), "heads do not fit");
    require(grad.shape(0) == out.shape(0), "numbers of rows differ");
    const auto from = rows_of(grad);
    const auto to = rows_of(out);
    const nb::gil_scoped_release released;
    kernel.table.mean_of_heads_backward(from, heads, to, kernel.threads);
}

template <class T>
void function(
    const Kernel<T>& kernel, const std::string& name, Matrix<const T> x,
    Maybe<Matrix<const T>> grad, Matrix<T> out
) {
    const bool known = name == "gelu" || name == "sigmoid" || name == "tanh";
    require(known, "there is no such function");
    const Function kind = name == "gelu"   ? Function::GELU
                          : name == "tanh" ? Function::TANH
                                           : Function::SIGMOID;
    require_same_shape(x, out);
    if (grad) require_same_shape(x, *grad);
    const auto from = rows_of(x), back = grad ? rows_of(*grad) : Rows<const T>{};
    const auto to = rows_of(out);
    const nb::gil_scoped_release released;
    kernel.table.function(kind, from, back, to, kernel.threads);
}

}  // namespace

template <class T>
void bind_norms(nb::class_<Kernel<T>>& kernel) {
    kernel
        .def("row_sums", &row_sums<T>, given("x"), given("mean").none(), "square"_a, given("out"))
        .def("normalise_rows", &normalise_rows<T>, given("x"), given("mean").none(), given("rstd"),
             given("weight").none(), given("bias").none(), given("out"))
        .def("normalise_rows_sums", &normalise_rows_sums<T>, given("x"), given("mean").none(),
             given("rstd"), given("weight").none(), given("grad"), given("out"))
        .def("normalise_rows_backward", &normalise_rows_backward<T>, given("x"),
             given("mean").none(), given("rstd"), given("weight").none(), given("grad"),
             given("centre").none(), given("along"), given("out"))
        .def("normalised_column_sums", &normalised_column_sums<T>, given("x"),
             given("mean").none(), given("rstd"), given("grad"), given("dweight"), given("dbias"))
        .def("layer_norm", &layer_norm<T>, given("x"), given("weight"), given("bias"), "eps"_a,
             given("out"), given("mean"), given("rstd"))
        .def("layer_norm_backward", &layer_norm_backward<T>, given("x"), given("mean"),
             given("rstd"), given("weight"), given("grad"), given("out"), given("dweight"),
             given("dbias"))
        .def("column_moments", &column_moments<T>, given("x"), given("pivot"), given("out"))
        .def("column_grad_sums", &column_grad_sums<T>, given("x"), given("mean"), given("rstd"),
             given("grad"), given("out"))
        .def("scale_columns", &scale_columns<T>, given("x"), given("a"), given("y").none(),
             given("b").none(), given("c"), given("out"))
        .def("combine", &combine<T>, given("x"), "a"_a, given("y").none(), "b"_a, given("out"))
        .def("dot", &dot<T>, given("x"), given("y"))
        .def("leaky_backward", &leaky_backward<T>, given("x"), given("grad"), "slope"_a,
             given("out"))
        .def("maximum", &maximum<T>, "xs"_a, given("out"))
        .def("maximum_backward", &maximum_backward<T>, given("grad"), given("out"), "xs"_a, "i"_a,
             given("dx"))
        .def("mean_of_heads", &mean_of_heads<T>, given("x"), "heads"_a, given("out"))
        .def("mean_of_heads_backward", &mean_of_heads_backward<T>, given("grad"), "heads"_a,
             given("out"))
        .def("function", &function<T>, "name"_a, given("x"), given("grad").none(), given("out"));
}

template void bind_norms<float>(nb::class_<Kernel<float>>&);
template void bind_norms<double>(nb::class_<Kernel<double>>&);

}  // namespace gcnmpi
