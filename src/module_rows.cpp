// Rows of sparse matrices, made of the entries that come from a file: in one pass, in place.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <utility>
#include <vector>

#include <nanobind/stl/pair.h>

#include "arrays.hpp"

namespace gcnmpi {
namespace {

// Count entries by rows, and by columns that are not negative, which are those of the same
// vertices; rows with one on the diagonal are not lonely. How many of these there are, and how many
// of them at least `least` from the diagonal.
std::pair<Size, Size> note_entries(
    Indices rows, Indices columns, Flat<Size> lengths, Flat<Size> column_lengths,
    Flat<std::uint8_t> lonely, double least
) {
    const Size count = (Size)rows.shape(0), most = (Size)lengths.shape(0);
    require((Size)columns.shape(0) == count, "a column for each row");
    require((Size)column_lengths.shape(0) == most && (Size)lonely.shape(0) == most, "square");
    const Short *row = rows.data(), *column = columns.data();
    Size *of_row = lengths.data(), *of_column = column_lengths.data();
    std::uint8_t* alone = lonely.data();
    const Size distance = (Size)std::ceil(least);
    const nb::gil_scoped_release released;
    Size inside = 0, far = 0;
    for (Size k = 0; k < count; ++k) {
        if (k + SOON < count) {
            if (row[k + SOON] >= 0) __builtin_prefetch(of_row + row[k + SOON], 1);
            if (column[k + SOON] >= 0) __builtin_prefetch(of_column + column[k + SOON], 1);
        }
        if (row[k] < 0 || row[k] >= most || column[k] >= most)
            throw std::out_of_range("a row that is not there");
        ++of_row[row[k]];
        if (column[k] < 0) continue;
        ++of_column[column[k]];
        ++inside;
        far += std::abs((Size)row[k] - (Size)column[k]) >= distance;
        if (row[k] == column[k]) alone[row[k]] = 0;
    }
    return {inside, far};
}

// Count the entries of each row, those of negative ones not.
void count_entries(Indices rows, Flat<Size> counts) {
    const Size entries = (Size)rows.shape(0), most = (Size)counts.shape(0);
    const Short* row = rows.data();
    Size* count = counts.data();
    const nb::gil_scoped_release released;
    for (Size k = 0; k < entries; ++k) {
        if (k + SOON < entries && row[k + SOON] >= 0) __builtin_prefetch(count + row[k + SOON], 1);
        if (row[k] >= most) throw std::out_of_range("a row that is not there");
        if (row[k] >= 0) ++count[row[k]];
    }
}

// Put each entry where the next one of its row goes, which `next` says and is moved on.
void place_entries(
    Indices rows, Indices columns, std::optional<Flat<const double>> values, Flat<Size> next,
    Flat<const Size> ends, Flat<Short> out, std::optional<Flat<double>> out_values
) {
    const Size count = (Size)rows.shape(0), most = (Size)next.shape(0);
    require((Size)columns.shape(0) == count, "a column for each row");
    require((Size)ends.shape(0) == most, "an end for each row");
    require(values.has_value() == out_values.has_value(), "values for values");
    if (values) {
        require((Size)values->shape(0) == count, "a value for each entry");
        require(out_values->shape(0) == out.shape(0), "room for each value");
    }
    const Short *row = rows.data(), *column = columns.data();
    const double* value = values ? values->data() : nullptr;
    double* to_value = values ? out_values->data() : nullptr;
    Size* at = next.data();
    const Size *end = ends.data(), room = (Size)out.shape(0);
    Short* to = out.data();
    const nb::gil_scoped_release released;
    for (Size k = 0; k < count; ++k)
        if (row[k] < 0 || row[k] >= most) throw std::out_of_range("a row that is not there");
    for (Size k = 0; k < count; ++k) {
        if (k + 2 * SOON < count) __builtin_prefetch(at + row[k + 2 * SOON], 1);
        if (k + SOON < count) __builtin_prefetch(to + at[row[k + SOON]], 1);
        const Size place = at[row[k]]++;
        if (place >= end[row[k]] || place >= room || place < 0)
            throw std::out_of_range("a row has more entries than were counted");
        to[place] = column[k];
        if (value) to_value[place] = value[k];
    }
}

// Numbers of one row in order: by comparisons where they are few, else digit by digit, in `room`.
void sort_numbers(Short* begin, Short* end, std::vector<Short>& room) {
    constexpr int BITS = 8;
    constexpr Size FEW = 64;
    const Size count = end - begin;
    const auto [least, most] = std::minmax_element(begin, end);
    if (count < FEW || *least < 0) return std::sort(begin, end);
    const auto low = (std::uint32_t)*least, high = (std::uint32_t)*most - low;
    room.resize((std::size_t)count);
    Short *from = begin, *to = room.data();
    for (int shift = 0; shift < 32 && high >> shift; shift += BITS) {
        Size next[1 << BITS] = {}, at = 0;
        const auto digit = [=](Short number) {
            return ((std::uint32_t)number - low) >> shift & ((1u << BITS) - 1);
        };
        for (Size k = 0; k < count; ++k) ++next[digit(from[k])];
        for (Size& place : next) at += std::exchange(place, at);
        for (Size k = 0; k < count; ++k) to[next[digit(from[k])]++] = from[k];
        std::swap(from, to);
    }
    if (from != begin) std::copy(from, from + count, begin);
}

// Put the columns of each row in order, and its values along; rows that are in order stay.
void sort_rows(
    Flat<const Size> starts, Flat<Short> indices, std::optional<Flat<double>> values, int threads
) {
    const Size rows = (Size)starts.shape(0) - 1, entries = (Size)indices.shape(0);
    const Size* start = starts.data();
    require(rows >= 0 && start[0] >= 0 && start[rows] <= entries, "rows leave the entries");
    require(!values || (Size)values->shape(0) == entries, "a value for each entry");
    Short* column = indices.data();
    double* value = values ? values->data() : nullptr;
    const nb::gil_scoped_release released;
#pragma omp parallel num_threads(threads)
    {
        std::vector<Size> order;
        std::vector<Short> columns;
        std::vector<double> kept;
#pragma omp for schedule(dynamic, 4096)
        for (Size row = 0; row < rows; ++row) {
            Short *begin = column + start[row], *end = column + start[row + 1];
            if (std::is_sorted(begin, end)) continue;
            if (!value && std::is_sorted(begin + 1, end)) {  // a self-loop came first
                std::rotate(begin, begin + 1, std::lower_bound(begin + 1, end, *begin));
                continue;
            }
            if (!value) {
                sort_numbers(begin, end, columns);
                continue;
            }
            const std::size_t count = (std::size_t)(end - begin);
            order.resize(count);
            std::iota(order.begin(), order.end(), 0);
            std::sort(order.begin(), order.end(), [begin](Size a, Size b) {
                return begin[a] < begin[b] || (begin[a] == begin[b] && a < b);
            });
            columns.assign(begin, end);
            kept.assign(value + start[row], value + start[row + 1]);
            for (std::size_t k = 0; k < count; ++k) {
                begin[k] = columns[(std::size_t)order[k]];
                value[start[row] + (Size)k] = kept[(std::size_t)order[k]];
            }
        }
    }
}

// The rows of the transpose of a pattern, each in order. Where each of its entries comes from, and
// the way back, go to `from` and `back`, where they are asked for.
template <class P>
void transpose(
    Flat<const Size> starts, Indices indices, Flat<Size> out_starts, Flat<Short> out,
    std::optional<Flat<P>> from, std::optional<Flat<P>> back
) {
    const Size rows = (Size)starts.shape(0) - 1, columns = (Size)out_starts.shape(0) - 1;
    const Size entries = (Size)indices.shape(0);
    require(rows >= 0 && columns >= 0, "starts have an entry more than rows");
    require((Size)out.shape(0) == entries, "as many entries");
    require(!from || (Size)from->shape(0) == entries, "a place for each entry");
    require(!back || (Size)back->shape(0) == entries, "a place for each entry");
    const Size* start = starts.data();
    const Short* column = indices.data();
    Size* next = out_starts.data();
    Short* to = out.data();
    P *origin = from ? from->data() : nullptr, *place = back ? back->data() : nullptr;
    require(start[0] == 0 && start[rows] == entries, "rows leave the entries");
    const nb::gil_scoped_release released;
    for (Size row = 0; row < rows; ++row)
        if (start[row] > start[row + 1]) throw std::out_of_range("starts that fall");
    // next[j + 1] is where the row of column j begins, until its entries are put there.
    std::fill(next, next + columns + 1, 0);
    for (Size k = 0; k < entries; ++k)
        if (column[k] < 0 || column[k] >= columns) throw std::out_of_range("no such column");
    for (Size k = 0; k < entries; ++k)
        if (column[k] + 1 < columns) ++next[column[k] + 2];
    for (Size j = 1; j < columns; ++j) next[j + 1] += next[j];
    Size* at = next + 1;
    for (Size row = 0; row < rows; ++row)
        for (Size k = start[row]; k < start[row + 1]; ++k) {
            if (k + 2 * SOON < entries) __builtin_prefetch(at + column[k + 2 * SOON], 1);
            if (k + SOON < entries) __builtin_prefetch(to + at[column[k + SOON]], 1);
            const Size there = at[column[k]]++;
            to[there] = (Short)row;
            if (origin) origin[there] = (P)k;
            if (place) place[k] = (P)there;
        }
}

// Where each entry is among those by columns, each of which has them in order; or the way back.
// `next` is where the entries of each column begin, and is moved on.
template <class P>
void places_by_columns(Indices indices, Flat<Size> next, Flat<P> out, bool back) {
    const Size entries = (Size)indices.shape(0), columns = (Size)next.shape(0);
    require((Size)out.shape(0) == entries, "a place for each entry");
    const Short* column = indices.data();
    Size* at = next.data();
    P* to = out.data();
    const nb::gil_scoped_release released;
    for (Size k = 0; k < entries; ++k) {
        if (k + SOON < entries) __builtin_prefetch(at + column[k + SOON], 1);
        if (column[k] < 0 || column[k] >= columns) throw std::out_of_range("no such column");
        const Size there = at[column[k]]++;
        if (there < 0 || there >= entries) throw std::out_of_range("too many entries");
        if (back) {
            to[there] = (P)k;
        } else {
            to[k] = (P)there;
        }
    }
}

// rows = rows[first], in place: each row moves once, along the cycles of the permutation.
void permute_rows(Bytes<std::uint8_t> rows, Flat<const Size> first) {
    const Size count = (Size)first.shape(0);
    const std::size_t bytes = rows.shape(1);
    require((Size)rows.shape(0) == count, "a place for each row");
    const Size* from = first.data();
    std::uint8_t* data = rows.data();
    const nb::gil_scoped_release released;
    std::vector<bool> seen((std::size_t)count);
    for (Size row = 0; row < count; ++row) {
        if (from[row] < 0 || from[row] >= count || seen[(std::size_t)from[row]])
            throw std::out_of_range("no permutation");
        seen[(std::size_t)from[row]] = true;
    }
    std::vector<std::uint8_t> kept(bytes);
    constexpr int STEPS = 8;  // of a cycle, between a prefetch and its use
    for (Size begin = 0; begin < count; ++begin) {
        if (!seen[(std::size_t)begin]) continue;  // it has moved
        std::memcpy(kept.data(), data + (std::size_t)begin * bytes, bytes);
        Size to = begin, coming = begin;
        for (int step = 0; step < STEPS; ++step) coming = from[coming];
        for (; from[to] != begin; to = from[to]) {
            coming = from[coming];
            __builtin_prefetch(data + (std::size_t)coming * bytes, 1);
            seen[(std::size_t)to] = false;
            const std::uint8_t* row = data + (std::size_t)from[to] * bytes;
            std::memcpy(data + (std::size_t)to * bytes, row, bytes);
        }
        seen[(std::size_t)to] = false;
        std::memcpy(data + (std::size_t)to * bytes, kept.data(), bytes);
    }
}

// Reverse Cuthill and McKee: breadth first along the entries of one or two patterns, from rows with
// few; those that a row leads to by how many they have. Columns beyond the rows are left out.
void bandwidth_order(
    Flat<const Size> starts, Indices indices, std::optional<Flat<const Size>> more_starts,
    std::optional<Indices> more_indices, Flat<Size> out
) {
    const Size rows = (Size)out.shape(0);
    struct Side {
        const Size* start;
        const Short* column;
    };
    std::vector<Side> sides;
    const auto add = [&](const Flat<const Size>& start, const Indices& column) {
        require((Size)start.shape(0) > rows, "a beginning for each row");
        const Size first = start.data()[0], last = start.data()[rows];
        require(first >= 0 && last <= (Size)column.shape(0), "rows leave the entries");
        sides.push_back({start.data(), column.data()});
    };
    add(starts, indices);
    if (more_starts && more_indices) add(*more_starts, *more_indices);
    Size* order = out.data();
    const nb::gil_scoped_release released;
    std::vector<Size> degree((std::size_t)rows, 0), roots((std::size_t)rows);
    for (Size row = 0; row < rows; ++row)
        for (const Side& side : sides)
            degree[(std::size_t)row] += side.start[row + 1] - side.start[row];
    const auto lower = [&degree](Size a, Size b) {
        const Size of_a = degree[(std::size_t)a], of_b = degree[(std::size_t)b];
        return of_a != of_b ? of_a < of_b : a < b;
    };
    std::iota(roots.begin(), roots.end(), 0);
    std::sort(roots.begin(), roots.end(), lower);
    std::vector<std::uint8_t> seen((std::size_t)rows, 0);
    Size found = 0;
    for (const Size root : roots) {
        if (seen[(std::size_t)root]) continue;
        seen[(std::size_t)root] = 1;
        order[found++] = root;
        for (Size at = found - 1; at < found; ++at) {
            const Size row = order[at], mine = found;
            for (const Side& side : sides)
                for (Size k = side.start[row]; k < side.start[row + 1]; ++k) {
                    if (k + SOON < side.start[row + 1] && side.column[k + SOON] < rows)
                        __builtin_prefetch(&seen[(std::size_t)side.column[k + SOON]]);
                    const Size other = side.column[k];
                    if (other < 0 || other >= rows || seen[(std::size_t)other]) continue;
                    seen[(std::size_t)other] = 1;
                    order[found++] = other;
                }
            std::sort(order + mine, order + found, lower);
        }
    }
    std::reverse(order, order + rows);
}

template <class P>
void bind_transpose(nb::module_& module, const char* name) {
    module.def("places_by_columns", &places_by_columns<P>, given("indices"), given("next"),
               given("out"), "back"_a);
    module.def(name, &transpose<P>, given("starts"), given("indices"), given("out_starts"),
               given("out"), given("places").none(), given("back").none());
}

}  // namespace

void bind_rows(nb::module_& module) {
    module.def("note_entries", &note_entries, given("rows"), given("columns"), given("lengths"),
               given("column_lengths"), given("lonely"), "least"_a);
    module.def("count_entries", &count_entries, given("rows"), given("counts"));
    module.def("place_entries", &place_entries, given("rows"), given("columns"),
               given("values").none(), given("next"), given("ends"), given("out"),
               given("out_values").none());
    module.def("sort_rows", &sort_rows, given("starts"), given("indices"), given("values").none(),
               "threads"_a);
    bind_transpose<std::int32_t>(module, "transpose");
    bind_transpose<std::int64_t>(module, "transpose_long");
    module.def("permute_rows", &permute_rows, given("rows"), given("first"));
    module.def("bandwidth_order", &bandwidth_order, given("starts"), given("indices"),
               given("more_starts").none(), given("more_indices").none(), given("out"));
}

}  // namespace gcnmpi
