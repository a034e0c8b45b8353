// Patterns, maximum and attention for Python.
#include "arrays.hpp"

namespace gcnmpi {
namespace {

// One that has no entries by columns serves operations by rows only. Where entries are among those
// by columns, and the way back, are for the operations that need them.
template <class P>
PatternArrays pattern_of(
    Flat<const Size> starts, Indices indices, Flat<const Size> column_starts, Indices column_rows,
    std::optional<P> places, std::optional<P> places_back
) {
    const std::size_t entries = indices.shape(0);
    require(starts.shape(0) > 0 && column_starts.shape(0) > 0, "no starts");
    const Size of_rows = starts.data()[starts.shape(0) - 1];
    const Size of_columns = column_starts.data()[column_starts.shape(0) - 1];
    const std::size_t turned = column_rows.shape(0);
    require(of_rows == (Size)entries && of_columns == (Size)turned, "entries differ");
    require(turned == entries || turned == 0, "entries differ");
    for (const auto& some : {places, places_back})
        require(!some || some->shape(0) == turned, "entries differ");
    if constexpr (std::is_same_v<P, Indices>) {
        return {starts, indices, column_starts, column_rows, places, {}, places_back, {}};
    } else {
        return {starts, indices, column_starts, column_rows, {}, places, {}, places_back};
    }
}

template <class T>
Attention<T> attention(
    const PatternArrays& arrays, const Matrix<const T>& x, Size heads, T slope, const Then<T>& drop
) {
    const Pattern p = arrays.pattern();
    const Rows<const T> from = rows_of(x);
    require(from.rows == p.columns, "x has not as many rows as the pattern columns");
    require(heads > 0 && from.width % heads == 0, "heads do not fit");
    Attention<T> a = {p, from, heads, from.width / heads, slope, {}};
    a.drop.scale = 1;
    if (drop && drop->rows) {
        require((Size)drop->rows->shape(0) == p.rows, "a key for each row");
        const Size keys = (Size)drop->columns->shape(0);
        require(keys == p.columns * heads, "a key for each column and head");
        const T scale = drop->scale;
        a.drop = {drop->rows->data(), drop->columns->data(), drop->mix1, drop->mix2, drop->limit,
                  scale};
    }
    return a;
}

template <class T>
Size heads_of(const Matrix<T>& array) { return (Size)array.shape(1); }

// Some rows of a number for each head, and the facts of all rows of the pattern: where it reaches,
// in what is given.
template <class T>
T* backward_scratch(const Pattern& p, const Matrix<T>& given, Size heads, Size some = 0) {
    const Rows<T> rows = rows_of(given);
    const Size needed = some + FACTS * p.rows;
    require(rows.width == heads && (rows.stride == heads || rows.rows <= 1), "scratch has gaps");
    if (rows.rows >= needed) return rows.data;
    return scratch<T, 2>((std::size_t)(needed * heads));
}

template <class T>
void attend(
    const Kernel<T>& kernel, const PatternArrays& pattern, Matrix<const T> x, Matrix<const T> t,
    Matrix<const T> s, T slope, const Then<T>& drop, Matrix<T> out, Matrix<T> shift, Matrix<T> total
) {
    const Size heads = heads_of(t);
    const Attention<T> a = attention<T>(pattern, x, heads, slope, drop);
    require_shape(t, a.pattern.columns, heads, "t: a number for each column and head");
    require_shape(s, a.pattern.rows, heads, "s: a number for each row and head");
    require_shape(shift, a.pattern.rows, heads, "shift: a number for each row and head");
    require_shape(total, a.pattern.rows, heads, "total: a number for each row and head");
    require_shape(out, a.pattern.rows, a.x.width, "out has another shape");
    const auto from = rows_of(t), of = rows_of(s);
    const auto to = rows_of(out), first = rows_of(shift), second = rows_of(total);
    const nb::gil_scoped_release released;
    kernel.table.arcs->attend(a, from, of, to, first, second, kernel.threads);
}

template <class T>
void attend_backward(
    const Kernel<T>& kernel, const PatternArrays& pattern, Matrix<const T> x, Matrix<const T> t,
    Matrix<const T> s, T slope, const Then<T>& drop, Matrix<const T> shift, Matrix<const T> total,
    Matrix<const T> y, Matrix<const T> grad, Matrix<T> dx, Matrix<T> dt, Matrix<T> ds,
    Matrix<T> room
) {
    const Size heads = heads_of(t);
    const Attention<T> a = attention<T>(pattern, x, heads, slope, drop);
    const Size rows = a.pattern.rows, columns = a.pattern.columns;
    require_shape(t, columns, heads, "t: a number for each column and head");
    require_shape(s, rows, heads, "s: a number for each row and head");
    require_shape(shift, rows, heads, "shift: a number for each row and head");
    require_shape(total, rows, heads, "total: a number for each row and head");
    require_shape(y, rows, a.x.width, "y has another shape");
    require_shape(grad, rows, a.x.width, "grad has another shape");
    require_same_shape(dx, x);
    require_same_shape(dt, t);
    require_same_shape(ds, s);
    const bool known = a.pattern.places || a.pattern.long_places;
    require(known || heads == 1, "with several heads, the way to the columns is needed");
    T* memory = backward_scratch(a.pattern, room, heads, known ? a.pattern.starts[rows] : 0);
    const auto from = rows_of(t), of = rows_of(s), shifts = rows_of(shift), sums = rows_of(total);
    const auto result = rows_of(y), back = rows_of(grad);
    const auto first = rows_of(dx), second = rows_of(dt), third = rows_of(ds);
    const nb::gil_scoped_release released;
    kernel.table.arcs->attend_backward(
        a, from, of, shifts, sums, result, back, first, second, third, memory, kernel.threads
    );
}

template <class T>
void attend_v2(
    const Kernel<T>& kernel, const PatternArrays& pattern, Matrix<const T> x1, Matrix<const T> x2,
    Flat<const T> vector, T slope, const Then<T>& drop, Matrix<T> out, Matrix<T> shift,
    Matrix<T> total, Matrix<T> room
) {
    const Size heads = heads_of(shift);
    const Attention<T> a = attention<T>(pattern, x1, heads, slope, drop);
    const Size rows = a.pattern.rows;
    require_shape(x2, rows, a.x.width, "x2 has another shape");
    require_shape(shift, rows, heads, "shift: a number for each row and head");
    require_shape(total, rows, heads, "total: a number for each row and head");
    require_shape(out, rows, a.x.width, "out has another shape");
    require((Size)vector.shape(0) == a.x.width, "vector: a number for each column of x1");
    const Size entries = a.pattern.starts[rows];
    const Rows<T> memory = rows_of(room);
    require(memory.rows >= entries && memory.width == heads, "scratch is too small");
    require(memory.stride == heads || memory.rows <= 1, "scratch has gaps");
    const auto target = rows_of(x2);
    const auto to = rows_of(out), first = rows_of(shift), second = rows_of(total);
    const nb::gil_scoped_release released;
    kernel.table.arcs->attend_v2(
        a, target, vector.data(), to, first, second, memory.data, kernel.threads
    );
}

template <class T>
void attend_v2_backward(
    const Kernel<T>& kernel, const PatternArrays& pattern, Matrix<const T> x1, Matrix<const T> x2,
    Flat<const T> vector, T slope, const Then<T>& drop, Matrix<const T> shift,
    Matrix<const T> total, Matrix<const T> y, Matrix<const T> grad, Matrix<T> dx1, Matrix<T> dx2,
    Flat<T> dvector, Matrix<T> room
) {
    const Size heads = heads_of(shift);
    const Attention<T> a = attention<T>(pattern, x1, heads, slope, drop);
    const Size rows = a.pattern.rows, width = a.x.width;
    require_shape(x2, rows, width, "x2 has another shape");
    require_shape(shift, rows, heads, "shift: a number for each row and head");
    require_shape(total, rows, heads, "total: a number for each row and head");
    require_shape(y, rows, width, "y has another shape");
    require_shape(grad, rows, width, "grad has another shape");
    require_same_shape(dx1, x1);
    require_same_shape(dx2, x2);
    require((Size)vector.shape(0) == width, "vector: a number for each column of x1");
    require((Size)dvector.shape(0) == width, "dvector: a number for each column of x1");
    require(a.pattern.places || a.pattern.long_places, "the way to the columns is not known");
    T* memory = backward_scratch(a.pattern, room, heads, a.pattern.starts[rows]);
    double* partial = scratch<double, 1>((std::size_t)(GROUPS * width));
    const auto target = rows_of(x2), shifts = rows_of(shift), sums = rows_of(total);
    const auto result = rows_of(y), back = rows_of(grad);
    const auto first = rows_of(dx1), second = rows_of(dx2);
    const nb::gil_scoped_release released;
    kernel.table.arcs->attend_v2_backward(
        a, target, vector.data(), shifts, sums, result, back, first, second, dvector.data(), memory,
        partial, kernel.threads
    );
}

template <class T>
void max_aggregate(
    const Kernel<T>& kernel, const PatternArrays& pattern, Matrix<const T> x, Matrix<T> out,
    Matrix<std::int32_t> arg
) {
    const Pattern p = pattern.pattern();
    const bool fits = (Size)x.shape(0) == p.columns && (Size)out.shape(0) == p.rows;
    require(fits, "numbers of rows differ");
    require(x.shape(1) == out.shape(1), "widths differ");
    require_same_shape(arg, out);
    const auto from = rows_of(x);
    const auto to = rows_of(out);
    const auto places = rows_of(arg);
    const nb::gil_scoped_release released;
    kernel.table.max_aggregate(p, from, to, places, kernel.threads);
}

template <class T>
void max_aggregate_backward(
    const Kernel<T>& kernel, Matrix<const T> grad, Matrix<const std::int32_t> arg, Matrix<T> out
) {
    require_same_shape(arg, grad);
    require(grad.shape(1) == out.shape(1), "widths differ");
    const auto from = rows_of(grad);
    const auto places = rows_of(arg);
    const auto to = rows_of(out);
    const nb::gil_scoped_release released;
    kernel.table.max_aggregate_backward(from, places, to, kernel.threads);
}

template <class T>
void head_dots(const Kernel<T>& kernel, Matrix<const T> x, Flat<const T> vector, Matrix<T> out) {
    require(x.shape(0) == out.shape(0) && x.shape(1) == vector.shape(0), "shapes differ");
    require(out.shape(1) > 0 && x.shape(1) % out.shape(1) == 0, "heads do not fit");
    const auto from = rows_of(x);
    const auto to = rows_of(out);
    const nb::gil_scoped_release released;
    kernel.table.head_dots(from, vector.data(), to, kernel.threads);
}

template <class T>
void head_dots_backward(
    const Kernel<T>& kernel, Matrix<const T> x, Flat<const T> vector, Matrix<const T> dout,
    Matrix<T> dx, Flat<T> dvector, bool accumulate
) {
    require_same_shape(dx, x);
    require(x.shape(0) == dout.shape(0) && x.shape(1) == vector.shape(0), "shapes differ");
    require(dvector.shape(0) == vector.shape(0), "shapes differ");
    require(dout.shape(1) > 0 && x.shape(1) % dout.shape(1) == 0, "heads do not fit");
    double* partial = scratch<double, 1>((std::size_t)(GROUPS * (Size)x.shape(1)));
    const auto from = rows_of(x), back = rows_of(dout);
    const auto to = rows_of(dx);
    const nb::gil_scoped_release released;
    kernel.table.head_dots_backward(
        from, vector.data(), back, to, dvector.data(), accumulate, partial, kernel.threads
    );
}

}  // namespace

void bind_pattern(nb::module_& module) {
    nb::class_<PatternArrays>(module, "Pattern");
    module.def("pattern", &pattern_of<Indices>, given("starts"), given("indices"),
               given("column_starts"), given("column_rows"), given("places").none(),
               given("places_back").none());
    module.def("pattern", &pattern_of<Flat<const Size>>, given("starts"), given("indices"),
               given("column_starts"), given("column_rows"), given("places").none(),
               given("places_back").none());
}

template <class T>
void bind_neighbours(nb::class_<Kernel<T>>& kernel) {
    kernel
        .def("attend", &attend<T>, "pattern"_a, given("x"), given("t"), given("s"), "slope"_a,
             "drop"_a.none(), given("out"), given("shift"), given("total"))
        .def("attend_backward", &attend_backward<T>, "pattern"_a, given("x"), given("t"),
             given("s"), "slope"_a, "drop"_a.none(), given("shift"), given("total"), given("y"),
             given("grad"), given("dx"), given("dt"), given("ds"), given("scratch"))
        .def("attend_v2", &attend_v2<T>, "pattern"_a, given("x1"), given("x2"), given("vector"),
             "slope"_a, "drop"_a.none(), given("out"), given("shift"), given("total"),
             given("scratch"))
        .def("attend_v2_backward", &attend_v2_backward<T>, "pattern"_a, given("x1"), given("x2"),
             given("vector"), "slope"_a, "drop"_a.none(), given("shift"), given("total"),
             given("y"), given("grad"), given("dx1"), given("dx2"), given("dvector"),
             given("scratch"))
        .def("max_aggregate", &max_aggregate<T>, "pattern"_a, given("x"), given("out"),
             given("arg"))
        .def("max_aggregate_backward", &max_aggregate_backward<T>, given("grad"), given("arg"),
             given("out"))
        .def("head_dots", &head_dots<T>, given("x"), given("vector"), given("out"))
        .def("head_dots_backward", &head_dots_backward<T>, given("x"), given("vector"),
             given("dout"), given("dx"), given("dvector"), "accumulate"_a);
}

template void bind_neighbours<float>(nb::class_<Kernel<float>>&);
template void bind_neighbours<double>(nb::class_<Kernel<double>>&);

}  // namespace gcnmpi
