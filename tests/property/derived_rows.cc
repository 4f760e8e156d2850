// Every derived row against the row that it follows from: where the forward op is accepted and the
// gradient of its result is of the dual kind, the gradient of the operand is of the dual of the
// operand's kind, or differs between ranks where it is to be addends. (That the kinds of a derived
// row are true of what ranks compute is tested with all other rows.)
#include "rules/derivative.h"
#include "rules/kinds/local.h"
#include "rules/ops/registry.h"
#include "tests/unit/catch.h"

namespace spmd::property {
namespace {

using ir::AxisId;
using ir::AxisSet;
using ir::Kind;
using rules::Equation;
using rules::OperandGroup;
using rules::OperandKinds;

constexpr AxisId kAxis{0};
constexpr Kind kKinds[] = {Kind::Replicate, Kind::Invariant, Kind::Varying, Kind::Partial};

bool is_condition(const Equation &equation, unsigned operand) {
  for (unsigned r = 0; r < equation.ref_count; ++r)
    if (equation.refs[r].operand == operand && equation.refs[r].role == rules::RefRole::Condition)
      return true;
  return false;
}

OperandKinds operand(Kind kind, bool adopts) {
  OperandKinds made;
  made.form = OperandKinds::Form::Tensor;
  bool invariant = kind == Kind::Invariant;
  if (kind == Kind::Varying)
    made.v |= kAxis;
  else if (kind == Kind::Partial)
    made.p |= kAxis;
  else if (adopts)
    (invariant ? made.free_i : made.free_r) |= kAxis, made.free |= kAxis;
  else
    (invariant ? made.strict_i : made.strict_r) |= kAxis;
  return made;
}

std::optional<Kind> kind_of(const rules::LocalResult &result) {
  if (result.bad || result.unknown || result.random_diverges || result.needless)
    return std::nullopt;
  return result.v   ? Kind::Varying
         : result.p ? Kind::Partial
         : result.i ? Kind::Invariant
                    : Kind::Replicate;
}

// `dr`, `dr0`, `dr1`, ...
unsigned result_of(const std::string &gradient) {
  return gradient.size() > 2 ? static_cast<unsigned>(std::stoul(gradient.substr(2))) : 0;
}

struct Counts {
  size_t rows = 0, derivatives = 0, assignments = 0;
};

class DualityCheck {
public:
  DualityCheck(const rules::OpDef &row, Counts &counts)
      : row_(row), forward_(row.equation.equation), counts_(counts) {}

  void run() {
    size_t combinations = 1;
    for (unsigned i = 0; i < forward_.operand_count; ++i)
      combinations *= 4;
    bool any = false;
    for (unsigned i = 0; i < forward_.operand_count; ++i)
      any |= rules::derivative(row_, i) != nullptr;
    counts_.rows += any;
    for (size_t code = 0; any && code < combinations; ++code) {
      std::vector<Kind> kinds;
      for (size_t rest = code, i = 0; i < forward_.operand_count; ++i, rest /= 4)
        kinds.push_back(kKinds[rest % 4]);
      check(kinds);
    }
  }

private:
  rules::LocalResult judge(const Equation &equation, const rules::Sum &sum,
                           const std::vector<std::optional<Kind>> &kinds) const {
    std::vector<OperandGroup> groups(equation.operand_count);
    for (unsigned i = 0; i < equation.operand_count; ++i)
      if (kinds[i])
        groups[i].push_back(operand(*kinds[i], is_condition(equation, i)));
    AxisSet axes(kAxis);
    rules::GeneratorKinds generator;
    if (equation.has_generator)
      generator = {true, operand(Kind::Replicate, true)};
    rules::LocalInput input{equation, groups, generator, axes, {}, false};
    return rules::evaluate_local(input, sum);
  }

