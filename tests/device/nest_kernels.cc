// What the kernels of loop nests compute, held against the loop nests themselves. The kernels are
// those that a device is given, run by fibers of the host.
#include "tests/device/nest_kernels.h"

#include "runtime/nccl/nest_arguments.h"
#include "tests/device/carry_out.h"
#include "tests/device/on_host.h"
#include "tests/unit/catch.h"

#include <cstdlib>
#include <memory>
#include <ucontext.h>

namespace spmd::test {

Dim3 thread_index, block_index, grid_size;

namespace {

constexpr size_t kStackBytes = size_t(64) << 10;

struct Fiber {
  ucontext_t context{};
  std::unique_ptr<char[]> stack{new char[kStackBytes]};
  bool done = false;
};
struct Block {
  void (*kernel)(const void *) = nullptr;
  const void *arguments = nullptr;
  std::vector<Fiber> fibers;
  ucontext_t caller{};
  unsigned running = 0;
};
Block block;

void run_fiber() {
  block.kernel(block.arguments);
  block.fibers[block.running].done = true;
}

} // namespace

void meet() { swapcontext(&block.fibers[block.running].context, &block.caller); }

void launch(void (*kernel)(const void *), const void *arguments, unsigned blocks,
            unsigned threads) {
  block.kernel = kernel;
  block.arguments = arguments;
  block.fibers.resize(threads);
  grid_size.x = blocks;
  for (block_index.x = 0; block_index.x < blocks; ++block_index.x) {
    for (Fiber &fiber : block.fibers) {
      getcontext(&fiber.context);
      fiber.context.uc_stack.ss_sp = fiber.stack.get();
      fiber.context.uc_stack.ss_size = kStackBytes;
      fiber.context.uc_link = &block.caller;
      fiber.done = false;
      makecontext(&fiber.context, run_fiber, 0);
    }
    for (bool any = true; any;) {
      any = false;
      for (unsigned t = 0; t < threads; ++t) {
        if (block.fibers[t].done)
          continue;
        block.running = thread_index.x = t;
        swapcontext(&block.caller, &block.fibers[t].context);
        any |= !block.fibers[t].done;
      }
    }
  }
}

namespace {

// Elements at an address that nothing wider is loaded from by chance.
class Cells {
public:
  Cells(uint32_t element, int64_t count)
      : element_(element), bytes_(static_cast<size_t>(count) * device::bytes_of(element)),
        memory_(static_cast<char *>(std::aligned_alloc(16, (bytes_ + 31) / 16 * 16)), std::free) {}
  SpmdAddress address() const { return reinterpret_cast<SpmdAddress>(memory_.get()); }
  void set(int64_t place, double value) { device::store(address(), element_, place, value); }
  bool operator==(const Cells &other) const {
    return std::memcmp(memory_.get(), other.memory_.get(), bytes_) == 0;
  }

private:
  uint32_t element_;
  size_t bytes_;
  std::unique_ptr<char, void (*)(void *)> memory_;
};

void combine_parts(const SpmdLoopNest &nest, int64_t parts, const std::vector<double> &partial) {
  const uint32_t outer = nest.loops - nest.inner;
  for (int64_t place = 0; place < device::iterations(nest.extents, 0, outer); ++place) {
    double value = partial[static_cast<size_t>(place * parts)];
    for (int64_t i = 1; i < parts; ++i)
      value =
          device::combined(nest.combiner, value, partial[static_cast<size_t>(place * parts + i)]);
    int64_t at[kSpmdLoops];
    device::unravel(nest.extents, 0, outer, place, at);
    device::finish(nest, at, value);
  }
}

} // namespace
} // namespace spmd::test

using namespace spmd;
using namespace spmd::test;

TEST_CASE("device: kernels of loop nests compute what the loop nests say") {
  int several_parts = 0, forms = 0;
  for (int seed = 0; seed < static_cast<int>(nest_kernels().size()); ++seed) {
    INFO("seed " << seed);
    const NestKernel &kernel = nest_kernels()[static_cast<size_t>(seed)];
    RandomNest drawn = nest_of_seed(seed);
    NestDice dice(static_cast<uint64_t>(seed) + 1000);
    SpmdLoopNest &nest = drawn.nest;
    std::vector<Cells> arrays;
    for (uint32_t i = 0; i < nest.arrays; ++i) {
      arrays.emplace_back(nest.in[i].element, drawn.counts[i]);
      if (nest.in[i].element == kSpmdNoElement)
        continue;
      for (int64_t place = 0; place < drawn.counts[i]; ++place)
        arrays[i].set(place, dice.number(static_cast<double>(drawn.least[i]),
                                         static_cast<double>(drawn.most[i])));
      nest.in[i].data = arrays[i].address();
    }
    Cells wanted(nest.out.element, drawn.out_count), found(nest.out.element, drawn.out_count);
    for (int64_t place = 0; place < drawn.out_count; ++place) {
      const double before = dice.number(-3, 3);
      wanted.set(place, before);
      found.set(place, before);
    }
    nest.out.data = wanted.address();
    carry_out(nest);

    std::vector<double> partial(static_cast<size_t>(kPartials));
    nest.out.data = found.address();
    nccl::NestArguments arguments = nccl::arguments_of(nest, partial.data());
    launch(kernel.run, &arguments, static_cast<unsigned>(kernel.blocks), 256);
    if (kernel.parts > 1)
      combine_parts(nest, kernel.parts, partial);
    CHECK(found == wanted);
    several_parts += kernel.parts > 1;
    forms += nest.inner > 0;
  }
  CHECK(several_parts > 0);
  CHECK(forms > 10);
}
