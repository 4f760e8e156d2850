// The local judgment, which works on all axes at once, against a plain restatement for one axis
// over the tables of sum and product: every row of the op table, every combination of operands.
#include "rules/kinds/local.h"

#include "rules/kinds/tables.h"
#include "rules/ops/registry.h"
#include "rules/violations/local.h"
#include "tests/unit/catch.h"

#include <algorithm>
#include <functional>
#include <map>
#include <utility>

namespace spmd::property {
namespace {

using ir::AxisId;
using ir::AxisSet;
using rules::Equation;
using rules::OperandGroup;
using rules::OperandKinds;
using rules::RefRole;
using rules::TermKind;

// What one operand is on one axis. Free: it cannot receive a gradient; Open: R or I, still to be
// decided.
// clang-format off
enum class State : uint8_t {
  R, I, V, P, FreeR, Reduced, FreeI, FreeEither, Open, Zero, Unknown, Maximum,
  Number, NumberZero, Missing
};
constexpr std::string_view kWords[] = {
    "R", "I", "V", "P", "R(free)", "Reduced", "I(free)", "R|I(free)", "R|I", "zero", "?", "P(max)",
    "1", "0", "none"};

// All states of a tensor; the first few where the operands are many.
constexpr State kTensorStates[] = {
    State::R, State::I, State::V, State::P, State::FreeR, State::Reduced, State::FreeI,
    State::FreeEither, State::Open, State::Zero, State::Unknown, State::Maximum};
constexpr State kConditionStates[] = {
    State::FreeR, State::FreeI, State::V, State::P, State::Zero, State::FreeEither, State::Unknown};
constexpr State kRandomStates[] = {
    State::FreeR, State::V, State::FreeI, State::P, State::Unknown};
// clang-format on
constexpr size_t kBasicStates = 5, kFewStates = 3;
constexpr size_t kMostCombinations = 20000;

// The states of all members of all operands, list members one after the other.
using States = std::vector<State>;

struct Verdict {
  enum class Kind : uint8_t { R, Reduced, I, V, P, Either, Zero, Unknown } kind = Kind::Unknown;
  bool bad = false, needless = false, diverges = false, repeats = false;
  friend bool operator==(const Verdict &, const Verdict &) = default;
};

TermKind term_kind(State state) {
  switch (state) {
  case State::R:
  case State::Reduced:
    return TermKind::R;
  case State::I:
    return TermKind::I;
  case State::V:
    return TermKind::V;
  case State::P:
    return TermKind::P;
  case State::Maximum: // carried by no op
    return TermKind::None;
  default: // whoever receives no gradient stands like a number
    return TermKind::Number;
  }
}

// One sum of an equation on one axis, literally by the tables.
class PlainJudgment {
public:
  using Members = std::vector<States>; // per operand of the equation

  // `random`: the state of the generator; Missing where the program gives none.
  PlainJudgment(const Equation &equation, const Members &members, State random, bool stated,
                bool drops)
      : equation_(equation), members_(members), random_(random), stated_(stated), drops_(drops) {}

  Verdict judge(const rules::Sum &sum) {
    for (unsigned t = 0; t < sum.term_count; ++t)
      add(read(equation_.terms[sum.first_term + t]));
    for (unsigned e = 0; e < sum.extra_count; ++e)
      draws_ |= equation_.refs[sum.first_extra + e].operand == rules::kGenerator;
    Verdict verdict;
    if (!unknown_) {
      verdict.bad = total_ == TermKind::None;
      verdict.needless = !verdict.bad && stated_ && !summed_varying_;
      if (!verdict.bad)
        verdict.kind = kind();
    }
    if (draws_)
      draw(verdict);
    return verdict;
  }

private:
  struct Term {
    TermKind product = TermKind::Number;
    States met;
    bool present = false;  // an operand stands in it
    bool dropped = false;  // a number 0 removes it
    bool zeros = false;    // a tensor of zeros does
    bool computed = false; // a tensor stands in f(...)
  };

  Term read(const rules::Term &row) {
    Term term;
    for (unsigned a = 0; a < row.atom_count; ++a) {
      const rules::Atom &atom = equation_.atoms[row.first_atom + a];
      if (atom.form == rules::Atom::Form::Integer)
        continue;
      for (unsigned r = 0; r < atom.count; ++r)
        multiply(term, equation_.refs[atom.first + r], atom.form == rules::Atom::Form::Function);
    }
    return term;
  }