  void check(const std::vector<Kind> &kinds) {
    std::vector<std::optional<Kind>> given(kinds.begin(), kinds.end());
    std::vector<std::optional<Kind>> results;
    for (unsigned s = 0; s < forward_.sum_count; ++s) {
      std::optional<Kind> kind = kind_of(judge(forward_, forward_.sums[s], given));
      if (!kind)
        return;
      results.insert(results.end(), forward_.sums[s].result_count, kind);
    }
    for (unsigned i = 0; i < forward_.operand_count; ++i)
      if (rules::derivative(row_, i))
        check(kinds, results, i);
  }
  void check(const std::vector<Kind> &kinds, const std::vector<std::optional<Kind>> &results,
             unsigned at) {
    ++counts_.assignments;
    if (has_dual(kinds, results, at, ~0u))
      return;
    // Gradients that do not go together come one after the other.
    for (unsigned r = 0; r < results.size(); ++r) {
      INFO(row_.name << " " << forward_.operands[at].name << " by result " << r);
      CHECK(has_dual(kinds, results, at, 1u << r));
    }
  }
  // `flowing`: the results that have a gradient.
  bool has_dual(const std::vector<Kind> &kinds, const std::vector<std::optional<Kind>> &results,
                unsigned at, uint32_t flowing) {
    const rules::OpDef *derived = rules::derivative(row_, at, flowing);
    if (!derived)
      return true;
    const Equation &equation = derived->equation.equation;
    std::vector<std::optional<Kind>> given(equation.operand_count);
    for (unsigned d = 0; d < equation.operand_count; ++d) {
      unsigned same = forward_.find_operand(equation.operands[d].name);
      std::string name(equation.operands[d].name);
      if (name == "before" || name == "after") // the other members of a list: there are none here
        continue;
      given[d] = same < forward_.operand_count
                     ? kinds[same]
                     : std::optional(ir::info(*results[result_of(name)]).dual);
    }
    std::optional<Kind> got = kind_of(judge(equation, equation.sums[0], given));
    Kind want = ir::info(kinds[at]).dual;
    return got && (*got == want || (want == Kind::Partial && *got == Kind::Varying));
  }

  const rules::OpDef &row_;
  const Equation &forward_;
  Counts &counts_;
};

} // namespace

// True if both have a gradient and stand in one sum.
static bool meet(const rules::OpDef &row, const rules::Sum &sum, unsigned a, unsigned b) {
  const Equation &equation = row.equation.equation;
  bool has_a = false, has_b = false;
  for (unsigned t = sum.first_term; t < unsigned(sum.first_term) + sum.term_count; ++t)
    for (unsigned f = 0; f < equation.terms[t].atom_count; ++f) {
      const rules::Atom &atom = equation.atoms[equation.terms[t].first_atom + f];
      for (unsigned r = 0; atom.form != rules::Atom::Form::Integer && r < atom.count; ++r) {
        const rules::Ref &ref = equation.refs[atom.first + r];
        bool value = ref.role == rules::RefRole::Value && ref.index == rules::kNoFactor;
        has_a |= value && ref.operand == a;
        has_b |= value && ref.operand == b;
      }
    }
  return has_a && has_b && rules::derivative(row, a) && rules::derivative(row, b);
}

// The gradient of what is I is the same on all ranks: beside anything that is not I it would be a
// part of it.
TEST_CASE("no row takes an invariant operand that has a gradient beside one of another kind") {
  size_t compared = 0;
  for (llvm::ArrayRef<rules::OpDef> family : rules::op_families())
    for (const rules::OpDef &row : family) {
      const Equation &equation = row.equation.equation;
      if (row.constant != rules::OpDef::Constant::No ||
          row.function_scale == rules::OpDef::FunctionScale::Any)
        continue;
      for (unsigned s = 0; s < equation.sum_count; ++s)
        for (unsigned i = 0; i < equation.operand_count; ++i)
          for (unsigned j = 0; j < equation.operand_count; ++j)
            for (Kind other : {Kind::Replicate, Kind::Varying, Kind::Partial}) {
              if (i == j || !meet(row, equation.sums[s], i, j))
                continue;
              std::vector<OperandGroup> groups(equation.operand_count);
              for (unsigned k = 0; k < equation.operand_count; ++k)
                groups[k].push_back(
                    operand(k == j ? other : Kind::Invariant, is_condition(equation, k)));
              AxisSet axes(kAxis);
              rules::GeneratorKinds generator;
              if (equation.has_generator)
                generator = {true, operand(Kind::Invariant, true)};
              rules::LocalResult result = rules::evaluate_local(
                  {equation, groups, generator, axes, {}, false}, equation.sums[s]);
              INFO(row.name << ": " << equation.operands[i].name << " is I, "
                            << equation.operands[j].name << " is " << ir::info(other).word);
              CHECK((result.bad || result.random_diverges));
              ++compared;
            }
    }
  CHECK(compared > 1000);
}

TEST_CASE("the gradient of every operand of every row has the dual kind") {
  Counts counts;
  for (llvm::ArrayRef<rules::OpDef> family : rules::op_families())
    for (const rules::OpDef &row : family) {
      for (unsigned i = 0; i < row.equation.equation.operand_count; ++i)
        counts.derivatives += rules::derivative(row, i) != nullptr;
      if (row.equation.equation.operand_count <= 7)
        DualityCheck(row, counts).run();
    }
  CHECK(counts.rows > 200);
  CHECK(counts.derivatives > 400);
  CHECK(counts.assignments > 2000);
}

} // namespace spmd::property
