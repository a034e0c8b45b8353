// Which entries of M rows of a mini-batch keep, as partition/graph/neighbor_sampling.py says it.
#include <algorithm>
#include <cstdint>

#include "arrays.hpp"

namespace gcnmpi {
namespace {

// partition/graph/hashing.py: mixed.
std::uint64_t mixed(std::uint64_t number, std::uint64_t key) {
    std::uint64_t x = number * 0x9E3779B97F4A7C15ull + key;
    x ^= x >> 30;
    x *= 0xBF58476D1CE4E5B9ull;
    x ^= x >> 27;
    x *= 0x94D049BB133111EBull;
    return x ^ (x >> 31);
}

struct Drawn {
    std::uint64_t code;
    std::int64_t column, place;
    bool operator<(const Drawn& other) const {
        return code != other.code ? code < other.code : column < other.column;
    }
};

// floor(fanout * 2^64 / size) for fanout < size, by long division.
std::uint64_t limit_of(std::uint64_t fanout, std::uint64_t size) {
    std::uint64_t quotient = 0, rest = fanout;
    for (int bit = 0; bit < 64; ++bit) {
        // rest < size <= 2^63: what is shifted out is none.
        rest <<= 1;
        quotient <<= 1;
        if (rest >= size) {
            rest -= size;
            quotient |= 1;
        }
    }
    return quotient;
}

template <class T>
nb::object owned(std::vector<T>&& numbers) {
    auto* kept = new std::vector<T>(std::move(numbers));
    const nb::capsule owner(kept, [](void* p) noexcept { delete (std::vector<T>*)p; });
    return nb::cast(nb::ndarray<nb::numpy, T, nb::ndim<1>>(kept->data(), {kept->size()}, owner));
}

template <class I>
nb::tuple sample(
    Flat<const I> starts, Flat<const I> columns, Flat<const std::int64_t> ids,
    Flat<const std::int64_t> rows, std::int64_t fanout, std::uint64_t base, bool shared
) {
    require(starts.shape(0) > 0, "no starts of rows");
    const std::int64_t count = (std::int64_t)starts.shape(0) - 1;
    const std::int64_t known = (std::int64_t)ids.shape(0);
    require(count <= known, "an id for each row");
    std::vector<std::int64_t> row, place;
    std::vector<double> factor;
    {
        const nb::gil_scoped_release released;
        std::vector<Drawn> drawn;
        for (std::size_t n = 0; n < rows.shape(0); ++n) {
            const std::int64_t r = rows.data()[n];
            require(r >= 0 && r < count, "a row that there is not");
            const std::int64_t first = starts.data()[r], last = starts.data()[r + 1];
            require(first >= 0 && last <= (std::int64_t)columns.shape(0), "damaged starts of rows");
            std::int64_t proper = 0;
            for (std::int64_t e = first; e < last; ++e) {
                const std::int64_t column = columns.data()[e];
                require(column >= 0 && column < known, "an id for each column");
                proper += column != r;
            }
            if (fanout < 0 || proper <= fanout) {
                for (std::int64_t e = first; e < last; ++e) place.push_back(e);
                row.resize(place.size(), r);
                factor.resize(place.size(), 1.0);
                continue;
            }
            const auto code_of = [&](std::int64_t e, std::uint64_t of_row) {
                return mixed(of_row ^ (std::uint64_t)ids.data()[columns.data()[e]], base);
            };
            const std::size_t before = place.size();
            if (shared) {
                const std::uint64_t limit = limit_of((std::uint64_t)fanout, (std::uint64_t)proper);
                for (std::int64_t e = first; e < last; ++e) {
                    if (columns.data()[e] == r || code_of(e, 0) < limit) place.push_back(e);
                }
            } else {
                const std::uint64_t of_row = mixed((std::uint64_t)ids.data()[r], base);
                drawn.clear();
                for (std::int64_t e = first; e < last; ++e) {
                    const std::int64_t column = columns.data()[e];
                    if (column == r) {
                        place.push_back(e);
                    } else {
                        drawn.push_back({code_of(e, of_row), ids.data()[column], e});
                    }
                }
                std::nth_element(drawn.begin(), drawn.begin() + (fanout - 1), drawn.end());
                for (std::int64_t i = 0; i < fanout; ++i) place.push_back(drawn[i].place);
                std::sort(place.begin() + (std::ptrdiff_t)before, place.end());
            }
            const double more = (double)proper / (double)fanout;
            for (std::size_t i = before; i < place.size(); ++i) {
                factor.push_back(columns.data()[place[i]] == r ? 1.0 : more);
            }
            row.resize(place.size(), r);
        }
    }
    return nb::make_tuple(
        owned(std::move(row)), owned(std::move(place)), owned(std::move(factor))
    );
}

template <class I>
void bind(nb::module_& module) {
    module.def("sample", &sample<I>, given("starts"), given("columns"), given("ids"),
               given("rows"), "fanout"_a, "base"_a, "shared"_a);
}

}  // namespace

void bind_sampling(nb::module_& module) {
    bind<std::int32_t>(module);
    bind<std::int64_t>(module);
}

}  // namespace gcnmpi
