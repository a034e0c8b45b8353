// Which entries of M rows of a mini-batch keep, as partition/graph/sampling.py says it.
#include <algorithm>
#include <cstdint>
#include <iterator>
#include <vector>

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

// floor(fanout * 2^64 / size) for fanout < size.
std::uint64_t limit_of(std::uint64_t fanout, std::uint64_t size) {
    return (std::uint64_t)(((unsigned __int128)fanout << 64) / size);
}

// Floyd's draws of `count` different numbers below `size`, which is larger.
class Draws {
public:
    const std::vector<std::int64_t>& of(
        std::uint64_t row, std::int64_t size, std::int64_t count, std::uint64_t base
    ) {
        if ((std::int64_t)taken_.size() < size) taken_.resize((std::size_t)size, 0);
        found_.clear();
        const std::uint64_t of_row = mixed(row, base);
        for (std::int64_t last = size - count; last < size; ++last) {
            const std::uint64_t half = mixed(of_row ^ (std::uint64_t)last, base) >> 32;
            std::int64_t drawn = (std::int64_t)((half * (std::uint64_t)(last + 1)) >> 32);
            if (taken_[(std::size_t)drawn]) drawn = last;
            taken_[(std::size_t)drawn] = 1;
            found_.push_back(drawn);
        }
        for (const std::int64_t drawn : found_) taken_[(std::size_t)drawn] = 0;
        return found_;
    }

private:
    std::vector<std::uint8_t> taken_;
    std::vector<std::int64_t> found_;
};

// One random number for each column, which all rows share.
template <class I>
class Hashes {
public:
    Hashes(std::uint64_t base, const Flat<const std::int64_t>& ids)
        : base_(base), id_(ids.data()), known_((std::int64_t)ids.shape(0)) {}

    // Where more entries will be looked at than there are columns, each column is hashed once. Of
    // the hash its first byte is kept, which rules out most: so many bytes lie in a cache.
    void prepare(const Flat<const I>& starts, const std::int64_t* row, std::size_t rows) {
        const std::int64_t count = (std::int64_t)starts.shape(0) - 1;
        std::int64_t entries = 0;
        for (std::size_t n = 0; n < rows && entries <= known_; ++n) {
            if (row[n] < 0 || row[n] >= count) return;  // which is told later
            entries += (std::int64_t)(starts.data()[row[n] + 1] - starts.data()[row[n]]);
        }
        if (entries <= known_) return;
        first_.resize((std::size_t)known_);
        for (std::int64_t c = 0; c < known_; ++c) {
            first_[(std::size_t)c] = (std::uint8_t)(mixed((std::uint64_t)id_[c], base_) >> 56);
        }
    }

    // Calls keep(e) for the entries of row r whose column's hash is below the limit, and for that
    // of the diagonal.
    template <class Keep>
    void below(
        const I* column, std::int64_t r, std::int64_t first, std::int64_t last,
        std::uint64_t limit, const Keep& keep
    ) const {
        const std::int64_t known = known_;
        const auto kept = [&](std::int64_t c) {
            return c == r || mixed((std::uint64_t)id_[c], base_) < limit;
        };
        if (first_.empty()) {
            for (std::int64_t e = first; e < last; ++e) {
                const std::int64_t c = column[e];
                require(c >= 0 && c < known, "an id for each column");
                if (kept(c)) keep(e);
            }
            return;
        }
        const std::uint8_t *const byte = first_.data(), bound = (std::uint8_t)(limit >> 56);
        for (std::int64_t e = first; e < last; ++e) {
            const std::int64_t c = column[e];
            require(c >= 0 && c < known, "an id for each column");
            if (((byte[c] <= bound) | (c == r)) && kept(c)) keep(e);
        }
    }

private:
    std::uint64_t base_;
    const std::int64_t* id_;
    std::int64_t known_;
    std::vector<std::uint8_t> first_;
};

// Entries lie anywhere: memory is asked for what many of them need before the first is looked at.
constexpr std::size_t AHEAD = 16;      // rows whose start is fetched before it is needed
constexpr std::size_t NEAR = 8;        // rows whose first (of draws: last) entry is
constexpr std::size_t GATHERED = 512;  // entries that are decided on before they are read

struct Chosen {
    std::int64_t row, entry;
    double factor;
};

template <class T>
nb::object owned(std::vector<T>&& numbers) {
    auto* kept = new std::vector<T>(std::move(numbers));
    const nb::capsule owner(kept, [](void* p) noexcept { delete (std::vector<T>*)p; });
    return nb::cast(nb::ndarray<nb::numpy, T, nb::ndim<1>>(kept->data(), {kept->size()}, owner));
}

