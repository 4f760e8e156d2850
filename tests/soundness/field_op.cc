// An op of the table: which dimensions and operands an application has, and its loops, run.
#include "tests/soundness/field_loop.h"

#include "rules/bind.h"
#include "rules/derivative.h"
#include "rules/factors/shape_rule.h"
#include "rules/violations/operands.h"

#include "llvm/ADT/STLExtras.h"

#include <fmt/format.h>

#include <cmath>

namespace spmd::soundness {

using rules::Atom;
using rules::Equation;
using rules::OpDef;
using rules::Ref;
using rules::RefRole;
using rules::TensorFactors;

namespace {

// Numbers of a program are small fractions.
std::optional<Residue> residue_of(const ir::AttrValue &value) {
  double number = value.form == ir::AttrForm::Integer ? static_cast<double>(value.as_integer())
                  : value.form == ir::AttrForm::Bool  ? static_cast<double>(value.as_bool())
                                                      : value.as_number();
  if (value.form != ir::AttrForm::Integer && value.form != ir::AttrForm::Bool &&
      value.form != ir::AttrForm::Float)
    return std::nullopt;
  constexpr int64_t kUnit = 1 << 20;
  double units = std::isfinite(number) ? number * kUnit : 0;
  if (!std::isfinite(number) || std::abs(units) > 1e15)
    return Residue::from_bits(mix(11, std::bit_cast<uint64_t>(number)));
  return Residue(std::llround(units)) * Residue(kUnit).inverse();
}
llvm::SmallVector<const Dims *, 2> pointers(llvm::ArrayRef<Dims> all) {
  llvm::SmallVector<const Dims *, 2> made;
  for (const Dims &dims : all)
    made.push_back(&dims);
  return made;
}
} // namespace

std::optional<FieldOp> FieldOp::make(const rules::Application &app, std::string &why) {
  auto uses = rules::row_uses(app);
  if (uses.size() != 1)
    return why = "lists are zipped", std::nullopt;
  FieldOp made;
  made.row_ = uses[0].row;
  const Equation &equation = made.row_->equation.equation;
  rules::Application own{app.program,   app.op,   app.attrs,   app.context,
                         uses[0].slots, app.args, app.results, app.infer_partial};
  if (made.row_->derivative_of)
    return make_derived(own, *made.row_, why);
  rules::OperandMismatch problem;
  std::optional<rules::Binding> binding = rules::bind_operands(own, equation, problem);
  if (!binding)
    return why = "operands do not fit the row", std::nullopt;
  if (equation.has_generator)
    return why = "random numbers", std::nullopt;
  rules::Outcome found;
  made.map_ = rules::map_factors(own, equation, *binding, found);
  for (unsigned i = 0; i < equation.operand_count; ++i) {
    Place place;
    if (const rules::Slot *slot = (*binding)[i]) {
      if (slot->form == rules::Slot::Form::Literal)
        place.number = residue_of(slot->literal);
      else if (slot->form != rules::Slot::Form::Missing)
        place = {slot->first, slot->count, std::nullopt};
      if (slot->form == rules::Slot::Form::Literal && !place.number)
        return why = "a literal that is no number", std::nullopt;
    }
    for (unsigned k = 0; k < place.count; ++k)
      if (!made.map_.args[place.first + k])
        return why = "dimensions of an operand are not known", std::nullopt;
    made.places_.push_back(place);
  }
  if (const ir::AttrValue *dims = app.program.find(app.attrs, "dims");
      made.row_->name == "flip" && dims && dims->form == ir::AttrForm::List)
    for (const ir::AttrValue &item : app.program.lists[dims->as<ir::AttrListId>()].items)
      made.flipped_.push_back(item.as_integer());
  made.in_order_ = made.row_->name == "reshape" || made.row_->name == "view_as";
  for (unsigned k = 0; k < app.results.size(); ++k) {
    made.results_.push_back(rules::row_result(own, k));
    if (!made.in_order_ && (k >= made.map_.results.size() || !made.map_.results[k]))
      return why = "dimensions of a result are not known", std::nullopt;
  }
  for (unsigned k = 0; k < app.results.size(); ++k)
    made.reads_.push_back(made.read_by(k));
  return made;
}

std::optional<FieldOp> FieldOp::make_derived(const rules::Application &app, const OpDef &row,
                                             std::string &why) {
  rules::ForwardCall call = rules::forward_call(app, row);
  call.op.row = row.derivative_of;
  rules::Application own{app.program, call.op,  app.attrs,    app.context,
                         call.slots,  app.args, call.results, app.infer_partial};
  std::optional<FieldOp> forward = make(own, why);
  if (!forward)
    return std::nullopt;
  FieldOp made;
  for (unsigned i = 0; i < rules::gradient_count(*row.derivative_of) && i < app.slots.size(); ++i)
    for (unsigned k = 0; k < std::max<unsigned>(app.slots[i].count, 1); ++k) {
      made.gradients_.emplace_back();
      if (k < app.slots[i].count)
        made.gradients_.back() = static_cast<unsigned>(app.slots[i].first + k);
    }
  const ir::AttrValue *member = app.program.find(app.attrs, "member");
  const Place &place = forward->places_[row.derivative_at];
  unsigned at = member ? static_cast<unsigned>(member->as_integer()) : 0;
  if (at >= place.count)
    return why = "a gradient of nothing", std::nullopt;
  made.wanted_ = place.first + at;
  made.forward_ = std::make_unique<FieldOp>(std::move(*forward));
  return made;
}

std::optional<Arrays> FieldOp::run_derived(llvm::ArrayRef<FieldArg> args, const Dims &result_dims,
                                           std::string &why) const {
  llvm::SmallVector<const Dims *, 2> known;
  llvm::SmallVector<const Array *, 2> given;
  for (const std::optional<unsigned> &at : gradients_) {
    given.push_back(at ? args[*at].array : nullptr);
    known.push_back(at ? &args[*at].array->dims : nullptr);
  }
  std::optional<Extents> found;
  if (!forward_->in_order_ && !(found = forward_->extents(args, known, why)))
    return std::nullopt;
  llvm::SmallVector<Dims, 2> dims;
  for (size_t k = 0; k < known.size(); ++k)
    dims.push_back(known[k] ? *known[k] : forward_->dims_of(*forward_->map_.results[k], *found));
  if (args[wanted_].array->dims != result_dims)
    return why = "a gradient of other extents than its value", std::nullopt;
  Arrays results = {Array::zeros(result_dims)};
  std::vector<Array *> to(args.size(), nullptr);
  to[wanted_] = &results[0];
  forward_->pull(args, dims, given, to);
  return results;
}

llvm::SmallVector<bool, 8> FieldOp::read_by(size_t result) const {
  const Equation &equation = row_->equation.equation;
  llvm::SmallVector<bool, 8> reads(map_.args.size(), in_order_);
  const rules::Sum &sum = sum_of(result);
  for (unsigned t = 0; t < sum.term_count; ++t) {
    const rules::Term &term = equation.terms[sum.first_term + t];
    for (unsigned a = 0; a < term.atom_count; ++a) {
      const Atom &atom = equation.atoms[term.first_atom + a];
      for (unsigned r = 0; atom.form != Atom::Form::Integer && r < atom.count; ++r) {
        const Ref &ref = equation.refs[atom.first + r];
        const Place &place = places_[ref.operand];
        for (unsigned k = 0; ref.role != RefRole::ShapeOnly && k < place.count; ++k)
          reads[place.first + k] = true;
      }
    }
  }
  return reads;
}

const rules::Sum &FieldOp::sum_of(size_t result) const {
  const Equation &equation = row_->equation.equation;
  unsigned s = 0;
  while (s + 1 < equation.sum_count && results_[result] >= equation.sums[s + 1].first_result)
    ++s;
  return equation.sums[s];
}

Dims FieldOp::dims_of(const TensorFactors &factors, const Extents &extents) const {
  Dims dims;
  for (const rules::DimFactors &dim : factors) {
    dims.push_back(1);
    for (uint8_t factor : dim)
      dims.back() *= extents[factor];
  }
  return dims;
}

std::optional<FieldOp::Extents> FieldOp::extents(llvm::ArrayRef<FieldArg> args,
                                                 llvm::ArrayRef<const Dims *> result_dims,
                                                 std::string &why) const {
  Extents found(map_.factors.size(), -1);
  bool fits = true;
  auto settle = [&](uint8_t factor, int64_t extent) {
    fits &= found[factor] < 0 || found[factor] == extent;
    found[factor] = found[factor] < 0 ? extent : found[factor];
  };
  struct Seen {
    const TensorFactors *factors;
    const Dims *dims;
  };
  llvm::SmallVector<Seen, 6> seen;
  for (size_t i = 0; i < args.size(); ++i)
    if (args[i].array && map_.args[i])
      seen.push_back({&*map_.args[i], &args[i].array->dims});
  for (size_t k = 0; k < result_dims.size(); ++k)
    if (result_dims[k])
      seen.push_back({&*map_.results[k], result_dims[k]});
  for (const Seen &each : seen) {
    if (each.factors->size() != each.dims->size())
      return why = "the number of dimensions differs", std::nullopt;
    for (size_t d = 0; d < each.dims->size(); ++d)
      if ((*each.factors)[d].size() == 1 && (*each.dims)[d] != 1)
        settle((*each.factors)[d][0], (*each.dims)[d]);
  }
  for (const Seen &each : seen) // what is merged: the leading part alone differs between blocks
    for (size_t d = 0; d < each.dims->size(); ++d) {
      const rules::DimFactors &dim = (*each.factors)[d];
      int64_t inner = 1;
      for (size_t i = 1; i < dim.size(); ++i) {
        const std::optional<ir::Extent> &extent = map_.factors[dim[i]].extent;
        if (found[dim[i]] < 0 && extent && extent->is_number())
          found[dim[i]] = extent->number();
        inner *= found[dim[i]];
      }
      if (dim.size() > 1 && inner > 0)
        settle(dim[0], (*each.dims)[d] / inner);
    }
  for (int64_t &extent : found)
    extent = extent < 0 ? 1 : extent;
  for (const Seen &each : seen) {
    Dims dims = dims_of(*each.factors, found);
    for (size_t d = 0; d < dims.size(); ++d)
      fits &= dims[d] == (*each.dims)[d] || ((*each.dims)[d] == 1 && (*each.factors)[d].size() < 2);
  }
  for (size_t k = 0; k < result_dims.size(); ++k)
    fits &= !result_dims[k] || dims_of(*map_.results[k], found) == *result_dims[k];
  if (!fits)
    return why = "extents do not fit", std::nullopt;
  return found;
}

std::optional<Arrays> FieldOp::run(llvm::ArrayRef<FieldArg> args, llvm::ArrayRef<Dims> result_dims,
                                   std::string &why) const {
  if (forward_)
    return run_derived(args, result_dims[0], why);
  Arrays results;
  if (in_order_) {
    const Array &from = *args[places_[0].first].array;
    if (count(result_dims[0]) != count(from.dims))
      return why = "a view of another number of elements", std::nullopt;
    results.push_back({result_dims[0], from.data});
    return results;
  }
  std::optional<Extents> found = extents(args, pointers(result_dims), why);
  if (!found)
    return std::nullopt;
  if (!flipped_.empty())
    return Arrays{flip(*args[places_[0].first].array, flipped_)};
  for (size_t k = 0; k < result_dims.size(); ++k) {
    results.push_back(Array::zeros(result_dims[k]));
    // A row without terms makes a constant: of its name, so that an op that creates has a value.
    bool constant = row_->equation.equation.term_count == 0;
    for (Residue &each : results.back().data)
      each = !constant || row_->constant == rules::OpDef::Constant::Zero ? each
             : ones_                                                     ? Residue(1)
                     : Residue::from_bits(hash_of(row_->name));
    for (const Loop &loop : loops(k, args, *found))
      loop.add(args, results.back());
  }
  return results;
}

void FieldOp::pull(llvm::ArrayRef<FieldArg> args, llvm::ArrayRef<Dims> result_dims,
                   llvm::ArrayRef<const Array *> gradients,
                   llvm::MutableArrayRef<Array *> to) const {
  if (forward_) // nobody asks for the gradient of a gradient
    return;
  if (in_order_) {
    if (Array *from = to[places_[0].first]; from && gradients[0])
      for (size_t i = 0; i < from->data.size(); ++i)
        from->data[i] += gradients[0]->data[i];
    return;
  }
  if (!flipped_.empty()) {
    if (Array *from = to[places_[0].first]; from && gradients[0])
      add_to(*from, flip(*gradients[0], flipped_));
    return;
  }
  std::string why;
  std::optional<Extents> found = extents(args, pointers(result_dims), why);
  SPMD_CHECK(found.has_value(), "an op that ran forward does not run backward");
  for (size_t k = 0; k < result_dims.size(); ++k)
    if (gradients[k])
      for (const Loop &loop : loops(k, args, *found))
        loop.pull(args, *gradients[k], to);
}

} // namespace spmd::soundness