// Every row of the op table against execution: with each operand R, V or P, what is accepted is
// true of what the ranks compute, and what is refused has, for each kind that the result could have
// been given, data for which that kind would be false. I is R as far as values go; gradients are
// tested by kind_tables.cc.
#include "tests/property/equation_plan.h"

#include "rules/derivative.h"
#include "rules/kinds/local.h"
#include "rules/ops/registry.h"
#include "tests/property/row_samples.h"
#include "tests/unit/catch.h"

#include <algorithm>
#include <array>
#include <bit>
#include <random>
#include <set>

namespace spmd::property {
namespace {

using ir::AxisId;
using ir::AxisSet;
using rules::Equation;
using rules::OperandGroup;
using rules::OperandKinds;
using rules::RefRole;

enum class K : uint8_t { R, V, P };
constexpr K kKinds[] = {K::R, K::V, K::P};
constexpr char kLetters[] = "RVP";
constexpr unsigned kAcceptedDraws = 3, kMostDraws = 80;
constexpr AxisId kAxis{0};

// What the rule says of one assignment.
struct Verdict {
  enum class Form : uint8_t { Accepted, Refused, Silent } form = Form::Silent;
  K kind = K::R;
};

struct Counts {
  size_t rows = 0, accepted = 0, refused = 0;
};

class RowCheck {
public:
  RowCheck(std::string name, const Equation &equation, bool drops_zero, ShapePlan shapes,
           Counts &counts)
      : name_(std::move(name)), equation_(equation), drops_zero_(drops_zero),
        shapes_(std::move(shapes)), counts_(counts) {}

  void run() {
    ++counts_.rows;
    for (unsigned s = 0; s < equation_.sum_count; ++s) {
      SumPlan plan(equation_, equation_.sums[s], shapes_);
      if (plan.term_count())
        enumerate(equation_.sums[s], plan);
    }
  }

private:
  bool is_condition(unsigned operand) const {
    for (unsigned r = 0; r < equation_.ref_count; ++r)
      if (equation_.refs[r].operand == operand && equation_.refs[r].role == RefRole::Condition)
        return true;
    return false;
  }
  size_t tensor_count() const {
    size_t count = 0;
    for (const std::vector<TensorPlan> &operand : shapes_.operands)
      count += operand.size();
    return count;
  }

  // Kinds of all members one after the other, last that of the generator.
  void enumerate(const rules::Sum &sum, const SumPlan &plan) {
    size_t count = tensor_count() + equation_.has_generator;
    size_t combinations = 1;
    for (size_t i = 0; i < count; ++i)
      combinations *= 3;
    for (size_t code = 0; code < combinations; ++code) {
      std::vector<K> kinds;
      for (size_t rest = code, i = 0; i < count; ++i, rest /= 3)
        kinds.push_back(kKinds[rest % 3]);
      for (bool stated : {false, true})
        check(sum, plan, kinds, stated);
    }
  }

  static OperandKinds operand(K kind, bool adopts) {
    OperandKinds made;
    made.form = OperandKinds::Form::Tensor;
    if (kind == K::V)
      made.v |= kAxis;
    else if (kind == K::P)
      made.p |= kAxis;
    else if (adopts)
      made.free_r |= kAxis, made.free |= kAxis;
    else
      made.strict_r |= kAxis;
    return made;
  }

  Verdict judge(const rules::Sum &sum, const std::vector<K> &kinds, bool stated) const {
    std::vector<OperandGroup> groups(equation_.operand_count);
    size_t at = 0;
    for (unsigned i = 0; i < equation_.operand_count; ++i)
      for (size_t k = 0; k < shapes_.operands[i].size(); ++k)
        groups[i].push_back(operand(kinds[at++], is_condition(i)));
    AxisSet axes(kAxis);
    rules::GeneratorKinds generator;
    if (equation_.has_generator)
      generator = {true, operand(kinds.back(), true)};
    rules::LocalInput input{equation_,  groups, generator, axes, stated ? axes : AxisSet(),
                            drops_zero_};
    rules::LocalResult result = rules::evaluate_local(input, sum);
    if (result.bad)
      return {Verdict::Form::Refused};
    if (result.random_diverges) // the result would be V, which is true and not what is meant
      return {Verdict::Form::Refused, K::V};
    if (result.unknown || result.needless) // equal random numbers in V data: no value is wrong
      return {Verdict::Form::Silent};
    return {Verdict::Form::Accepted, result.v ? K::V : result.p ? K::P : K::R};
  }

