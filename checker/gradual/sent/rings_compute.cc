// What an equation makes of blocks of several ranks.
#include "checker/gradual/sent/rings.h"

#include "checker/gradual/axis_size_numbers.h"

#include "rules/bind.h"
#include "rules/ops/op.h"
#include "rules/shapes/attrs.h"
#include "rules/shapes/shape_rule.h"
#include "rules/violations/operands.h"

#include "llvm/ADT/STLExtras.h"

#include <bit>

namespace spmd::checker {

using ir::AxisId;
using ir::ValueId;
using rules::Computes;

// Expressions of more addends than these are not followed.
constexpr size_t kMostTerms = 8;

// Whether the row multiplies its operands, and sums over what the result does not have.
static bool multiplies(const rules::OpDef &row) {
  const rules::Equation &equation = row.equation.equation;
  return equation.sum_count == 1 && equation.term_count == 1 && equation.terms[0].divisors == 0 &&
         llvm::all_of(llvm::ArrayRef(equation.atoms.data(), equation.atom_count),
                      [](const rules::Atom &atom) { return atom.form == rules::Atom::Form::Ref; });
}

struct Rings::Computing {
  Rings &rings;
  Step &step;
  const rules::Application &app; // bound to the row
  const rules::OpDef &row;
  const rules::FactorMap &map;

  struct Place { // a part of a factor
    uint8_t factor;
    int64_t inner, extent;
  };
  struct Met { // a cut dimension
    Place at;
    unsigned back;
    size_t arg;
    bool mixed = false;
  };
  llvm::SmallVector<std::optional<Held>, 4> args = {};
  llvm::SmallVector<size_t, 4> read = {};
  llvm::SmallVector<Met, 4> met = {};
  llvm::SmallVector<const Met *, 2> summed = {}; // of these, what the result does not have
  std::optional<Held::Collected> collected = {}; // blocks of all ranks in one dimension
  std::optional<Place> across = {};              // its factor
  bool known = true;                             // of each operand, what it is
  bool whole = false; // the row does not go block by block along a cut dimension
  bool held = false;  // of some operand, more than its type

  bool is(Computes what) const { return row.computes == what; }
  void run();
  void take_operands();
  void align();
  void align_collected();
  bool in_any_order(uint32_t result) const;
  void meet(size_t arg, const Held::Cut &cut);
  bool lists(const Held &a, const Held &b) const;
  void judge_mixed(const Met &one, const Met &other);
  std::optional<int64_t> extent(uint8_t factor) const;
  std::optional<Place> locate(size_t arg, const Stretch &at) const;
  std::optional<Stretch> place(uint32_t result, const Place &at) const;
  std::optional<llvm::SmallVector<Held::Shift, 2>> shifts(size_t arg) const;
  std::optional<llvm::SmallVector<Held::Shift, 2>> shifts(size_t arg, uint32_t result) const;
  bool settle(llvm::SmallVector<Held::Shift, 2> &shifts, uint32_t result) const;

