// Compiled once for each target, like target.cpp, beside it: two files are compiled sooner.
#include "arcs.hpp"
#include "attention_v2.hpp"

namespace gcnmpi::TARGET {

// These are in the other file.
extern template void apply_to_rows(
    const Epilogue<float>&, Rows<const float>, Rows<float>, Size, Size
);
extern template void apply_to_rows(
    const Epilogue<double>&, Rows<const double>, Rows<double>, Size, Size
);

template <class T>
constexpr ArcOperations<T> arcs() {
    return {
        take<T>, spmm_values<T>, spmm_values_t<T>, sddmm<T>, row_dots<T>,
        scale_heads<T>, attend<T>, attend_backward<T>, attend_v2<T>, attend_v2_backward<T>,
    };
}

extern const ArcOperations<float> float_arcs = arcs<float>();
extern const ArcOperations<double> double_arcs = arcs<double>();

}  // namespace gcnmpi::TARGET