  void multiply(Term &term, const rules::Ref &ref, bool function) {
    draws_ |= ref.operand == rules::kGenerator;
    if (ref.operand == rules::kGenerator || ref.role == RefRole::ShapeOnly)
      return;
    const States &members = members_[ref.operand];
    term.dropped |= ref.role == RefRole::Value && drops_ && members == States{State::NumberZero};
    term.zeros |=
        ref.role == RefRole::Value && drops_ && !function && members == States{State::Zero};
    term.present |= !members.empty();
    for (State member : members)
      term.computed |= function && !is_number(member);
    term.met.insert(term.met.end(), members.begin(), members.end());
    bool nonlinear = function || ref.role == RefRole::Condition;
    for (TermKind kind : factors(ref, members))
      term.product = rules::product(term.product, nonlinear ? rules::nonlinear(kind) : kind);
  }

  void add(Term term) {
    // What is wrong by itself stays wrong where the other branch is a 0.
    if (term.product == TermKind::None)
      total_ = TermKind::None;
    if (stated_ && term.product == TermKind::V) {
      term.product = TermKind::P;
      summed_varying_ = true;
    }
    if (!term.present || term.dropped)
      return;
    any_ = true;
    // A product of zeros and numbers is a zero, and that is whatever the other terms are, and so is
    // a term that a zero removes; a function of a zero need not be one.
    bool zero = !term.computed && has(term.met, State::Zero);
    for (State state : term.met) {
      zero &= state == State::Zero || is_number(state);
      unknown_ |= state == State::Unknown;
      met_.push_back(state);
    }
    zero |= term.zeros;
    all_zero_ &= zero;
    if (zero)
      return;
    total_ =
        has_total_ || total_ == TermKind::None ? rules::sum(total_, term.product) : term.product;
    has_total_ = true;
  }

  // Random numbers meet data: they must differ between ranks exactly where the data does.
  void draw(Verdict &verdict) const {
    bool varying = verdict.kind == Verdict::Kind::V ||
                   (verdict.kind == Verdict::Kind::P && summed_varying_),
         silent = verdict.kind == Verdict::Kind::Unknown;
    bool same = random_ == State::FreeR || random_ == State::FreeI;
    if (random_ == State::P && !silent)
      verdict = {.bad = true};
    if (random_ == State::P)
      return;
    if (!any_) {
      verdict.kind = same                  ? Verdict::Kind::R
                     : random_ == State::V ? Verdict::Kind::V
                                           : Verdict::Kind::Unknown;
      return;
    }
    verdict.diverges = !silent && !varying && random_ == State::V;
    verdict.repeats = varying && same;
    if (verdict.diverges || verdict.repeats || (!varying && !same))
      verdict.kind = Verdict::Kind::Unknown;
  }

  static bool is_number(State state) {
    return state == State::Number || state == State::NumberZero;
  }

  // A list under `+` is one operand, the sum of its members; under `*` each member is a factor.
  std::vector<TermKind> factors(const rules::Ref &ref, const std::vector<State> &members) const {
    std::vector<TermKind> kinds;
    for (State member : members)
      kinds.push_back(term_kind(member));
    if (equation_.operands[ref.operand].list != rules::ListForm::Summed || members.size() < 2)
      return kinds;
    TermKind all = TermKind::Number;
    bool first = true;
    for (size_t i = 0; i < members.size(); ++i)
      if (members[i] != State::Zero) {
        all = first ? kinds[i] : rules::sum(all, kinds[i]);
        first = false;
      }
    return {all};
  }

  static bool has(const States &states, State state) {
    return std::find(states.begin(), states.end(), state) != states.end();
  }
  bool met(State state) const { return has(met_, state); }
  Verdict::Kind kind() const {
    switch (total_) {
    case TermKind::R:
      return met(State::Reduced) && !met(State::R) ? Verdict::Kind::Reduced : Verdict::Kind::R;
    case TermKind::I:
      return Verdict::Kind::I;
    case TermKind::V:
      return Verdict::Kind::V;
    case TermKind::P:
      return Verdict::Kind::P;
    default:
      break;
    }
    if (any_ && all_zero_)
      return Verdict::Kind::Zero;
    if (met(State::Open))
      return Verdict::Kind::Either;
    if (met(State::FreeR))
      return Verdict::Kind::R;
    return met(State::FreeI) ? Verdict::Kind::I : Verdict::Kind::Either;
  }