// The kept entries of some rows: where each row starts, columns, and values times their factors.
// Draws need the entries of each row by increasing id, that of the diagonal last.
template <class I, class T>
nb::tuple sample(
    Flat<const I> starts, Flat<const I> columns, Flat<const T> values,
    Flat<const std::int64_t> ids, Flat<const std::int64_t> rows, std::int64_t fanout,
    std::uint64_t base, bool shared
) {
    require(starts.shape(0) > 0, "no starts of rows");
    const std::int64_t count = (std::int64_t)starts.shape(0) - 1;
    const std::int64_t known = (std::int64_t)ids.shape(0);
    const std::int64_t entries = (std::int64_t)columns.shape(0);
    const bool draws = fanout >= 0 && !shared;
    require(count <= known, "an id for each row");
    require((std::int64_t)values.shape(0) == entries, "a value for each entry of a row");
    std::vector<std::int64_t> begins{0};
    std::vector<std::int32_t> column;
    std::vector<T> value;
    {
        const nb::gil_scoped_release released;
        const std::int64_t *const id = ids.data(), *const row = rows.data();
        Draws drawing;
        Hashes<I> hashes(base, ids);
        std::vector<Chosen> chosen;
        const auto keep = [&](Chosen one) {
            __builtin_prefetch(columns.data() + one.entry);
            __builtin_prefetch(values.data() + one.entry);
            chosen.push_back(one);
        };
        const auto read = [&] {
            for (const Chosen& one : chosen) {
                const std::int64_t c = columns.data()[one.entry];
                require(c >= 0 && c < known, "an id for each column");
                column.push_back((std::int32_t)c);
                const double factor = c == one.row ? 1.0 : one.factor;
                value.push_back((T)((double)values.data()[one.entry] * factor));
            }
            chosen.clear();
        };
        const std::size_t length = rows.shape(0);
        begins.reserve(length + 1);
        if (fanout >= 0) {
            column.reserve(length * (std::size_t)(fanout + 1));
            value.reserve(length * (std::size_t)(fanout + 1));
        }
        if (shared) hashes.prepare(starts, row, length);
        for (std::size_t n = 0; n < length; ++n) {
            const std::int64_t r = row[n];
            if (n + AHEAD < length && row[n + AHEAD] >= 0 && row[n + AHEAD] < count) {
                __builtin_prefetch(starts.data() + row[n + AHEAD]);
            }
            if (n + NEAR < length && row[n + NEAR] >= 0 && row[n + NEAR] < count) {
                const I* const start = starts.data() + row[n + NEAR];
                __builtin_prefetch(columns.data() + (shared ? start[0] : start[1] - 1));
            }
            require(r >= 0 && r < count, "a row that there is not");
            const std::int64_t first = starts.data()[r], last = starts.data()[r + 1];
            require(first >= 0 && last >= first && last <= entries, "damaged starts of rows");
            std::int64_t proper = last - first;
            if (shared) {
                const I own = (I)r;
                for (std::int64_t e = first; e < last; ++e) proper -= columns.data()[e] == own;
            } else if (draws && proper) {
                proper -= columns.data()[last - 1] == r;
            }
            if (fanout < 0 || proper <= fanout) {
                for (std::int64_t e = first; e < last; ++e) keep({r, e, 1.0});
            } else if (shared) {
                const std::uint64_t limit = limit_of((std::uint64_t)fanout, (std::uint64_t)proper);
                const double factor = (double)proper / (double)fanout;
                hashes.below(columns.data(), r, first, last, limit, [&](std::int64_t e) {
                    keep({r, e, factor});
                });
            } else {
                const double factor = (double)proper / (double)fanout;
                const auto& drawn = drawing.of((std::uint64_t)id[r], proper, fanout, base);
                for (const std::int64_t k : drawn) keep({r, first + k, factor});
                if (proper < last - first) keep({r, last - 1, 1.0});
            }
            begins.push_back((std::int64_t)(column.size() + chosen.size()));
            if (chosen.size() >= GATHERED) read();
        }
        read();
    }
    return nb::make_tuple(
        owned(std::move(begins)), owned(std::move(column)), owned(std::move(value))
    );
}

// Columns that have no number yet: own ones as they first come, others increasing.
nb::tuple without_number(
    Flat<const std::int32_t> columns, Flat<std::int32_t> number, std::int64_t own
) {
    std::vector<std::int64_t> mine, others;
    {
        const nb::gil_scoped_release released;
        const std::int64_t known = (std::int64_t)number.shape(0);
        const std::int32_t* const column = columns.data();
        std::int32_t* const numbered = number.data();
        const std::size_t length = columns.shape(0);
        for (std::size_t n = 0; n < length; ++n) {
            require(column[n] >= 0 && column[n] < known, "a number for each column");
        }
        // Whether a column is new, nobody foresees: each is written down, and kept if it was.
        std::vector<std::int64_t> found(length);
        std::size_t count = 0;
        for (std::size_t n = 0; n < length; ++n) {
            if (n + AHEAD < length) __builtin_prefetch(numbered + column[n + AHEAD], 1);
            const std::int32_t before = numbered[column[n]];
            found[count] = column[n];
            count += before < 0;
            numbered[column[n]] = before < 0 ? 0 : before;
        }
        found.resize(count);
        for (const std::int64_t c : found) numbered[c] = -1;
        std::partition_copy(
            found.begin(), found.end(), std::back_inserter(mine), std::back_inserter(others),
            [own](std::int64_t c) { return c < own; }
        );
        std::sort(others.begin(), others.end());
    }
    return nb::make_tuple(owned(std::move(mine)), owned(std::move(others)));
}

template <class I, class T>
void bind(nb::module_& module) {
    module.def("sample", &sample<I, T>, given("starts"), given("columns"), given("values"),
               given("ids"), given("rows"), "fanout"_a, "base"_a, "shared"_a);
}

}  // namespace

void bind_sampling(nb::module_& module) {
    bind<std::int32_t, float>(module);
    bind<std::int32_t, double>(module);
    bind<std::int64_t, float>(module);
    bind<std::int64_t, double>(module);
    module.def("without_number", &without_number, given("columns"), given("number"), "own"_a);
}

}  // namespace gcnmpi
