// Runs the threads of a CUDA kernel as fibres, and looks at each access to memory.
//
// g++ -fsanitize=thread puts a call before every access, -fsanitize=undefined one where something is
// undefined. These calls end here, not in the compiler's libraries; a source that is compiled
// without them runs unchecked.
//
// An access may touch the bytes of the arrays that a launch names, gaps between strided rows not
// among them, and shared memory. Two threads that touch a byte, one of them writing, race unless
// they are of one block and a barrier lies between. Memory that nothing wrote holds POISON. Blocks
// follow each other in a shuffled order, and so do the threads of a block; where they are checked,
// another one goes on after some of the accesses.
//
// Requests of a warp are its accesses at one place of the source, the k-th of each lane together, as
// a device counts them: lanes that take part, and different sectors of 32 bytes.
#include <sys/mman.h>
#include <xmmintrin.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <map>
#include <numeric>
#include <random>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

struct Three { unsigned x, y, z; };
struct Here { Three thread, block, threads, blocks; };
struct Array { std::uintptr_t data; std::int64_t itemsize, dimensions, shape[4], strides[4]; };

extern "C" {
Here here;
extern char __start_shared[] __attribute__((weak, visibility("hidden")));
extern char __stop_shared[] __attribute__((weak, visibility("hidden")));
void change_over(void** mine, void* other);
}
// Registers that a function leaves as they were go to the stack of the one that stops, and come from
// that of the one that goes on.
asm(R"(
.globl change_over
.type change_over,@function
change_over:
  pushq %rbp; pushq %rbx; pushq %r12; pushq %r13; pushq %r14; pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15; popq %r14; popq %r13; popq %r12; popq %rbx; popq %rbp
  ret
)");

