// Which operands say lengths, by their names; and which symbols stand for what they say.
#include "runtime/plan/tensor_sizes.h"

#include "checker/operand_list.h"

#include "llvm/ADT/STLExtras.h"

namespace spmd::runtime {
namespace {

bool takes_sizes(const ir::Program &program, const checker::OperandList &operands) {
  return llvm::any_of(operands.slots, [&](const rules::Slot &slot) {
    if (!slot.name.valid() || slot.count == 0)
      return false;
    llvm::StringRef name = program.strings[slot.name];
    return name == "in_splits" || name == "out_splits" || name == "splits";
  });
}

void add_symbols(const ir::Program &program, ir::Extent extent, llvm::DenseSet<uint32_t> &into) {
  if (extent.is_number())
    return;
  const ir::Expr &expr = program.exprs[extent.expr()];
  if (expr.form == ir::Expr::Form::Symbol) {
    into.insert(expr.symbol.index);
    return;
  }
  add_symbols(program, expr.left, into);
  add_symbols(program, expr.right, into);
}

void add_symbols(const ir::Program &program, ir::ValueId value, llvm::DenseSet<uint32_t> &into) {
  if (ir::ShapeId shape = program.values[value].shape; shape.valid())
    for (ir::Extent extent : program.shapes[shape].dims)
      add_symbols(program, extent, into);
}

} // namespace

bool has_tensor_sizes(const ir::Program &program) {
  checker::OperandList operands;
  return llvm::any_of(program.insts.all(), [&](const ir::Inst &inst) {
    operands.read(program, inst.operands);
    return takes_sizes(program, operands);
  });
}

llvm::DenseSet<uint32_t> data_symbols(const ir::Program &program) {
  llvm::DenseSet<uint32_t> symbols;
  checker::OperandList operands;
  for (const ir::Inst &inst : program.insts.all()) {
    operands.read(program, inst.operands);
    if (!takes_sizes(program, operands))
      continue;
    llvm::DenseSet<uint32_t> had, has;
    for (ir::ValueId value : operands.values)
      add_symbols(program, value, had);
    for (uint32_t r = 0; r < inst.result_count; ++r)
      add_symbols(program, inst.result(r), has);
    for (uint32_t symbol : has)
      if (!had.contains(symbol))
        symbols.insert(symbol);
  }
  return symbols;
}

} // namespace spmd::runtime