  struct Draw {
    std::vector<RankData> ranks; // as held
    std::vector<RankData> meant; // with the sum in place of a P
  };
  Draw draw(const std::vector<K> &kinds, size_t rank_count, std::mt19937 &random) const {
    auto number = [&] { return static_cast<int64_t>(random() % 19) - 9; };
    Draw made;
    made.ranks.resize(rank_count);
    for (RankData &rank : made.ranks)
      rank.operands.resize(equation_.operand_count);
    made.meant = made.ranks;
    size_t at = 0;
    for (unsigned i = 0; i < equation_.operand_count; ++i)
      for (const TensorPlan &tensor : shapes_.operands[i]) {
        K kind = kinds[at++];
        Data data(shapes_.size(tensor)), sum(data.size());
        for (size_t r = 0; r < rank_count; ++r) {
          if (r == 0 || kind != K::R)
            std::generate(data.begin(), data.end(), number);
          made.ranks[r].operands[i].push_back(data);
          for (size_t e = 0; e < data.size(); ++e)
            sum[e] += data[e];
        }
        for (size_t r = 0; r < rank_count; ++r)
          made.meant[r].operands[i].push_back(kind == K::P ? sum
                                                           : made.ranks[r].operands[i].back());
      }
    int64_t state = number(), sum = 0;
    for (size_t r = 0; equation_.has_generator && r < rank_count; ++r) {
      made.ranks[r].state = made.meant[r].state = kinds.back() == K::R ? state : number();
      sum += made.ranks[r].state;
    }
    for (RankData &rank : made.meant)
      rank.state = equation_.has_generator && kinds.back() == K::P ? sum : rank.state;
    return made;
  }

  bool varies(const SumPlan &plan, size_t term, const std::vector<K> &kinds) const {
    size_t at = 0;
    for (unsigned i = 0; i < equation_.operand_count; ++i)
      for (size_t k = 0; k < shapes_.operands[i].size(); ++k, ++at) {
        const std::vector<unsigned> &operands = plan.operands_of(term);
        if (kinds[at] == K::V && std::find(operands.begin(), operands.end(), i) != operands.end())
          return true;
      }
    return false;
  }

  // What the ranks hold, and what it should mean on each.
  struct Values {
    std::vector<Data> held, meant;
  };
  Values compute(const SumPlan &plan, const std::vector<K> &kinds, bool stated,
                 const Draw &data) const {
    size_t count = data.ranks.size();
    Values values;
    values.held.assign(count, Data(plan.result_size()));
    values.meant = values.held;
    for (size_t t = 0; t < plan.term_count(); ++t) {
      Data addends(plan.result_size());
      bool summed = stated && varies(plan, t, kinds);
      for (size_t r = 0; r < count; ++r) {
        plan.add_term(t, data.ranks[r], values.held[r]);
        plan.add_term(t, data.meant[r], summed ? addends : values.meant[r]);
      }
      for (size_t r = 0; summed && r < count; ++r)
        for (size_t e = 0; e < addends.size(); ++e)
          values.meant[r][e] += addends[e];
    }
    return values;
  }
  static bool holds(K kind, const Values &values) {
    if (kind == K::V)
      return values.held == values.meant;
    auto same = [](const std::vector<Data> &all) {
      return std::all_of(all.begin(), all.end(), [&](const Data &one) { return one == all[0]; });
    };
    if (kind == K::R)
      return same(values.held) && values.held == values.meant;
    Data sum(values.held[0].size());
    for (const Data &held : values.held)
      for (size_t e = 0; e < sum.size(); ++e)
        sum[e] += held[e];
    return same(values.meant) && sum == values.meant[0];
  }