namespace {
using Address = std::uintptr_t;
using U32 = std::uint32_t;

constexpr std::size_t STACK = 64 << 10, MOST = 1024;
constexpr int WARP = 32, SECTOR = 32;
constexpr int SELDOM = 7;                   // accesses, on average, until another thread goes on
constexpr unsigned NO_SUBNORMALS = 0x8040;  // neither read nor made, as with -ftz=true

enum State { READY, WAITS, SHUFFLES, DONE };
struct Fibre { State state; int stack, line; void* top; std::uint64_t mine, other; unsigned apart; };
struct Touch { U32 thread, interval; };
struct Byte { bool allowed; Touch writer, readers[2]; };
struct Region { Address first, last; std::vector<Byte> bytes; };

Fibre fibres[MOST], *running;
char* stacks;
std::vector<int> free_stacks;
void *scheduler, **given;
void (*kernel)(void**);
U32 interval, threads_before;
std::vector<Region> regions;  // of a checked launch; the last one is shared memory
std::map<std::string, int> findings;
std::mt19937 generator;

struct Request { int lanes; std::set<Address> sectors; };
struct Totals { std::int64_t requests, lanes, bytes, sectors, most; } totals;
std::unordered_map<Address, std::vector<U32>> times;         // of a place, each thread of the block
std::map<std::pair<Address, std::uint64_t>, Request> requests;  // of a place: warp and time

// Of global memory, in a checked launch.
void count(Address at, std::size_t size, Address place) {
  const U32 thread = running - fibres;
  std::vector<U32>& of_place = times[place];
  of_place.resize(MOST);
  const U32 time = of_place[thread]++;
  Request& request = requests[{place, (std::uint64_t)(thread / WARP) << 32 | time}];
  ++request.lanes;
  for (Address one = at / SECTOR; one <= (at + size - 1) / SECTOR; ++one) request.sectors.insert(one);
  totals.bytes += size;
  totals.most = std::max<std::int64_t>(totals.most, time + 1);
}

void add_requests() {
  totals.requests += requests.size();
  for (const auto& [place, request] : requests)
    totals.lanes += request.lanes, totals.sectors += request.sectors.size();
  requests.clear(), times.clear();
}

void leave() { change_over(&running->top, scheduler); }

void leave_for_good(const char* finding) {
  if (finding) ++findings[finding];
  running->state = DONE;
  leave();
}

void run_thread() {
  kernel(given);
  leave_for_good(nullptr);
}

void go_on(int number) {
  Fibre& fibre = fibres[number];
  if (!fibre.top) {
    fibre.stack = free_stacks.back();
    free_stacks.pop_back();
    void** top = (void**)(stacks + (fibre.stack + 1) * STACK);
    top[-2] = (void*)run_thread;  // change_over returns to it, after six registers
    fibre.top = top - 8;
  }
  here.thread = {number % here.threads.x, number / here.threads.x, 0};
  running = &fibre;
  change_over(&scheduler, fibre.top);
  running = nullptr;
  if (fibre.state == DONE) free_stacks.push_back(fibre.stack);
}

// The numbers that lanes get from each other, once all lanes of their warp that have not returned
// are there.
bool exchange(int threads) {
  bool any = false;
  for (Fibre* first = fibres; first < fibres + threads; first += WARP) {
    Fibre* const last = std::min(first + WARP, fibres + threads);
    const auto shuffles = [](const Fibre& one) { return one.state == SHUFFLES; };
    const auto there = [=](const Fibre& one) { return shuffles(one) || one.state == DONE; };
    if (std::none_of(first, last, shuffles)) continue;
    if (!std::all_of(first, last, there)) ++findings["not all lanes of a warp reach a shuffle"];
    for (Fibre* one = first; one < last; ++one) {
      if (!shuffles(*one)) continue;
      Fibre* const from = first + ((one - first) ^ one->apart);
      if (from >= last || !shuffles(*from)) ++findings["a shuffle with a lane that is not there"];
      else if (from->apart != one->apart) ++findings["lanes are at different shuffles"];
      one->other = from->mine;
    }
    for (Fibre* one = first; one < last; ++one)
      if (shuffles(*one)) one->state = READY, any = true;
  }
  return any;
}

void run_block(Three block, std::vector<int>& order) {
  here.block = block;
  std::fill_n(fibres, order.size(), Fibre{});
  if (!regions.empty()) {
    Region& shared = regions.back();
    shared.bytes.assign(shared.last - shared.first, Byte{true});
    std::fill((U32*)shared.first, (U32*)shared.last, POISON);
  }
  for (bool all_done = false; !all_done;) {
    ++interval;
    for (bool ready = true; ready;) {
      ready = false;
      for (int thread : order)
        if (fibres[thread].state == READY) {
          go_on(thread);
          ready |= fibres[thread].state == READY;
        }
      if (ready) std::shuffle(order.begin(), order.end(), generator);
      else ready = exchange(order.size());
    }
    std::vector<Fibre*> waiting;
    for (int thread : order)
      if (fibres[thread].state == WAITS) waiting.push_back(&fibres[thread]);
    all_done = waiting.empty();
    if (!all_done && waiting.size() < order.size()) ++findings["not all threads reach a barrier"];
    for (Fibre* fibre : waiting) {
      if (fibre->line != waiting[0]->line) ++findings["threads wait at different barriers"];
      fibre->state = READY;
    }
  }
  threads_before += order.size();
  add_requests();
}

void allow(const Array& array, int dimension, Address at) {
  if (dimension < array.dimensions) {
    for (int k = 0; k < array.shape[dimension]; ++k)
      allow(array, dimension + 1, at + k * array.strides[dimension]);
    return;
  }
  for (Region& one : regions)
    if (one.first <= at && at < one.last)
      for (int k = 0; k < array.itemsize; ++k) one.bytes[at - one.first + k].allowed = true;
}

// Arrays that overlap are one region.
void find_regions(const std::vector<Array>& arrays) {
  std::vector<Region> some;
  for (const Array& one : arrays) {
    Address last = one.data + one.itemsize;
    for (int d = 0; d < one.dimensions; ++d) last += (one.shape[d] - 1) * one.strides[d];
    some.push_back({one.data, last, {}});
  }
  std::sort(some.begin(), some.end(), [](auto& a, auto& b) { return a.first < b.first; });
  for (const Region& one : some)
    if (regions.empty() || one.first >= regions.back().last) regions.push_back(one);
    else regions.back().last = std::max(regions.back().last, one.last);
  for (Region& one : regions) one.bytes.resize(one.last - one.first);
  for (const Array& one : arrays) allow(one, 0, one.data);
  regions.push_back({(Address)__start_shared, (Address)__stop_shared, {}});
}

// Threads of other blocks may run at any time, those of the same block until the next barrier.
bool races(Touch other, U32 me) {
  const bool ordered = other.thread > threads_before && other.interval < interval;
  return other.thread && other.thread != me && !ordered;
}

void touch(Byte& byte, bool write, U32 me) {
  if (races(byte.writer, me)) ++findings["race of a write and another access"];
  auto& [one, two] = byte.readers;
  if (write) {
    if (races(one, me) || races(two, me)) ++findings["race of a write and a read"];
    byte.writer = {me, interval};
  } else {
    (one.thread == me || (two.thread != me && one.interval <= two.interval) ? one : two) = {me, interval};
  }
}

// Two words of 8 bytes and more, as one may be a number by chance.
bool is_poison(Address at, std::size_t size) {
  U32 words[4] = {};
  std::memcpy(words, (void*)at, size);
  const auto pair = [&](int k) { return words[k] == POISON && words[k + 1] == POISON; };
  return size == 4 ? words[0] == POISON : pair(0) || pair(2);
}

void access(void* to, std::size_t size, bool write, void* place) {
  const Address at = (Address)to;
  const bool own = at - (Address)stacks < MOST * STACK || at - (Address)&here < sizeof here;
  if (!running || own) return;
  const auto in = [=](const Region& one) { return one.first <= at && at + size <= one.last; };
  const auto region = std::find_if(regions.begin(), regions.end(), in);
  Byte* const bytes = region == regions.end() ? nullptr : &region->bytes[at - region->first];
  // A GPU, too, ends the kernel there.
  if (!bytes || !std::all_of(bytes, bytes + size, [](const Byte& one) { return one.allowed; }))
    return leave_for_good(write ? "write out of bounds" : "read out of bounds");
  if (!write && is_poison(at, size)) ++findings["read of what nothing wrote"];
  for (Byte* one = bytes; one < bytes + size; ++one)
    touch(*one, write, threads_before + (running - fibres) + 1);
  if (&*region != &regions.back()) count(at, size, (Address)place);
  if (generator() % SELDOM == 0) leave();
}
}  // namespace

