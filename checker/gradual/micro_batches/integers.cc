// Functions of integers, by row.
#include "checker/gradual/micro_batches/integers.h"

#include "llvm/ADT/STLExtras.h"

#include <algorithm>

namespace spmd::checker {

using Integers = llvm::ArrayRef<int64_t>;
using Made = std::optional<int64_t>;

namespace {

struct Function {
  std::string_view row;
  size_t operands;
  Made (*of)(Integers);
};

constexpr Function kFunctions[] = {
    {"maximum", 2, [](Integers x) { return Made(std::max(x[0], x[1])); }},
    {"minimum", 2, [](Integers x) { return Made(std::min(x[0], x[1])); }},
    {"clamp", 3, [](Integers x) { return Made(std::min(std::max(x[0], x[1]), x[2])); }},
    {"sign", 1, [](Integers x) { return Made((x[0] > 0) - (x[0] < 0)); }},
    {"eq", 2, [](Integers x) { return Made(x[0] == x[1]); }},
    {"ne", 2, [](Integers x) { return Made(x[0] != x[1]); }},
    {"lt", 2, [](Integers x) { return Made(x[0] < x[1]); }},
    {"le", 2, [](Integers x) { return Made(x[0] <= x[1]); }},
    {"gt", 2, [](Integers x) { return Made(x[0] > x[1]); }},
    {"ge", 2, [](Integers x) { return Made(x[0] >= x[1]); }},
    {"logical_and", 2, [](Integers x) { return Made(x[0] && x[1]); }},
    {"logical_or", 2, [](Integers x) { return Made(x[0] || x[1]); }},
    {"logical_not", 1, [](Integers x) { return Made(!x[0]); }},
    // Of a mask; of other numbers it is not followed.
    {"bitwise_not", 1, [](Integers x) { return x[0] == 0 || x[0] == 1 ? Made(!x[0]) : Made(); }},
    {"bitwise_and", 2, [](Integers x) { return Made(x[0] & x[1]); }},
    {"bitwise_or", 2, [](Integers x) { return Made(x[0] | x[1]); }},
    {"fmod", 2, [](Integers x) { return x[1] ? Made(x[0] % x[1]) : Made(); }},
    {"remainder", 2, [](Integers x) { return x[1] ? Made((x[0] % x[1] + x[1]) % x[1]) : Made(); }},
    {"div", 2, [](Integers x) { return x[1] ? Made(x[0] / x[1]) : Made(); }},
};

} // namespace

std::optional<int64_t> of_integers(const rules::OpDef &row, llvm::ArrayRef<int64_t> operands) {
  const auto *found = llvm::find_if(kFunctions, [&](const Function &each) {
    return each.row == row.name && each.operands == operands.size();
  });
  return found == std::end(kFunctions) ? std::nullopt : found->of(operands);
}

} // namespace spmd::checker
