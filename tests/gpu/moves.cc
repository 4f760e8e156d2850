// Moves, and what goes between host and device.
#include "tests/device/carry_out.h"
#include "tests/gpu/opened_device.h"

#include <algorithm>

namespace spmd::gpu_test {
namespace {

struct Form {
  const char *name;
  uint32_t loops;
  int64_t extents[kSpmdLoops], from_strides[kSpmdLoops], to_strides[kSpmdLoops];
  int64_t from_begin, to_begin; // first elements
};

constexpr Form kForms[] = {
    {"one element", 0, {}, {}, {}, 0, 0},
    {"flat", 1, {1000}, {1}, {1}, 0, 0},
    {"flat, off by one", 1, {999}, {1}, {1}, 1, 3},
    {"rows of a wider matrix", 2, {37, 64}, {96, 1}, {64, 1}, 0, 0},
    {"rows at odd positions", 2, {37, 63}, {97, 1}, {65, 1}, 1, 0},
    {"from rows at odd positions", 2, {37, 64}, {97, 1}, {64, 1}, 0, 0},
    {"to rows at odd positions", 2, {37, 64}, {96, 1}, {65, 1}, 0, 0},
    {"even rows from an odd place", 2, {37, 64}, {96, 1}, {64, 1}, 1, 0},
    {"transposed", 2, {33, 65}, {1, 33}, {65, 1}, 0, 0},
    {"transposed, all even", 2, {80, 48}, {1, 80}, {48, 1}, 0, 0},
    {"transposed, of an even batch", 3, {2, 32, 64}, {2048, 1, 32}, {2048, 64, 1}, 0, 0},
    {"transposed, from an odd place", 2, {80, 48}, {1, 80}, {48, 1}, 1, 0},
    {"transposed, into wider rows", 2, {48, 64}, {1, 48}, {80, 1}, 0, 16},
    {"transposed, of a batch", 3, {3, 40, 20}, {800, 1, 40}, {840, 20, 1}, 0, 0},
    {"heads to the front", 3, {20, 5, 32}, {160, 32, 1}, {1, 20, 100}, 0, 0},
    {"repeated", 3, {5, 7, 16}, {0, 16, 1}, {112, 16, 1}, 0, 0},
    {"backwards", 2, {9, 50}, {-50, 1}, {50, 1}, 400, 0},
    {"every third", 1, {300}, {3}, {1}, 0, 0},
    {"into every second", 1, {300}, {1}, {2}, 0, 0},
    {"one place in a loop", 4, {1, 6, 1, 8}, {77, 8, 99, 1}, {5, 8, 3, 1}, 0, 0},
    {"nothing", 3, {4, 0, 6}, {6, 6, 1}, {6, 6, 1}, 0, 0},
    {"eight loops",
     8,
     {2, 3, 2, 3, 2, 2, 3, 4},
     {4, 8, 24, 48, 144, 288, 576, 1},
     {864, 288, 144, 48, 24, 12, 4, 1},
     0,
     0},
};

void test_form(OpenedDevice &on, const Form &form, uint32_t element) {
  SpmdMove move{};
  move.bytes = device::bytes_of(element);
  move.loops = form.loops;
  std::copy_n(form.extents, kSpmdLoops, move.extents);
  std::copy_n(form.from_strides, kSpmdLoops, move.from_strides);
  std::copy_n(form.to_strides, kSpmdLoops, move.to_strides);
  Elements from = on.elements(element, 5000), to = on.elements(element, 5000);
  on.put(from);
  on.put(to);
  auto with = [&](SpmdAddress source, SpmdAddress target) {
    SpmdMove made = move;
    made.from = source + static_cast<uint64_t>(form.from_begin) * move.bytes;
    made.to = target + static_cast<uint64_t>(form.to_begin) * move.bytes;
    return made;
  };
  const SpmdMove asked = with(from.device, to.device);
  on.expect_fine(on.calls().move(on.device(), &asked), "move");
  test::carry_out(with(from.on_host(), to.on_host()));
  on.expect(on.difference(to).empty(), on.difference(to));
  on.expect(on.difference(from).empty(), "what is read was written: " + on.difference(from));
}

void test_transfer(OpenedDevice &on, int64_t bytes) {
  Elements there = on.elements(kSpmdU8, bytes);
  on.put(there);
  on.expect(on.difference(there).empty(), on.difference(there));
  // A part of it, at a place that nothing is aligned to.
  const int64_t begin = std::min<int64_t>(bytes, 3), count = std::max<int64_t>(0, bytes - 7);
  std::fill_n(there.host.begin() + static_cast<int64_t>(Elements::kMargin) + begin, count,
              char(0x5a));
  on.expect_fine(on.calls().put(on.device(), there.device + static_cast<uint64_t>(begin),
                                there.host.data() + Elements::kMargin + begin,
                                static_cast<uint64_t>(count)),
                 "put");
  on.expect(on.difference(there).empty(), on.difference(there));
}

} // namespace

void test_moves(OpenedDevice &on) {
  for (int64_t bytes : {0, 1, 4095, (4 << 20) - 1, 4 << 20, (4 << 20) + 1, 21 << 20})
    on.run("put and get: " + std::to_string(bytes) + " bytes", [&] { test_transfer(on, bytes); });
  for (uint32_t element : {kSpmdU8, kSpmdI16, kSpmdF32, kSpmdF64, kSpmdC128})
    for (const Form &form : kForms)
      on.run(std::string("move: ") + form.name + ", " + std::to_string(device::bytes_of(element)) +
                 " bytes each",
             [&] { test_form(on, form, element); });
}

} // namespace spmd::gpu_test
