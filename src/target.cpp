// Compiled once for each target: TARGET is generic, avx2 or avx512, with the flags for it.
#include "dense.hpp"
#include "elementwise.hpp"
#include "gemm.hpp"
#include "kinds.hpp"
#include "maximum.hpp"
#include "messages.hpp"
#include "norms.hpp"
#include "softmax.hpp"
#include "spmm.hpp"
#include "strips.hpp"

namespace gcnmpi::TARGET {

// Also for the other file.
template void apply_to_rows(const Epilogue<float>&, Rows<const float>, Rows<float>, Size, Size);
template void apply_to_rows(const Epilogue<double>&, Rows<const double>, Rows<double>, Size, Size);

template <class T>
constexpr Operations<T> table(const ArcOperations<T>& arcs) {
    return {
        spmm<T, std::int32_t>, spmm<T, std::int64_t>, gather<T, std::int32_t>,
        gather<T, std::int64_t>, apply<T>, take_rows<T>, gemm<T>,
        gemm_over_rows<T>, softmax_cross_entropy<T>, column_sum<T>, sgd<T>, adam<T>,
        reduce<T>, reduce_backward<T>, softmax<T>, softmax_backward<T>,
        multiply_kinds<T>, kinds_gradient<T>,
        max_aggregate<T>, max_aggregate_backward<T>, head_dots<T>, head_dots_backward<T>,
        row_sums<T>, normalise_rows<T>, normalise_rows_sums<T>, normalise_rows_backward<T>,
        normalised_column_sums<T>, layer_norm<T>, layer_norm_backward<T>,
        column_moments<T>, column_grad_sums<T>, scale_columns<T>,
        combine<T>, dot_of_all<T>, leaky_backward<T>, maximum<T>, maximum_backward<T>,
        mean_of_heads<T>, mean_of_heads_backward<T>, function<T>,
        encode_rows<T>, decode_rows<T>, &arcs,
    };
}

extern const Operations<float> float_table = table(float_arcs);
extern const Operations<double> double_table = table(double_arcs);

}  // namespace gcnmpi::TARGET
