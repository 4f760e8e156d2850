// One pass in program order; only flat tensors are followed, and what is made of them whole.
#include "checker/gradual/pieces.h"

#include "checker/operand_list.h"

#include "rules/transitions/axes.h"
#include "rules/transitions/call.h"

#include "llvm/ADT/STLExtras.h"

namespace spmd::checker {

using ir::AxisSet;
using ir::ValueId;

namespace {

// Every element of the result is made of the one in its place alone, and of numbers.
bool keeps_positions(const rules::ResolvedOp &op, llvm::ArrayRef<ValueId> operands) {
  if (op.form == rules::OpForm::Transition)
    return true;
  if (op.form == rules::OpForm::Boundary)
    return rules::passes_data(op.boundary);
  if (op.form != rules::OpForm::Equation || !op.row || operands.size() != 1)
    return false;
  const rules::Equation &row = op.row->equation.equation;
  const bool moves = op.row->factors && op.row->factors != rules::reshape_factors &&
                     op.row->factors != rules::view_as_factors &&
                     op.row->factors != rules::flatten_factors &&
                     op.row->factors != rules::unflatten_factors;
  // What an attribute places, such as `flip`, changes elements of a dimension with each other.
  return !moves && op.row->placed.empty() && row.sum_count == 1 && row.term_count == 1 &&
         row.terms[0].divisors == 0;
}

int64_t first_of(const ir::Program &program, ir::AttrsId attrs) {
  const ir::AttrValue *start = program.find(attrs, "start");
  return start && start->form == ir::AttrForm::Integer ? int64_t(start->bits) : 0;
}

} // namespace

Pieces::Pieces(ir::Program &program, const CheckResult &checked)
    : program_(program), checked_(checked), pieces_(program.values.size()) {
  rules::Rules rules(program);
  for (uint32_t i = program.main.first.index; i < program.main.last.index; ++i)
    instruction(ir::InstId{i}, rules);
}

std::optional<int64_t> Pieces::elements(ValueId value) const {
  return shape(value).valid() ? ir::element_count(program_.shapes[shape(value)]) : std::nullopt;
}

bool Pieces::is_flat(ValueId value) const {
  return elements(value) && program_.shapes[shape(value)].dims.size() == 1;
}

void Pieces::instruction(ir::InstId id, rules::Rules &rules) {
  const ir::Inst &inst = program_.insts[id];
  const rules::ResolvedOp &op = rules.resolve(inst.op);
  OperandList operands;
  operands.read(program_, inst.operands);
  if (operands.values.empty() || inst.result_count == 0)
    return;
  const ValueId from = operands.values[0], result = inst.result(0);
  auto *factors = op.row ? op.row->factors : nullptr;
  if (factors == rules::cat_factors) {
    if (is_flat(result))
      laid_out(result, operands.values);
  } else if (factors == rules::slice_factors && is_flat(from)) {
    cut_out(result, from, first_of(program_, inst.attrs));
  } else if (factors == rules::split_factors || factors == rules::chunk_factors) {
    int64_t first = 0;
    for (uint32_t r = 0; is_flat(from) && r < inst.result_count; ++r) {
      cut_out(inst.result(r), from, first);
      first += elements(inst.result(r)).value_or(0);
    }
  } else if (inst.result_count == 1 && keeps_positions(op, operands.values) &&
             elements(from) == elements(result) && (is_flat(from) || is_flat(result))) {
    laid_out(result, from);
    if (op.form != rules::OpForm::Transition)
      return;
    rules::Application app{program_, op, inst.attrs, inst.context, operands.slots, {}, {}};
    rules::Outcome ignored;
    if (std::optional<rules::CallAxes> axes = rules::resolve_axes(app, {}, ignored))
      changed_[result.index] |= axes->all();
    else
      pieces_[result.index].clear();
  }
}

// Behind one another: what they are, or what they consist of.
void Pieces::laid_out(ValueId result, llvm::ArrayRef<ValueId> operands) {
  std::vector<Piece> &made = pieces_[result.index];
  AxisSet changed;
  for (ValueId operand : operands) {
    std::optional<int64_t> length = elements(operand);
    if (!length) {
      made.clear();
      return;
    }
    if (const std::vector<Piece> &known = pieces_[operand.index]; !known.empty())
      made.insert(made.end(), known.begin(), known.end());
    else
      made.push_back({operand, 0, *length});
    changed |= changed_.lookup(operand.index);
  }
  if (changed)
    changed_[result.index] = changed;
}

// From an element on, as many as the result has.
void Pieces::cut_out(ValueId result, ValueId operand, int64_t first) {
  std::optional<int64_t> length = elements(result);
  if (!length || first < 0)
    return;
  int64_t last = first + *length, at = 0;
  for (const Piece &piece : pieces_[operand.index]) {
    const int64_t begin = std::max(first, at), end = std::min(last, at + piece.length);
    if (begin < end)
      pieces_[result.index].push_back({piece.of, piece.first + begin - at, end - begin});
    at += piece.length;
  }
  if (AxisSet changed = changed_.lookup(operand.index))
    changed_[result.index] = changed;
}

llvm::ArrayRef<Pieces::Piece> Pieces::of(ValueId value) const { return pieces_[value.index]; }

ValueId Pieces::whole(ValueId value) const {
  const std::vector<Piece> &pieces = pieces_[value.index];
  const bool all =
      pieces.size() == 1 && pieces[0].first == 0 && pieces[0].length == elements(pieces[0].of);
  return all ? pieces[0].of : ValueId();
}

} // namespace spmd::checker
