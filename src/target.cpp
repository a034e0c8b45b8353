// Compiled once for each target: TARGET is generic, avx2 or avx512, with the flags for it.
#include "dense.hpp"
#include "gemm.hpp"
#include "softmax.hpp"
#include "spmm.hpp"

namespace gcnmpi::TARGET {

template <class T>
constexpr Operations<T> table() {
    return {
        spmm<T, std::int32_t>, spmm<T, std::int64_t>, gather<T, std::int32_t>,
        gather<T, std::int64_t>, apply<T>, take_rows<T>, gemm<T>,
        gemm_over_rows<T>, softmax_cross_entropy<T>, column_sum<T>, sgd<T>, adam<T>,
    };
}

extern const Operations<float> float_table = table<float>();
extern const Operations<double> double_table = table<double>();

}  // namespace gcnmpi::TARGET
