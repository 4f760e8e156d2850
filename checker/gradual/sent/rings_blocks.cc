// Which dimensions are blocks of which ranks, and whether those that meet belong together.
#include "checker/gradual/sent/rings_computing.h"

#include "checker/gradual/axis_size_numbers.h"

#include "llvm/ADT/STLExtras.h"

namespace spmd::checker {

using rules::Computes;

bool Rings::Computing::multiplies() const {
  const rules::Equation &equation = row.equation.equation;
  return equation.sum_count == 1 && equation.term_count == 1 && equation.terms[0].divisors == 0 &&
         llvm::all_of(llvm::ArrayRef(equation.atoms.data(), equation.atom_count),
                      [](const rules::Atom &atom) { return atom.form == rules::Atom::Form::Ref; });
}

std::optional<int64_t> Rings::Computing::extent(uint8_t factor) const {
  const auto &known = map.factors[factor].extent;
  if (known && known->is_number())
    return known->number();
  for (size_t i = 0; i < map.args.size(); ++i)
    for (unsigned d = 0; map.args[i] && d < map.args[i]->size(); ++d)
      if ((*map.args[i])[d].size() == 1 && (*map.args[i])[d][0] == factor)
        if (auto found = rings.extent(step.operands[i], d); found && *found > 1)
          return found;
  return std::nullopt;
}

std::optional<Rings::Computing::Place> Rings::Computing::locate(size_t arg,
                                                                const DimRange &at) const {
  if (arg >= map.args.size() || !map.args[arg] || at.dim >= map.args[arg]->size())
    return std::nullopt;
  int64_t inside = 1;
  for (uint8_t factor : llvm::reverse((*map.args[arg])[at.dim])) {
    const std::optional<int64_t> length = extent(factor);
    if (!length)
      return std::nullopt;
    if (at.inner >= inside && at.inner % inside == 0 && at.inner * at.extent <= inside * *length)
      return Place{factor, at.inner / inside, at.extent};
    inside *= *length;
  }
  return std::nullopt;
}

std::optional<DimRange> Rings::Computing::place(uint32_t result, const Place &at) const {
  if (result >= map.results.size() || !map.results[result])
    return std::nullopt;
  for (unsigned d = 0; d < map.results[result]->size(); ++d) {
    int64_t inside = 1;
    for (uint8_t factor : llvm::reverse((*map.results[result])[d])) {
      if (factor == at.factor)
        return DimRange{d, inside * at.inner, at.extent};
      const std::optional<int64_t> length = extent(factor);
      if (!length)
        return std::nullopt;
      inside *= *length;
    }
  }
  return std::nullopt;
}

void Rings::Computing::take_operands() {
  args.resize(step.operands.size());
  for (size_t i = 0; i < args.size(); ++i) {
    if (step.unread[i])
      continue;
    read.push_back(i);
    held |= rings.find(step.operands[i]) != nullptr;
    args[i] = rings.seen(step.app.type(step.app.args[i]), step.operands[i], step.axis,
                         step.proved[i].contains(step.axis));
    known &= args[i].has_value();
  }
}

// Whether the row makes a list of one tensor as different ranks have it.
bool Rings::Computing::lists(const RingValue &a, const RingValue &b) const {
  return (row.factors == rules::stack_factors || row.factors == rules::cat_factors) &&
         a.terms.size() == 1 && b.terms.size() == 1 && a.terms[0].form == b.terms[0].form;
}

// Blocks of different ranks in one dimension: of rows and columns that belong together, or of
// addends, it is a mistake. So it is of data of which a rank keeps nothing.
void Rings::Computing::judge_mixed(const Met &one, const Met &other) {
  const RingValue &a = *args[one.arg], &b = *args[other.arg];
  const bool contracted = !place(0, one.at).has_value();
  const bool away = rings.is_away(a) != rings.is_away(b);
  const bool wrong = contracted ? a.is_tile() || b.is_tile()
                                : (a.is_tile() && b.is_tile()) || (a.is_summed() && b.is_summed());
  if (!(wrong || away) || a.guessed || b.guessed || step.facts.fault != Fault::None || lists(a, b))
    return;
  step.facts.fault = Fault::Mixed;
  step.facts.operand = static_cast<uint32_t>(other.arg);
  step.facts.back = other.back;
  step.facts.other = one.back;
}

void Rings::Computing::meet(size_t arg, const RingValue::Cut &cut) {
  const std::optional<Place> at = locate(arg, cut.at);
  if (!at) {
    known = false;
    return;
  }
  whole |= map.factors[at->factor].whole;
  Met here{*at, cut.back, arg};
  for (Met &one : met) {
    if (one.at.factor != at->factor)
      continue;
    const bool same = one.at.inner == at->inner && one.at.extent == at->extent;
    if (same && one.back == cut.back)
      return;
    if (same && !one.mixed)
      judge_mixed(one, here);
    known = false;
    one.mixed = true;
    return;
  }
  met.push_back(here);
}

void Rings::Computing::align() {
  for (size_t i : read)
    if (args[i])
      for (const RingValue::Cut &cut : args[i]->cuts)
        meet(i, cut);
  // What a rank has whole says nothing of a block that it meets.
  for (const Met &one : met)
    for (size_t i : read) {
      if (i >= map.args.size() || !map.args[i] ||
          (args[i] && (args[i]->uniform || args[i]->is_zero())))
        continue;
      bool has = false, cut = false;
      for (unsigned d = 0; d < map.args[i]->size(); ++d)
        has |= llvm::is_contained((*map.args[i])[d], one.at.factor) &&
               rings.extent(step.operands[i], d).value_or(2) > 1 &&
               !(rings.broadcast_dims_.lookup(step.operands[i].index) >> d & 1);
      if (args[i])
        for (const RingValue::Cut &each : args[i]->cuts)
          if (const auto at = locate(i, each.at))
            cut |= at->factor == one.at.factor;
      known &= cut || !has;
    }
  align_collected();
}

// All that meets blocks in the order in which they came has to have them in the same one.
void Rings::Computing::align_collected() {
  for (size_t i : read)
    if (args[i] && args[i]->collected) {
      const RingValue::Collected &here = *args[i]->collected;
      const auto at = locate(i, {here.dim, 1, here.length * int64_t(here.back.size())});
      if (!at || (across && across->factor != at->factor) ||
          (collected && collected->back != here.back)) {
        known = false;
        return;
      }
      across = at;
      collected = here;
    }
  for (size_t i : read) {
    if (!across || i >= map.args.size() || !map.args[i] || (args[i] && args[i]->collected) ||
        (args[i] && (args[i]->uniform || args[i]->is_zero())))
      continue;
    for (unsigned d = 0; d < map.args[i]->size(); ++d)
      if (llvm::is_contained((*map.args[i])[d], across->factor) &&
          rings.extent(step.operands[i], d).value_or(2) > 1 &&
          !(rings.broadcast_dims_.lookup(step.operands[i].index) >> d & 1))
        known = false;
  }
}

// Whether the row does not ask in which order blocks lie in a dimension.
bool Rings::Computing::in_any_order(uint32_t result) const {
  if (!across || (place(result, *across) && !map.factors[across->factor].whole))
    return true;
  return row.computes == Computes::ReduceSum || row.computes == Computes::LogSumExp ||
         row.computes == Computes::ReduceMax || row.computes == Computes::Exponential ||
         multiplies();
}

// What an operand is off by, by factors in the place of dimensions.
std::optional<llvm::SmallVector<RingValue::Shift, 2>> Rings::Computing::shifts(size_t arg) const {
  llvm::SmallVector<RingValue::Shift, 2> found;
  for (const RingValue::Shift &shift : args[arg]->shifts) {
    RingValue::Shift there = shift;
    for (DimRange &at : there.at) {
      const std::optional<Place> from = locate(arg, at);
      if (!from)
        return std::nullopt;
      at = {from->factor, from->inner, from->extent};
    }
    llvm::sort(there.at);
    found.push_back(std::move(there));
  }
  return found;
}

// The same where a result has them.
bool Rings::Computing::settle(llvm::SmallVector<RingValue::Shift, 2> &shifts,
                              uint32_t result) const {
  for (RingValue::Shift &shift : shifts) {
    for (DimRange &at : shift.at) {
      const std::optional<DimRange> to =
          place(result, {static_cast<uint8_t>(at.dim), at.inner, at.extent});
      if (!to)
        return false;
      at = *to;
    }
    llvm::sort(shift.at);
  }
  return true;
}

std::optional<llvm::SmallVector<RingValue::Shift, 2>>
Rings::Computing::shifts(size_t arg, uint32_t result) const {
  auto found = shifts(arg);
  return found && settle(*found, result) ? std::move(found) : std::nullopt;
}

} // namespace spmd::checker
