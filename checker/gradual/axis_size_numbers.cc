// Finds divisions and products by plain numbers that are sizes of axes.
#include "checker/gradual/axis_size_numbers.h"

#include "checker/body_values.h"
#include "checker/operand_list.h"
#include "checker/walk/gradients/backward_slice.h"

#include "ir/mesh/axis_scale.h"
#include "ir/support/product.h"
#include "rules/apply.h"
#include "rules/factors/factors.h"
#include "rules/factors/shape_rule.h"
#include "rules/shapes/attrs.h"
#include "rules/transitions/axes.h"
#include "rules/transitions/call.h"
#include "rules/violations/operands.h"

#include <cmath>

namespace spmd::checker {

using ir::AxisSet;
using ir::Type;
using ir::ValueId;
using rules::Computes;

namespace {

constexpr unsigned kSteps = 6;  // of views and casts between a number and its collective
constexpr size_t kTerms = 1024; // of one loss, and what they are scaled and moved from

// The operand whose elements the result has: a copy takes those of what it copies, not of what it
// writes to.
ValueId moved(ir::Program &program, const rules::ResolvedOp &op, const ir::Inst &inst,
              const OperandList &operands) {
  if (!op.row)
    return operands.values[0];
  rules::Application app{program, op, inst.attrs, inst.context, operands.slots, {}, {}};
  const rules::Equation &row = op.row->equation.equation;
  const uint8_t operand = row.refs[row.atoms[0].first].operand;
  rules::OperandMismatch ignored;
  const std::optional<rules::Binding> bound = rules::bind_operands(app, row, ignored);
  const rules::Slot *slot = bound && operand != rules::kGenerator ? (*bound)[operand] : nullptr;
  return slot && slot->form == rules::Slot::Form::Tensor ? operands.values[slot->first]
                                                         : operands.values[0];
}

} // namespace

std::optional<double> number_of(const ir::AttrValue &value) {
  if (value.form == ir::AttrForm::Integer)
    return double(int64_t(value.bits));
  if (value.form == ir::AttrForm::Float)
    return std::bit_cast<double>(value.bits);
  return std::nullopt;
}

bool copies_operand(const rules::ResolvedOp &op, size_t operands) {
  if (op.form == rules::OpForm::Boundary)
    return operands == 1 && rules::passes_data(op.boundary);
  if (!moves_elements(op) || op.row->factors || !op.row->placed.empty() ||
      op.row->dtype != rules::DTypeRule::Promote)
    return false;
  const rules::Equation &row = op.row->equation.equation;
  const rules::Ref &read = row.refs[row.atoms[0].first];
  return !row.has_generator && read.has_dims && read.dim_count == 1 &&
         row.dims[read.first_dim].form == rules::Dim::Form::Rest && operands == row.operand_count;
}

std::optional<double> factor_of(const rules::ResolvedOp &op, const OperandList &operands) {
  if (!is_product(op) || operands.slots.size() != 2 ||
      operands.slots[1].form != rules::Slot::Form::Literal)
    return std::nullopt;
  const double number = number_of(operands.slots[1].literal).value_or(0);
  if (number == 0 || !std::isfinite(number))
    return std::nullopt;
  return op.computes(Computes::Div) ? 1 / number : number;
}

AxisSizeNumbers::AxisSizeNumbers(ir::Program &program, const CheckResult &checked, Reading reading)
    : program_(program), checked_(checked), reading_(reading), made_by_(program.values.size()) {
  rules::Rules rules(program);
  const uint32_t first = program.main.first.index, last = program.main.last.index;
  for (const ir::Function &function : program.functions)
    for (uint32_t i = function.body.first.index; i < function.body.last.index; ++i)
      follow(ir::InstId{i}, rules);
  for (uint32_t i = first; i < last; ++i) {
    const ir::Inst inst = program.insts[ir::InstId{i}];
    if (is_forward(inst))
      ++runs_[{inst.op.index, inst.loc.index}];
    for (uint32_t r = 0; r < inst.result_count; ++r)
      made_by_[inst.result(r).index] = ir::InstId{i};
    follow(ir::InstId{i}, rules);
  }
  count_passes(rules);
  for (uint32_t i = first; i < last; ++i)
    instruction(ir::InstId{i}, rules);
  find_summed();
  if (summed_)
    find_shares(rules);
}

// What holds the elements of its operands, what sizes it names, and what it adds up over ranks.
void AxisSizeNumbers::follow(ir::InstId id, rules::Rules &rules) {
  const ir::Inst inst = program_.insts[id];
  const rules::ResolvedOp &op = rules.resolve(inst.op);
  OperandList operands;
  operands.read(program_, inst.operands);
  // What leaves a body, such as the gradients of layers in a loop, was made there.
  for (uint32_t r = 0; r < inst.result_count && op.form == rules::OpForm::Call; ++r)
    if (const ValueId inner = returned_as(program_, id, r); inner.valid())
      before_[inst.result(r).index] = inner;
  const bool product = factor_of(op, operands).has_value();
  follow_one_rank(inst, op, operands, product);
  if (operands.values.size() > 1 && inst.result_count == 1 && moves_elements(op))
    operands.values[0] = moved(program_, op, inst, operands);
  for (uint32_t r = 0; r < inst.result_count && r < operands.values.size(); ++r) {
    const ValueId operand = operands.values[r], result = inst.result(r);
    const bool scales = op.boundary == rules::Boundary::Scale;
    const ir::AttrValue *by = scales ? program_.find(inst.attrs, "by") : nullptr;
    AxisSet sizes = ~AxisSet();
    if (by && by->form == ir::AttrForm::Scale) {
      const ir::MeshId mesh = program_.contexts[inst.context].mesh;
      named_[id.index] = ir::canonical_scale(program_, by->as<ir::ScaleId>(), mesh);
      sizes = ir::axes_in(program_, named_[id.index], mesh);
      named_axes_ |= sizes;
    }
    if (scales)
      for (ValueId value : {operand, result})
        scaled_[value.index] |= sizes;
    // What is taken out of the graph of a forward, such as a loss to be logged, is another matter
    // than what it goes on with.
    const ir::InstId from = made_by_[operand.index];
    const bool logs =
        op.row && !op.row->gradient && from.valid() && is_forward(program_.insts[from]);
    const bool adds =
        op.form == rules::OpForm::Transition && rules::unstated_words(op.transition).reduces;
    if ((moves_elements(op) && !logs) || product || scales || adds) {
      next_[operand.index] = result;
      before_[result.index] = operand;
    }
    if (adds)
      note_sum(rules::Application{program_, op, inst.attrs, inst.context, operands.slots, {}, {}},
               operand, result);
  }
}

// What is zero but where the place of a rank is some number, as the loss of the last stage of a
// pipeline is, with what is added to it.
void AxisSizeNumbers::follow_one_rank(const ir::Inst &inst, const rules::ResolvedOp &op,
                                      const OperandList &operands, bool product) {
  using rules::Computes;
  if (inst.result_count != 1)
    return;
  const uint32_t made = inst.first_result.index;
  const auto any = [&](const llvm::DenseSet<uint32_t> &of) {
    return llvm::any_of(operands.values, [&](ValueId value) { return of.count(value.index) != 0; });
  };
  const bool moves = moves_elements(op) || (op.row && op.row->computes == Computes::Identity);
  if (op.boundary == rules::Boundary::AxisIndex || (moves && any(places_)))
    places_.insert(made);
  if (!op.row)
    return;
  if (op.row->constant == rules::OpDef::Constant::Zero)
    zeros_.insert(made);
  if ((op.computes(Computes::Equal) && any(places_)) ||
      ((moves || op.computes(Computes::LogicalAnd)) && any(one_rank_masks_)))
    one_rank_masks_.insert(made);
  const bool zero = any(zeros_) || llvm::any_of(operands.slots, [](const rules::Slot &slot) {
                      return rules::is_zero(slot);
                    });
  const bool adds = op.computes(Computes::Add) && llvm::all_of(operands.values, [&](ValueId value) {
                      return one_rank_.count(value.index) || zeros_.count(value.index);
                    });
  if ((!op.row->chooses.empty() && any(one_rank_masks_) && zero) ||
      ((moves || product || adds) && any(one_rank_)))
    one_rank_.insert(made);
}

void AxisSizeNumbers::note_sum(const rules::Application &app, ValueId operand, ValueId result) {
  if (one_rank_.count(operand.index)) // a sum of that is no mean
    return;
  rules::Outcome ignored;
  const std::optional<rules::CallAxes> axes = rules::resolve_axes(app, {}, ignored);
  if (!axes)
    return;
  const ir::TypeId type = checked_.types[operand.index];
  const Type seen = type.valid() ? program_.types[type] : Type();
  const AxisSet equal = seen.same_on_all_ranks() - seen.zero();
  const ir::AttrValue *by = app.attr("op");
  const bool averages = by && rules::combiner_of(program_, *by) == ir::Combiner::Avg;
  entered_[operand.index] = left_[result.index] = {axes->all(), axes->all() & equal, averages};
}

// The value from which the backward begins that the instruction begins; none: it begins none.
ValueId AxisSizeNumbers::root_of_backward(ir::InstId id, rules::Rules &rules) const {
  const ir::Inst &inst = program_.insts[id];
  const rules::OpDef *row = rules.resolve(inst.op).row;
  const bool begins = inst.phase == ir::Phase::Backward && inst.result_count == 1 && row &&
                      row->constant != rules::OpDef::Constant::No && inst.bwd_of.valid() &&
                      program_.values[inst.first_result].grad_of == inst.bwd_of;
  return begins ? inst.bwd_of : ValueId();
}

void AxisSizeNumbers::count_passes(rules::Rules &rules) {
  llvm::DenseMap<uint32_t, int64_t> begin; // by line of the script
  for (uint32_t i = program_.main.first.index; i < program_.main.last.index; ++i) {
    const ir::Inst &inst = program_.insts[ir::InstId{i}];
    if (inst.loc.valid() && root_of_backward(ir::InstId{i}, rules).valid())
      ++begin[program_.locs[inst.loc].frame.index];
  }
  passes_ = begin.size() == 1 ? begin.begin()->second : 1;
}

void AxisSizeNumbers::instruction(ir::InstId id, rules::Rules &rules) {
  const ir::Inst inst = program_.insts[id];
  const rules::ResolvedOp &op = rules.resolve(inst.op);
  OperandList operands;
  operands.read(program_, inst.operands);
  std::optional<double> factor = factor_of(op, operands);
  if (!factor || operands.values.empty() || inst.result_count == 0)
    return;
  double size = *factor < 1 ? 1 / *factor : *factor;
  int64_t ranks = std::llround(size);
  if (std::abs(size - double(ranks)) > 1e-6 * size || ranks < 2)
    return;
  if (is_exponent(inst, *factor, rules))
    return;
  if (*factor > 1)
    products_[id.index] = {operands.values[0], ranks};
  // What the program makes of a gradient when it has it.
  const ir::InstId made = made_by_[operands.values[0].index];
  if (*factor < 1 && inst.phase != ir::Phase::Backward && made.valid() &&
      program_.insts[made].phase == ir::Phase::Backward)
    quotients_[id.index] = {operands.values[0], ranks};
  if (*factor < 1 && inst.bwd_of.valid())
    mean_backward(id, ranks, rules);
  else if (*factor < 1 && !inst.bwd_of.valid())
    mean_of_sum(id, operands.values[0], ranks, rules);
  AxisSet axes = beside(operands.values[0], inst.result(0), ranks);
  // The gradients of all passes of all ranks.
  if (!axes && *factor < 1 && inst.phase == ir::Phase::Optimizer && passes_ > 1 &&
      ranks % passes_ == 0)
    axes = beside(operands.values[0], inst.result(0), ranks / passes_, true);
  // What it is in the forward it is in the backward.
  if (const ir::InstId forward = inst.bwd_of.valid() ? made_by_[inst.bwd_of.index] : ir::InstId();
      forward.valid() && factors_.lookup(forward.index) == *factor) {
    if (scales_.count(forward.index))
      scales_[id.index] = scales_.lookup(forward.index);
    if (means_.count(forward.index))
      means_[id.index] = Mean(means_.lookup(forward.index));
  }
  axes = as_read(axes);
  if (!axes)
    return;
  ir::MeshId mesh = program_.contexts[inst.context].mesh;
  ir::ScaleId scale = ir::axes_scale(program_, mesh, axes);
  scales_[id.index] = *factor < 1 ? ir::quotient(program_, program_.one(), scale) : scale;
  factors_[id.index] = *factor;
}

// The exponent of a power, with which its backward multiplies, or the 2 of a root: once.
bool AxisSizeNumbers::is_exponent(const ir::Inst &inst, double factor, rules::Rules &rules) {
  const ir::InstId forward = inst.bwd_of.valid() ? made_by_[inst.bwd_of.index] : ir::InstId();
  if (!forward.valid())
    return false;
  const rules::ResolvedOp &op = rules.resolve(program_.insts[forward].op);
  OperandList operands;
  operands.read(program_, program_.insts[forward].operands);
  std::optional<double> exponent;
  if (op.computes(Computes::Square) || op.computes(Computes::Root))
    exponent = 2;
  else if (op.computes(Computes::Power) && operands.slots.size() == 2 &&
           operands.slots[1].form == rules::Slot::Form::Literal)
    exponent = number_of(operands.slots[1].literal);
  return exponent == factor && exponents_.insert(forward.index).second;
}

int64_t AxisSizeNumbers::elements(ValueId value) const {
  int64_t elements = 1;
  if (ir::ShapeId shape = checked_.shapes[value.index]; shape.valid())
    for (ir::Extent extent : program_.shapes[shape].dims)
      elements = ir::saturating_product(elements, extent.is_number() ? extent.number() : 0);
  return elements;
}

// The operand whose elements, or rows, a sum adds up: of a loss that is not averaged the samples,
// which are the scores without their classes. None: the instruction is no such sum.
ValueId AxisSizeNumbers::summed(ir::InstId id, rules::Rules &rules) const {
  const ir::Inst inst = program_.insts[id];
  const rules::ResolvedOp &op = rules.resolve(inst.op);
  OperandList operands;
  operands.read(program_, inst.operands);
  if (op.computes(Computes::ReduceSum))
    return operands.values.empty() ? ValueId() : operands.values[0];
  rules::Application app{program_, op, inst.attrs, inst.context, operands.slots, {}, {}};
  if (!op.row || !op.row->reduces || operands.values.size() < 2 || !is_forward(inst) ||
      rules::reduction_of(app) != rules::LossReduction::Sum)
    return {};
  auto dims = [&](ValueId value) {
    const ir::ShapeId shape = checked_.shapes[value.index];
    return shape.valid() ? program_.shapes[shape].dims.size() : 0;
  };
  const bool classes = dims(operands.values[1]) < dims(operands.values[0]);
  return operands.values[classes ? 1 : 0];
}

// Of a product that is added up, as of two matrices: its first operand, and how many products each
// element adds up; 0: it is another op, or the number is not known.
std::pair<ValueId, int64_t> AxisSizeNumbers::contracted(ir::InstId id, rules::Rules &rules) const {
  const ir::Inst inst = program_.insts[id];
  const rules::ResolvedOp &op = rules.resolve(inst.op);
  if (op.form != rules::OpForm::Equation || !op.row || inst.result_count != 1)
    return {};
  const rules::Equation &row = op.row->equation.equation;
  if (row.term_count != 1 || row.terms[0].atom_count < 2 || row.terms[0].divisors != 0)
    return {};
  OperandList operands;
  operands.read(program_, inst.operands);
  const auto args = operands.args(checked_.types, checked_.shapes);
  const rules::ResultClaim claim{checked_.shapes[inst.result(0).index], {}, {}};
  rules::Application app{program_, op, inst.attrs, inst.context, operands.slots, args, claim};
  rules::OperandMismatch mismatch;
  rules::Outcome ignored;
  const std::optional<rules::Binding> bound = rules::bind_operands(app, row, mismatch);
  if (!bound || args.empty())
    return {};
  const rules::FactorMap map = rules::map_factors(app, row, *bound, ignored);
  if (map.results.empty() || !map.results[0] || map.args.empty() || !map.args[0])
    return {};
  llvm::SmallBitVector kept(static_cast<unsigned>(map.factors.size()));
  for (const rules::DimFactors &dim : *map.results[0])
    for (uint8_t factor : dim)
      kept.set(factor);
  int64_t products = 1;
  for (const rules::DimFactors &dim : *map.args[0])
    for (uint8_t factor : dim)
      if (!kept.test(factor)) {
        const std::optional<ir::Extent> extent = map.factors[factor].extent;
        if (!extent || !extent->is_number())
          return {};
        products = ir::saturating_product(products, extent->number());
      }
  return {operands.values[0], products > 1 ? products : 0};
}

// A sum that is divided by the number of its elements, or of its rows, as `batchmean` is; or by the
// number of those that several ranks have together.
void AxisSizeNumbers::mean_of_sum(ir::InstId id, ValueId sum, int64_t divisor,
                                  rules::Rules &rules) {
  for (unsigned step = 0; step < kSteps && sum.valid(); ++step, sum = before_.lookup(sum.index)) {
    const ir::InstId made = made_by_[sum.index];
    // What is divided after the backward is no mean of what the backward has added up.
    if (!made.valid() || program_.insts[made].bwd_of.valid())
      return;
    if (const auto [of, products] = contracted(made, rules); products > 0) {
      if (divisor % products != 0)
        return;
      means_[id.index] = {of, sum, false, divisor / products, passes(program_.insts[id])};
      factors_[id.index] = 1.0 / double(divisor);
      return;
    }
    const ValueId of = summed(made, rules);
    if (!of.valid())
      continue;
    const ir::ShapeId shape = checked_.shapes[of.index];
    if (!shape.valid() || program_.shapes[shape].dims.empty())
      return;
    const int64_t results = elements(sum), all = elements(of);
    const ir::Extent first = program_.shapes[shape].dims[0];
    const int64_t rows = results == 1 && first.is_number() ? first.number() : 0;
    const bool of_elements =
        results > 0 && all > 0 && all % results == 0 && divisor % (all / results) == 0;
    const int64_t one_rank = of_elements ? all / results : rows;
    if (one_rank <= 0 || divisor % one_rank != 0)
      return;
    means_[id.index] = {of, sum, !of_elements, divisor / one_rank, passes(program_.insts[id])};
    factors_[id.index] = 1.0 / double(divisor);
    return;
  }
}

// How often its line is run in the forward: once for each micro-batch.
int64_t AxisSizeNumbers::passes(const ir::Inst &inst) const {
  return inst.loc.valid() ? runs_.lookup({inst.op.index, inst.loc.index}) : 1;
}

// The number of elements that a mean of the forward took together.
void AxisSizeNumbers::mean_backward(ir::InstId id, int64_t divisor, rules::Rules &rules) {
  const ValueId result = program_.insts[id].bwd_of;
  const ir::InstId made = made_by_[result.index];
  if (!made.valid())
    return;
  const rules::ResolvedOp &op = rules.resolve(program_.insts[made].op);
  if (!op.row || op.row->equation.equation.term_count == 0 ||
      op.row->equation.equation.terms[0].divisors == 0)
    return;
  OperandList operands;
  operands.read(program_, program_.insts[made].operands);
  if (!operands.values.empty() &&
      elements(operands.values[0]) == ir::saturating_product(elements(result), divisor))
    means_[id.index] = {operands.values[0], result};
}

// The axes of a collective that adds up, right before the number or right after it, over so many
// ranks.
// `sums`: no average.
AxisSet AxisSizeNumbers::beside(ValueId operand, ValueId result, int64_t ranks, bool sums) const {
  // The values ahead of the number and behind it, the nearest first; none is where a chain ends.
  llvm::SmallVector<std::pair<ValueId, ValueId>, kSteps> around = {{operand, result}};
  while (around.size() < kSteps) {
    const auto [back, on] = around.back();
    around.push_back({back.valid() ? before_.lookup(back.index) : back,
                      on.valid() ? next_.lookup(on.index) : on});
  }
  // Of these the program says which number is their size: this one may be that of the others.
  AxisSet named;
  for (auto [back, on] : around)
    for (ValueId value : {back, on})
      if (value.valid())
        named |= scaled_.lookup(value.index);
  auto fits = [&](const llvm::DenseMap<uint32_t, Sum> &ends, ValueId value) {
    auto at = ends.find(value.index);
    const ir::TypeId type = checked_.types[value.index];
    if (at == ends.end() || !type.valid() || (sums && at->second.averages))
      return AxisSet();
    const ir::Mesh &mesh = program_.meshes[program_.types[type].mesh()];
    for (AxisSet axes : {at->second.all, at->second.equal})
      if (AxisSet rest = axes - named; rest && rules::size_of(mesh, rest) == ranks)
        return rest;
    return AxisSet();
  };
  AxisSet found;
  for (auto [back, on] : around) {
    if (back.valid() && !found)
      found = fits(left_, back);
    if (on.valid() && !found)
      found = fits(entered_, on);
  }
  return found;
}

// The axes whose sizes a number is, as the reading has it.
AxisSet AxisSizeNumbers::as_read(AxisSet sizes) {
  if (!(sizes & named_axes_))
    return sizes;
  has_other_reading_ = true;
  return reading_ == Reading::Numbers ? AxisSet() : sizes;
}

AxisSet AxisSizeNumbers::averaged(ValueId sum, ir::MeshId mesh) const {
  AxisSet axes;
  ValueId on = sum;
  for (unsigned step = 0; step < kSteps && on.valid(); ++step, on = next_.lookup(on.index)) {
    if (!made_by_[on.index].valid()) // in a function
      continue;
    const uint32_t by = made_by_[on.index].index;
    for (const llvm::DenseMap<uint32_t, ir::ScaleId> *scales : {&scales_, &named_})
      if (auto found = scales->find(by); found != scales->end() && found->second.valid())
        for (ir::AxisId axis : program_.meshes[mesh].typed_axes())
          if (ir::exponent_of(program_, found->second, mesh, axis) < 0)
            axes |= axis;
  }
  return axes;
}

// Whether a scale has the size of an axis as a divisor.
static bool below_one(ir::Program &program, ir::ScaleId scale, ir::InstId at) {
  const ir::MeshId mesh = program.contexts[program.insts[at].context].mesh;
  for (ir::AxisId axis : ir::axes_in(program, scale, mesh))
    if (ir::exponent_of(program, scale, mesh, axis) < 0)
      return true;
  return false;
}

// Whether a number that is a size divides what holds the elements of a value, ahead or behind.
bool AxisSizeNumbers::is_divided(ValueId value,
                                 const llvm::DenseMap<uint32_t, ValueId> &next) const {
  for (unsigned step = 0; step < kSteps && value.valid();
       ++step, value = next.lookup(value.index)) {
    const ir::InstId by = made_by_[value.index];
    if (!by.valid())
      continue;
    const bool number = scales_.count(by.index) && factors_.lookup(by.index) < 1;
    const bool named = named_.count(by.index) && below_one(program_, named_.lookup(by.index), by);
    if (number || named)
      return true;
  }
  return false;
}

// Sums of gradients over ranks stand between the backward and the update. Numbers, such as those
// that are logged, are none.
void AxisSizeNumbers::find_summed() {
  AxisSet averaged;
  for (const auto &[result, sum] : left_) {
    const ir::InstId by = made_by_[result];
    const ir::ShapeId shape = checked_.shapes[result];
    if (!by.valid() || program_.insts[by].phase != ir::Phase::Optimizer || !shape.valid() ||
        program_.shapes[shape].dims.empty())
      continue;
    const bool divides =
        sum.averages || is_divided(ValueId{result}, next_) || is_divided(ValueId{result}, before_);
    (divides ? averaged : summed_) |= sum.all;
  }
  summed_ = as_read(summed_ - averaged);
}

// A loss, or a term of it, that is divided by a whole number before the backward begins from it.
void AxisSizeNumbers::find_shares(rules::Rules &rules) {
  llvm::DenseSet<uint32_t> roots;
  for (uint32_t i = program_.main.first.index; i < program_.main.last.index; ++i)
    if (const ValueId root = root_of_backward(ir::InstId{i}, rules); root.valid())
      roots.insert(root.index);
  for (uint32_t root : roots)
    find_shares_of(ValueId{root}, rules);
  for (uint32_t i = program_.main.first.index; i < program_.main.last.index; ++i) {
    const ir::Inst &inst = program_.insts[ir::InstId{i}];
    const ir::InstId forward = inst.bwd_of.valid() ? made_by_[inst.bwd_of.index] : ir::InstId();
    const auto found = forward.valid() ? shares_.find(forward.index) : shares_.end();
    if (found == shares_.end())
      continue;
    OperandList operands;
    operands.read(program_, inst.operands);
    const std::optional<double> factor = factor_of(rules.resolve(inst.op), operands);
    if (factor && std::llround(1 / *factor) == found->second.of)
      shares_[i] = Share(found->second);
  }
}

void AxisSizeNumbers::find_shares_of(ValueId root, rules::Rules &rules) {
  llvm::SmallVector<ValueId, 8> terms = {root};
  for (size_t next = 0; next < terms.size() && next < kTerms; ++next) {
    const ValueId term = terms[next];
    const ir::InstId by = made_by_[term.index];
    if (!by.valid() || elements(term) != 1)
      continue;
    const ir::Inst inst = program_.insts[by];
    const rules::ResolvedOp &op = rules.resolve(inst.op);
    OperandList operands;
    operands.read(program_, inst.operands);
    // How a loss compares with those of other ranks is stated on a view of it.
    const ValueId viewed = program_.values[term].alias_of;
    const ValueId from = viewed.valid() ? viewed : before_.lookup(term.index);
    if (from.valid())
      terms.push_back(from);
    else if (op.computes(Computes::Add) || op.computes(Computes::Sub))
      terms.append(operands.values.begin(), operands.values.end());
    const std::optional<double> factor = factor_of(op, operands);
    if (factor && !operands.values.empty() && is_forward(inst))
      take_share(by, operands.values[0], *factor);
  }
}

void AxisSizeNumbers::take_share(ir::InstId by, ValueId of, double factor) {
  if (factor >= 1 || scales_.count(by.index) || means_.count(by.index))
    return;
  const int64_t ranks = std::llround(1 / factor);
  const int64_t micro_batches = std::max(passes_, passes(program_.insts[by]));
  if (ranks > 1 && ranks != micro_batches &&
      std::abs(1 / factor - double(ranks)) < 1e-6 * double(ranks))
    shares_[by.index] = {of, ranks};
}

// The axes whose ranks a loss is shared out over. It is a mean over each rank's own rows, or what
// all of them have: what is off by nothing is another number's share.
AxisSet AxisSizeNumbers::shared_by(const Share &share, llvm::ArrayRef<ir::TypeId> types) const {
  const ir::TypeId id = types[share.operand.index];
  if (!id.valid() || !program_.types[id].scale.valid())
    return {};
  const Type &type = program_.types[id];
  const AxisSet own = (type.of(ir::Kind::Partial) - type.zero()) - type.unknown;
  AxisSet axes;
  for (ir::AxisId axis : summed_ &(own | (type.same_on_all_ranks() - type.zero())))
    if (ir::exponent_of(program_, type.scale, type.mesh(), axis) == (own.contains(axis) ? 1 : 0))
      axes |= axis;
  const ir::Mesh &mesh = program_.meshes[type.mesh()];
  for (AxisSet among : {axes & own, axes})
    if (rules::size_of(mesh, among) == share.of)
      return among;
  return {};
}

// Some of the axes with so many ranks together, those that come last in the mesh before others. Two
// choices with as many ranks are the same number; none: there is no such choice.
static std::optional<AxisSet> with_ranks(const ir::Mesh &mesh, AxisSet axes, int64_t ranks) {
  if (ranks == 1)
    return AxisSet();
  if (rules::size_of(mesh, axes) % ranks != 0) // else no choice has so many
    return std::nullopt;
  for (AxisSet left = axes; !left.empty();) {
    ir::AxisId last = *left.begin();
    for (ir::AxisId axis : left)
      last = axis;
    left -= last;
    const int64_t size = rules::size_of(mesh, last);
    if (size < 2 || ranks % size != 0)
      continue;
    if (std::optional<AxisSet> others = with_ranks(mesh, left, ranks / size))
      return *others | last;
  }
  return std::nullopt;
}

// What is multiplied by as many as it has rows, which all ranks together have more of; or, in the
// forward, by as many as there are ranks with addends or rows of their own, as a loss is whose
// gradients are averaged.
AxisSizeNumbers::Doubt AxisSizeNumbers::may_be_size(ir::InstId id, const Product &product,
                                                    const Type &type) const {
  Doubt doubt;
  const AxisSet own = type.sharded() | (type.of(ir::Kind::Partial) - type.zero());
  const ir::Mesh &mesh = program_.meshes[type.mesh()];
  if (is_forward(program_.insts[id]) && with_ranks(mesh, own, product.by))
    doubt.larger = own;
  const ir::ShapeId shape = checked_.shapes[product.operand.index];
  if (!shape.valid() || program_.shapes[shape].dims.empty() ||
      program_.shapes[shape].dims[0] != ir::Extent(product.by))
    return doubt;
  for (ir::AxisId axis : type.sharded())
    if (type.dim(axis) == 0U)
      doubt.smaller |= axis;
  return doubt;
}

// A gradient that is off by the sizes of axes, and is divided by as many as there are ranks on
// them: it may be the mean that it has to be.
AxisSizeNumbers::Doubt AxisSizeNumbers::may_be_mean(const Product &quotient,
                                                    const Type &type) const {
  AxisSet above;
  for (ir::AxisId axis : program_.meshes[type.mesh()].typed_axes())
    if (type.scale.valid() && ir::exponent_of(program_, type.scale, type.mesh(), axis) > 0)
      above |= axis;
  const auto axes = with_ranks(program_.meshes[type.mesh()], above, quotient.by);
  return {{}, axes.value_or(AxisSet())};
}

// What stands for the size of some axes, where others have as many ranks together.
AxisSizeNumbers::Doubt AxisSizeNumbers::may_be_another(ir::InstId id) const {
  const auto found = scales_.find(id.index);
  if (found == scales_.end() || !found->second.valid())
    return {};
  const ir::MeshId at = program_.contexts[program_.insts[id].context].mesh;
  const ir::Mesh &mesh = program_.meshes[at];
  const AxisSet taken = ir::axes_in(program_, found->second, at);
  AxisSet others;
  for (ir::AxisId axis : taken)
    for (ir::AxisId other : mesh.typed_axes() - taken)
      if (with_ranks(mesh, (mesh.typed_axes() - taken) | (taken - axis),
                     rules::size_of(mesh, taken)))
        others |= other;
  if (!others)
    return {};
  return factors_.lookup(id.index) < 1 ? Doubt{taken, others} : Doubt{others, taken};
}

AxisSizeNumbers::Doubt AxisSizeNumbers::doubt(ir::InstId id,
                                              llvm::ArrayRef<ir::TypeId> types) const {
  if (scales_.count(id.index))
    return may_be_another(id);
  if (const auto found = quotients_.find(id.index); found != quotients_.end()) {
    const ir::TypeId type = types[found->second.operand.index];
    return type.valid() ? may_be_mean(found->second, program_.types[type]) : Doubt();
  }
  // In the backward it is what it is in the forward.
  const ValueId of = program_.insts[id].bwd_of;
  const ir::InstId forward = of.valid() ? made_by_[of.index] : ir::InstId();
  const ir::InstId by = forward.valid() && products_.count(forward.index) ? forward : id;
  const auto found = products_.find(by.index);
  if (found == products_.end() || !products_.count(id.index))
    return {};
  const ir::TypeId type = types[found->second.operand.index];
  return type.valid() ? may_be_size(by, found->second, program_.types[type]) : Doubt();
}

std::optional<ir::ScaleId> AxisSizeNumbers::scale(ir::InstId id,
                                                  llvm::ArrayRef<ir::TypeId> types) const {
  ir::ScaleId scale = program_.one();
  if (auto at = scales_.find(id.index); at != scales_.end())
    scale = at->second;
  if (!scales_.count(id.index) && doubt(id, types).smaller) // as a number of rows is
    return std::nullopt;
  if (auto found = shares_.find(id.index); found != shares_.end())
    if (const AxisSet axes = shared_by(found->second, types)) {
      const ir::MeshId mesh = program_.types[types[found->second.operand.index]].mesh();
      return ir::quotient(program_, scale, ir::axes_scale(program_, mesh, axes));
    }
  auto at = means_.find(id.index);
  if (at == means_.end() || !types[at->second.operand.index].valid())
    return scale;
  const Mean &mean = at->second;
  const ir::Type &whole = program_.types[types[mean.operand.index]],
                 &made = program_.types[types[mean.result.index]];
  AxisSet cut =
      whole.sharded() & (made.of(ir::Kind::Partial) | made.of(ir::Kind::Varying)) & ~made.sharded();
  for (ir::AxisId axis : cut)
    if (mean.rows_only && whole.dim(axis) != 0U)
      cut -= axis;
  const ir::Mesh &mesh = program_.meshes[whole.mesh()];
  std::optional<AxisSet> counted = with_ranks(mesh, cut, mean.times);
  // The number of ranks and that of micro-batches may both be meant.
  if (mean.times > 1 && mean.passes > 1 && mean.times % mean.passes == 0) {
    std::optional<AxisSet> by_passes = with_ranks(mesh, cut, mean.times / mean.passes);
    if (counted && by_passes)
      return std::nullopt;
    counted = counted ? counted : by_passes;
  }
  return counted
             ? ir::product(program_, scale, ir::axes_scale(program_, whole.mesh(), cut - *counted))
             : scale;
}

} // namespace spmd::checker
