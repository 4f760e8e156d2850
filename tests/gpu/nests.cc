// Loop nests: every operation, element and combiner, and the forms that loops take.
#include "tests/device/carry_out.h"
#include "tests/device/random_nests.h"
#include "tests/gpu/opened_device.h"

#include <algorithm>
#include <cmath>

namespace spmd::gpu_test {
namespace {

// Functions of a device and of a host are not the same text: some units in the last place of a
// double.
constexpr double kFunctions = 4e-15;

// One loop over flat arrays; the result is the first array.
SpmdLoopNest flat(int64_t count, uint32_t arrays) {
  SpmdLoopNest nest{};
  nest.loops = 1;
  nest.extents[0] = count;
  nest.arrays = arrays;
  nest.combiner = kSpmdSum;
  nest.factor = nest.divisor = 1;
  nest.out.strides[0] = 1;
  for (uint32_t i = 0; i < arrays; ++i) {
    nest.in[i].index = ~0u;
    nest.in[i].strides[0] = 1;
  }
  nest.out.index = ~0u;
  set_steps(nest, {{kSpmdInput, 0, 0, 0}});
  return nest;
}

void compare(OpenedDevice &on, SpmdLoopNest nest, std::vector<Elements *> in, Elements &out,
             double tolerance = 0) {
  SpmdLoopNest here = nest;
  for (size_t i = 0; i < in.size(); ++i) {
    on.put(*in[i]);
    nest.in[i].element = here.in[i].element = in[i]->element;
    nest.in[i].data = in[i]->device;
    here.in[i].data = in[i]->on_host();
  }
  on.put(out);
  nest.out.element = here.out.element = out.element;
  nest.out.data = out.device;
  here.out.data = out.on_host();
  on.expect_fine(on.calls().nest(on.device(), &nest), "nest");
  test::carry_out(here);
  const std::string difference = on.difference(out, tolerance);
  on.expect(difference.empty(), difference);
}

double some_number(OpenedDevice &on, int64_t place) {
  constexpr double kSpecial[] = {0.0,    -0.0, 1,    -1,       0.5,       -0.5,
                                 2,      -2,   3,    1e-310,   -1e-310,   1e300,
                                 -1e300, 709,  -745, INFINITY, -INFINITY, NAN};
  constexpr auto count = static_cast<int64_t>(std::size(kSpecial));
  if (place % 3 == 0)
    return kSpecial[on.random() % count];
  std::normal_distribution<double> normal(0, place % 2 ? 1 : 30);
  return normal(on.random);
}

void test_operation(OpenedDevice &on, uint8_t op) {
  constexpr int64_t kCount = 3000;
  Elements in[3] = {on.elements(kSpmdF64, kCount), on.elements(kSpmdF64, kCount),
                    on.elements(kSpmdF64, kCount)};
  for (Elements &array : in)
    for (int64_t i = 0; i < kCount; ++i)
      array.set(i, some_number(on, i));
  Elements out = on.elements(kSpmdF64, kCount);
  SpmdLoopNest nest = flat(kCount, 3);
  set_steps(nest,
            {{kSpmdInput, 0, 0, 0}, {kSpmdInput, 1, 0, 0}, {kSpmdInput, 2, 0, 0}, {op, 0, 1, 2}});
  const bool exact = op < kSpmdExp || op == kSpmdSqrt || op == kSpmdFmod || op >= kSpmdCopysign;
  compare(on, nest, {&in[0], &in[1], &in[2]}, out, exact ? 0 : kFunctions);
}

// Every number of 16 bits and less, and as many random ones of the wider elements.
void test_conversion(OpenedDevice &on, uint32_t from, uint32_t to) {
  constexpr int64_t kCount = 1 << 16;
  Elements in = on.elements(from, kCount), out = on.elements(to, kCount);
  for (int64_t i = 0; i < kCount; ++i) {
    if (device::bytes_of(from) <= 2) {
      const auto bits = static_cast<uint16_t>(i);
      std::copy_n(reinterpret_cast<const char *>(&bits), device::bytes_of(from),
                  reinterpret_cast<char *>(in.on_host()) + i * device::bytes_of(from));
    } else if (i % 2) { // else random bits
      in.set(i, some_number(on, i));
    }
  }
  compare(on, flat(kCount, 1), {&in}, out);
  Elements wide = on.elements(kSpmdF64, kCount);
  SpmdLoopNest nest = flat(kCount, 1);
  set_steps(nest, {{kSpmdInput, 0, 0, 0}, {kSpmdRound, 0, static_cast<uint8_t>(to), 0}});
  compare(on, nest, {&in}, wide);
}

// A long program: all numbers are kept until the end.
void test_long_program(OpenedDevice &on) {
  constexpr int64_t kCount = 777;
  Elements in = on.elements(kSpmdF32, kCount), out = on.elements(kSpmdF32, kCount);
  for (int64_t i = 0; i < kCount; ++i)
    in.set(i, static_cast<double>(i % 17) - 8);
  SpmdLoopNest nest = flat(kCount, 1);
  nest.constants = kSpmdConstants;
  for (uint32_t c = 0; c < kSpmdConstants; ++c)
    nest.numbers[c] = c + 0.25;
  std::vector<SpmdScalarStep> steps = {{kSpmdInput, 0, 0, 0}};
  while (steps.size() + 2 <= kSpmdSteps) {
    const auto last = static_cast<uint8_t>(steps.size() - 1);
    steps.push_back({kSpmdConstant, static_cast<uint8_t>(steps.size() / 2 % kSpmdConstants), 0, 0});
    steps.push_back(
        {kSpmdAdd, static_cast<uint8_t>(last + 1), static_cast<uint8_t>(last / 2 * 2), 0});
  }
  set_steps(nest, steps);
  compare(on, nest, {&in}, out);
}

struct Reduced {
  const char *name;
  uint32_t loops, inner;
  int64_t extents[4], in_strides[4], out_strides[4];
};
constexpr Reduced kReduced[] = {
    {"few in a row", 2, 1, {100, 5}, {5, 1}, {1}},
    {"a row each", 2, 1, {70, 100}, {100, 1}, {1}},
    {"long rows", 2, 1, {3, 50000}, {50000, 1}, {1}},
    {"all", 3, 3, {40, 50, 60}, {3000, 60, 1}, {}},
    {"all, transposed", 2, 2, {300, 400}, {1, 300}, {}},
    {"columns", 2, 1, {90, 300}, {1, 90}, {1}},
    {"many columns", 2, 1, {70000, 40}, {1, 70000}, {1}},
    {"many rows", 2, 1, {70000, 40}, {40, 1}, {1}},
    {"the middle", 4, 2, {6, 5, 7, 9}, {315, 1, 45, 5}, {5, 1}},
    {"into a wider result", 3, 1, {4, 6, 33}, {198, 33, 1}, {20, 3}},
    {"none", 2, 1, {50, 0}, {1, 1}, {1}},
    {"one each", 2, 1, {50, 1}, {1, 1}, {1}},
    {"of nothing", 2, 1, {0, 50}, {50, 1}, {1}},
};

void test_reduction(OpenedDevice &on, const Reduced &form, uint32_t combiner, uint32_t element) {
  SpmdLoopNest nest = flat(1, 1);
  nest.loops = form.loops;
  nest.inner = form.inner;
  nest.combiner = combiner;
  int64_t positions = 1, results = 1;
  for (uint32_t l = 0; l < form.loops; ++l) {
    nest.extents[l] = form.extents[l];
    nest.in[0].strides[l] = form.in_strides[l];
    nest.out.strides[l] = l < form.loops - form.inner ? form.out_strides[l] : 0;
    positions += (std::max<int64_t>(form.extents[l], 1) - 1) * form.in_strides[l];
    results += (std::max<int64_t>(form.extents[l], 1) - 1) * nest.out.strides[l];
  }
  Elements in = on.elements(element, positions), out = on.elements(element, results);
  // Small whole numbers, of which every order of sums and products gives the same bits.
  for (int64_t i = 0; i < positions; ++i)
    in.set(i, combiner == kSpmdProd ? (on.random() % 500 ? 1 : -2)
                                    : static_cast<double>(on.random() % 5) - 2);
  for (int64_t i = 0; i < results; ++i)
    out.set(i, static_cast<double>(i % 7));
  compare(on, nest, {&in}, out);
  if (combiner != kSpmdSum)
    return;
  nest.adds = 1;
  nest.factor = 3;
  nest.divisor = 4;
  compare(on, nest, {&in}, out);
}

// Sums of numbers that are rounded: as near as an order of its own comes.
void test_rounded_sum(OpenedDevice &on) {
  constexpr int64_t kRows = 5, kCount = 40000;
  Elements in = on.elements(kSpmdF32, kRows * kCount), out = on.elements(kSpmdF64, kRows);
  for (int64_t i = 0; i < in.count; ++i)
    in.set(i, 0.001 * static_cast<double>(on.random() % 100000) + 1);
  SpmdLoopNest nest = flat(kRows, 1);
  nest.loops = 2;
  nest.inner = 1;
  nest.extents[1] = kCount;
  nest.in[0].strides[0] = kCount;
  nest.in[0].strides[1] = 1;
  compare(on, nest, {&in}, out, 1e-12);
}

// The same bits in each run.
void test_repeated_sum(OpenedDevice &on) {
  constexpr int64_t kCount = 200000;
  Elements in = on.elements(kSpmdF64, kCount), out = on.elements(kSpmdF64, 1);
  for (int64_t i = 0; i < kCount; ++i)
    in.set(i, std::normal_distribution<double>()(on.random));
  on.put(in);
  SpmdLoopNest nest = flat(kCount, 1);
  nest.inner = 1;
  nest.in[0] = {in.device, kSpmdF64, ~0u, 0, 0, 0, {1}};
  nest.out = {out.device, kSpmdF64, ~0u, 0, 0, 0, {}};
  double first = 0;
  for (int run = 0; run < 5; ++run) {
    on.expect_fine(on.calls().nest(on.device(), &nest), "nest");
    double sum = 0;
    on.expect_fine(on.calls().get(on.device(), &sum, out.device, sizeof sum), "get");
    first = run == 0 ? sum : first;
    on.expect(sum == first, "another sum in run " + std::to_string(run));
  }
}

// NaN wins, wherever it stands.
void test_nan(OpenedDevice &on, uint32_t combiner, int64_t count) {
  constexpr int64_t kRows = 40;
  Elements in = on.elements(kSpmdF32, kRows * count), out = on.elements(kSpmdF32, kRows);
  for (int64_t i = 0; i < in.count; ++i)
    in.set(i, combiner == kSpmdProd ? 1 : static_cast<double>(on.random() % 100));
  for (int64_t row = 1; row < kRows; ++row)
    in.set(row * count + row * (count - 1) / (kRows - 1), NAN);
  SpmdLoopNest nest = flat(kRows, 1);
  nest.loops = 2;
  nest.inner = 1;
  nest.combiner = combiner;
  nest.extents[1] = count;
  nest.in[0].strides[0] = count;
  nest.in[0].strides[1] = 1;
  compare(on, nest, {&in}, out);
}

// Rows that an array of whole numbers names; what names none gives 0.
void test_index(OpenedDevice &on, uint32_t element) {
  constexpr int64_t kTable = 50, kRows = 200, kWidth = 24;
  Elements table = on.elements(kSpmdF32, kTable * kWidth), rows = on.elements(element, kRows);
  Elements out = on.elements(kSpmdF32, kRows * kWidth);
  for (int64_t i = 0; i < table.count; ++i)
    table.set(i, static_cast<double>(i));
  for (int64_t i = 0; i < kRows; ++i)
    rows.set(i, static_cast<double>(on.random() % (kTable + 10)) - 5);
  SpmdLoopNest nest = flat(kRows, 2);
  nest.loops = 2;
  nest.extents[1] = kWidth;
  nest.in[0].index = 1;
  nest.in[0].stride = kWidth;
  nest.in[0].extent = kTable;
  nest.in[0].strides[0] = 0;
  nest.in[0].strides[1] = 1;
  nest.in[1].strides[0] = 1;
  nest.out.strides[0] = kWidth;
  nest.out.strides[1] = 1;
  compare(on, nest, {&table, &rows}, out);
  nest.in[0].begin = 3; // rows are counted from another one on
  compare(on, nest, {&table, &rows}, out);
}

// A row and a column around a matrix that is read backwards, into the memory of the matrix itself.
void test_in_place(OpenedDevice &on) {
  constexpr int64_t kRows = 30, kColumns = 41;
  Elements matrix = on.elements(kSpmdF64, kRows * kColumns);
  Elements row = on.elements(kSpmdI32, kColumns), column = on.elements(kSpmdF16, kRows);
  for (Elements *array : {&matrix, &row, &column})
    for (int64_t i = 0; i < array->count; ++i)
      array->set(i, static_cast<double>(on.random() % 64));
  SpmdLoopNest nest = flat(kRows, 3);
  nest.loops = 2;
  nest.extents[1] = kColumns;
  nest.in[0].strides[0] = kColumns;
  nest.in[0].strides[1] = 1;
  nest.in[1].strides[0] = 0;
  nest.in[1].strides[1] = 1;
  nest.in[2].strides[0] = 1;
  nest.in[2].strides[1] = 0;
  nest.out.strides[0] = kColumns;
  nest.out.strides[1] = 1;
  set_steps(nest, {{kSpmdInput, 0, 0, 0},
                   {kSpmdInput, 1, 0, 0},
                   {kSpmdInput, 2, 0, 0},
                   {kSpmdMul, 0, 1, 0},
                   {kSpmdSub, 3, 2, 0}});
  compare(on, nest, {&matrix, &row, &column}, matrix);
}

// Large ones have kernels of their own.
void test_large(OpenedDevice &on, uint64_t seed) {
  test::NestDice dice(seed);
  test::RandomNest drawn = dice.draw(int64_t(1) << 20);
  std::vector<Elements> arrays;
  for (uint32_t i = 0; i < drawn.nest.arrays; ++i) {
    const uint32_t element = drawn.nest.in[i].element;
    const bool is_data = element != kSpmdNoElement;
    arrays.push_back(on.elements(element, is_data ? drawn.counts[i] : 1));
    for (int64_t place = 0; is_data && place < drawn.counts[i]; ++place)
      arrays[i].set(place, dice.number(static_cast<double>(drawn.least[i]),
                                       static_cast<double>(drawn.most[i])));
  }
  Elements out = on.elements(drawn.nest.out.element, drawn.out_count);
  for (int64_t place = 0; place < drawn.out_count; ++place)
    out.set(place, dice.number(-3, 3));
  std::vector<Elements *> in;
  for (Elements &array : arrays)
    in.push_back(&array);
  compare(on, drawn.nest, in, out);
}

// Of all operations, over as many numbers.
void test_large_operation(OpenedDevice &on, uint8_t op, uint32_t element) {
  constexpr int64_t kCount = int64_t(1) << 20;
  Elements in = on.elements(element, kCount), out = on.elements(element, kCount);
  for (int64_t i = 0; i < kCount; ++i)
    in.set(i, some_number(on, i));
  SpmdLoopNest nest = flat(kCount, 1);
  nest.constants = 1;
  nest.numbers[0] = 0.75;
  set_steps(nest, {{kSpmdInput, 0, 0, 0}, {kSpmdConstant, 0, 0, 0}, {op, 0, 1, 0}});
  // In float, the result may be the neighbour.
  const double step = element == kSpmdBF16 ? 0x1p-7 : element == kSpmdF16 ? 0x1p-10 : kFunctions;
  compare(on, nest, {&in}, out, step);
}

} // namespace

void test_nests(OpenedDevice &on) {
  for (uint8_t op = kSpmdSelect; op < kSpmdOps; ++op)
    on.run("nest: operation " + std::to_string(op), [&] { test_operation(on, op); });
  for (uint32_t from = kSpmdBool; from <= kSpmdF64; ++from)
    for (uint32_t to = kSpmdBool; to <= kSpmdF64; ++to)
      on.run("nest: element " + std::to_string(from) + " to " + std::to_string(to),
             [&] { test_conversion(on, from, to); });
  on.run("nest: a long program", [&] { test_long_program(on); });
  for (const Reduced &form : kReduced)
    for (uint32_t combiner : {kSpmdSum, kSpmdMax, kSpmdMin, kSpmdProd})
      for (uint32_t element : {kSpmdF32, kSpmdI64, kSpmdBF16})
        on.run(std::string("nest: ") + form.name + ", combiner " + std::to_string(combiner) +
                   ", element " + std::to_string(element),
               [&] { test_reduction(on, form, combiner, element); });
  on.run("nest: a rounded sum", [&] { test_rounded_sum(on); });
  on.run("nest: a repeated sum", [&] { test_repeated_sum(on); });
  for (uint32_t combiner : {kSpmdMax, kSpmdMin, kSpmdSum, kSpmdProd})
    for (int64_t count : {7, 500, 30000})
      on.run("nest: NaN among " + std::to_string(count) + ", combiner " + std::to_string(combiner),
             [&] { test_nan(on, combiner, count); });
  for (uint32_t element : {kSpmdI32, kSpmdI64, kSpmdI8})
    on.run("nest: rows by index, element " + std::to_string(element),
           [&] { test_index(on, element); });
  on.run("nest: in place", [&] { test_in_place(on); });
  for (uint64_t seed = 0; seed < 30; ++seed)
    on.run("nest: large, seed " + std::to_string(seed), [&] { test_large(on, seed); });
  for (uint8_t op : {kSpmdDiv, kSpmdExp, kSpmdLog, kSpmdSqrt, kSpmdTanh, kSpmdErf, kSpmdPow})
    for (uint32_t element : {kSpmdF64, kSpmdF32, kSpmdBF16, kSpmdF16})
      on.run("nest: large, operation " + std::to_string(op) + ", element " +
                 std::to_string(element),
             [&] { test_large_operation(on, op, element); });
}

} // namespace spmd::gpu_test
