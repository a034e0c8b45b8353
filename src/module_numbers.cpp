// Numbers that are looked up, each of them once, and rows of bytes in the order of their groups.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include "arrays.hpp"

namespace gcnmpi {
namespace {

// The places of distinct numbers in a list: in a table where they lie close together, else in a
// hash table with open addressing that is at most half full.
template <class I>
class Places {
public:
    explicit Places(Flat<const I> numbers) {
        const I* begin = numbers.data();
        const Size count = (Size)numbers.shape(0);
        require(count < std::numeric_limits<Short>::max(), "too many for 32 bits");
        if (!count) return;
        const auto [least, most] = std::minmax_element(begin, begin + count);
        low_ = *least;
        range_ = (std::uint64_t)*most - (std::uint64_t)low_ + 1;
        direct_ = range_ <= 4 * (std::uint64_t)count;
        if (direct_) {
            place_.assign((std::size_t)range_, -1);
        } else {
            while (((std::uint64_t)1 << bits_) < 2 * (std::uint64_t)count) ++bits_;
            place_.assign((std::size_t)1 << bits_, -1);
            number_.resize((std::size_t)1 << bits_);
        }
        for (Size at = 0; at < count; ++at) {
            const std::size_t slot = slot_of(begin[at]);
            require(place_[slot] < 0, "numbers that are not distinct");
            place_[slot] = (Short)at;
            if (!direct_) number_[slot] = begin[at];
        }
    }

    // out = the places of some numbers, -1 where one is not in the list; how many are not.
    Size of(Flat<const I> some, Flat<Short> out) const {
        require(some.shape(0) == out.shape(0), "a place for each number");
        const I* number = some.data();
        Short* place = out.data();
        const Size count = (Size)some.shape(0);
        const nb::gil_scoped_release released;
        Size missing = 0;
        for (Size at = 0; at < count; ++at) {
            if (at + SOON < count && inside(number[at + SOON]) && range_) {
                const std::size_t coming = first_slot(number[at + SOON]);
                __builtin_prefetch(&place_[coming]);
                if (!direct_) __builtin_prefetch(&number_[coming]);
            }
            place[at] = inside(number[at]) ? place_[slot_of(number[at])] : -1;
            missing += place[at] < 0;
        }
        return missing;
    }

private:
    bool inside(I number) const { return (std::uint64_t)number - (std::uint64_t)low_ < range_; }
    std::size_t first_slot(I number) const {
        const std::uint64_t from_low = (std::uint64_t)number - (std::uint64_t)low_;
        return (std::size_t)(direct_ ? from_low : from_low * 0x9E3779B97F4A7C15ull >> (64 - bits_));
    }
    // Where a number is, or would be.
    std::size_t slot_of(I number) const {
        std::size_t slot = first_slot(number);
        if (direct_) return slot;
        const std::size_t mask = place_.size() - 1;
        while (place_[slot] >= 0 && number_[slot] != number) slot = (slot + 1) & mask;
        return slot;
    }

    std::vector<Short> place_;
    std::vector<I> number_;
    I low_ = 0;
    std::uint64_t range_ = 0;
    int bits_ = 1;
    bool direct_ = true;
};

// Numbers that are not negative, each once: in a hash table that is at most half full.
template <class I>
class Distinct {
public:
    void add(Flat<const I> numbers) {
        const I* number = numbers.data();
        const Size count = (Size)numbers.shape(0);
        const nb::gil_scoped_release released;
        for (Size at = 0; at < count; ++at) {
            if (at + SOON < count) __builtin_prefetch(&slots_[first_slot(number[at + SOON])], 1);
            if (number[at] < 0) throw std::out_of_range("a number below 0");
            std::size_t slot = slot_of(number[at]);
            if (slots_[slot] == number[at]) continue;
            slots_[slot] = number[at];
            if (2 * ++count_ > slots_.size()) grow();
        }
    }

    Size count() const { return (Size)count_; }