  Held loose(uint32_t result);
  Held of(uint32_t result, llvm::ArrayRef<Forms::Id> forms);
  bool sums(uint32_t result) const;
  std::optional<Held> moved(uint32_t result);
  std::optional<Held> alike(uint32_t result);
  std::optional<Held> added(uint32_t result);
  std::optional<Held> multiplied(uint32_t result);
  std::optional<Held> divided(uint32_t result);
  std::optional<Held> exponential(uint32_t result);
  std::optional<Held> logarithm(uint32_t result);
  std::optional<Held> chosen(uint32_t result);
  std::optional<Held> joined(uint32_t result);
  std::optional<Held> log_of_sum(uint32_t result);
  std::optional<Held> softmax(uint32_t result);
  std::optional<Held> log_of_sums(uint32_t result);
  std::optional<Held> content(uint32_t result);
  bool add_terms(Held &to, const Held &other, bool negated);
  void miss(size_t arg);
  void repeat(uint64_t twice);
  void judge_scales(const Held &a, const Held &b);
  Forms::Id form_with(size_t arg, Forms::Id form, uint32_t result);
  std::optional<Held> operand(size_t slot, uint32_t result);
};

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
                                                                const Stretch &at) const {
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

std::optional<Stretch> Rings::Computing::place(uint32_t result, const Place &at) const {
  if (result >= map.results.size() || !map.results[result])
    return std::nullopt;
  for (unsigned d = 0; d < map.results[result]->size(); ++d) {
    int64_t inside = 1;
    for (uint8_t factor : llvm::reverse((*map.results[result])[d])) {
      if (factor == at.factor)
        return Stretch{d, inside * at.inner, at.extent};
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
bool Rings::Computing::lists(const Held &a, const Held &b) const {
  return (row.factors == rules::stack_factors || row.factors == rules::cat_factors) &&
         a.terms.size() == 1 && b.terms.size() == 1 && a.terms[0].form == b.terms[0].form;
}

// Blocks of different ranks in one dimension: of rows and columns that belong together, or of
// addends, it is a mistake. So it is of data of which a rank keeps nothing.
void Rings::Computing::judge_mixed(const Met &one, const Met &other) {
  const Held &a = *args[one.arg], &b = *args[other.arg];
  const bool contracted = !place(0, one.at).has_value();
  const bool away = rings.is_away(a) != rings.is_away(b);
  const bool wrong = contracted ? a.is_tile() || b.is_tile()
                                : (a.is_tile() && b.is_tile()) || (a.is_summed() && b.is_summed());
  if (!(wrong || away) || a.guessed || b.guessed || step.made.fault != Fault::None || lists(a, b))
    return;
  step.made.fault = Fault::Mixed;
  step.made.operand = static_cast<uint32_t>(other.arg);
  step.made.back = other.back;
  step.made.other = one.back;
}

void Rings::Computing::meet(size_t arg, const Held::Cut &cut) {
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
      for (const Held::Cut &cut : args[i]->cuts)
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
               !(rings.stretched_.lookup(step.operands[i].index) >> d & 1);
      if (args[i])
        for (const Held::Cut &each : args[i]->cuts)
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
      const Held::Collected &here = *args[i]->collected;
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
          !(rings.stretched_.lookup(step.operands[i].index) >> d & 1))
        known = false;
  }
}

// Whether the row does not ask in which order blocks lie in a dimension.
bool Rings::Computing::in_any_order(uint32_t result) const {
  if (!across || (place(result, *across) && !map.factors[across->factor].whole))
    return true;
  return row.computes == Computes::Total || row.computes == Computes::LogOfSum ||
         row.computes == Computes::Greatest || row.computes == Computes::Exponential ||
         multiplies(row);
}

// Numbers of which nothing is known but which rows they are of.
Held Rings::Computing::loose(uint32_t result) {
  Held made;
  made.axis = step.axis;
  made.pure = made.added = true;
  const ValueId value = step.result(result);
  Held::Shift shift{rings.forms_.of(Forms::Value, {value.index}), 0, 1, {}};
  for (unsigned d = 0; d < rings.rank(value); ++d)
    if (const int64_t length = rings.extent(value, d).value_or(1); length > 1)
      shift.at.push_back({d, 1, length});
  made.shifts.push_back(std::move(shift));
  return made;
}

// What an operand is off by, by factors in the place of dimensions.
std::optional<llvm::SmallVector<Held::Shift, 2>> Rings::Computing::shifts(size_t arg) const {
  llvm::SmallVector<Held::Shift, 2> found;
  for (const Held::Shift &shift : args[arg]->shifts) {
    Held::Shift there = shift;
    for (Stretch &at : there.at) {
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
bool Rings::Computing::settle(llvm::SmallVector<Held::Shift, 2> &shifts, uint32_t result) const {
  for (Held::Shift &shift : shifts) {
    for (Stretch &at : shift.at) {
      const std::optional<Stretch> to =
          place(result, {static_cast<uint8_t>(at.dim), at.inner, at.extent});
      if (!to)
        return false;
      at = *to;
    }
    llvm::sort(shift.at);
  }
  return true;
}

std::optional<llvm::SmallVector<Held::Shift, 2>> Rings::Computing::shifts(size_t arg,
                                                                          uint32_t result) const {
  auto found = shifts(arg);
  return found && settle(*found, result) ? std::move(found) : std::nullopt;
}

static void add_shift(Held &to, const Held::Shift &shift, int sign) {
  for (size_t i = 0; i < to.shifts.size(); ++i) {
    Held::Shift &one = to.shifts[i];
    if (one.numbers != shift.numbers || one.back != shift.back || one.at != shift.at)
      continue;
    one.times += sign * shift.times;
    if (one.times == 0)
      to.shifts.erase(to.shifts.begin() + i);
    return;
  }
  Held::Shift added = shift;
  added.times *= sign;
  const auto at = llvm::find_if(to.shifts, [&](const Held::Shift &one) {
    return std::pair(one.numbers, one.back) > std::pair(added.numbers, added.back);
  });
  to.shifts.insert(at, std::move(added));
}

Held Rings::Computing::of(uint32_t result, llvm::ArrayRef<Forms::Id> forms) {
  Held made;
  made.axis = step.axis;
  made.terms.push_back({rings.op_form(app, forms, result), false, 0});
  return made;
}

// The expression of the op in which an operand is this one, and the others are what they are.
Forms::Id Rings::Computing::form_with(size_t arg, Forms::Id form, uint32_t result) {
  std::vector<Forms::Id> forms(args.size(), 0);
  for (size_t i : read)
    forms[i] = i == arg                             ? form
               : args[i] && !args[i]->terms.empty() ? args[i]->terms[0].form
                                                    : rings.forms_.of(Forms::Number, {});
  return rings.op_form(app, forms, result);
}

// The block that a loop leaves out which ends a turn too early, or begins one too late. What leaves
// out another one, as attention to both neighbours of four ranks does, means to.
static std::optional<unsigned> left_out(uint64_t blocks, unsigned ranks) {
  if (ranks < 3 || std::popcount(blocks) != int(ranks) - 1)
    return std::nullopt;
  const auto missing = static_cast<unsigned>(std::countr_one(blocks));
  return missing < 2 || missing == ranks - 1 ? std::optional(missing) : std::nullopt;
}

// A sum over blocks of all ranks but one that is used as if it were complete.
void Rings::Computing::miss(size_t arg) {
  if (step.made.fault != Fault::None || !args[arg])
    return;
  // What a rank computes with its own block may be something else, as where it leaves itself out.
  uint64_t blocks = 0;
  for (const Held::Term &term : args[arg]->terms)
    blocks |= term.blocks;
  const std::optional<unsigned> missing = left_out(blocks, step.ranks);
  if (!missing)
    return;
  step.made.fault = Fault::Missing;
  step.made.operand = static_cast<uint32_t>(arg);
  step.made.back = *missing;
}

// The elements of one operand, elsewhere.
std::optional<Held> Rings::Computing::moved(uint32_t result) {
  Held made = *args[read[0]];
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
  for (Held::Term &term : made.terms)
    if (!same)
      term.form = rings.reshaped(app, term.form, step.operands[read[0]], step.result(result))
                      .value_or(form_with(read[0], term.form, result));
  return made;
}

// Each operand is one expression, and the row goes block by block.
std::optional<Held> Rings::Computing::alike(uint32_t result) {
  std::vector<Forms::Id> forms(args.size(), 0);
  for (size_t i : read) {
    const Held &arg = *args[i];
    if (!arg.is_plain())
      return std::nullopt;
    forms[i] = arg.terms.empty() ? rings.forms_.of(Forms::Literal, {}) : arg.terms[0].form;
  }
  if (!summed.empty() || whole)
    return std::nullopt;
  return of(result, forms);
}

// An operand as the result has it; a literal is a number.
std::optional<Held> Rings::Computing::operand(size_t slot, uint32_t result) {
  if (slot >= app.slots.size())
    return std::nullopt;
  const rules::Slot &given = app.slots[slot];
  Held made;
  made.axis = step.axis;
  if (given.form == rules::Slot::Form::Literal) {
    if (!rules::is_zero(given))
      made.terms.push_back(
          {rings.forms_.of(Forms::Literal, {uint64_t(given.literal.form), given.literal.bits})});
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

// What is computed with the block of one rank is added again.
void Rings::Computing::repeat(uint64_t twice) {
  if (step.made.fault != Fault::None)
    return;
  step.made.fault = Fault::Repeated;
  step.made.operand = app.slots[1].form == rules::Slot::Form::Tensor ? app.slots[1].first : 0;
  step.made.back = static_cast<unsigned>(std::countr_zero(twice));
}

// Adds expressions; false where a sum has the block of one rank twice.
bool Rings::Computing::add_terms(Held &to, const Held &other, bool negated) {
  for (Held::Term term : other.terms) {
    if (negated)
      term.form = rings.forms_.of(Forms::Negated, {term.form});
    auto same = llvm::find_if(to.terms, [&](const Held::Term &one) {
      return one.summed && term.summed && one.form == term.form;
    });
    const Forms::Id complete = rings.forms_.of(Forms::All, {term.form});
    const bool again = term.summed && llvm::any_of(to.terms, [&](const Held::Term &one) {
                         return !one.summed && one.form == complete;
                       });
    if (same == to.terms.end() && !again) {
      to.terms.push_back(term);
      continue;
    }
    if (const uint64_t twice = again ? term.blocks : same->blocks & term.blocks) {
      repeat(twice);
      return false;
    }
    same->blocks |= term.blocks;
  }
  return to.terms.size() <= kMostTerms;
}

// Parts of one sum, such as that below a softmax, which are not divided by the same.
void Rings::Computing::judge_scales(const Held &a, const Held &b) {
  if (a.pure || b.pure || a.shifts == b.shifts || step.made.fault != Fault::None)
    return;
  for (const Held::Term &one : a.terms)
    for (const Held::Term &other : b.terms)
      if (one.summed && other.summed && one.form == other.form && one.blocks != other.blocks) {
        step.made.fault = Fault::Scaled;
        step.made.operand = app.slots[1].first;
      }
}

std::optional<Held> Rings::Computing::added(uint32_t result) {
  const bool minus = is(Computes::Difference);
  std::optional<Held> a = operand(0, result), b = operand(1, result);
  if (!a || !b || rules::any_attr(app, {"alpha"}))
    return std::nullopt;
  if (a->is_zero() || b->is_zero()) {
    Held made = a->is_zero() ? *b : *a;
    if (a->is_zero() && minus) {
      for (Held::Term &term : made.terms)
        term.form = rings.forms_.of(Forms::Negated, {term.form});
      for (Held::Shift &shift : made.shifts)
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
    Held made = *a;
    return add_terms(made, *b, minus) ? std::optional(std::move(made)) : std::nullopt;
  }
  Held made = *a;
  made.added = true;
  made.pure = a->pure && b->pure;
  for (const Held::Shift &shift : b->shifts)
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
std::optional<Held> Rings::Computing::multiplied(uint32_t result) {
  Held made;
  made.axis = step.axis;
  std::optional<size_t> sum;
  bool zero = is(Computes::Product) &&
              llvm::any_of(app.slots, [](const rules::Slot &slot) { return rules::is_zero(slot); });
  std::vector<Forms::Id> forms(args.size(), 0);
  for (size_t i : read) {
    const Held &arg = *args[i];
    zero |= arg.is_zero();
    if (!arg.shifts.empty() && arg.added)
      return std::nullopt;
    auto there = shifts(i);
    if (!there)
      return std::nullopt;
    for (const Held::Shift &shift : *there)
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
    if (!is(Computes::Product) || literal)
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
  for (Held::Term term : args[main]->terms) {
    term.form = form_with(main, term.form, result);
    if (!summed.empty()) {
      term.summed = true;
      term.blocks = uint64_t{1} << summed[0]->back;
    }
    made.terms.push_back(term);
  }
  return made;
}

std::optional<Held> Rings::Computing::divided(uint32_t result) {
  std::optional<Held> a = operand(0, result), b = operand(1, result);
  if (!a || !b || row.computes != Computes::Quotient)
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
  Held made = *a;
  for (const Held::Shift &shift : b->shifts)
    add_shift(made, shift, -1);
  if (b->pure)
    return made;
  if (a->pure) {
    made.pure = false;
    made.terms = {{rings.forms_.of(Forms::Number, {}), false, 0}};
  }
  std::vector<Forms::Id> forms(args.size(), 0);
  if (app.slots[1].form == rules::Slot::Form::Tensor)
    forms[app.slots[1].first] = b->terms[0].form;
  for (Held::Term &term : made.terms) {
    if (app.slots[0].form == rules::Slot::Form::Tensor)
      forms[app.slots[0].first] = term.form;
    term.form = rings.op_form(app, forms, result);
  }
  return made;
}

std::optional<Held> Rings::Computing::exponential(uint32_t result) {
  std::optional<Held> made = operand(0, result);
  if (!made || row.computes != Computes::Exponential || (!made->shifts.empty() && !made->added) ||
      made->terms.size() > 1 || made->is_summed())
    return std::nullopt;
  made->added = false;
  for (Held::Term &term : made->terms)
    term.form = form_with(app.slots[0].first, term.form, result);
  return made;
}

std::optional<Held> Rings::Computing::logarithm(uint32_t result) {
  std::optional<Held> made = operand(0, result);
  if (!made || !is(Computes::Logarithm) || (!made->shifts.empty() && made->added) ||
      made->is_zero())
    return std::nullopt;
  rings.collapse(*made);
  if (made->is_summed()) {
    miss(app.slots[0].first);
    return std::nullopt;
  }
  made->added = !made->shifts.empty();
  for (Held::Term &term : made->terms)
    term.form = form_with(app.slots[0].first, term.form, result);
  return made;
}

// One operand where a condition holds, and a number elsewhere: 0 is as it was whatever it is
// multiplied with, and what is infinite whatever is added to it.
std::optional<Held> Rings::Computing::chosen(uint32_t result) {
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
  const std::optional<Held> &mask = args[app.slots[condition].first];
  auto there = shifts(*data, result);
  Held made = *args[*data];
  if (!mask || !mask->is_plain() || !there || made.pure || !(made.added ? infinite : zero))
    return std::nullopt;
  made.shifts = std::move(*there);
  for (Held::Term &term : made.terms)
    term.form = form_with(*data, term.form, result);
  return made;
}

// Members of a list side by side, all of the same blocks.
std::optional<Held> Rings::Computing::joined(uint32_t result) {
  std::vector<Forms::Id> forms(args.size(), 0);
  std::optional<Held> made;
  for (size_t i : read) {
    auto there = shifts(i, result);
    if (!there || args[i]->pure || args[i]->terms.size() != 1)
      return std::nullopt;
    Held one = *args[i];
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
std::optional<Held> Rings::Computing::log_of_sum(uint32_t result) {
  if (read.size() != 1 || met.empty() || !args[read[0]]->is_plain() ||
      args[read[0]]->terms.empty() || summed.size() != 1)
    return std::nullopt;
  const auto dims = rules::placed_dims(app, row.default_dim, rings.rank(step.operands[read[0]]));
  if (!dims || dims->size() != 1)
    return std::nullopt;
  Held made = loose(result);
  const Forms::Id sum =
      rings.forms_.of(Forms::Exponentials, {args[read[0]]->terms[0].form, dims->front()});
  made.shifts[0].numbers = rings.forms_.of(Forms::LogOf, {sum, uint64_t{1} << summed[0]->back});
  rings.logs_[made.shifts[0].numbers] = {sum, uint64_t{1} << summed[0]->back};
  return made;
}

// Of the elements of a row, within the block of one rank: each as it is in the sum over all blocks,
// but for the sum that it is divided by.
std::optional<Held> Rings::Computing::softmax(uint32_t result) {
  const Held &arg = *args[read[0]];
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
  Held made;
  made.axis = step.axis;
  const Forms::Id sum = rings.forms_.of(Forms::Exponentials, {arg.terms[0].form, dims->front()});
  made.terms.push_back({rings.forms_.of(Forms::Exponentials, {arg.terms[0].form}), false, 0});
  Held::Shift shift = loose(result).shifts[0];
  llvm::erase_if(shift.at, [&](const Stretch &at) { return at.dim == dims->front(); });
  shift.numbers = rings.forms_.of(Forms::LogOf, {sum, uint64_t{1} << across->back});
  rings.logs_[shift.numbers] = {sum, uint64_t{1} << across->back};
  shift.times = -1;
  made.shifts.push_back(std::move(shift));
  return made;
}

// The logarithm of two such sums together.
std::optional<Held> Rings::Computing::log_of_sums(uint32_t result) {
  std::optional<Held> a = operand(0, result), b = operand(1, result);
  auto log = [&](const std::optional<Held> &of) -> const Log * {
    if (!of || !of->pure || !of->added || of->shifts.size() != 1 || of->shifts[0].times != 1)
      return nullptr;
    const auto at = rings.logs_.find(of->shifts[0].numbers);
    return at == rings.logs_.end() ? nullptr : &at->second;
  };
  const Log *one = log(a), *other = log(b);
  if (!one || !other || one->sum != other->sum || a->shifts[0].at != b->shifts[0].at ||
      a->shifts[0].back != b->shifts[0].back)
    return std::nullopt;
  if (const uint64_t twice = one->blocks & other->blocks) {
    repeat(twice);
    return std::nullopt;
  }
  const Log both{one->sum, one->blocks | other->blocks};
  if (std::popcount(both.blocks) == int(step.ranks)) {
    Held made;
    made.axis = step.axis;
    made.terms.push_back({rings.forms_.of(Forms::LogOf, {both.sum}), false, 0});
    return made;
  }
  a->shifts[0].numbers = rings.forms_.of(Forms::LogOf, {both.sum, both.blocks});
  rings.logs_[a->shifts[0].numbers] = both;
  return a;
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
std::optional<Held> Rings::Computing::content(uint32_t result) {
  const rules::Equation &equation = row.equation.equation;
  if (equation.has_generator || !in_any_order(result))
    return std::nullopt;
  if (across && !place(result, *across) && !is(Computes::Total))
    if (auto made = alike(result))
      return made;
  if (row.factors == rules::stack_factors || row.factors == rules::cat_factors)
    return joined(result);
  if (read.size() == 1 && moves_elements(app.op) && !sums(result))
    return moved(result);
  if (row.computes == Computes::LogOfSum)
    return read.size() == 1 ? log_of_sum(result) : log_of_sums(result);
  if (row.computes == Computes::Exponential && !row.placed.empty())
    return softmax(result);
  if (auto made = alike(result); made && !is(Computes::Sum) && !is(Computes::Difference))
    return made;
  if (is(Computes::Sum) || is(Computes::Difference))
    return added(result);
  if (is(Computes::Quotient))
    return divided(result);
  if (is(Computes::Exponential))
    return exponential(result);
  if (is(Computes::Logarithm))
    return logarithm(result);
  if (!row.chooses.empty())
    return chosen(result);
  if (multiplies(row) && !whole)
    return multiplied(result);
  for (size_t i : read)
    if (args[i] && args[i]->is_summed())
      miss(i);
  return std::nullopt;
}

void Rings::Computing::run() {
  take_operands();
  align();
  bool tile = false;
  for (uint32_t r = 0; r < step.results; ++r) {
    size_t cuts = 0;
    for (const Met &one : met)
      if (const std::optional<Stretch> at = place(r, one.at)) {
        ++cuts; // of a flat tensor, no type says where a block lies
        tile |= read.size() == 1 && rings.sent_.contains(step.result(r).index) &&
                at->inner * at->extent != rings.extent(step.result(r), at->dim);
      }
    tile |= cuts > 1;
  }
  if (!held && !tile)
    return;
  step.made.axis = step.axis;
  for (uint32_t r = 0; r < step.results; ++r) {
    summed.clear();
    for (const Met &one : met)
      if (!one.mixed && !place(r, one.at))
        summed.push_back(&one);
    const std::optional<Held> found = known ? content(r) : std::nullopt;
    Held made = found ? *found : loose(r);
    made.cuts.clear();
    made.collected.reset();
    if (const auto at = across && known && found ? place(r, *across) : std::nullopt)
      made.collected = {at->dim, collected->length, collected->back};
    made.uniform = made.guessed = false;
    made.proved = true;
    for (const Met &one : met)
      if (const std::optional<Stretch> at = one.mixed ? std::nullopt : place(r, one.at))
        made.cuts.push_back({*at, one.back});
    for (size_t i : read)
      if (args[i]) {
        made.proved &= args[i]->pure || args[i]->proved;
        made.guessed |= args[i]->guessed;
        if (args[i]->sent_by.valid() &&
            (!made.sent_by.valid() || made.sent_by.index < args[i]->sent_by.index))
          made.sent_by = args[i]->sent_by;
      }
    rings.finish(step, r, std::move(made));
  }
}

// The blocks of all ranks, side by side in the order in which they have come.
bool Rings::collect(Step &step, const rules::Application &app) {
  const auto dims = rules::placed_dims(app, rules::DefaultDim::First, rank(step.operands.front()));
  if (!dims || dims->size() != 1 || step.operands.size() < 2)
    return false;
  const unsigned dim = dims->front();
  Held made;
  Held::Collected all{dim, 0, {}};
  uint64_t blocks = 0, twice = 0;
  for (size_t i = 0; i < step.operands.size(); ++i) {
    const Held *held = find(step.operands[i]);
    const Held::Cut *cut = nullptr;
    Held rest = held ? *held : Held();
    for (const Held::Cut &each : rest.cuts)
      if (each.at.dim == dim && each.at.inner == 1 &&
          each.at.extent == extent(step.operands[i], dim))
        cut = &each;
    if (!held || !cut || held->axis != step.axis || !held->is_plain() || held->is_zero() ||
        held->collected || (i > 0 && cut->at.extent != all.length))
      return false;
    all.length = cut->at.extent;
    all.back.push_back(cut->back);
    const uint64_t block = uint64_t{1} << cut->back;
    twice = twice ? twice : blocks & block;
    blocks |= block;
    rest.cuts.erase(cut);
    if (i > 0 && (rest.cuts != made.cuts || rest.terms != made.terms))
      return false;
    rest.proved &= i == 0 || made.proved;
    made = rest;
  }
  const std::optional<unsigned> misses = left_out(blocks, step.ranks);
  if (twice || misses) {
    step.made.fault = twice ? Fault::Repeated : Fault::Missing;
    step.made.operand = static_cast<uint32_t>(step.operands.size() - 1);
    step.made.back = twice ? static_cast<unsigned>(std::countr_zero(twice)) : *misses;
    return true;
  }
  if (all.back.size() != step.ranks)
    return false;
  made.terms[0].form = forms_.of(Forms::Collected, {made.terms[0].form, dim});
  made.collected = std::move(all);
  finish(step, 0, std::move(made));
  return true;
}

// One of them.
bool Rings::pick(Step &step, const rules::Application &app) {
  const Held *held = find(step.operands.front());
  if (!held || !held->collected || step.operands.size() != 1 || held->terms.size() != 1)
    return false;
  const auto &[dim, length, back] = *held->collected;
  const auto dims = rules::placed_dims(app, rules::DefaultDim::First, rank(step.operands.front()));
  const auto first = rules::number_attr(app, {"start"});
  if (!dims || dims->size() != 1 || dims->front() != dim ||
      rules::number_attr(app, {"step"}).value_or(1) != 1 || !first || *first < 0 ||
      *first % length != 0 || extent(step.result(0), dim) != length ||
      static_cast<size_t>(*first / length) >= back.size())
    return false;
  Held made = *held;
  made.cuts.push_back({{dim, 1, length}, back[static_cast<size_t>(*first / length)]});
  made.terms[0].form = forms_.of(Forms::Piece, {made.terms[0].form, dim});
  made.collected.reset();
  finish(step, 0, std::move(made));
  return true;
}

// Along which dimensions, of 32 at most, all elements of a result are equal: they were one that was
// stretched.
void Rings::follow_stretched(const rules::Application &app, ValueId operand, ValueId result) {
  const bool stretches = app.op.row->factors == rules::expand_factors ||
                         app.op.row->factors == rules::expand_as_factors;
  const uint32_t before = stretched_.lookup(operand.index);
  rules::OperandMismatch problem;
  const rules::Equation &equation = app.op.row->equation.equation;
  const auto binding = rules::bind_operands(app, equation, problem);
  if (!binding || !(before || stretches))
    return;
  rules::Outcome ignored;
  const rules::FactorMap map = rules::map_factors(app, equation, *binding, ignored);
  if (map.args.empty() || !map.args[0] || map.results.empty() || !map.results[0])
    return;
  auto varies = [&](uint8_t factor) {
    for (unsigned d = 0; d < map.args[0]->size(); ++d)
      if (llvm::is_contained((*map.args[0])[d], factor) && !(before >> d & 1) &&
          extent(operand, d).value_or(2) > 1)
        return true;
    return false;
  };
  uint32_t now = 0;
  for (unsigned d = 0; d < map.results[0]->size() && d < 32; ++d)
    if (llvm::none_of((*map.results[0])[d], varies))
      now |= uint32_t{1} << d;
  if (now)
    stretched_[result.index] = now;
}

void Rings::compute(Step &step) {
  for (ValueId operand : step.operands)
    if (const Held *held = find(operand); held && !step.axis_known) {
      step.axis = held->axis;
      step.axis_known = true;
    }
  for (AxisId axis : step.axis_known ? ir::AxisSet() : axes_) {
    unsigned cut = 0;
    for (const rules::Arg &arg : step.app.args)
      cut += step.app.type(arg).dim(axis).has_value();
    const bool views = cut == 1 && step.operands.size() == 1 && moves_elements(step.app.op);
    if ((cut > 1 || views) && !step.axis_known) {
      step.axis = axis;
      step.axis_known = true;
    }
  }
  if (!step.axis_known || step.app.mesh()[step.axis].size() > 64)
    return;
  step.ranks = static_cast<unsigned>(step.app.mesh()[step.axis].size());
  const auto uses = rules::row_uses(step.app);
  if (uses.size() != 1 || !uses[0].row)
    return;
  const rules::Application bound = step.app.bound_to(uses[0]);
  step.made.axis = step.axis;
  if ((uses[0].row->factors == rules::cat_factors && collect(step, bound)) ||
      (uses[0].row->factors == rules::slice_factors && pick(step, bound)))
    return;
  rules::OperandMismatch problem;
  const auto binding = rules::bind_operands(bound, uses[0].row->equation.equation, problem);
  if (!binding)
    return;
  rules::Outcome ignored;
  const rules::FactorMap map =
      rules::map_factors(bound, uses[0].row->equation.equation, *binding, ignored);
  if (map.mismatched)
    return;
  Computing{*this, step, bound, *uses[0].row, map}.run();
}

} // namespace spmd::checker
