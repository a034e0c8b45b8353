// Compiled once for each target, like target.cpp, beside it: two files are compiled sooner.
#include "arcs.hpp"
#include "kinds.hpp"
#include "strips.hpp"

namespace gcnmpi::TARGET {

template <class T>
constexpr ArcOperations<T> arcs() {
    return {
        take<T>, sum_sources<T>, spmm_values<T>, spmm_values_t<T>, sddmm<T>, row_dots<T>,
        scale_heads<T>, reduce<T>, reduce_backward<T>, softmax<T>, softmax_backward<T>,
        multiply_kinds<T>, kinds_gradient<T>,
    };
}

extern const ArcOperations<float> float_arcs = arcs<float>();
extern const ArcOperations<double> double_arcs = arcs<double>();

}  // namespace gcnmpi::TARGET