  void check(const rules::Sum &sum, const SumPlan &plan, const std::vector<K> &kinds, bool stated) {
    Verdict verdict = judge(sum, kinds, stated);
    if (verdict.form == Verdict::Form::Silent)
      return;
    bool accepted = verdict.form == Verdict::Form::Accepted;
    ++(accepted ? counts_.accepted : counts_.refused);
    std::mt19937 random(1 + static_cast<unsigned>(kinds.size()));
    // Stated, a result is P and nothing else.
    std::array<bool, 3> refuted = {stated, stated, false};
    refuted[1] |= !accepted && verdict.kind == K::V;
    for (size_t ranks : {2, 3})
      for (unsigned d = 0; d < (accepted ? kAcceptedDraws : kMostDraws); ++d) {
        Values values = compute(plan, kinds, stated, draw(kinds, ranks, random));
        if (accepted && !holds(verdict.kind, values))
          return report(sum, kinds, stated, std::string("is not ") + kLetters[int(verdict.kind)]);
        for (K kind : kKinds)
          refuted[size_t(kind)] = refuted[size_t(kind)] || !holds(kind, values);
        if (!accepted && refuted == std::array<bool, 3>{true, true, true})
          return;
      }
    if (!accepted)
      report(sum, kinds, stated, "is refused without a counterexample");
  }
  void report(const rules::Sum &sum, const std::vector<K> &kinds, bool stated, std::string what) {
    std::string text = name_ + " (" + std::string(equation_.text) + "), sum " +
                       std::to_string(&sum - equation_.sums.data()) + ":";
    size_t at = 0;
    for (unsigned i = 0; i < equation_.operand_count; ++i) {
      text.append(" ").append(equation_.operands[i].name).append(" ");
      for (size_t k = 0; k < shapes_.operands[i].size(); ++k)
        text += kLetters[int(kinds[at++])];
    }
    if (equation_.has_generator)
      text.append(" ~ ") += kLetters[int(kinds.back())];
    FAIL_CHECK(text << (stated ? ", stated: " : ": ") << what);
  }

  std::string name_;
  const Equation &equation_;
  bool drops_zero_;
  ShapePlan shapes_;
  Counts &counts_;
};

// The dimensions are left to attributes, and a function reads them.
bool needs_sample(const rules::OpDef &row) {
  const Equation &equation = row.equation.equation;
  return row.factors && row.factors != rules::unknown_factors &&
         row.constant == rules::OpDef::Constant::No && !equation.results[0].has_dims;
}

// Every set of optional operands that are missing.
template <class Visit> void each_absence(const Equation &equation, Visit visit) {
  uint32_t optional = 0;
  for (unsigned i = 0; i < equation.operand_count; ++i)
    optional |= equation.operands[i].optional ? 1u << i : 0;
  for (uint32_t absent = optional;; absent = (absent - 1) & optional) {
    // All or none where they are many: each is a loop of three kinds.
    if (std::popcount(optional) <= 2 || absent == optional || absent == 0)
      visit(absent);
    if (!absent)
      return;
  }
}

// The gradient of an operand is a row like any other. Of the many operands that some have, each is
// a loop of three kinds.
void check_derived(const rules::OpDef &row, unsigned operand, std::set<std::string> &seen,
                   Counts &counts) {
  const rules::OpDef *derived = rules::derivative(row, operand);
  if (!derived || derived->equation.equation.operand_count > 5)
    return;
  const Equation &equation = derived->equation.equation;
  if (seen.insert(std::string(equation.text)).second)
    each_absence(equation, [&](uint32_t absent) {
      RowCheck(std::string(derived->name), equation, false, plan_as_written(equation, absent),
               counts)
          .run();
    });
}

} // namespace

TEST_CASE("every op row, with all kinds of operands, says what the ranks compute") {
  Counts counts;
  std::set<std::string> seen, sampled;
  for (const RowSample &sample : row_samples()) {
    ReadSample read = read_sample(sample);
    sampled.insert(std::string(read.row->name));
    RowCheck(sample.statement, read.row->equation.equation, read.row->zero_drops_term,
             std::move(read.plan), counts)
        .run();
  }
  for (llvm::ArrayRef<rules::OpDef> family : rules::op_families())
    for (const rules::OpDef &row : family) {
      const Equation &equation = row.equation.equation;
      if (needs_sample(row)) {
        INFO(row.name);
        CHECK(sampled.count(std::string(row.name)));
      } else if (row.constant == rules::OpDef::Constant::No &&
                 seen.insert(std::string(equation.text)).second) {
        each_absence(equation, [&](uint32_t absent) {
          RowCheck(std::string(row.name), equation, row.zero_drops_term,
                   plan_as_written(equation, absent), counts)
              .run();
        });
      }
      for (unsigned i = 0; !needs_sample(row) && i < equation.operand_count; ++i)
        check_derived(row, i, seen, counts);
    }
  CHECK(counts.rows > 250);
  CHECK(counts.accepted > 10000);
  CHECK(counts.refused > 20000);
}

} // namespace spmd::property
