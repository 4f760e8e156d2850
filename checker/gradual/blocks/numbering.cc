// Follows what is counted through the rows that compute with it.
#include "checker/gradual/blocks/numbering.h"

#include "checker/gradual/sent/halo_windows.h"
#include "checker/program_queries.h"

#include "rules/attributes/lookups.h"
#include "rules/factors/factors.h"
#include "rules/ops/op.h"
#include "rules/shards/remesh.h"
#include "rules/transitions/axes.h"

#include "ir/claims.h"

#include "llvm/ADT/STLExtras.h"

namespace spmd::checker {

using ir::AxisSet;
using ir::ValueId;
using rules::Computes;

// Of one dimension of a value: sums of more parts than that are not real ones.
constexpr int kMostCounts = 4;

// What only an optimizer reads, has one dimension, and was seen to be the same on all ranks: beside
// a rank's own block of parameters that lie behind one another, it is that of the first block.
Numbering::Numbering(const ir::Program &program, const CutPositions &positions,
                     const CheckResult &checked)
    : program_(program), positions_(positions), checked_(checked) {
  for (const ir::Param &param : program.params)
    if (is_taken_alike(param))
      if (const auto cls = positions_.in_front(param.value, 0))
        counted_[param.value.index] = {{*cls, 0, std::nullopt}};
  if (counted_.empty())
    return;
  for (uint32_t i = program.main.first.index; i < program.main.last.index; ++i)
    if (program.insts[ir::InstId{i}].phase != ir::Phase::Optimizer)
      for (ValueId value : tensors_of(program, ir::InstId{i}))
        counted_.erase(value.index);
}

bool Numbering::is_taken_alike(const ir::Param &param) const {
  const ir::ShapeId shape = checked_.shapes[param.value.index];
  const ir::TypeId type = checked_.types[param.value.index];
  if (param.role == ir::Role::Param || !shape.valid() || !type.valid() ||
      program_.shapes[shape].dims.size() != 1 || program_.shapes[shape].dims[0] == ir::Extent(1))
    return false;
  const ir::Type &is = program_.types[type];
  return bool(rules::axes_of(program_, param.observed, is.mesh()) & is.same_on_all_ranks());
}

const Numbering::Counts *Numbering::numbers(ValueId value) const {
  constexpr int kMostBodies = 8; // within each other
  for (int i = 0; i < kMostBodies && value.valid(); ++i) {
    if (auto found = counted_.find(value.index); found != counted_.end())
      return &found->second;
    value = positions_.taken_from(value);
  }
  return nullptr;
}

bool Numbering::numbers(ValueId value, unsigned dim) const {
  const Counts *counts = numbers(value);
  const auto cls = counts ? positions_.in_front(value, dim) : std::nullopt;
  return cls && llvm::any_of(*counts, [&](const Count &count) { return count.cls == *cls; });
}

bool Numbering::has(ValueId value, CutPositions::Class cls) const {
  return llvm::any_of(positions_.of(value), [&](const CutPositions::Found &each) {
    return each.at.outer == 1 && each.cls == cls;
  });
}

static bool picks(const rules::ResolvedOp &op) {
  return op.computes(Computes::Index) || op.computes(Computes::Gather) ||
         op.computes(Computes::IndexPut);
}

llvm::SmallVector<Numbering::Repeated, 1>
Numbering::repeated(const rules::Application &app, llvm::ArrayRef<ValueId> operands,
                    llvm::ArrayRef<ValueId> results) const {
  llvm::SmallVector<Repeated, 1> found;
  if (counted_.empty() || app.op.form != rules::OpForm::Equation ||
      llvm::any_of(results, [&](ValueId each) { return answers(each); }))
    return found;
  // What is put where an index says, such as the numbers by which JAX knows again which rows were
  // put, is numbered by the index.
  const bool puts = app.op.computes(Computes::IndexPut) ||
                    (app.op.alias && app.op.alias->factors == rules::lax_scatter_factors);
  // Whole numbers that are joined are a list of indices: what takes it says what each is of.
  const ir::Shape *first = app.args.empty() ? nullptr : app.shape(app.args[0]);
  const bool lists = app.op.row && app.op.row->factors == rules::cat_factors && first &&
                     !ir::differentiable(first->dtype);
  if (puts || lists)
    return found;
  // An index of which each entry belongs to a row of the table; a list of them, one for each
  // dimension, names the rows as well.
  llvm::SmallVector<rules::Pick, 2> picked;
  if (picks(app.op) && (app.op.computes(Computes::Gather) || app.attr("slice_sizes")))
    picked = rules::picks_of(app);
  for (uint32_t i = 0; i < operands.size() && i < app.args.size(); ++i) {
    const Counts *counts = numbers(operands[i]);
    if (!counts || (picks(app.op) && picked.empty()))
      continue;
    const ir::Type &type = app.type(app.args[i]);
    const AxisSet same = type.same_on_all_ranks();
    AxisSet axes;
    for (uint32_t j = 0; j < operands.size() && j < app.args.size(); ++j) {
      const ir::Type &other = app.type(app.args[j]);
      if (other.mesh() != type.mesh() || numbers(operands[j]) || is_answer(operands[j]) ||
          (picks(app.op) && j != picked[0].table))
        continue;
      for (ir::AxisId axis : other.sharded() & same) {
        // An index names elements of the block that it picks them from: there it may begin at 0.
        if (llvm::any_of(picked,
                         [&](const rules::Pick &pick) { return pick.dim == other.dim(axis); }))
          continue;
        const auto cls = positions_.in_front(operands[j], *other.dim(axis));
        const AxisSet sharers = ir::set_of(ir::shards_of(other, *other.dim(axis))) & same;
        const int64_t ranks = rules::size_of(app.mesh(), sharers);
        if (cls && llvm::any_of(*counts, [&](const Count &count) {
              return count.cls == *cls && (!count.all || (*count.all % ranks == 0 &&
                                                          *count.all / ranks == count.counted));
            }))
          axes |= axis;
      }
    }
    if (axes)
      found.push_back({i, axes});
  }
  return found;
}

// A question about numbers, such as which of two is greater, has the same answer wherever both
// begin.
bool Numbering::answers(ValueId value) const {
  const ir::ShapeId shape = checked_.shapes[value.index];
  return shape.valid() && program_.shapes[shape].dtype == ir::DType::Bool;
}

// The dimension of which an instruction takes the first elements, as many as the result has, and
// how many there are.
std::optional<std::pair<unsigned, int64_t>> Numbering::first_part(const rules::Application &app,
                                                                  ValueId result) const {
  if (!app.op.row || app.op.row->factors != rules::slice_factors || app.args.empty())
    return std::nullopt;
  const ir::Shape *from = app.shape(app.args[0]);
  const ir::ShapeId id = checked_.shapes[result.index];
  if (!from || !id.valid() || program_.shapes[id].dims.size() != from->dims.size())
    return std::nullopt;
  std::optional<std::pair<unsigned, int64_t>> found;
  for (unsigned d = 0; d < from->dims.size(); ++d) {
    const ir::Extent all = from->dims[d], taken = program_.shapes[id].dims[d];
    if (all == taken)
      continue;
    if (found || !all.is_number() || !taken.is_number() || first_taken(app, d) != 0)
      return std::nullopt;
    found = {d, all.number()};
  }
  return found;
}

void Numbering::learn(const rules::Application &app, llvm::ArrayRef<ValueId> operands,
                      llvm::ArrayRef<ValueId> results) {
  if (app.op.form != rules::OpForm::Equation || results.empty())
    return;
  Counts counts;
  auto extent = [&](unsigned dim) -> int64_t {
    const ir::ShapeId id = checked_.shapes[results[0].index];
    if (!id.valid() || dim >= program_.shapes[id].dims.size())
      return 0;
    const ir::Extent of = program_.shapes[id].dims[dim];
    return of.is_number() ? of.number() : 0;
  };
  if (rules::counts_by_one(app)) {
    const unsigned dim = rules::counted_dim(app.program, app.attrs);
    if (const auto cls = positions_.in_front(results[0], dim))
      counts.push_back({*cls, extent(dim), std::nullopt});
  } else if (picks(app.op)) {
    for (const rules::Pick &pick : rules::picks_of(app))
      if (const Counts *index =
              pick.index < operands.size() ? numbers(operands[pick.index]) : nullptr)
        if (const ir::Shape *table = app.shape(app.args[pick.table]);
            table && pick.dim < table->dims.size() && table->dims[pick.dim].is_number())
          for (const Count &count : *index)
            counts.push_back({count.cls, count.counted, table->dims[pick.dim].number()});
  } else if (!app.op.computes(Computes::Sub) && app.op.row &&
             app.op.row->constant == rules::OpDef::Constant::No) {
    for (ValueId operand : operands)
      if (const Counts *more = numbers(operand))
        llvm::append_range(counts, *more);
    if (const auto part = operands.empty() ? std::nullopt : first_part(app, results[0]))
      if (const auto cls = positions_.in_front(results[0], part->first))
        counts.push_back({*cls, extent(part->first), part->second});
  }
  if (counts.empty())
    return;
  for (ValueId result : results) {
    if (answers(result)) {
      asked_.insert(result.index);
      continue;
    }
    Counts kept;
    for (const Count &count : counts) {
      const auto of_class = [&](const Count &each) { return each.cls == count.cls; };
      if (has(result, count.cls) && !llvm::is_contained(kept, count) &&
          llvm::count_if(kept, of_class) < kMostCounts)
        kept.push_back(count);
    }
    if (!kept.empty())
      counted_[result.index] = std::move(kept);
  }
}

} // namespace spmd::checker
