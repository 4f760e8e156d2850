// A program without calls: bodies of functions, checkpoints and local regions stand where they were
// called, each loop and branch has a body of its own, and views that a write to their base overtook
// are taken again. What follows from a program instruction by instruction (its backward, a plan)
// starts from this.
#pragma once

#include "ir/program.h"

#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/STLFunctionalExtras.h"

#include <string>
#include <vector>

namespace spmd::checker {

// The name of one of our own ops, whatever dialect the program is in.
ir::OpNameId spmd_op(ir::Program &program, llvm::StringRef name);

// The program must be checked and clean: calls fit their functions. Opaque functions stay called.
void inline_calls(ir::Program &program);

// Writes of the main body that nobody outside can see give new values instead, so that what they
// overtook can still be read: a backward reads it. Parameters and buffers stay written in place,
// and so does all where views of what was written through other views are taken.
void functionalize(ir::Program &program);

// Copies instructions of a program into other bodies of the same program, with values of their own.
class BodyCopier {
public:
  explicit BodyCopier(ir::Program &program);

  // What a value of the copied body is in the copy; itself if it was not replaced.
  ir::ValueId operator()(ir::ValueId value) const;
  void replace(ir::ValueId value, ir::ValueId by);
  // A new value like `value`, of the same name if that is free, else of a similar one.
  ir::ValueId copy(ir::ValueId value);
  ir::Operand operator()(const ir::Operand &operand);
  ir::OperandsId operator()(ir::OperandsId block);
  // Results are copied, operands replaced; `local`: axes that are local besides those of its
  // context.
  ir::Inst copy(const ir::Inst &inst, ir::AxisSet local);
  // A name that no value of the program has.
  ir::ValueName fresh_name(std::string stem);

private:
  ir::Program &program_;
  llvm::DenseMap<uint32_t, ir::ValueId> values_;
  llvm::DenseMap<uint32_t, uint32_t> names_; // taken ones; how often their stem was
};

// Replaces the instructions of the main body, and puts those of new functions before it. `from`:
// per instruction, the old one that suppressions and expectations of the program speak of; none for
// new ones.
struct NewBody {
  std::vector<ir::Inst> insts;
  std::vector<uint64_t> origins;
  std::vector<ir::InstId> from;

  void add(const ir::Inst &inst, uint64_t origin, ir::InstId old = {});
};
void replace_main(ir::Program &program, NewBody main);
// Puts what `emit` makes of an instruction in its place, in all bodies. What the program says of
// the instruction holds of the last one then.
void replace_each(
    ir::Program &program,
    llvm::function_ref<void(const ir::Inst &, ir::InstId, std::vector<ir::Inst> &)> emit);
// Adds the body of a function in front of the main body.
ir::Body insert_body(ir::Program &program, NewBody body);

} // namespace spmd::checker
