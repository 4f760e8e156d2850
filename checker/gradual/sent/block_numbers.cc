// Follows what counts rows from the first one of a block.
#include "checker/gradual/sent/block_numbers.h"

#include "checker/gradual/axis_size_numbers.h"
#include "checker/program_queries.h"

#include "rules/apply.h"
#include "rules/bind.h"
#include "rules/factors/shape_rule.h"
#include "rules/attributes/lookups.h"
#include "rules/ops/op.h"
#include "rules/shapes/attrs.h"
#include "rules/violations/operands.h"

#include "llvm/ADT/STLExtras.h"

#include <cmath>

namespace spmd::checker {

using ir::ValueId;
using rules::Computes;

// Numbers and lengths that are larger are not followed: no row has such a number, and sums and
// products of them fit.
constexpr int64_t kLargest = int64_t{1} << 40;

static bool is_followed(int64_t number) { return number >= -kLargest && number <= kLargest; }

BlockNumbers::BlockNumbers(ir::Program &program, const CheckResult &checked, ir::MeshId mesh,
                           ir::AxisId axis)
    : program_(program), checked_(checked), ranks_(program, checked, mesh, axis) {
  ranks_.run();
}

const BlockNumbers::Count *BlockNumbers::find(ValueId value) const {
  const auto at = counts_.find(value.index);
  return at == counts_.end() ? nullptr : &at->second;
}

std::optional<int64_t> BlockNumbers::extent(ValueId value, unsigned dim) const {
  return extent_of(program_, checked_.shapes[value.index], dim);
}

std::optional<BlockNumbers::Block> BlockNumbers::block(ValueId value) const {
  const Count *count = find(value);
  const auto length = count ? extent(value, count->dim) : std::optional<int64_t>();
  // One row may be any number.
  if (!length || *length < 2 || !is_followed(*length))
    return std::nullopt;
  const auto ranks = static_cast<int64_t>(ranks_.ranks());
  const int64_t back = (ranks - count->first[0] / *length) % ranks;
  for (int64_t rank = 0; rank < ranks; ++rank)
    if (count->first[static_cast<size_t>(rank)] != (rank + ranks - back) % ranks * *length)
      return std::nullopt;
  return Block{count->dim, *length, static_cast<unsigned>(back)};
}

// The number that all elements of an operand are, by rank.
std::optional<llvm::SmallVector<int64_t, 8>> BlockNumbers::number(llvm::ArrayRef<ValueId> operands,
                                                                  const rules::Slot &slot) {
  llvm::SmallVector<int64_t, 8> found;
  if (slot.form == rules::Slot::Form::Literal) {
    const auto plain = number_of(slot.literal);
    if (!plain || *plain != std::floor(*plain) || std::abs(*plain) > double(kLargest))
      return std::nullopt;
    found.assign(ranks_.ranks(), static_cast<int64_t>(*plain));
    return found;
  }
  if (slot.form != rules::Slot::Form::Tensor || slot.first >= operands.size())
    return std::nullopt;
  for (unsigned rank = 0; rank < ranks_.ranks(); ++rank) {
    const RankInterpreter::Cells &cells = ranks_.cells(rank, operands[slot.first]);
    const auto known =
        cells.uniform() ? ranks_.contents().known(cells.of[0]) : std::optional<int64_t>();
    if (!known)
      return std::nullopt;
    found.push_back(*known);
  }
  return found;
}

std::optional<BlockNumbers::Count> BlockNumbers::added(const rules::Application &app,
                                                       llvm::ArrayRef<ValueId> operands,
                                                       ValueId result) {
  const bool subtracts = app.op.computes(Computes::Sub);
  rules::OperandMismatch ignored;
  const auto binding = rules::bind_operands(app, app.op.row->equation.equation, ignored);
  if (!binding || app.attr("alpha") || !(subtracts || app.op.computes(Computes::Add)))
    return std::nullopt;
  for (unsigned i = 0; i < 2; ++i) {
    const rules::Slot *slot = (*binding)[i], *other = (*binding)[1 - i];
    const Count *count =
        slot && slot->form == rules::Slot::Form::Tensor && slot->first < operands.size()
            ? find(operands[slot->first])
            : nullptr;
    if (!count || !other || (subtracts && i == 1))
      continue;
    const auto plus = number(operands, *other);
    const size_t before = dimension_count(program_, checked_.shapes[operands[slot->first].index]),
                 after = dimension_count(program_, checked_.shapes[result.index]);
    if (!plus || after < before)
      continue;
    Count made{count->dim + static_cast<unsigned>(after - before), count->first};
    for (size_t rank = 0; rank < made.first.size(); ++rank)
      made.first[rank] += subtracts ? -(*plus)[rank] : (*plus)[rank];
    if (!llvm::all_of(made.first, is_followed))
      return std::nullopt;
    return made;
  }
  return std::nullopt;
}

// The same elements, all of those that are counted, in another dimension.
std::optional<BlockNumbers::Count> BlockNumbers::moved(const rules::Application &app,
                                                       ValueId operand, ValueId result) const {
  const Count *count = find(operand);
  const rules::Equation &equation = app.op.row->equation.equation;
  rules::OperandMismatch problem;
  const auto binding =
      count ? rules::bind_operands(app, equation, problem) : std::optional<rules::Binding>();
  if (!binding)
    return std::nullopt;
  rules::Outcome ignored;
  const rules::FactorMap map = rules::map_factors(app, equation, *binding, ignored);
  if (map.mismatched || map.args.empty() || !map.args[0] || map.results.empty() ||
      !map.results[0] || count->dim >= map.args[0]->size())
    return std::nullopt;
  const rules::DimFactors &from = (*map.args[0])[count->dim];
  for (unsigned d = 0; d < map.results[0]->size(); ++d)
    if ((*map.results[0])[d] == from && extent(result, d) == extent(operand, count->dim))
      return Count{d, count->first};
  return std::nullopt;
}

void BlockNumbers::learn(const rules::Application &app, llvm::ArrayRef<ValueId> operands,
                         ValueId result) {
  if (app.op.form == rules::OpForm::Boundary && operands.size() == 1 && moves_elements(app.op)) {
    if (const Count *count = find(operands[0]))
      counts_[result.index] = Count(*count);
    return;
  }
  if (app.op.form != rules::OpForm::Equation || !app.op.row)
    return;
  std::optional<Count> made;
  const int64_t start = rules::number_attr(app, {"start"}).value_or(0);
  if (rules::counts_by_one(app) && is_followed(start))
    made = Count{rules::counted_dim(program_, app.attrs),
                 llvm::SmallVector<int64_t, 8>(ranks_.ranks(), start)};
  else if (operands.size() == 1 && moves_elements(app.op))
    made = moved(app, operands[0], result);
  else
    made = added(app, operands, result);
  if (made)
    counts_[result.index] = std::move(*made);
}

} // namespace spmd::checker
