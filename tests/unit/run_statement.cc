// Reads one statement as a program and evaluates it on the tensors that are given.
#include "tests/unit/run_statement.h"

#include "checker/check.h"
#include "checker/operand_list.h"
#include "ir/input/input.h"
#include "rules/ops/registry.h"
#include "tests/unit/catch.h"

namespace spmd::test {

namespace {

Dims numbers(const ir::Shape &shape) {
  Dims dims;
  for (ir::Extent extent : shape.dims)
    dims.push_back(extent.number());
  return dims;
}

std::string program_text(const std::string &inputs, const std::string &text) {
  std::string made = "trace { mode = local }\nmesh m { tp = 2 }\n";
  llvm::SmallVector<llvm::StringRef, 4> types;
  llvm::StringRef(inputs).split(types, ';', -1, false);
  for (size_t i = 0; i < types.size(); ++i)
    made += "%" + std::to_string(i) + " = input " + types[i].trim().str() + " R\n";
  return made + text + "\n";
}

} // namespace

Statement::Statement(std::string inputs, std::string text, std::vector<Dims> results) {
  INFO(text);
  ir::ReadResult read = ir::read_text(program_text(inputs, text));
  REQUIRE(read.errors.empty());
  program_ = std::make_unique<ir::Program>(std::move(read.program));
  ir::Program &program = *program_;
  const ir::Inst inst = program.insts[ir::InstId{program.main.last.index - 1}];
  rules::Rules rules(program);
  op_ = rules.resolve(inst.op);
  REQUIRE(op_.form == rules::OpForm::Equation);
  checker::OperandList operands;
  operands.read(program, inst.operands);
  llvm::SmallVector<rules::TensorInfo, 4> args;
  for (ir::ValueId value : operands.values) {
    args.push_back({program.values[value].declared, program.values[value].shape, {}});
    const ir::Shape &shape = program.shapes[program.values[value].shape];
    dims_.push_back(numbers(shape));
    dtypes_.push_back(shape.dtype);
  }
  llvm::SmallVector<rules::ResultClaim, 2> claims(inst.result_count);
  for (uint32_t k = 0; k < inst.result_count; ++k)
    claims[k].shape = program.values[inst.result(k)].shape;
  rules::Application app{program, op_, inst.attrs, inst.context, operands.slots, args, claims};
  rules::Outcome outcome = rules.apply(app);
  for (uint32_t k = 0; k < inst.result_count; ++k) {
    bool known = outcome.shapes[k].valid();
    ir::DType fallback = dtypes_.empty() ? ir::DType::F32 : dtypes_[0];
    result_dtypes_.push_back(known ? program.shapes[outcome.shapes[k]].dtype : fallback);
    if (k < results.size()) {
      result_dims_.push_back(results[k]);
    } else {
      REQUIRE(known);
      result_dims_.push_back(numbers(program.shapes[outcome.shapes[k]]));
    }
  }
  llvm::Expected<std::unique_ptr<runtime::PreparedOp>> made = runtime::prepare(
      program, op_, inst.attrs, operands.slots, dtypes_, dims_, result_dtypes_, result_dims_);
  if (made)
    prepared_ = std::move(*made);
  else
    problem_ = llvm::toString(made.takeError());
}

std::vector<Tensor> Statement::draw(std::mt19937 &random, Domain domain, int64_t below) const {
  std::uniform_real_distribution<double> real(-2, 2);
  std::vector<Tensor> args;
  for (size_t i = 0; i < dims_.size(); ++i) {
    Tensor tensor = Tensor::make(dtypes_[i], dims_[i], domain);
    bool whole = ir::info(dtypes_[i]).form == ir::DTypeClass::Integer ||
                 ir::info(dtypes_[i]).form == ir::DTypeClass::Boolean;
    if (ir::info(dtypes_[i]).form == ir::DTypeClass::Boolean)
      below = 2;
    auto number = [&] { return static_cast<int64_t>(random() % static_cast<uint64_t>(below)); };
    tensor.visit([&](auto &cells) {
      using T = typename std::decay_t<decltype(cells)>::value_type;
      for (T &cell : cells)
        if constexpr (std::is_same_v<T, runtime::Residue>)
          cell = whole ? T(number()) : T(static_cast<int64_t>(random() % 2001) - 1000);
        else if constexpr (std::is_same_v<T, double>)
          cell = whole ? static_cast<double>(number()) : real(random);
        else
          cell = T(real(random), real(random));
    });
    round_cells(tensor, domain);
    args.push_back(std::move(tensor));
  }
  return args;
}

std::vector<Tensor> Statement::run(const std::vector<Tensor> &args, Domain domain,
                                   const runtime::Draws &draws) {
  if (!prepared_)
    return {};
  std::vector<runtime::TensorBlock> held;
  for (const Tensor &arg : args)
    held.push_back({&arg, arg.dtype, &arg.dims, nullptr, nullptr});
  std::vector<Tensor> results;
  for (size_t k = 0; k < result_dims_.size(); ++k)
    results.push_back(Tensor::make(result_dtypes_[k], result_dims_[k], domain));
  if (llvm::Error problem = prepared_->run(held, {}, results, domain, draws)) {
    problem_ = llvm::toString(std::move(problem));
    return {};
  }
  return results;
}

} // namespace spmd::test
