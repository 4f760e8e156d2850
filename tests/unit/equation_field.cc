// What equations do on residues: whatever is left open is a fixed choice that respects what types
// claim, for every row of the op table as its equation is written.
#include "runtime/equation/equation.h"

#include "rules/derivative.h"
#include "rules/ops/registry.h"
#include "tests/unit/catch.h"
#include "tests/unit/row_sample.h"

namespace spmd::test {
namespace {

using rules::Equation;
using rules::Ref;
using rules::RefRole;
using runtime::Residue;

// The operand enters each term at most once, never inside f, as a value.
bool is_linear(const Equation &equation, unsigned operand) {
  bool linear = true;
  for (unsigned t = 0; t < equation.term_count; ++t) {
    unsigned mentions = 0;
    for (unsigned a = 0; a < equation.terms[t].atom_count; ++a) {
      const rules::Atom &atom = equation.atoms[equation.terms[t].first_atom + a];
      for (unsigned r = 0; atom.form != rules::Atom::Form::Integer && r < atom.count; ++r) {
        const Ref &ref = equation.refs[atom.first + r];
        if (ref.operand != operand)
          continue;
        ++mentions;
        linear &= atom.form == rules::Atom::Form::Ref && ref.role == RefRole::Value;
      }
    }
    linear &= mentions <= 1;
  }
  return linear;
}

// The row's value in the field is that of its equation.
bool by_equation(const rules::OpDef &row) {
  const runtime::KernelDef *kernel = runtime::find_kernel(row.name);
  return !kernel || !kernel->modular;
}

constexpr int64_t kExtent = 3;

template <class Visit> void each_sample(Visit visit) {
  for (llvm::ArrayRef<rules::OpDef> family : rules::op_families())
    for (const rules::OpDef &row : family)
      if (RowSample sample(row, [](unsigned) { return kExtent; });
          sample.usable && by_equation(row))
        visit(sample);
}

} // namespace

TEST_CASE("rows without a kernel for residues run by their equations") {
  unsigned count = 0;
  each_sample([&](const RowSample &sample) {
    INFO(sample.row->name << "  " << sample.row->equation.equation.text);
    Statement statement(sample.inputs, sample.text(), sample.results);
    std::mt19937 random(5);
    std::vector<Tensor> args = statement.draw(random, Domain::Field, kExtent);
    std::vector<Tensor> once = statement.run(args, Domain::Field);
    INFO(statement.problem());
    REQUIRE(once.size() == sample.results.size());
    CHECK(once == statement.run(args, Domain::Field));
    ++count;
  });
  CHECK(count > 150);
}

// Sums of what ranks hold go through what is linear.
TEST_CASE("rows are linear where their equations are") {
  unsigned count = 0;
  each_sample([&](const RowSample &sample) {
    const Equation &equation = sample.row->equation.equation;
    INFO(sample.row->name << "  " << equation.text);
    Statement statement(sample.inputs, sample.text(), sample.results);
    std::mt19937 random(6);
    for (size_t i = 0; i < sample.operand_of.size(); ++i) {
      if (!is_linear(equation, sample.operand_of[i]))
        continue;
      std::vector<Tensor> args = statement.draw(random, Domain::Field, kExtent);
      std::vector<Tensor> other = args, both = args, none = args;
      other[i] = statement.draw(random, Domain::Field, kExtent)[i];
      for (size_t e = 0; e < both[i].of<Residue>().size(); ++e) {
        both[i].of<Residue>()[e] += other[i].of<Residue>()[e];
        none[i].of<Residue>()[e] = 0;
      }
      std::vector<Tensor> x = statement.run(args, Domain::Field),
                          y = statement.run(other, Domain::Field),
                          sum = statement.run(both, Domain::Field),
                          zero = statement.run(none, Domain::Field);
      for (size_t k = 0; k < sum.size(); ++k)
        for (size_t e = 0; e < sum[k].of<Residue>().size(); ++e)
          REQUIRE((sum[k].of<Residue>()[e] + zero[k].of<Residue>()[e] ==
                   x[k].of<Residue>()[e] + y[k].of<Residue>()[e]));
      ++count;
    }
  });
  CHECK(count > 100);
}

// <A x, y> = <x, A* y>: the gradient of a linear operand is the transpose of the very same map.
TEST_CASE("derived rows are adjoint to their rows") {
  unsigned count = 0;
  each_sample([&](const RowSample &sample) {
    const rules::OpDef &row = *sample.row;
    const Equation &equation = row.equation.equation;
    INFO(row.name << "  " << equation.text);
    Statement forward(sample.inputs, sample.text(), sample.results);
    std::mt19937 random(8);
    for (size_t i = 0; i < sample.operand_of.size(); ++i) {
      unsigned operand = sample.operand_of[i];
      const rules::OpDef *derived = rules::derivative(row, operand);
      if (!derived || equation.operands[operand].list != rules::ListForm::Single)
        continue;
      INFO(derived->equation.equation.text);
      Statement backward =
          gradient_statement(forward, sample.inputs, std::string(row.name),
                             std::string(equation.operands[operand].name), sample.operands, i);
      if (is_linear(equation, operand)) {
        check_adjoint(forward, backward, i, random, kExtent);
        ++count;
        continue;
      }
      std::vector<Tensor> back =
          backward.run(backward.draw(random, Domain::Field, kExtent), Domain::Field);
      INFO(backward.problem());
      CHECK(back.size() == 1);
    }
  });
  CHECK(count > 100);
}

TEST_CASE("f sees all of a whole dimension, and where along it a result stands") {
  Statement softmax("f32[2, 5]", "%r = softmax %0 { dim = 1 }");
  std::mt19937 random(1);
  std::vector<Tensor> args = softmax.draw(random, Domain::Field);
  std::vector<Residue> before = softmax.run(args, Domain::Field)[0].of<Residue>();
  args[0].of<Residue>()[7] += 1; // in the second row
  std::vector<Residue> after = softmax.run(args, Domain::Field)[0].of<Residue>();
  for (size_t i = 0; i < 10; ++i)
    CHECK((before[i] == after[i]) == (i < 5));
  // Equal rows give equal results, and the positions of one row different ones.
  for (size_t i = 0; i < 5; ++i)
    args[0].of<Residue>()[i] = args[0].of<Residue>()[5 + i] = 4;
  after = softmax.run(args, Domain::Field)[0].of<Residue>();
  for (size_t i = 0; i < 5; ++i)
    CHECK((after[i] == after[5 + i]));
  CHECK(!(after[0] == after[1]));
}

TEST_CASE("large linear maps are sparse but miss no place") {
  Statement scan("f32[2, 300]", "%r = trapezoid %0 { dim = 1 }", {{2}});
  std::mt19937 random(1);
  std::vector<Tensor> args = scan.draw(random, Domain::Field);
  std::vector<Tensor> before = scan.run(args, Domain::Field);
  INFO(scan.problem());
  REQUIRE(before.size() == 1);
  for (size_t i = 0; i < 300; ++i) {
    std::vector<Tensor> other = args;
    other[0].of<Residue>()[i] += 1;
    CHECK(!(scan.run(other, Domain::Field)[0].of<Residue>()[0] == before[0].of<Residue>()[0]));
  }
}

TEST_CASE("rows whose dimensions are not known are some map of all elements") {
  Statement diagonal("f32[3]; f32[3]", "%r = function [%0, %1]", {{2, 2}});
  std::mt19937 random(1);
  std::vector<Tensor> args = diagonal.draw(random, Domain::Field);
  std::vector<Tensor> before = diagonal.run(args, Domain::Field);
  INFO(diagonal.problem());
  REQUIRE(before.size() == 1);
  args[1].of<Residue>()[2] += 1;
  std::vector<Tensor> after = diagonal.run(args, Domain::Field);
  for (size_t i = 0; i < 4; ++i)
    CHECK(!(before[0].of<Residue>()[i] == after[0].of<Residue>()[i]));
}

TEST_CASE("a mean divides by the local extent") {
  Statement mean("f32[4]", "%r = mean %0");
  std::mt19937 random(1);
  std::vector<Tensor> args = mean.draw(random, Domain::Field);
  Residue sum;
  for (Residue each : args[0].of<Residue>())
    sum += each;
  std::vector<Tensor> result = mean.run(args, Domain::Field);
  REQUIRE(result.size() == 1);
  CHECK((result[0].of<Residue>()[0] * Residue(4) == sum));
}

TEST_CASE("indices into a block are positions in the whole") {
  Statement embedding("f32[3, 2]; i64[4]", "%r = embedding_masked %0, %1");
  std::mt19937 random(1);
  for (Domain domain : {Domain::F64, Domain::Field}) {
    std::vector<Tensor> args = embedding.draw(random, domain);
    const int64_t ids[] = {3, 5, 2, 0};
    for (size_t i = 0; i < 4; ++i)
      args[1].visit([&](auto &cells) { cells[i] = static_cast<double>(ids[i]); });
    Dims first{3, 0}, whole{6, 2};
    std::vector<runtime::TensorBlock> held = {
        {&args[0], ir::DType::F32, &args[0].dims, &first, &whole},
        {&args[1], ir::DType::I64, &args[1].dims, nullptr, nullptr}};
    std::vector<Tensor> result = {Tensor::make(ir::DType::F32, {4, 2}, domain)};
    REQUIRE(!embedding.prepared()->run(held, {}, result, domain, {}));
    result[0].visit([&](auto &got) {
      using T = typename std::decay_t<decltype(got)>::value_type;
      const std::vector<T> &table = args[0].of<T>();
      CHECK((got[0] == table[0]));
      CHECK((got[3] == table[5]));
      CHECK((got[4] == T(0)));
      CHECK((got[6] == T(0)));
    });
  }
}

} // namespace spmd::test
