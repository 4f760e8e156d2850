// Sorts of short and of long rows, and scatters by what they give.
#include "tests/device/carry_out.h"
#include "tests/gpu/opened_device.h"

#include <cmath>

namespace spmd::gpu_test {
namespace {

// Few different numbers, so that many keys are equal.
double some_key(OpenedDevice &on, bool is_float) {
  constexpr double kSpecial[] = {0.0, -0.0, INFINITY, -INFINITY, NAN};
  const uint64_t pick = on.random() % 64;
  if (is_float && pick < std::size(kSpecial))
    return kSpecial[pick];
  return static_cast<double>(pick) - (is_float ? 32.5 : 32);
}

SpmdSort sort_of(Elements &keys, int64_t rows, int64_t length, bool descending, bool by_columns) {
  SpmdSort sort{};
  sort.element = keys.element, sort.descending = descending;
  sort.rows = rows, sort.length = length;
  sort.row_stride = by_columns ? 1 : length, sort.stride = by_columns ? rows : 1;
  return sort;
}

void queue_sort(OpenedDevice &on, SpmdSort sort, Elements &keys, Elements &order) {
  Elements room = on.elements(
      kSpmdU8, static_cast<int64_t>(spmd_sort_workspace_bytes(static_cast<uint64_t>(order.count))));
  SpmdSort here = sort;
  sort.keys = keys.device, sort.order = order.device, sort.room = room.device;
  here.keys = keys.on_host(), here.order = order.on_host();
  on.expect_fine(on.calls().sort(on.device(), &sort), "sort");
  test::carry_out(here);
}

void test_sort(OpenedDevice &on, uint32_t element, int64_t rows, int64_t length, bool descending,
               bool by_columns) {
  Elements keys = on.elements(element, rows * length);
  const bool is_float = element >= kSpmdF8E4M3;
  for (int64_t i = 0; i < keys.count; ++i)
    keys.set(i, some_key(on, is_float));
  Elements order = on.elements(kSpmdU32, rows * length);
  on.put(keys);
  on.put(order);
  queue_sort(on, sort_of(keys, rows, length, descending, by_columns), keys, order);
  const std::string difference = on.difference(order);
  on.expect(difference.empty(), difference);
}

// Sums are in another order than on the host: of whole numbers they are the same.
void test_scatter(OpenedDevice &on, SpmdScatterForm form, uint32_t element, int64_t entries,
                  int64_t width, int64_t rows) {
  Elements numbers = on.elements(kSpmdI64, entries), order = on.elements(kSpmdU32, entries),
           last = on.elements(kSpmdU32, rows), from = on.elements(element, entries * width),
           to = on.elements(element, rows * width);
  for (int64_t i = 0; i < entries; ++i) // some outside
    numbers.set(i, static_cast<double>(static_cast<int64_t>(on.random() % uint64_t(rows + 2)) - 1));
  for (int64_t i = 0; i < from.count; ++i)
    from.set(i, static_cast<double>(on.random() % 7) - 3);
  for (int64_t i = 0; i < to.count; ++i)
    to.set(i, static_cast<double>(on.random() % 7) - 3);
  for (Elements *each : {&numbers, &order, &last, &from, &to})
    on.put(*each);
  const bool adds = form == kSpmdAddRows;
  if (adds)
    queue_sort(on, sort_of(numbers, 1, entries, false, false), numbers, order);
  SpmdScatter scatter{};
  scatter.form = form, scatter.row_element = kSpmdI64;
  scatter.entries = entries, scatter.width = width;
  scatter.from_element = scatter.to_element = element;
  scatter.from_entry = width, scatter.from_stride = 1;
  scatter.rows = rows, scatter.to_row = width, scatter.to_stride = 1;
  SpmdScatter here = scatter;
  scatter.row_numbers = numbers.device, scatter.order = adds ? order.device : last.device;
  scatter.from = from.device, scatter.to = to.device;
  here.row_numbers = numbers.on_host(), here.order = order.on_host();
  here.from = from.on_host(), here.to = to.on_host();
  on.expect_fine(on.calls().scatter(on.device(), &scatter), "scatter");
  test::carry_out(here);
  const std::string difference = on.difference(to);
  on.expect(difference.empty(), difference);
}

std::string text_of(std::initializer_list<int64_t> numbers) {
  std::string text;
  for (int64_t number : numbers)
    text += " " + std::to_string(number);
  return text;
}

} // namespace

void test_sorts(OpenedDevice &on) {
  struct Rows {
    int64_t rows, length;
  };
  for (Rows each : {Rows{1, 1}, {7, 8}, {300, 33}, {2, 1024}, {1, 1025}, {3, 5000}, {1, 200000}})
    for (uint32_t element : {kSpmdF32, kSpmdI64, kSpmdBF16})
      for (bool descending : {false, true})
        on.run("sort" + text_of({each.rows, each.length, int64_t(element), descending}), [&] {
          test_sort(on, element, each.rows, each.length, descending, each.rows % 2 == 0);
        });
  struct Scatter {
    int64_t entries, width, rows;
  };
  for (Scatter each : {Scatter{1, 1, 1},
                       {100, 1, 7},
                       {3000, 1, 3},
                       {50, 300, 1000},
                       {2000, 33, 20},
                       {100000, 2, 50000}})
    for (SpmdScatterForm form : {kSpmdAddRows, kSpmdReplaceRows})
      on.run("scatter" + text_of({each.entries, each.width, each.rows, form}),
             [&] { test_scatter(on, form, kSpmdF32, each.entries, each.width, each.rows); });
}

} // namespace spmd::gpu_test