extern "C" {
void barrier(int line) {
  running->state = WAITS;
  running->line = line;
  leave();
}

std::uint64_t shuffle(std::uint64_t mine, unsigned apart) {
  running->state = SHUFFLES;
  running->mine = mine, running->apart = apart;
  leave();
  return running->other;
}

// Of the last launch: requests, lanes in them, bytes, sectors, and the most that a thread was at a place.
const std::int64_t* counted() { return &totals.requests; }

// Findings, a line each. Sizes are those of the grid and of a block.
const char* launch(
    void (*function)(void**), void** arguments, const unsigned* sizes, const Array* arrays, int count,
    unsigned seed, bool checked) {
  if (!stacks) {
    stacks = (char*)mmap(nullptr, MOST * STACK, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    for (std::size_t number = 0; number < MOST; ++number) free_stacks.push_back(number);
  }
  kernel = function, given = arguments;
  interval = threads_before = 0;
  generator.seed(seed);
  findings.clear(), regions.clear();
  totals = {};
  if (checked) find_regions({arrays, arrays + count});
  here.blocks = {sizes[0], sizes[1], 1}, here.threads = {sizes[2], sizes[3], 1};
  std::vector<int> blocks(sizes[0] * sizes[1]), threads(sizes[2] * sizes[3]);
  for (std::vector<int>* order : {&blocks, &threads}) {
    std::iota(order->begin(), order->end(), 0);
    std::shuffle(order->begin(), order->end(), generator);
  }
  const unsigned before = _mm_getcsr();
  _mm_setcsr(before | NO_SUBNORMALS);
  for (unsigned number : blocks) run_block({number % sizes[0], number / sizes[0], 0}, threads);
  _mm_setcsr(before);
  static std::string text;
  text.clear();
  for (const auto& [finding, times] : findings) text += finding + "\n";
  return text.c_str();
}

void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
#define HERE __builtin_return_address(0)
#define ACCESS(size) \
  void __tsan_read##size(void* at) { access(at, size, false, HERE); } \
  void __tsan_write##size(void* at) { access(at, size, true, HERE); } \
  void __tsan_unaligned_read##size(void* at) { access(at, size, false, HERE); } \
  void __tsan_unaligned_write##size(void* at) { access(at, size, true, HERE); }
ACCESS(1) ACCESS(2) ACCESS(4) ACCESS(8) ACCESS(16)
// Of structures, number by number.
#define RANGE(kind, write) \
  void __tsan_##kind##_range(void* at, std::size_t size) { \
    for (std::size_t k = 0; k < size; k += 4) access((char*)at + k, 4, write, HERE); \
  }
RANGE(read, false) RANGE(write, true)
#define UNDEFINED(what) void __ubsan_handle_##what() { ++findings["undefined: " #what]; }
UNDEFINED(add_overflow) UNDEFINED(sub_overflow) UNDEFINED(mul_overflow)
UNDEFINED(negate_overflow) UNDEFINED(divrem_overflow) UNDEFINED(shift_out_of_bounds)
UNDEFINED(pointer_overflow) UNDEFINED(float_cast_overflow) UNDEFINED(out_of_bounds)
void __ubsan_handle_type_mismatch_v1() { ++findings["misaligned pointer, or null"]; }
}
