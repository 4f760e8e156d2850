// Every floating operand of every row has a gradient, or it is an error that it has none where one
// would flow: none ends without a word. And which rows have derivatives that no machine computes.
#include "tests/unit/catch.h"
#include "tests/unit/row_sample.h"

#include "checker/check.h"
#include "ir/input/input.h"
#include "rules/derivative.h"
#include "rules/ops/registry.h"
#include "rules/violations/gradients.h"
#include "rules/violations/operands.h"
#include "runtime/equation/equation.h"
#include "runtime/kernels/kernel.h"

#include "llvm/ADT/STLExtras.h"

#include <fmt/format.h>

#include <set>

namespace spmd::test {
namespace {

using rules::Equation;
using rules::OpDef;
using rules::RefRole;

// True of an operand that only says which elements are meant, or whether.
bool is_position(const Equation &equation, unsigned operand) {
  for (unsigned r = 0; r < equation.ref_count; ++r)
    if (const rules::Ref &ref = equation.refs[r]; ref.operand == operand)
      return ref.role == RefRole::Condition || ref.index != rules::kNoFactor;
  return false;
}
// It enters no term: only its extents matter.
bool gives_shape_only(const Equation &equation, unsigned operand) {
  for (unsigned r = 0; r < equation.ref_count; ++r)
    if (equation.refs[r].operand == operand && equation.refs[r].role != RefRole::ShapeOnly)
      return false;
  return true;
}

template <class F> void each_row(F f) {
  for (llvm::ArrayRef<OpDef> family : rules::op_families())
    for (const OpDef &row : family)
      f(row);
}

// The row applied to parameters, all of them floating; `tensors`: the operand that each one stands
// for.
std::string program_of(const OpDef &row, std::vector<unsigned> &tensors) {
  const Equation &equation = row.equation.equation;
  rules::ResolvedOp op = rules::resolve_spelling({row.name.data(), row.name.size()}, "spmd");
  if (op.row != &row)
    return "";
  std::vector<unsigned> order;
  for (unsigned i = 0; i < equation.operand_count; ++i)
    order.push_back(i);
  if (!op.order.empty())
    order.assign(op.order.begin(), op.order.end());
  std::string params = "mesh m { tp = 2 }\n", operands;
  for (unsigned operand : order) {
    if (operand >= equation.operand_count)
      continue;
    const rules::Ref *first =
        llvm::find_if(equation.refs, [&](const rules::Ref &ref) { return ref.operand == operand; });
    size_t members = equation.operands[operand].list == rules::ListForm::Single ? 1 : 2;
    std::string dims;
    for (unsigned d = 0; d < first->dim_count; ++d)
      dims += d ? ", 4" : "4";
    std::string names = value_names(members, "", tensors.size());
    for (size_t m = 0; m < members; ++m) {
      params += fmt::format("%{} = param f32[{}] R\n", tensors.size(), dims);
      tensors.push_back(operand);
    }
    operands += (operands.empty() ? "" : ", ") + (members > 1 ? "[" + names + "]" : names);
  }
  return params + fmt::format("{} = spmd.{} {}\n", value_names(equation.result_count, "r"),
                              row.name, operands);
}

// Rows whose kernel has no derivative, and whose equation is not the value. Those without a kernel:
// kernels_values.cc.
constexpr const char *kWithoutDerivative[] = {"adagrad_step",
                                              "adam_step",
                                              "attention_backward",
                                              "attention_backward_causal",
                                              "attention_backward_grouped",
                                              "attention_backward_grouped_causal",
                                              "bitwise_left_shift",
                                              "cdist_backward",
                                              "fused_adam",
                                              "grid_sample_backward",
                                              "grouped_mm_backward",
                                              "polar",
                                              "unscale_check",
                                              "update_scale",
                                              "view_as_complex",
                                              "view_as_real"};

// Operands whose derived row would be longer than an equation may be: a backward says that there is
// none.
constexpr const char *kWithoutRule[] = {"attention_backward.q",
                                        "attention_backward.k",
                                        "attention_backward.l",
                                        "attention_backward_causal.q",
                                        "attention_backward_causal.k",
                                        "attention_backward_causal.l",
                                        "attention_backward_grouped.q",
                                        "attention_backward_grouped.k",
                                        "attention_backward_grouped.l",
                                        "attention_backward_grouped_causal.q",
                                        "attention_backward_grouped_causal.k",
                                        "attention_backward_grouped_causal.l",
                                        "recurrent_layer_backward.g",
                                        "recurrent_layer_backward.x",
                                        "recurrent_layer_backward.y",
                                        "recurrent_layer_backward.k",
                                        "recurrent_layer_backward.l",
                                        "recurrent_layer_backward_of_output.g",
                                        "recurrent_layer_backward_of_output.x",
                                        "recurrent_layer_backward_of_output.y",
                                        "recurrent_layer_backward_of_output.k",
                                        "recurrent_layer_backward_of_output.l",
                                        "recurrent_layer_backward_of_state.k",
                                        "recurrent_layer_backward_of_state.x",
                                        "recurrent_layer_backward_of_state.y",
                                        "recurrent_layer_backward_of_state.l",
                                        "recurrent_layer_backward_of_all.g",
                                        "recurrent_layer_backward_of_all.x",
                                        "recurrent_layer_backward_of_all.y",
                                        "recurrent_layer_backward_of_all.k",
                                        "recurrent_layer_backward_of_all.l"};

} // namespace

TEST_CASE("what enters a term of a row has a gradient by a rule") {
  each_row([](const OpDef &row) {
    const Equation &equation = row.equation.equation;
    for (unsigned i = 0; row.gradient && i < equation.operand_count; ++i) {
      std::string name = fmt::format("{}.{}", row.name, equation.operands[i].name);
      INFO(name);
      bool none = is_position(equation, i) || gives_shape_only(equation, i) ||
                  llvm::is_contained(kWithoutRule, name);
      CHECK((rules::derivative(row, i) != nullptr) == !none);
    }
  });
}

TEST_CASE("a trained operand that only says which elements are meant is a finding") {
  size_t positions = 0;
  each_row([&](const OpDef &row) {
    const Equation &equation = row.equation.equation;
    bool any = false;
    for (unsigned i = 0; i < equation.operand_count; ++i)
      any |= is_position(equation, i);
    std::vector<unsigned> tensors;
    std::string text = any && row.gradient ? program_of(row, tensors) : "";
    if (text.empty())
      return;
    INFO(text);
    ir::ReadResult read = ir::read_text(text);
    REQUIRE(read.errors.empty());
    std::set<unsigned> want, found;
    for (unsigned t = 0; t < tensors.size(); ++t)
      if (is_position(equation, tensors[t]))
        want.insert(t);
    bool refused = false; // whatever is behind it: floating numbers count nothing
    for (const checker::Finding &finding : checker::check(read.program).findings) {
      refused |= finding.violation.is<rules::OperandMismatch>();
      if (const auto *ends = finding.violation.as<rules::MissingVjp>())
        found.insert(ends->operand.index);
    }
    bool chosen = found.empty() && row.choose; // another row for floating operands
    CHECK((found == want || refused || chosen));
    positions += refused ? want.size() : found.size();
  });
  CHECK(positions > 40);
}

TEST_CASE("rows with numbers whose derivative has none are listed") {
  std::set<std::string> without;
  each_row([&](const OpDef &row) {
    const runtime::KernelDef *kernel = runtime::find_kernel(row.name);
    bool by_kernel = !kernel || kernel->vjp || kernel->taped || kernel->moves;
    bool derives = false;
    for (unsigned i = 0; i < row.equation.equation.operand_count; ++i)
      derives |= rules::derivative(row, i) != nullptr;
    if (derives && !by_kernel && !runtime::is_value(row))
      without.insert(std::string(row.name));
  });
  CHECK(without ==
        std::set<std::string>(std::begin(kWithoutDerivative), std::end(kWithoutDerivative)));
}

} // namespace spmd::test