  const Equation &equation_;
  const Members &members_;
  State random_;
  bool stated_, drops_;
  bool draws_ = false;
  TermKind total_ = TermKind::Number;
  bool has_total_ = false, any_ = false, all_zero_ = true;
  bool unknown_ = false, summed_varying_ = false;
  States met_;
};

void put(OperandKinds &operand, State state, AxisId axis) {
  operand.form = OperandKinds::Form::Tensor;
  switch (state) {
  case State::Reduced:
    operand.reduced |= axis;
    [[fallthrough]];
  case State::R:
    operand.strict_r |= axis;
    break;
  case State::I:
    operand.strict_i |= axis;
    break;
  case State::V:
    operand.v |= axis;
    break;
  case State::Maximum:
    operand.combining |= axis;
    operand.combiner = ir::Combiner::Max;
    [[fallthrough]];
  case State::P:
    operand.p |= axis;
    break;
  case State::FreeR:
    operand.free_r |= axis;
    operand.free |= axis;
    break;
  case State::FreeI:
    operand.free_i |= axis;
    operand.free |= axis;
    break;
  case State::Zero:
    operand.zero |= axis;
    operand.free |= axis;
    break;
  case State::Open:
    operand.open |= axis;
    [[fallthrough]];
  case State::FreeEither:
    operand.free |= axis;
    break;
  default:
    operand.unknown |= axis;
    break;
  }
}

Verdict verdict_on(const rules::LocalResult &result, AxisId axis) {
  using Kind = Verdict::Kind;
  const std::pair<AxisSet, Kind> kSets[] = {
      {result.r, Kind::R},       {result.reduced, Kind::Reduced},
      {result.i, Kind::I},       {result.v, Kind::V},
      {result.p, Kind::P},       {result.either, Kind::Either},
      {result.zero, Kind::Zero}, {result.unknown, Kind::Unknown}};
  Verdict verdict;
  int positions = 0;
  for (auto [set, kind] : kSets)
    if (set.contains(axis)) {
      verdict.kind = kind;
      ++positions;
    }
  if (positions != 1)
    FAIL("an axis is in " << positions << " sets");
  verdict.bad = result.bad.contains(axis);
  verdict.needless = result.needless.contains(axis);
  verdict.diverges = result.random_diverges.contains(axis);
  verdict.repeats = result.random_repeats.contains(axis);
  return verdict;
}

// What stands for one operand: so many members of a list, or another form.
struct Standing {
  State form = State::R; // R: tensors; or Number, NumberZero, Missing
  size_t members = 1;
};

class RowTest {
public:
  RowTest(const rules::OpDef &row, const rules::Sum &sum)
      : row_(row), equation_(row.equation.equation), sum_(sum) {}

  void run() {
    standing_.resize(equation_.operand_count);
    enumerate_standing(0);
  }

private:
  bool is_condition(unsigned operand) const {
    for (unsigned r = 0; r < equation_.ref_count; ++r)
      if (equation_.refs[r].operand == operand && equation_.refs[r].role == RefRole::Condition)
        return true;
    return false;
  }

  void enumerate_standing(unsigned operand) {
    if (operand == equation_.operand_count) {
      for (bool given : {false, true})
        if (given_ = given; !given || equation_.has_generator)
          enumerate_states();
      return;
    }
    const rules::OperandDecl &decl = equation_.operands[operand];
    std::vector<Standing> choices = {{State::R, 1}};
    if (decl.list != rules::ListForm::Single)
      choices.push_back({State::R, 2});
    if (decl.optional)
      choices.push_back({State::Missing, 0});
    if (equation_.operand_count <= 5) {
      choices.push_back({State::Number, 1});
      choices.push_back({State::NumberZero, 1});
    }
    for (const Standing &choice : choices) {
      standing_[operand] = choice;
      enumerate_standing(operand + 1);
    }
  }

