// Has the heap of glibc grow once, by what a large input will take, in large pages. The first touch
// of a page of 4 KiB costs a trap, and a program of five megabytes touches thousands: a fifth of
// the time to read and check it. Relies on nobody: where the heap is another allocator's it does
// not move, and nothing is done.
#include "checker/cli/large_pages.h"

#ifdef __GLIBC__
#include <algorithm>
#include <cstdint>
#include <cstdlib>

#include <malloc.h>
#include <sys/mman.h>
#include <unistd.h>
#endif

namespace spmd::checker {

#ifdef __GLIBC__
namespace {

constexpr size_t kLargePage = size_t{2} << 20;
constexpr size_t kSmallInput = size_t{1} << 20;
// Addresses, which cost nothing until they are touched: reading and checking take less of a file
// than this.
constexpr size_t kSizesOfInput = 8;
constexpr size_t kMostAddresses = size_t{1} << 30;
constexpr size_t kLargestInHeap = size_t{32} << 20; // the most that mallopt takes

char *heap_end() { return static_cast<char *>(::sbrk(0)); }
void set(int option, size_t bytes) { ::mallopt(option, static_cast<int>(bytes)); }

} // namespace

void expect_large_input(size_t bytes) {
  static bool done = false;
  if (done || bytes < kSmallInput)
    return;
  done = true;
  // What reading gives back is what checking takes: it stays.
  set(M_MMAP_THRESHOLD, kLargestInHeap);
  set(M_TRIM_THRESHOLD, kMostAddresses);
  set(M_TOP_PAD, std::min(bytes, kMostAddresses / kSizesOfInput) * kSizesOfInput);
  const char *before = heap_end();
  char *first = static_cast<char *>(std::malloc(kLargePage));
  const char *after = heap_end();
  set(M_TOP_PAD, kLargePage);
  if (first && first < after && after - before > static_cast<ptrdiff_t>(kLargePage)) {
    size_t lead = -reinterpret_cast<uintptr_t>(first) % kLargePage;
    ::madvise(first + lead, static_cast<size_t>(after - first) - lead, MADV_HUGEPAGE);
  }
  std::free(first);
}
#else
void expect_large_input(size_t) {}
#endif

} // namespace spmd::checker
