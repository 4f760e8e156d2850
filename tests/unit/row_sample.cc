// Writes statements for rows, and the extents that go with them.
#include "tests/unit/row_sample.h"

#include "rules/ops/registry.h"
#include "tests/unit/catch.h"

#include <fmt/format.h>

namespace spmd::test {

using rules::Equation;
using rules::Ref;
using runtime::Residue;

std::string value_names(size_t count, const char *prefix, size_t first) {
  std::string text;
  for (size_t k = 0; k < count; ++k)
    text += fmt::format("{}%{}{}", k ? ", " : "", prefix, first + k);
  return text;
}

static std::string type_of(const Dims &dims, bool index) {
  return fmt::format("{}[{}]", index ? "i64" : "f32", fmt::join(dims, ", "));
}

static Dims written(const Equation &equation, unsigned first, unsigned count,
                    llvm::function_ref<int64_t(unsigned)> extent) {
  Dims dims;
  for (unsigned d = first; d < first + count; ++d) {
    const rules::Dim &dim = equation.dims[d];
    int64_t product = dim.form == rules::Dim::Form::One || dim.form == rules::Dim::Form::Merged
                          ? 1
                          : extent(dim.first);
    for (unsigned m = 0; dim.form == rules::Dim::Form::Merged && m < dim.count; ++m)
      product *= extent(equation.merged[dim.first + m]);
    dims.push_back(product);
  }
  return dims;
}

RowSample::RowSample(const rules::OpDef &row, llvm::function_ref<int64_t(unsigned)> extent)
    : row(&row) {
  const Equation &equation = row.equation.equation;
  rules::ResolvedOp op = rules::resolve_spelling({row.name.data(), row.name.size()}, "spmd");
  usable = op.row == &row && op.order.empty() && !row.factors && !row.choose && !row.extents &&
           row.from_attr.empty() && equation.operand_count > 0 && !row.each &&
           row.constant == rules::OpDef::Constant::No && !equation.has_generator;
  for (unsigned i = 0; i < equation.operand_count; ++i) {
    const Ref *first = nullptr;
    bool index = false;
    for (unsigned r = 0; r < equation.ref_count; ++r)
      if (equation.refs[r].operand == i) {
        first = first ? first : &equation.refs[r];
        index |= equation.refs[r].role == rules::RefRole::Condition;
      }
    usable &= first->has_dims;
    Dims dims = written(equation, first->first_dim, first->dim_count, extent);
    size_t members = equation.operands[i].list == rules::ListForm::Single ? 1 : 2;
    std::string names = value_names(members, "", operand_of.size());
    for (size_t k = 0; k < members; ++k) {
      inputs += (inputs.empty() ? "" : "; ") + type_of(dims, index);
      operand_of.push_back(i);
    }
    operands += (i ? ", " : "") + (members > 1 ? "[" + names + "]" : names);
  }
  if (!row.placed.empty())
    operands += " { dim = -1 }"; // as it is written
  for (unsigned r = 0; r < equation.result_count; ++r) {
    const rules::Result &result = equation.results[r];
    usable &= result.has_dims && !result.list;
    results.push_back(written(equation, result.first_dim, result.dim_count, extent));
  }
}

std::string RowSample::text() const {
  return fmt::format("{} = {} {}", value_names(results.size(), "r"), row->name, operands);
}

Statement gradient_statement(const Statement &forward, const std::string &inputs,
                             const std::string &op, const std::string &operand,
                             const std::string &rest, size_t input) {
  std::string all = inputs;
  for (size_t k = 0; k < forward.result_count(); ++k)
    all += "; " + type_of(forward.result_dims(k), false);
  std::string gradients = value_names(forward.result_count(), "", forward.arg_count());
  if (forward.result_count() > 1)
    gradients = "[" + gradients + "]";
  return Statement(all, fmt::format("%d = vjp.{}.{} {}, {}", op, operand, gradients, rest),
                   {forward.dims(input)});
}

Residue dot(const Tensor &a, const Tensor &b) {
  Residue sum;
  for (size_t i = 0; i < a.of<Residue>().size(); ++i)
    sum += a.of<Residue>()[i] * b.of<Residue>()[i];
  return sum;
}

void check_adjoint(Statement &forward, Statement &backward, size_t input, std::mt19937 &random,
                   int64_t below) {
  // Operands as the statement has them: the gradients first.
  std::vector<Tensor> args = backward.draw(random, Domain::Field, below);
  auto results = static_cast<ptrdiff_t>(forward.result_count());
  std::vector<Tensor> given(args.begin(), args.begin() + results);
  std::vector<Tensor> own(args.begin() + results, args.end());
  std::vector<Tensor> back = backward.run(args, Domain::Field);
  INFO(backward.problem());
  REQUIRE(back.size() == 1);
  std::vector<Tensor> zero = own;
  for (Residue &cell : zero[input].of<Residue>())
    cell = 0;
  std::vector<Tensor> x = forward.run(own, Domain::Field), base = forward.run(zero, Domain::Field);
  Residue left;
  for (size_t k = 0; k < x.size(); ++k)
    left += dot(x[k], given[k]) - dot(base[k], given[k]);
  CHECK((left == dot(own[input], back[0])));
}

} // namespace spmd::test
