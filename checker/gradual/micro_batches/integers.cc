// Values of ops for known integers.
#include "checker/gradual/micro_batches/integers.h"

#include "rules/ops/op.h"

#include "llvm/ADT/STLExtras.h"

#include <algorithm>
#include <limits>

namespace spmd::checker {

using rules::Computes;

std::optional<int64_t> of_integers(const rules::ResolvedOp &op, llvm::ArrayRef<int64_t> x) {
  if (!op.row || op.variant() != rules::Variant::Plain)
    return std::nullopt;
  const bool truths = llvm::all_of(x, [](int64_t each) { return each == 0 || each == 1; });
  const Computes computes = op.row->computes;
  if (x.size() == 1) {
    if (computes == Computes::Sign)
      return (x[0] > 0) - (x[0] < 0);
    if (computes == Computes::LogicalNot && truths)
      return !x[0];
    return std::nullopt;
  }
  if (x.size() == 3 && computes == Computes::Clamp)
    return std::min(std::max(x[0], x[1]), x[2]);
  if (x.size() != 2)
    return std::nullopt;
  const int64_t a = x[0], b = x[1];
  switch (computes) {
  case Computes::Maximum:
    return std::max(a, b);
  case Computes::Minimum:
    return std::min(a, b);
  case Computes::Equal:
    return a == b;
  case Computes::NotEqual:
    return a != b;
  case Computes::Less:
    return a < b;
  case Computes::LessEqual:
    return a <= b;
  case Computes::Greater:
    return a > b;
  case Computes::GreaterEqual:
    return a >= b;
  default:
    break;
  }
  if (truths && computes == Computes::LogicalAnd)
    return a & b;
  if (truths && computes == Computes::LogicalOr)
    return a | b;
  if (b == 0 || a == std::numeric_limits<int64_t>::min()) // which has no quotient by -1
    return std::nullopt;
  if (computes == Computes::Div)
    return a / b;
  if (computes == Computes::TruncatedRemainder)
    return a % b;
  if (computes == Computes::Remainder)
    return (a % b + b) % b;
  return std::nullopt;
}

} // namespace spmd::checker