  // The states that each tensor member runs through.
  std::vector<llvm::ArrayRef<State>> choices() const {
    std::vector<llvm::ArrayRef<State>> all;
    size_t combinations = 1;
    for (unsigned i = 0; i < equation_.operand_count; ++i)
      for (size_t k = 0; standing_[i].form == State::R && k < standing_[i].members; ++k) {
        all.push_back(is_condition(i) ? llvm::ArrayRef<State>(kConditionStates)
                                      : llvm::ArrayRef<State>(kTensorStates));
        combinations *= all.back().size();
      }
    for (auto &states : all)
      if (combinations > kMostCombinations)
        states = states.take_front(all.size() > 5 ? kFewStates : kBasicStates);
    if (given_)
      all.push_back(kRandomStates);
    return all;
  }

  void enumerate_states() {
    std::vector<llvm::ArrayRef<State>> all = choices();
    std::vector<States> batch;
    States current(all.size());
    std::function<void(size_t)> visit = [&](size_t at) {
      if (at == all.size()) {
        batch.push_back(current);
        if (batch.size() == ir::kMaxAxes)
          compare(batch);
        return;
      }
      for (State state : all[at]) {
        current[at] = state;
        visit(at + 1);
      }
    };
    visit(0);
    compare(batch);
  }

  // One axis per combination.
  void compare(std::vector<States> &batch) {
    std::vector<OperandGroup> groups(equation_.operand_count);
    AxisSet axes;
    for (size_t a = 0; a < batch.size(); ++a)
      axes |= AxisId{static_cast<uint8_t>(a)};
    size_t at = 0;
    for (unsigned i = 0; i < equation_.operand_count; ++i) {
      const Standing &standing = standing_[i];
      for (size_t k = 0; standing.form == State::R && k < standing.members; ++k, ++at) {
        OperandKinds member;
        for (size_t a = 0; a < batch.size(); ++a)
          put(member, batch[a][at], AxisId{static_cast<uint8_t>(a)});
        groups[i].push_back(member);
      }
      if (standing.form == State::Number || standing.form == State::NumberZero)
        groups[i].push_back(OperandKinds::number(standing.form == State::NumberZero, false));
    }
    rules::GeneratorKinds random{given_, {}};
    for (size_t a = 0; given_ && a < batch.size(); ++a)
      put(random.kinds, batch[a].back(), AxisId{static_cast<uint8_t>(a)});
    for (bool stated : {false, true}) {
      AxisSet summed = stated ? axes : AxisSet();
      rules::LocalInput input{equation_, groups, random, axes, summed, row_.zero_drops_term};
      rules::LocalResult result = rules::evaluate_local(input, sum_);
      explain(input, result.bad);
      for (size_t a = 0; a < batch.size(); ++a)
        compare_one(batch[a], stated, verdict_on(result, AxisId{static_cast<uint8_t>(a)}));
    }
    batch.clear();
  }

  // Each axis that is refused has a violation that names it, and no other has.
  void explain(const rules::LocalInput &input, AxisSet bad) {
    if (!bad)
      return;
    llvm::SmallVector<rules::Violation, 4> found;
    rules::explain_local(input, sum_, bad, found);
    AxisSet named;
    for (const rules::Violation &violation : found)
      named |= rules::axes_of(violation);
    if (named != bad) {
      INFO(row_.name << ": " << equation_.text);
      CHECK(named.bits() == bad.bits());
    }
  }

  void compare_one(const States &states, bool stated, Verdict found) {
    PlainJudgment::Members members(equation_.operand_count);
    size_t at = 0;
    for (unsigned i = 0; i < equation_.operand_count; ++i) {
      const Standing &standing = standing_[i];
      for (size_t k = 0; standing.form == State::R && k < standing.members; ++k)
        members[i].push_back(states[at++]);
      if (standing.form == State::Number || standing.form == State::NumberZero)
        members[i].push_back(standing.form);
    }
    State random = given_ ? states.back() : State::Missing;
    Verdict expected =
        PlainJudgment(equation_, members, random, stated, row_.zero_drops_term).judge(sum_);
    if (found == expected)
      return;
    std::string text;
    for (unsigned i = 0; i < equation_.operand_count; ++i) {
      text.append(" ").append(equation_.operands[i].name).append(":");
      for (State state : members[i])
        text.append(" ").append(kWords[static_cast<size_t>(state)]);
    }
    if (given_)
      text.append(" ~: ").append(kWords[static_cast<size_t>(random)]);
    INFO(row_.name << ": " << equation_.text << text << (stated ? ", stated" : ""));
    CHECK(static_cast<int>(found.kind) == static_cast<int>(expected.kind));
    CHECK(found.bad == expected.bad);
    CHECK(found.needless == expected.needless);
    CHECK(found.diverges == expected.diverges);
    CHECK(found.repeats == expected.repeats);
  }

