// Rows of the op table, with operands made to fit their equations.
#include "tests/soundness/generator.h"

#include "rules/ops/registry.h"

#include "llvm/ADT/STLExtras.h"

#include <fmt/format.h>

namespace spmd::soundness {

using rules::Dim;
using rules::Equation;
using rules::OpDef;
using rules::Ref;

namespace {

constexpr unsigned kUnitFactor = 1000; // a dimension of one

// Rows whose dimensions are all written, so that operands can be made to fit.
bool is_plain(const OpDef &row) {
  const Equation &equation = row.equation.equation;
  if (row.each || equation.has_generator || row.factors || row.extents ||
      equation.operand_count == 0)
    return false;
  for (unsigned r = 0; r < equation.ref_count; ++r)
    if (!equation.refs[r].has_dims)
      return false;
  for (unsigned r = 0; r < equation.result_count; ++r)
    if (!equation.results[r].has_dims)
      return false;
  for (unsigned d = 0; d < equation.dim_count; ++d)
    if (equation.dims[d].form == Dim::Form::Counted || equation.dims[d].form == Dim::Form::Merged)
      return false;
  return true;
}

const std::vector<const OpDef *> &plain_rows() {
  static const std::vector<const OpDef *> rows = [] {
    std::vector<const OpDef *> found;
    for (llvm::ArrayRef<OpDef> family : rules::op_families()) {
      std::map<std::string_view, unsigned> of_equation; // of one equation a few are enough
      for (const OpDef &row : family)
        if (is_plain(row) && ++of_equation[row.equation.equation.text] <= 4)
          found.push_back(&row);
    }
    return found;
  }();
  return rows;
}

// Rows with masks, positions or conditions of several forms: drawn often, with operands to fit.
const std::vector<const OpDef *> &masked_rows() {
  static const std::vector<const OpDef *> rows = [] {
    std::vector<const OpDef *> found;
    for (llvm::ArrayRef<OpDef> family : rules::op_families())
      for (const OpDef &row : family) {
        const Equation &equation = row.equation.equation;
        bool mask = false;
        for (unsigned r = 0; r < equation.ref_count; ++r)
          mask |= equation.refs[r].role == rules::RefRole::Condition ||
                  equation.operands[equation.refs[r].operand].optional;
        if (mask && is_plain(row))
          found.push_back(&row);
      }
    return found;
  }();
  return rows;
}

// The operand that others are made to go with: the first one that has values.
unsigned lead_of(const Equation &equation) {
  for (unsigned r = 0; r < equation.ref_count; ++r)
    if (equation.refs[r].role == rules::RefRole::Value &&
        equation.refs[r].index == rules::kNoFactor)
      return r;
  return 0;
}

// The dimensions of an operand, as factors; those that `...` stands for are counted from the right.
llvm::SmallVector<unsigned, 5> factors_of(const Equation &equation, const Ref &ref, unsigned rest) {
  llvm::SmallVector<unsigned, 5> dims;
  for (unsigned d = ref.first_dim; d < unsigned(ref.first_dim) + ref.dim_count; ++d) {
    const Dim &dim = equation.dims[d];
    if (dim.form == Dim::Form::Rest)
      for (unsigned i = rest; i-- > 0;)
        dims.push_back(rules::kRestFactor + i);
    else
      dims.push_back(dim.form == Dim::Form::One ? kUnitFactor : dim.first);
  }
  return dims;
}

// How many dimensions the equation names.
unsigned fixed_dims(const Equation &equation, const Ref &ref) {
  unsigned fixed = 0;
  for (unsigned d = ref.first_dim; d < unsigned(ref.first_dim) + ref.dim_count; ++d)
    fixed += equation.dims[d].form != Dim::Form::Rest;
  return fixed;
}

// Our own spelling may take them in another order.
std::vector<Operand> in_order_of_spelling(llvm::StringRef op, std::vector<Operand> operands) {
  const auto &order = rules::resolve_spelling(op, "spmd").order;
  if (order.empty())
    return operands;
  std::vector<Operand> placed;
  for (uint8_t at : order)
    placed.push_back(at < operands.size() ? operands[at] : Operand::literal("null"));
  while (!placed.empty() && placed.back().text == "null")
    placed.pop_back();
  return placed;
}

} // namespace

// What would go with `first`: the same shards along dimensions that both have, else what a product
// (or a sum) takes. `dims`: per dimension that of `first` which it is, or -1 with its own extent.
Want Generator::beside(const Seen &first, llvm::ArrayRef<int> dims, llvm::ArrayRef<int64_t> fresh,
                       bool addend) {
  Want want;
  want.dtype = first.want.dtype;
  want.cuts.resize(dims.size());
  for (size_t d = 0; d < dims.size(); ++d) {
    bool own = dims[d] < 0;
    auto at = static_cast<size_t>(own ? 0 : dims[d]);
    want.local.push_back(own ? fresh[d] : first.want.local[at]);
    want.global.push_back(own ? fresh[d] : first.want.global[at]);
    if (!own)
      want.cuts[d] = first.want.cuts[at];
  }
  for (unsigned a = 0; a < first.want.axes.size(); ++a) {
    Want::Axis axis = first.want.axes[a];
    if (axis.kind == 'S') {
      const auto *found =
          llvm::find_if(dims, [&](int d) { return d == static_cast<int>(axis.dim); });
      if (found == dims.end())
        axis.kind = 'R';
      else
        axis.dim = static_cast<unsigned>(found - dims.begin());
    } else if (axis.kind == 'V') {
      axis.kind = random_.chance(50) ? 'V' : 'R';
    } else if (axis.kind == 'P' && !addend) {
      axis.kind = 'R';
    } else if (axis.kind == 'R' && random_.chance(15)) {
      axis.kind = addend ? 'D' : 'P';
    }
    // I beside every other kind: refused, or right.
    if (axis.kind == 'R' && random_.chance(6))
      axis.kind = 'I';
    // A free dimension of a product may be sharded on an axis on which the other operand is R.
    for (unsigned d = 0; axis.kind == 'R' && d < dims.size(); ++d)
      if (dims[d] < 0 && !local_ && want.cuts[d].empty() && random_.chance(40)) {
        axis = {'S', d};
        want.global[d] *= sizes_[a];
        want.cuts[d] = {a};
      }
    want.axes.push_back(axis);
  }
  return want;
}

bool Generator::table_row() {
  bool masked = random_.chance(15);
  const OpDef &row = masked ? *random_.of(masked_rows()) : *random_.of(plain_rows());
  const Equation &equation = row.equation.equation;
  std::optional<unsigned> start = pick();
  if (!start)
    return false;
  // One of as many dimensions as the row has.
  const Ref &lead = equation.refs[lead_of(equation)];
  unsigned fixed = fixed_dims(equation, lead);
  bool has_rest = fixed < lead.dim_count;
  auto fits = [&](unsigned id) {
    size_t rank = see(id).want.local.size();
    return has_rest ? rank >= fixed : rank == fixed;
  };
  if (!fits(*start) && masked) {
    Want want = random_want(std::min(fixed, 4u));
    if (fixed > 3)
      for (size_t d = 2; d < want.local.size(); ++d)
        if (want.cuts[d].empty())
          want.local[d] = want.global[d] = 2;
    unsigned made = provide(want);
    if (made == ~0u)
      return false;
    start = made;
  }
  return fits(*start) && apply(row, see(*start));
}

bool Generator::apply(const OpDef &row, const Seen &first) {
  const Equation &equation = row.equation.equation;
  const Ref &lead = equation.refs[lead_of(equation)];
  unsigned fixed = fixed_dims(equation, lead);
  size_t rank = first.want.local.size();
  if (rank < fixed || (fixed == lead.dim_count && rank != fixed))
    return false;
  if (lead.index != rules::kNoFactor || lead.role == rules::RefRole::Condition)
    return false;
  unsigned rest = static_cast<unsigned>(rank - fixed);
  Bounds bounds;
  llvm::SmallVector<unsigned, 5> of_lead = factors_of(equation, lead, rest);
  for (unsigned d = 0; d < of_lead.size(); ++d)
    bounds[of_lead[d]] = {static_cast<int>(d), 1};
  std::vector<Operand> operands(equation.operand_count, Operand::literal("null"));
  operands[lead.operand] = Operand::value(first.id);
  size_t last_there = lead.operand + 1u;
  std::vector<bool> done(equation.operand_count);
  done[lead.operand] = true;
  for (unsigned i = 0; i < equation.ref_count; ++i) {
    const Ref &ref = equation.refs[i];
    if (done[ref.operand])
      continue;
    done[ref.operand] = true;
    const rules::OperandDecl &decl = equation.operands[ref.operand];
    if (decl.optional && random_.chance(50))
      continue;
    if (decl.list != rules::ListForm::Single)
      return false;
    std::optional<Operand> made = operand(row, ref, first, factors_of(equation, ref, rest), bounds);
    if (!made)
      return false;
    operands[ref.operand] = std::move(*made);
    last_there = std::max<size_t>(last_there, ref.operand + 1u);
  }
  operands.resize(last_there);
  Statement statement;
  statement.op = std::string(row.name);
  statement.operands = in_order_of_spelling(statement.op, std::move(operands));
  row_attributes(row, rank, statement);
  for (unsigned r = 0; r < equation.result_count; ++r)
    statement.results.push_back(draft_.fresh());
  return keep(std::move(statement));
}

std::optional<Operand> Generator::operand(const OpDef &row, const Ref &ref, const Seen &first,
                                          llvm::ArrayRef<unsigned> dims, Bounds &bounds) {
  const Equation &equation = row.equation.equation;
  bool sum = equation.term_count > 1;
  llvm::SmallVector<int, 4> from;
  llvm::SmallVector<int64_t, 4> fresh;
  for (unsigned factor : dims) {
    auto [at, made] = bounds.try_emplace(factor, Bound{-1, random_.of(extents_)});
    from.push_back(at->second.dim);
    fresh.push_back(factor == kUnitFactor ? 1 : at->second.extent);
  }
  if (sum && fixed_dims(equation, ref) == 0 && ref.index == rules::kNoFactor && random_.chance(8)) {
    static constexpr const char *kNumbers[] = {"0", "2.0", "0.5"};
    return Operand::literal(random_.of(kNumbers));
  }
  Want want = beside(first, from, fresh, sum);
  if (sum && ref.role == rules::RefRole::Value && ref.index == rules::kNoFactor &&
      random_.chance(6)) {
    Statement zeros;
    zeros.op = "zeros";
    zeros.results = {draft_.fresh()};
    zeros.set("shape", list_of(want.local));
    zeros.set("dtype", std::string(ir::info(want.dtype).word));
    const unsigned id = zeros.results[0];
    return keep(std::move(zeros)) ? std::optional(Operand::value(id)) : std::nullopt;
  }
  // Masks are truth values or are added: what a row takes is the checker's to say.
  if (ref.index != rules::kNoFactor)
    want.dtype = ir::DType::I64;
  else if (ref.role == rules::RefRole::Condition
               ? random_.chance(60)
               : equation.operands[ref.operand].optional && random_.chance(20))
    want.dtype = ir::DType::Bool;
  unsigned id = provide(want);
  if (id == ~0u)
    return std::nullopt;
  return Operand::value(id);
}

void Generator::row_attributes(const OpDef &row, size_t rank, Statement &statement) {
  bool list = row.default_dim == rules::DefaultDim::All;
  if (!row.placed.empty() && rank && (list || random_.chance(50))) {
    // Where it is not the last one, operands rarely fit but for the first.
    size_t dim = row.equation.equation.operand_count == 1 ? random_.below(rank) : rank - 1;
    statement.set("dim", list ? fmt::format("[{}]", dim) : fmt::format("{}", dim));
    if (list && random_.chance(40))
      statement.set("keepdim", "true");
  }
  if (row.reduces && random_.chance(70))
    statement.set("reduction", random_.chance(50) ? "\"mean\"" : "\"sum\"");
}

} // namespace spmd::soundness
