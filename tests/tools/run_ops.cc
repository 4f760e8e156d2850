// Carries out the ops of a program one by one, each on tensors as they are in files: what kernels
// compute, without ranks, types or plans.
//   spmd_run_ops PROGRAM.spmd DIR
//   spmd_run_ops --rows              those rows of functions, reductions, normalisation and losses
//                                    that have numbers
// Inputs and results of the main body are DIR/<name>.npy. An op that cannot be run is one line on
// stdout, `<first result>: why`; ops that need its results are left out. DIR/rows.txt says which
// row each op was.
#include "checker/check.h"
#include "checker/operand_list.h"
#include "ir/input/input.h"
#include "ir/text/text.h"
#include "rules/ops/families.h"
#include "rules/ops/registry.h"
#include "runtime/equation/equation.h"
#include "runtime/equation/evaluate.h"
#include "runtime/inputs/npy.h"
#include "runtime/kernels/kernel.h"

#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/raw_ostream.h"

#include <fmt/core.h>

#include <map>

namespace spmd::runtime {
namespace {

class Runner {
public:
  Runner(ir::Program &program, std::string folder)
      : program_(program), checked_(checker::check(program)), folder_(std::move(folder)) {}

  void run() {
    for (uint32_t i = program_.main.first.index; i < program_.main.last.index; ++i) {
      const ir::Inst inst = program_.insts[ir::InstId{i}];
      if (inst.result_count == 0)
        continue;
      std::string problem = run(inst);
      if (!problem.empty())
        fmt::print("{}: {}\n", name(inst.result(0)), problem);
    }
    std::error_code problem;
    llvm::raw_fd_ostream(folder_ + "/rows.txt", problem) << rows_;
  }

private:
  std::string name(ir::ValueId value) const { return ir::print_value(program_, value).substr(1); }
  std::string path(ir::ValueId value) const { return folder_ + "/" + name(value) + ".npy"; }

  std::string run(const ir::Inst &inst) {
    rules::ResolvedOp op = rules::resolve_spelling(program_.op_name(inst.op), "");
    if (op.form != rules::OpForm::Equation)
      return "is no row of the op table";
    checker::OperandList operands;
    operands.read(program_, inst.operands);
    std::vector<ir::DType> dtypes, result_dtypes;
    std::vector<Dims> dims, result_dims;
    std::vector<TensorBlock> held, result_blocks;
    for (ir::ValueId value : operands.values) {
      const Tensor *tensor = find(value);
      if (!tensor)
        return "an operand is missing";
      dtypes.push_back(tensor->dtype);
      dims.push_back(tensor->dims);
      held.push_back({tensor, tensor->dtype, &tensor->dims});
    }
    std::vector<Tensor> results;
    for (uint32_t r = 0; r < inst.result_count; ++r) {
      ir::ShapeId shape = checked_.shapes[inst.result(r).index];
      if (!shape.valid())
        return "the shape of a result is not known";
      result_dims.emplace_back();
      for (ir::Extent dim : program_.shapes[shape].dims)
        result_dims.back().push_back(dim.number());
      result_dtypes.push_back(program_.shapes[shape].dtype);
      results.push_back(Tensor::make(result_dtypes[r], result_dims[r], Domain::Declared));
    }
    llvm::SmallVector<rules::TensorInfo, 6> args;
    for (ir::ValueId value : operands.values)
      args.push_back({checked_.types[value.index], checked_.shapes[value.index], {}});
    std::vector<rules::ResultClaim> claims(inst.result_count);
    for (const rules::RowUse &use :
         rules::row_uses({program_, op, inst.attrs, inst.context, operands.slots, args, claims}))
      rows_ += fmt::format("{} {}\n", name(inst.result(0)), use.row->name);
    auto ready =
        prepare(program_, op, inst.attrs, operands.slots, dtypes, dims, result_dtypes, result_dims);
    if (!ready)
      return llvm::toString(ready.takeError());
    if (llvm::Error error = (*ready)->run(held, {}, results, Domain::Declared, {}))
      return llvm::toString(std::move(error));
    for (uint32_t r = 0; r < inst.result_count; ++r)
      put(inst.result(r), std::move(results[r]));
    return "";
  }

  const Tensor *find(ir::ValueId value) {
    if (auto at = tensors_.find(value.index); at != tensors_.end())
      return &at->second;
    auto file = llvm::MemoryBuffer::getFile(path(value));
    if (!file)
      return nullptr;
    llvm::Expected<Tensor> tensor = read_npy((*file)->getBuffer());
    if (!tensor) {
      fmt::print("{}: {}\n", name(value), llvm::toString(tensor.takeError()));
      return nullptr;
    }
    return &tensors_.emplace(value.index, std::move(*tensor)).first->second;
  }
  void put(ir::ValueId value, Tensor tensor) {
    std::error_code problem;
    llvm::raw_fd_ostream(path(value), problem) << print_npy(tensor);
    tensors_.emplace(value.index, std::move(tensor));
  }

  ir::Program &program_;
  checker::CheckResult checked_;
  std::string folder_;
  std::string rows_;
  std::map<uint32_t, Tensor> tensors_;
};

void print_rows() {
  for (llvm::ArrayRef<rules::OpDef> family : {rules::pointwise_ops(), rules::reduction_ops(),
                                              rules::normalisation_ops(), rules::loss_ops()})
    for (const rules::OpDef &row : family)
      if (is_value(row) || find_kernel(row.name))
        fmt::print("{}\n", row.name);
}

int run(const char *file, const char *folder) {
  auto text = llvm::MemoryBuffer::getFile(file);
  if (!text) {
    fmt::print(stderr, "{}: {}\n", file, text.getError().message());
    return 2;
  }
  ir::ReadResult read = ir::read_text((*text)->getBuffer());
  for (const ir::InputError &error : read.errors)
    fmt::print(stderr, "{}:{}: {}\n", file, error.line, error.message);
  if (!read.errors.empty())
    return 3;
  Runner(read.program, folder).run();
  return 0;
}

} // namespace
} // namespace spmd::runtime

int main(int argc, char **argv) {
  if (argc == 2 && llvm::StringRef(argv[1]) == "--rows") {
    spmd::runtime::print_rows();
    return 0;
  }
  if (argc != 3) {
    fmt::print(stderr, "usage: spmd_run_ops PROGRAM.spmd DIR\n");
    return 2;
  }
  return spmd::runtime::run(argv[1], argv[2]);
}