  const rules::OpDef &row_;
  const Equation &equation_;
  const rules::Sum &sum_;
  std::vector<Standing> standing_;
  bool given_ = false; // the state of the generator
};

// What the judgment makes of an expression of one or two operands on one axis, and why it refuses.
struct Judged {
  TermKind kind = TermKind::None;
  std::string_view refused;
};
Judged judge_one(llvm::StringRef op, llvm::ArrayRef<State> states) {
  const Equation &equation = rules::find_op(op)->equation.equation;
  AxisId axis{0};
  std::vector<OperandGroup> groups(equation.operand_count);
  for (size_t i = 0; i < states.size(); ++i) {
    OperandKinds operand = OperandKinds::number(false, false);
    if (states[i] != State::Number)
      put(operand, states[i], axis);
    groups[i].push_back(operand);
  }
  rules::LocalInput input{equation, groups, {}, axis, {}, false};
  rules::LocalResult result = rules::evaluate_local(input, equation.sums[0]);
  llvm::SmallVector<rules::Violation, 1> found;
  rules::explain_local(input, equation.sums[0], result.bad, found);
  switch (verdict_on(result, axis).kind) {
  case Verdict::Kind::R:
    return {TermKind::R, {}};
  case Verdict::Kind::I:
    return {TermKind::I, {}};
  case Verdict::Kind::V:
    return {TermKind::V, {}};
  case Verdict::Kind::P:
    return {TermKind::P, {}};
  case Verdict::Kind::Either:
    return {TermKind::Number, {}};
  default:
    return {TermKind::None, found.size() == 1 ? rules::info(found[0]).name : "not one reason"};
  }
}

std::string_view name_of(rules::Clash clash) {
  switch (clash) {
  case rules::Clash::No:
    break;
  case rules::Clash::InvariantMixed:
    return rules::InvariantMixed::info.name;
  case rules::Clash::PartialTimesPartial:
    return rules::PartialTimesPartial::info.name;
  case rules::Clash::PartialWithVarying:
    return rules::PartialWithVarying::info.name;
  case rules::Clash::PartialPlusReplicate:
    return rules::PartialPlusReplicate::info.name;
  case rules::Clash::PartialIntoNonlinear:
    return rules::PartialIntoNonlinear::info.name;
  }
  return {};
}

void check_cell(llvm::StringRef op, const rules::Cell &cell, llvm::ArrayRef<State> states) {
  Judged judged = judge_one(op, states);
  INFO(op.str() << " of state " << static_cast<int>(states.front()) << " and "
                << static_cast<int>(states.back()));
  CHECK(static_cast<int>(judged.kind) == static_cast<int>(cell.kind));
  CHECK(judged.refused == name_of(cell.clash));
}

constexpr State kOperands[] = {State::R, State::I, State::V, State::P, State::Number};

} // namespace

TEST_CASE("what two kinds make, and why they make nothing, is the cell of their table") {
  for (State a : kOperands) {
    check_cell("relu", rules::cell(rules::kFunction, term_kind(a)), {a});
    for (State b : kOperands) {
      check_cell("add", rules::cell(rules::kSum, term_kind(a), term_kind(b)), {a, b});
      check_cell("mul", rules::cell(rules::kProduct, term_kind(a), term_kind(b)), {a, b});
    }
  }
}

TEST_CASE("all axes at once is one axis at a time") {
  std::map<std::string, bool> seen; // rows that share an equation are one row here
  for (llvm::ArrayRef<rules::OpDef> family : rules::op_families())
    for (const rules::OpDef &row : family) {
      const Equation &equation = row.equation.equation;
      std::string key = std::string(equation.text) + (row.zero_drops_term ? "0" : "");
      if (std::exchange(seen[key], true))
        continue;
      for (unsigned s = 0; s < equation.sum_count; ++s)
        RowTest(row, equation.sums[s]).run();
    }
  CHECK(seen.size() > 20);
}

} // namespace spmd::property
