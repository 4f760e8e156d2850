// Every collective on every element type, of even and uneven pieces, over one axis and two.
#include "tests/device/threads.h"

#include <fmt/format.h>

using namespace spmd::test;

namespace {

constexpr const char *kElements[] = {"f64", "f32",  "bf16", "f16", "f8e4m3", "f8e5m2",
                                     "i64", "i32",  "i16",  "i8",  "u32",    "u16",
                                     "u8",  "bool", "c64",  "c128"};

std::string program(const char *element, const std::string &call, int64_t rows) {
  return fmt::format("trace {{ mode = local }}\nmesh m {{ a = 2, b = 3 }}\n"
                     "%x = input {}[{}, 4] V\n%y = {}\noutput %y\n",
                     element, rows, call);
}

} // namespace

TEST_CASE("device: collectives give on devices what they give on the cpu backend") {
  std::vector<std::string> calls;
  for (const char *axis : {"a", "b", "(a, b)"}) {
    for (const char *op : {"sum", "avg", "max", "min", "prod", "and", "or", "xor"})
      for (const char *form : {"all_reduce %x {{ axis = {}, op = {}, src = V, dst = R }}",
                               "reduce_scatter %x {{ axis = {}, op = {}, src = V, dst = S(0) }}"})
        calls.push_back(fmt::format(fmt::runtime(form), axis, op));
    for (const char *form : {"all_reduce %x {{ axis = {}, src = P, dst = R }}",
                             "reduce_scatter %x {{ axis = {}, src = P, dst = S(0) }}",
                             "reduce_scatter %x {{ axis = {}, src = P, dst = S(1) }}",
                             "all_gather %x {{ axis = {}, src = V, dst = R }}",
                             "all_gather %x {{ axis = {}, src = S(0), dst = R }}",
                             "all_gather %x {{ axis = {}, src = S(1), dst = I }}",
                             "all_to_all %x {{ axis = {}, src = S(0), dst = S(1) }}",
                             "all_to_all %x {{ axis = {}, src = V, dst = V }}",
                             "broadcast %x {{ axis = {}, root = 1 }}",
                             "permute %x {{ axis = {}, perm = [[0, 1], [1, 0]] }}",
                             "convert %x {{ axis = {}, src = V, dst = P }}"})
      calls.push_back(fmt::format(fmt::runtime(form), axis));
  }
  Totals totals;
  size_t asked = 0;
  for (const char *element : kElements)
    for (const std::string &call : calls)
      for (int64_t rows : {6, 7}) {
        ++asked;
        std::string found = difference(program(element, call, rows), totals, false);
        const bool refused = found.find("devices have no collective") != std::string::npos ||
                             found.find("devices add complex") != std::string::npos;
        if (!found.empty() && !refused)
          FAIL_CHECK(element << ", " << call << ", " << rows << " rows: " << found);
      }
  WARN(totals.programs << " of " << asked << " calls are programs that run");
  CHECK(totals.programs > 500);
}