    // All of them, in no order.
    void numbers(Flat<I> out) const {
        require((Size)out.shape(0) == count(), "room for each number");
        I* to = out.data();
        for (const I number : slots_)
            if (number >= 0) *to++ = number;
    }

private:
    std::size_t first_slot(I number) const {
        return (std::size_t)((std::uint64_t)number * 0x9E3779B97F4A7C15ull >> (64 - bits_));
    }
    std::size_t slot_of(I number) const {
        std::size_t slot = first_slot(number);
        while (slots_[slot] >= 0 && slots_[slot] != number) slot = (slot + 1) & (slots_.size() - 1);
        return slot;
    }
    void grow() {
        std::vector<I> old((std::size_t)1 << ++bits_, I(-1));
        old.swap(slots_);
        for (const I number : old)
            if (number >= 0) slots_[slot_of(number)] = number;
    }

    int bits_ = 10;
    std::size_t count_ = 0;
    std::vector<I> slots_ = std::vector<I>((std::size_t)1 << 10, I(-1));
};

// out[k] = table[at[k]].
template <class I>
void look_up(Indices table, Flat<const I> at, Flat<Short> out) {
    const Size count = (Size)at.shape(0), most = (Size)table.shape(0);
    require((Size)out.shape(0) == count, "room for each number");
    const Short* from = table.data();
    const I* place = at.data();
    Short* to = out.data();
    const nb::gil_scoped_release released;
    for (Size k = 0; k < count; ++k) {
        if (k + SOON < count) __builtin_prefetch(from + place[k + SOON]);
        if (place[k] < 0 || place[k] >= most) throw std::out_of_range("no such place");
        to[k] = from[place[k]];
    }
}

template <class Copy>
void group_by(const Short* group, Size count, Size* next, const Copy& copy) {
    for (Size k = 0; k < count; ++k) copy(next[group[k]]++, k);
}

// Put each row behind those that its group already has; `next` says where, and is moved on.
void group_rows(
    Indices groups, Flat<Size> next, Bytes<const std::uint8_t> rows, Bytes<std::uint8_t> out
) {
    const Size count = (Size)groups.shape(0), most = (Size)next.shape(0);
    const std::size_t bytes = rows.shape(1);
    require((Size)rows.shape(0) == count, "a group for each row");
    require((Size)out.shape(0) >= count && out.shape(1) == bytes, "room for each row");
    const Short* group = groups.data();
    const std::uint8_t* from = rows.data();
    std::uint8_t* to = out.data();
    Size* place = next.data();
    const nb::gil_scoped_release released;
    std::vector<Size> ends(place, place + most);
    for (Size k = 0; k < count; ++k) {
        if (group[k] < 0 || group[k] >= most) throw std::out_of_range("a group that is not there");
        ++ends[(std::size_t)group[k]];
    }
    for (Size g = 0; g < most; ++g)
        if (place[g] < 0 || ends[(std::size_t)g] > (Size)out.shape(0))
            throw std::out_of_range("a group that leaves the room");
    const auto copied = [&](auto number) {
        using T = decltype(number);
        group_by(group, count, place, [&](Size there, Size k) {
            std::memcpy(to + there * (Size)sizeof(T), from + k * (Size)sizeof(T), sizeof(T));
        });
    };
    if (bytes == 4) return copied(std::uint32_t());
    if (bytes == 8) return copied(std::uint64_t());
    group_by(group, count, place, [&](Size there, Size k) {
        std::memcpy(to + there * (Size)bytes, from + k * (Size)bytes, bytes);
    });
}

template <class I>
void bind_places(nb::module_& module, const char* name) {
    nb::class_<Places<I>>(module, name)
        .def(nb::init<Flat<const I>>(), given("numbers"))
        .def("of", &Places<I>::of, given("some"), given("out"));
}

template <class I>
void bind_distinct(nb::module_& module, const char* name) {
    nb::class_<Distinct<I>>(module, name)
        .def(nb::init<>())
        .def("add", &Distinct<I>::add, given("numbers"))
        .def("count", &Distinct<I>::count)
        .def("numbers", &Distinct<I>::numbers, given("out"));
    module.def("look_up", &look_up<I>, given("table"), given("at"), given("out"));
}

}  // namespace

void bind_numbers(nb::module_& module) {
    bind_places<std::int32_t>(module, "Places32");
    bind_places<std::int64_t>(module, "Places64");
    bind_distinct<std::int32_t>(module, "Distinct32");
    bind_distinct<std::int64_t>(module, "Distinct64");
    module.def("group_rows", &group_rows, given("groups"), given("next"), given("rows"),
               given("out"));
}

}  // namespace gcnmpi
