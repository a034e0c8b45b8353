// Rows of messages for Python: (rows, bytes of a row) arrays of bytes.
#include "arrays.hpp"

namespace gcnmpi {
namespace {

template <class B>
using Bytes = nb::ndarray<B, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

// Bytes of a row's numbers and of its scale: gcnmpi/core/precision.py.
constexpr Size NUMBER_BYTES[] = {2, 2, 1}, SCALE_BYTES[] = {0, 1, 4};

template <class T, class B>
Format format_of(int format, const Matrix<T>& x, const Bytes<B>& bytes) {
    require(format >= BF16 && format <= INT8, "no such format");
    require(x.shape(0) == bytes.shape(0), "numbers of rows differ");
    const Size row_bytes = (Size)x.shape(1) * NUMBER_BYTES[format] + SCALE_BYTES[format];
    require((Size)bytes.shape(1) == row_bytes, "not the bytes of a row");
    return (Format)format;
}

template <class T>
void encode_rows(
    const Kernel<T>& kernel, Matrix<const T> x, int format,
    std::optional<Flat<const std::uint64_t>> rows,
    std::optional<Flat<const std::uint32_t>> columns, std::uint32_t mix1, std::uint32_t mix2,
    Bytes<std::uint8_t> out
) {
    const Format known = format_of(format, x, out);
    if (known == INT8) {
        require(rows && rows->shape(0) == x.shape(0), "a key for each row");
        require(columns && columns->shape(0) == x.shape(1), "a key for each column");
    }
    Dropout<T> hash = {};
    if (rows && columns) hash = {rows->data(), columns->data(), mix1, mix2, 0, T(1)};
    const auto from = rows_of(x);
    const nb::gil_scoped_release released;
    kernel.table.encode_rows(from, known, hash, out.data(), (Size)out.shape(1), kernel.threads);
}

template <class T>
void decode_rows(
    const Kernel<T>& kernel, Bytes<const std::uint8_t> bytes, int format, Matrix<T> out
) {
    const Format known = format_of(format, out, bytes);
    const auto to = rows_of(out);
    const nb::gil_scoped_release released;
    kernel.table.decode_rows(bytes.data(), (Size)bytes.shape(1), known, to, kernel.threads);
}

}  // namespace

template <class T>
void bind_messages(nb::class_<Kernel<T>>& kernel) {
    kernel
        .def("encode_rows", &encode_rows<T>, given("x"), "format"_a, given("rows").none(),
             given("columns").none(), "mix1"_a, "mix2"_a, given("out"))
        .def("decode_rows", &decode_rows<T>, given("bytes"), "format"_a, given("out"));
}

template void bind_messages<float>(nb::class_<Kernel<float>>&);
template void bind_messages<double>(nb::class_<Kernel<double>>&);

}  // namespace gcnmpi
