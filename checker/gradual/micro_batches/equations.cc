// What rows make of contents, by their equations: sums of products, and functions.
#include "checker/gradual/axis_size_numbers.h"
#include "checker/gradual/micro_batches/integers.h"
#include "checker/gradual/micro_batches/rank_interpreter.h"

#include "rules/bind.h"
#include "rules/factors/shape_rule.h"
#include "rules/ops/op.h"
#include "rules/violations/operands.h"

#include "llvm/ADT/STLExtras.h"

#include <algorithm>
#include <cmath>

namespace spmd::checker {

using Id = Contents::Id;
using ir::ValueId;
using rules::Computes;

// Where stretches of a dimension of an operand lie in a result.
static std::optional<unsigned> place_of(const rules::FactorMap &map, size_t arg, unsigned dim,
                                        size_t count, size_t result) {
  if (arg >= map.args.size() || !map.args[arg] || dim >= map.args[arg]->size() ||
      result >= map.results.size() || !map.results[result])
    return std::nullopt;
  const rules::DimFactors &from = (*map.args[arg])[dim];
  if (from.empty() || map.factors[from[0]].whole)
    return std::nullopt;
  const auto &extent = map.factors[from[0]].extent;
  for (unsigned d = 0; d < map.results[result]->size(); ++d) {
    const rules::DimFactors &to = (*map.results[result])[d];
    if (to.empty() || to[0] != from[0])
      continue;
    const bool divides =
        extent && extent->is_number() && extent->number() % static_cast<int64_t>(count) == 0;
    return to == from || divides ? std::optional(d) : std::nullopt;
  }
  return std::nullopt;
}

// The content of a slot that is no tensor.
static Id literal(Contents &contents, const rules::Slot &slot) {
  if (slot.literal.form == ir::AttrForm::Bool)
    return contents.number(slot.literal.as_bool());
  const auto number = number_of(slot.literal);
  const bool whole =
      number && std::isfinite(*number) && std::abs(*number) < 1e9 && *number == std::floor(*number);
  return whole ? contents.number(static_cast<int64_t>(*number)) : Contents::kFree;
}

RankInterpreter::Results RankInterpreter::by_equation(const Step &step,
                                                      const rules::Application &bound) {
  const rules::Equation &equation = bound.op.row->equation.equation;
  rules::OperandMismatch problem;
  const auto binding = rules::bind_operands(bound, equation, problem);
  if (!binding)
    return unknown(step);
  rules::Outcome ignored;
  const rules::FactorMap map = rules::map_factors(bound, equation, *binding, ignored);
  Results results;
  for (uint32_t r = 0; r < step.inst.result_count; ++r) {
    const ValueId to = step.inst.result(r);
    const size_t row = map.results.empty() ? 0 : std::min<size_t>(r, map.results.size() - 1);
    size_t count = 1;
    std::optional<unsigned> dim;
    bool fits = !map.mismatched && equation.sum_count > 0, given = true;
    for (size_t i = 0; i < step.operands.size(); ++i) {
      const Cells &own = at(step, i);
      given &= own.given || (own.uniform() && contents_.known(own.of[0]));
      if (own.uniform() || !fits)
        continue;
      const auto place = place_of(map, i, own.dim, own.of.size(), row);
      fits &= !place || !dim || (dim == place && count == own.of.size());
      if (place && fits)
        dim = place, count = own.of.size();
    }
    Cells made{{}, dim.value_or(0), false};
    made.of.clear();
    const rules::Sum &sum = equation.sums[std::min<size_t>(r, equation.sum_count - 1)];
    for (size_t c = 0; c < (fits ? count : 1); ++c) {
      llvm::SmallVector<Id, 4> args;
      for (size_t i = 0; i < step.operands.size(); ++i) {
        const Cells &own = at(step, i);
        const bool placed =
            fits && !own.uniform() && place_of(map, i, own.dim, own.of.size(), row).has_value();
        args.push_back(placed ? own.of[c] : flat(own));
      }
      const Id id = total(bound, equation, sum, *binding, args, is_discrete(to));
      made.of.push_back(id);
    }
    made = compact(made);
    made.given = given && !step.operands.empty() && made.uniform() &&
                 made.of[0] == Contents::kFree && !bound.op.row->equation.equation.has_generator;
    results.push_back(made);
  }
  return results;
}

// What a mask leaves, if it is known: the operand that the row chooses, or the other one.
std::optional<Id> RankInterpreter::chosen(const rules::Application &bound,
                                          const rules::Equation &equation,
                                          const rules::Binding &binding, llvm::ArrayRef<Id> args) {
  const unsigned of = equation.find_operand(bound.op.row->chooses);
  std::optional<unsigned> mask, other;
  for (unsigned r = 0; r < equation.ref_count; ++r) {
    const rules::Ref &ref = equation.refs[r];
    if (ref.role == rules::RefRole::Condition)
      mask = ref.operand;
    else if (ref.operand != of && ref.role == rules::RefRole::Value)
      other = ref.operand;
  }
  auto content = [&](unsigned operand) {
    const rules::Slot *slot = operand < equation.operand_count ? binding[operand] : nullptr;
    if (!slot || slot->form == rules::Slot::Form::Missing)
      return Contents::kFree;
    if (slot->form == rules::Slot::Form::Literal)
      return literal(contents_, *slot);
    // Of a list, the only member.
    return slot->form == rules::Slot::Form::Tensor || slot->count == 1 ? args[slot->first]
                                                                       : Contents::kOpen;
  };
  if (!mask || !other)
    return std::nullopt;
  const Id by = content(*mask);
  if (by == Contents::kOpen)
    return content(of) == content(*other) ? content(of) : Contents::kOpen;
  const auto known = contents_.known(by);
  if (!known)
    return std::nullopt;
  return content(*known ? of : *other);
}

// Of numbers, what the row makes of them.
std::optional<Id> RankInterpreter::computed(const rules::Application &bound,
                                            llvm::ArrayRef<Id> numbers) {
  llvm::SmallVector<int64_t, 3> of;
  for (Id id : numbers) {
    const auto known = contents_.known(id);
    if (!known)
      return std::nullopt;
    of.push_back(*known);
  }
  const auto made = of_integers(bound.op, of);
  return made ? std::optional(contents_.number(*made)) : std::nullopt;
}

Id RankInterpreter::atom(const rules::Application &bound, const rules::Equation &equation,
                         const rules::Atom &atom, const rules::Binding &binding,
                         llvm::ArrayRef<Id> args, bool discrete) {
  if (atom.form == rules::Atom::Form::Integer)
    return contents_.number(atom.first);
  llvm::SmallVector<Id, 4> of;
  bool summed = false;
  for (unsigned r = atom.first; r < unsigned(atom.first) + atom.count; ++r) {
    const rules::Ref &ref = equation.refs[r];
    if (ref.role == rules::RefRole::ShapeOnly || ref.operand >= equation.operand_count)
      continue;
    const rules::Slot *slot = binding[ref.operand];
    if (!slot || slot->form == rules::Slot::Form::Missing)
      continue;
    summed |= equation.operands[ref.operand].list == rules::ListForm::Summed;
    if (slot->form == rules::Slot::Form::Literal)
      of.push_back(literal(contents_, *slot));
    else
      for (uint32_t i = 0; i < std::max<uint32_t>(slot->count, 1); ++i)
        if (slot->first + i < args.size())
          of.push_back(args[slot->first + i]);
  }
  if (of.empty())
    return Contents::kFree;
  if (atom.form == rules::Atom::Form::Ref) {
    Id all = of[0];
    for (Id each : llvm::drop_begin(of))
      all = summed ? contents_.sum(all, each) : contents_.product(all, each);
    return all;
  }
  if (const auto number = computed(bound, of))
    return *number;
  const bool numbers = llvm::all_of(of, [&](Id id) { return contents_.known(id).has_value(); });
  return numbers && discrete ? Contents::kOpen : contents_.function(of);
}

Id RankInterpreter::total(const rules::Application &bound, const rules::Equation &equation,
                          const rules::Sum &sum, const rules::Binding &binding,
                          llvm::ArrayRef<Id> args, bool discrete) {
  const rules::OpDef &row = *bound.op.row;
  if (!row.chooses.empty())
    if (const auto left = chosen(bound, equation, binding, args))
      return *left;
  // Drawn by a key, numbers are not those that the key was made of.
  if (bound.op.variant() == rules::Variant::Bits)
    return Contents::kFree;
  Id all = Contents::kZero;
  for (unsigned t = sum.first_term; t < unsigned(sum.first_term) + sum.term_count; ++t) {
    const rules::Term &term = equation.terms[t];
    Id product = contents_.number(1);
    for (unsigned a = term.first_atom; a < unsigned(term.first_atom) + term.atom_count; ++a) {
      Id id = atom(bound, equation, equation.atoms[a], binding, args, discrete);
      product = contents_.product(product, id);
    }
    if (term.negative)
      product = contents_.product(product, contents_.number(-1));
    all = contents_.sum(all, product);
  }
  // Sums over a dimension, quotients and places of numbers are not computed.
  const bool plain = equation.has_function || rules::moves_elements(bound.op) ||
                     bound.op.computes(Computes::Add) || bound.op.computes(Computes::Sub) ||
                     bound.op.computes(Computes::Mul) || bound.op.computes(Computes::Identity);
  if (contents_.known(all).value_or(0) && !plain)
    return discrete ? Contents::kOpen : Contents::kFree;
  return all;
}

// What a mask of the rank leaves of a tensor on some ranks only.
void RankInterpreter::note_left(ir::InstId id) {
  const ValueId result = program_.insts[id].first_result;
  std::set<uint32_t> kept, missing; // by some rank, of its operands
  for (unsigned rank = 0; rank < ranks_; ++rank) {
    auto sources = [&](ValueId value) {
      std::set<uint32_t> found;
      for (Id each : cells_[rank][value.index].of)
        for (const Addend &addend : contents_[each].addends)
          for (const PartOf &part : addend)
            found.insert(part.source);
      return found;
    };
    const std::set<uint32_t> here = sources(result);
    for (ValueId operand : list_.values)
      for (uint32_t source : sources(operand))
        (here.count(source) ? kept : missing).insert(source);
  }
  for (uint32_t source : missing)
    if (const auto at = sources_.find(source); at != sources_.end() && kept.count(source))
      at->second.left = true;
}

} // namespace spmd::checker
