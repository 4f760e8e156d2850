// Names of one storage: which elements of it a view shows, and what is there after writes through
// other views. In single-assignment form a write gives a new value, and `alias` derives older names
// again.
#pragma once

#include "runtime/reference/reference.h"

#include "llvm/ADT/STLFunctionalExtras.h"

#include <functional>

namespace spmd::runtime {

class Storage {
public:
  Storage(Reference &reference, BodySite site);

  // A value as the sum of what linear maps take from others.
  struct View {
    std::vector<ir::ValueId> of;
    std::vector<std::function<llvm::Expected<Meaning>(const Meaning &)>> maps;
  };
  // What `alias new, old` gives: the storage as the writes before it left it, seen as `old` sees
  // it.
  llvm::Expected<View> derive(ir::InstId alias,
                              llvm::function_ref<const Meaning *(ir::ValueId)> meaning);

private:
  // For each element of the value, which element of the root it is, counted from 1.
  llvm::Expected<Meaning> element_numbers(ir::ValueId value,
                                          llvm::function_ref<const Meaning *(ir::ValueId)> meaning);
  ir::ValueId root(ir::ValueId value) const;
  ir::InstId made_by(ir::ValueId value) const;

  ir::Program &program_;
  BodySite site_;
  Reference numbering_; // views of element numbers
};

// True if the instruction writes an operand in place, and this result of it is the new value.
bool is_write(const ir::Program &program, const ir::Inst &inst, ir::ValueId result);

} // namespace spmd::runtime
