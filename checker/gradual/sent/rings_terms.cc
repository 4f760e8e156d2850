// Which expression of blocks of several ranks a row makes.
#include "checker/gradual/sent/rings_computing.h"

#include "checker/gradual/axis_size_numbers.h"

#include "rules/apply.h"
#include "rules/shapes/attrs.h"

#include "llvm/ADT/STLExtras.h"

#include <bit>

namespace spmd::checker {

using ir::ValueId;
using rules::Computes;

// Expressions of more addends than these are not followed.
constexpr size_t kMostTerms = 8;

// Numbers of which nothing is known but which rows they are of.
RingValue Rings::Computing::loose(uint32_t result) {
  RingValue made;
  made.axis = step.axis;
  made.pure = made.added = true;
  const ValueId value = step.result(result);
  RingValue::Shift shift{rings.forms_.of(Expressions::Value, {value.index}), 0, 1, {}};
  for (unsigned d = 0; d < rings.rank(value); ++d)
    if (const int64_t length = rings.extent(value, d).value_or(1); length > 1)
      shift.at.push_back({d, 1, length});
  made.shifts.push_back(std::move(shift));
  return made;
}

static void add_shift(RingValue &to, const RingValue::Shift &shift, int sign) {
  for (size_t i = 0; i < to.shifts.size(); ++i) {
    RingValue::Shift &one = to.shifts[i];
    if (one.numbers != shift.numbers || one.back != shift.back || one.at != shift.at)
      continue;
    one.times += sign * shift.times;
    if (one.times == 0)
      to.shifts.erase(to.shifts.begin() + i);
    return;
  }
  RingValue::Shift added = shift;
  added.times *= sign;
  const auto at = llvm::find_if(to.shifts, [&](const RingValue::Shift &one) {
    return std::pair(one.numbers, one.back) > std::pair(added.numbers, added.back);
  });
  to.shifts.insert(at, std::move(added));
}

RingValue Rings::Computing::of(uint32_t result, llvm::ArrayRef<Expressions::Id> forms) {
  RingValue made;
  made.axis = step.axis;
  made.terms.push_back({rings.op_form(app, forms, result), false, 0});
  return made;
}

// The expression of the op in which an operand is this one, and the others are what they are.
Expressions::Id Rings::Computing::form_with(size_t arg, Expressions::Id form, uint32_t result) {
  std::vector<Expressions::Id> forms(args.size(), 0);
  for (size_t i : read)
    forms[i] = i == arg                             ? form
               : args[i] && !args[i]->terms.empty() ? args[i]->terms[0].form
                                                    : rings.forms_.of(Expressions::Number, {});
  return rings.op_form(app, forms, result);
}

// A sum over blocks of all ranks but one that is used as if it were complete.
void Rings::Computing::miss(size_t arg) {
  if (step.facts.fault != Fault::None || !args[arg])
    return;
  // What a rank computes with its own block may be something else, as where it leaves itself out.
  uint64_t blocks = 0;
  for (const RingValue::Term &term : args[arg]->terms)
    blocks |= term.blocks;
  const std::optional<unsigned> missing = left_out(blocks, step.ranks);
  if (!missing)
    return;
  step.facts.fault = Fault::Missing;
  step.facts.operand = static_cast<uint32_t>(arg);
  step.facts.back = *missing;
}

// The elements of one operand, elsewhere.
std::optional<RingValue> Rings::Computing::moved(uint32_t result) {
  RingValue made = *args[read[0]];
  auto moved = shifts(read[0], result);
  if (!moved || !summed.empty() || whole)
    return std::nullopt;
  made.shifts = std::move(*moved);
  const bool same = copies_operand(app.op, step.operands.size());
  const bool view = row.factors && row.factors != rules::slice_backward_factors &&
                    row.factors != rules::select_backward_factors &&
                    row.factors != rules::pad_backward_factors;
  if (!same && !view && made.added) // a number may be negated, or left out
    return std::nullopt;
  for (RingValue::Term &term : made.terms)
    if (!same)
      term.form = rings.reshaped(app, term.form, step.operands[read[0]], step.result(result))
                      .value_or(form_with(read[0], term.form, result));
  return made;
}

// Each operand is one expression, and the row goes block by block.
std::optional<RingValue> Rings::Computing::alike(uint32_t result) {
  std::vector<Expressions::Id> forms(args.size(), 0);
  for (size_t i : read) {
    const RingValue &arg = *args[i];
    if (!arg.is_plain())
      return std::nullopt;
    forms[i] = arg.terms.empty() ? rings.forms_.of(Expressions::Literal, {}) : arg.terms[0].form;
  }
  if (!summed.empty() || whole)
    return std::nullopt;
  return of(result, forms);
}

// An operand as the result has it; a literal is a number.
std::optional<RingValue> Rings::Computing::operand(size_t slot, uint32_t result) {
  if (slot >= app.slots.size())
    return std::nullopt;
  const rules::Slot &given = app.slots[slot];
  RingValue made;
  made.axis = step.axis;
  if (given.form == rules::Slot::Form::Literal) {
    if (!rules::is_zero(given))
      made.terms.push_back({rings.forms_.of(Expressions::Literal,
                                            {uint64_t(given.literal.form), given.literal.bits})});
    return made;
  }
  if (given.form != rules::Slot::Form::Tensor || given.count != 1 || !args[given.first])
    return std::nullopt;
  auto moved = shifts(given.first, result);
  if (!moved)
    return std::nullopt;
  made = *args[given.first];
  made.shifts = std::move(*moved);
  return made;
}

uint32_t Rings::Computing::second_operand() const {
  return app.slots[1].form == rules::Slot::Form::Tensor ? app.slots[1].first : 0;
}

// What is computed with the block of one rank is added again.
void Rings::Computing::repeat(uint64_t twice, uint32_t operand) {
  if (step.facts.fault != Fault::None)
    return;
  step.facts.fault = Fault::Repeated;
  step.facts.operand = operand;
  step.facts.back = static_cast<unsigned>(std::countr_zero(twice));
}

// Adds expressions; false where a sum has the block of one rank twice.
bool Rings::Computing::add_terms(RingValue &to, const RingValue &other, bool negated) {
  for (RingValue::Term term : other.terms) {
    if (negated)
      term.form = rings.forms_.of(Expressions::Negated, {term.form});
    auto same = llvm::find_if(to.terms, [&](const RingValue::Term &one) {
      return one.summed && term.summed && one.form == term.form;
    });
    const Expressions::Id complete = rings.forms_.of(Expressions::All, {term.form});
    const bool again = term.summed && llvm::any_of(to.terms, [&](const RingValue::Term &one) {
                         return !one.summed && one.form == complete;
                       });
    if (same == to.terms.end() && !again) {
      to.terms.push_back(term);
      continue;
    }
    if (const uint64_t twice = again ? term.blocks : same->blocks & term.blocks) {
      repeat(twice, second_operand());
      return false;
    }
    same->blocks |= term.blocks;
  }
  return to.terms.size() <= kMostTerms;
}

// Parts of one sum, such as that below a softmax, which are not divided by the same.
void Rings::Computing::judge_scales(const RingValue &a, const RingValue &b) {
  if (a.pure || b.pure || a.shifts == b.shifts || step.facts.fault != Fault::None)
    return;
  for (const RingValue::Term &one : a.terms)
    for (const RingValue::Term &other : b.terms)
      if (one.summed && other.summed && one.form == other.form && one.blocks != other.blocks) {
        step.facts.fault = Fault::Scaled;
        step.facts.operand = app.slots[1].first;
      }
}

std::optional<RingValue> Rings::Computing::added(uint32_t result) {
  const bool minus = is(Computes::Sub);
  std::optional<RingValue> a = operand(0, result), b = operand(1, result);
  if (!a || !b || rules::any_attr(app, {"alpha"}))
    return std::nullopt;
  if (a->is_zero() || b->is_zero()) {
    RingValue made = a->is_zero() ? *b : *a;
    if (a->is_zero() && minus) {
      for (RingValue::Term &term : made.terms)
        term.form = rings.forms_.of(Expressions::Negated, {term.form});
      for (RingValue::Shift &shift : made.shifts)
        shift.times *= made.added ? -1 : 1;
      if (made.pure && !made.added)
        return std::nullopt;
    }
    return made;
  }
  const bool multiplied = (!a->shifts.empty() && !a->added) || (!b->shifts.empty() && !b->added);
  if (multiplied) {
    judge_scales(*a, *b);
    if (a->shifts != b->shifts || a->added != b->added || a->pure || b->pure)
      return std::nullopt;
    RingValue made = *a;
    return add_terms(made, *b, minus) ? std::optional(std::move(made)) : std::nullopt;
  }
  RingValue made = *a;
  made.added = true;
  made.pure = a->pure && b->pure;
  for (const RingValue::Shift &shift : b->shifts)
    add_shift(made, shift, minus ? -1 : 1);
  if ((a->is_summed() || b->is_summed()) && !(a->shifts.empty() && b->shifts.empty()))
    return std::nullopt;
  if (!add_terms(made, *b, minus))
    return std::nullopt;
  made.added = !made.shifts.empty() || made.pure;
  if (made.pure && made.shifts.empty())
    return std::nullopt; // 0
  return made;
}

// Operands that are multiplied, and summed over what they have in common.
std::optional<RingValue> Rings::Computing::multiplied(uint32_t result) {
  RingValue made;
  made.axis = step.axis;
  std::optional<size_t> sum;
  bool zero = is(Computes::Mul) &&
              llvm::any_of(app.slots, [](const rules::Slot &slot) { return rules::is_zero(slot); });
  std::vector<Expressions::Id> forms(args.size(), 0);
  for (size_t i : read) {
    const RingValue &arg = *args[i];
    zero |= arg.is_zero();
    if (!arg.shifts.empty() && arg.added)
      return std::nullopt;
    auto there = shifts(i);
    if (!there)
      return std::nullopt;
    for (const RingValue::Shift &shift : *there)
      add_shift(made, shift, 1);
    const bool several = arg.is_summed() || arg.terms.size() > 1;
    if (several && sum)
      return std::nullopt;
    if (several)
      sum = i;
    if (!arg.pure && !zero)
      forms[i] = arg.terms[0].form;
  }
  if (zero) {
    made.shifts.clear();
    return made;
  }
  if (!settle(made.shifts, result))
    return std::nullopt;
  // What is nothing but shifts is the number 1 times these.
  llvm::SmallVector<size_t, 4> others;
  for (size_t i : read)
    if (!args[i]->pure)
      others.push_back(i);
  const bool literal = llvm::any_of(
      app.slots, [](const rules::Slot &slot) { return slot.form == rules::Slot::Form::Literal; });
  if (others.size() < read.size()) {
    if (!is(Computes::Mul) || literal)
      return std::nullopt;
    if (others.empty())
      made.pure = true;
    else if (others.size() == 1)
      made.terms = args[others[0]]->terms;
    return made;
  }
  if (summed.size() > 1 || (sum && !summed.empty() && args[*sum]->is_summed())) {
    if (sum)
      miss(*sum);
    return std::nullopt;
  }
  const size_t main = sum.value_or(read[0]);
  for (RingValue::Term term : args[main]->terms) {
    term.form = form_with(main, term.form, result);
    if (!summed.empty()) {
      term.summed = true;
      term.blocks = uint64_t{1} << summed[0]->back;
    }
    made.terms.push_back(term);
  }
  return made;
}

std::optional<RingValue> Rings::Computing::divided(uint32_t result) {
  std::optional<RingValue> a = operand(0, result), b = operand(1, result);
  if (!a || !b || row.computes != Computes::Div)
    return std::nullopt;
  if (a->is_zero())
    return a;
  if ((!a->shifts.empty() && a->added) || (!b->shifts.empty() && b->added) || b->is_zero())
    return std::nullopt;
  if (b->is_summed()) {
    miss(app.slots[1].first);
    return std::nullopt;
  }
  rings.collapse(*b);
  RingValue made = *a;
  for (const RingValue::Shift &shift : b->shifts)
    add_shift(made, shift, -1);
  if (b->pure)
    return made;
  if (a->pure) {
    made.pure = false;
    made.terms = {{rings.forms_.of(Expressions::Number, {}), false, 0}};
  }
  std::vector<Expressions::Id> forms(args.size(), 0);
  if (app.slots[1].form == rules::Slot::Form::Tensor)
    forms[app.slots[1].first] = b->terms[0].form;
  for (RingValue::Term &term : made.terms) {
    if (app.slots[0].form == rules::Slot::Form::Tensor)
      forms[app.slots[0].first] = term.form;
    term.form = rings.op_form(app, forms, result);
  }
  return made;
}

std::optional<RingValue> Rings::Computing::exponential(uint32_t result) {
  std::optional<RingValue> made = operand(0, result);
  if (!made || row.computes != Computes::Exponential || (!made->shifts.empty() && !made->added) ||
      made->terms.size() > 1 || made->is_summed())
    return std::nullopt;
  made->added = false;
  for (RingValue::Term &term : made->terms)
    term.form = form_with(app.slots[0].first, term.form, result);
  return made;
}

std::optional<RingValue> Rings::Computing::logarithm(uint32_t result) {
  std::optional<RingValue> made = operand(0, result);
  if (!made || !is(Computes::Logarithm) || (!made->shifts.empty() && made->added) ||
      made->is_zero())
    return std::nullopt;
  rings.collapse(*made);
  if (made->is_summed()) {
    miss(app.slots[0].first);
    return std::nullopt;
  }
  made->added = !made->shifts.empty();
  for (RingValue::Term &term : made->terms)
    term.form = form_with(app.slots[0].first, term.form, result);
  return made;
}

// One operand where a condition holds, and a number elsewhere: 0 is as it was whatever it is
// multiplied with, and what is infinite whatever is added to it.
std::optional<RingValue> Rings::Computing::chosen(uint32_t result) {
  std::optional<size_t> data;
  bool zero = false, infinite = false;
  size_t condition = app.slots.size();
  for (size_t s = 0; s < app.slots.size(); ++s)
    if (const rules::Slot &slot = app.slots[s]; slot.form == rules::Slot::Form::Tensor)
      if (const ir::Shape *shape = app.shape(app.args[slot.first]);
          shape && shape->dtype == ir::DType::Bool)
        condition = s;
  for (size_t s = 0; s < app.slots.size(); ++s) {
    const rules::Slot &slot = app.slots[s];
    if (slot.form == rules::Slot::Form::Literal) {
      zero |= rules::is_zero(slot);
      infinite |= rules::is_infinite(slot);
    } else if (slot.form == rules::Slot::Form::Tensor && s != condition) {
      if (args[slot.first] && args[slot.first]->is_zero())
        zero = true;
      else if (data)
        return std::nullopt;
      else
        data = slot.first;
    }
  }
  if (const ir::AttrValue *value = rules::any_attr(app, {"value"})) {
    zero |= rules::is_zero(*value);
    rules::Slot slot;
    slot.form = rules::Slot::Form::Literal;
    slot.literal = *value;
    infinite |= rules::is_infinite(slot);
  }
  if (!data || app.slots.size() <= condition ||
      app.slots[condition].form != rules::Slot::Form::Tensor)
    return std::nullopt;
  const std::optional<RingValue> &mask = args[app.slots[condition].first];
  auto there = shifts(*data, result);
  RingValue made = *args[*data];
  if (!mask || !mask->is_plain() || !there || made.pure || !(made.added ? infinite : zero))
    return std::nullopt;
  made.shifts = std::move(*there);
  for (RingValue::Term &term : made.terms)
    term.form = form_with(*data, term.form, result);
  return made;
}

// Members of a list side by side, all of the same blocks.
std::optional<RingValue> Rings::Computing::joined(uint32_t result) {
  std::vector<Expressions::Id> forms(args.size(), 0);
  std::optional<RingValue> made;
  for (size_t i : read) {
    auto there = shifts(i, result);
    if (!there || args[i]->pure || args[i]->terms.size() != 1)
      return std::nullopt;
    RingValue one = *args[i];
    one.shifts = std::move(*there);
    forms[i] = one.terms[0].form;
    if (made && (made->shifts != one.shifts || made->added != one.added ||
                 made->terms[0].summed != one.terms[0].summed ||
                 made->terms[0].blocks != one.terms[0].blocks))
      return std::nullopt;
    made = made ? made : one;
  }
  if (!made || whole || !summed.empty())
    return std::nullopt;
  made->terms[0].form = rings.op_form(app, forms, result);
  return made;
}

// The logarithm of a sum of exponentials over the block of one rank: a number of each row, of which
// the sum is known.
std::optional<RingValue> Rings::Computing::log_of_sum(uint32_t result) {
  if (read.size() != 1 || met.empty() || !args[read[0]]->is_plain() ||
      args[read[0]]->terms.empty() || summed.size() != 1)
    return std::nullopt;
  const auto dims = rules::placed_dims(app, row.default_dim, rings.rank(step.operands[read[0]]));
  if (!dims || dims->size() != 1)
    return std::nullopt;
  const Expressions::Id sum =
      rings.forms_.of(Expressions::Exponentials, {args[read[0]]->terms[0].form, dims->front()});
  return log_value({sum, uint64_t{1} << summed[0]->back}, result);
}

// Of the elements of a row, within the block of one rank: each as it is in the sum over all blocks,
// but for the sum that it is divided by.
std::optional<RingValue> Rings::Computing::softmax(uint32_t result) {
  const RingValue &arg = *args[read[0]];
  if (read.size() != 1 || row.variant != rules::Variant::Plain || !arg.is_plain() ||
      arg.terms.empty())
    return std::nullopt;
  const auto dims = rules::placed_dims(app, row.default_dim, rings.rank(step.operands[read[0]]));
  const Met *across = nullptr;
  for (const Met &one : met)
    if (map.factors[one.at.factor].whole)
      across = across ? nullptr : &one;
  if (!dims || dims->size() != 1 || !across)
    return std::nullopt;
  RingValue made;
  made.axis = step.axis;
  const Expressions::Id sum =
      rings.forms_.of(Expressions::Exponentials, {arg.terms[0].form, dims->front()});
  made.terms.push_back({rings.forms_.of(Expressions::Exponentials, {arg.terms[0].form}), false, 0});
  RingValue::Shift shift = loose(result).shifts[0];
  llvm::erase_if(shift.at, [&](const DimRange &at) { return at.dim == dims->front(); });
  shift.numbers = rings.forms_.of(Expressions::LogOf, {sum, uint64_t{1} << across->back});
  rings.logs_[shift.numbers] = {sum, uint64_t{1} << across->back};
  shift.times = -1;
  made.shifts.push_back(std::move(shift));
  return made;
}

// Which such sum the value is the logarithm of.
const Rings::Log *Rings::Computing::log_of(const RingValue &value) const {
  if (!value.pure || !value.added || value.shifts.size() != 1 || value.shifts[0].times != 1)
    return nullptr;
  const auto at = rings.logs_.find(value.shifts[0].numbers);
  return at == rings.logs_.end() ? nullptr : &at->second;
}

std::optional<Rings::Log> Rings::Computing::together(const Log &one, const Log &other,
                                                     uint32_t operand) {
  if (one.sum != other.sum)
    return std::nullopt;
  if (const uint64_t twice = one.blocks & other.blocks) {
    repeat(twice, operand);
    return std::nullopt;
  }
  return Log{one.sum, one.blocks | other.blocks};
}

// A number of each row while the sum goes on; then the logarithm of the whole sum.
RingValue Rings::Computing::log_value(const Log &log, uint32_t result) {
  if (std::popcount(log.blocks) == int(step.ranks)) {
    RingValue made;
    made.axis = step.axis;
    made.terms.push_back({rings.forms_.of(Expressions::LogOf, {log.sum}), false, 0});
    return made;
  }
  RingValue made = loose(result);
  made.shifts[0].numbers = rings.forms_.of(Expressions::LogOf, {log.sum, log.blocks});
  rings.logs_[made.shifts[0].numbers] = log;
  return made;
}

// The logarithm of two such sums together.
std::optional<RingValue> Rings::Computing::log_of_sums(uint32_t result) {
  std::optional<RingValue> a = operand(0, result), b = operand(1, result);
  const Log *one = a ? log_of(*a) : nullptr, *other = b ? log_of(*b) : nullptr;
  if (!one || !other || a->shifts[0].at != b->shifts[0].at ||
      a->shifts[0].back != b->shifts[0].back)
    return std::nullopt;
  const std::optional<Log> both = together(*one, *other, second_operand());
  return both ? std::optional(log_value(*both, result)) : std::nullopt;
}

// Notes a list of such logarithms, one of each member.
void Rings::Computing::note_logs(uint32_t result) {
  const ValueId value = step.result(result);
  const auto dims = rules::placed_dims(app, rules::DefaultDim::First, rings.rank(value));
  if (!dims || dims->size() != 1 || read.size() < 2 ||
      rings.extent(value, dims->front()) != static_cast<int64_t>(read.size()))
    return;
  std::optional<Log> all;
  for (size_t i : read) {
    const Log *log = log_of(*args[i]);
    if (!log || args[i]->shifts[0].back != args[read[0]]->shifts[0].back ||
        args[i]->shifts[0].at != args[read[0]]->shifts[0].at)
      return;
    const std::optional<Log> more = all ? together(*all, *log, uint32_t(i)) : std::optional(*log);
    if (!more)
      return;
    all = more;
  }
  rings.log_lists_[value.index] = {*all, dims->front()};
}

std::optional<RingValue> Rings::Computing::log_of_list(uint32_t result) {
  const ValueId list = step.operands[read[0]];
  const auto at = rings.log_lists_.find(list.index);
  const auto dims = rules::placed_dims(app, row.default_dim, rings.rank(list));
  if (at == rings.log_lists_.end() || !dims || dims->size() != 1 || dims->front() != at->second.dim)
    return std::nullopt;
  return log_value(Log(at->second.together), result);
}

// Whether the operand has a dimension that the result does not have.
bool Rings::Computing::sums(uint32_t result) const {
  const size_t arg = read[0];
  for (unsigned d = 0; arg < map.args.size() && map.args[arg] && d < map.args[arg]->size(); ++d)
    for (uint8_t factor : (*map.args[arg])[d])
      if (!place(result, {factor, 1, 1}))
        return true;
  return false;
}

// None: nothing is known but which rows it is of.
std::optional<RingValue> Rings::Computing::content(uint32_t result) {
  const rules::Equation &equation = row.equation.equation;
  if (equation.has_generator || !in_any_order(result))
    return std::nullopt;
  if (across && !place(result, *across) && !is(Computes::ReduceSum))
    if (auto made = alike(result))
      return made;
  if (row.factors == rules::stack_factors || row.factors == rules::cat_factors) {
    note_logs(result);
    return joined(result);
  }
  if (read.size() == 1 && moves_elements(app.op) && !sums(result))
    return moved(result);
  if (row.computes == Computes::LogSumExp)
    return read.size() != 1                                       ? log_of_sums(result)
           : rings.log_lists_.count(step.operands[read[0]].index) ? log_of_list(result)
                                                                  : log_of_sum(result);
  if (row.computes == Computes::Exponential && !row.placed.empty())
    return softmax(result);
  if (auto made = alike(result); made && !is(Computes::Add) && !is(Computes::Sub))
    return made;
  if (is(Computes::Add) || is(Computes::Sub))
    return added(result);
  if (is(Computes::Div))
    return divided(result);
  if (is(Computes::Exponential))
    return exponential(result);
  if (is(Computes::Logarithm))
    return logarithm(result);
  if (!row.chooses.empty())
    return chosen(result);
  if (multiplies() && !whole)
    return multiplied(result);
  for (size_t i : read)
    if (args[i] && args[i]->is_summed())
      miss(i);
  return std::nullopt;
}

} // namespace spmd::checker
