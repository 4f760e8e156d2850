// Steps on the tensors of the cpu backend: local steps of one rank, collectives of one group.
#pragma once

#include "runtime/backends/cpu/tensors.h"

#include "llvm/ADT/STLFunctionalExtras.h"

namespace spmd::runtime {

// The position of this rank among the ranks of a group: what a local step knows of where it is.
struct GroupPosition {
  uint32_t position = 0;
  llvm::ArrayRef<int64_t> lengths; // of the pieces, by position; empty if the local step has none
};
// `result` has its extents and is zero, or anything where the form writes every element.
void run_local_step(const LocalStep &local, GroupPosition at,
                    llvm::ArrayRef<const Tensor *> operands, Tensor &result, Domain domain);

// Forms that do no more than move the elements of their only operand.
constexpr bool moves_elements(LocalStepForm form) {
  switch (form) {
  case LocalStepForm::Copy:
  case LocalStepForm::Receive:
  case LocalStepForm::TakeOwnSlice:
  case LocalStepForm::PlaceOwn:
  case LocalStepForm::KeepOnRoot:
  case LocalStepForm::Split:
  case LocalStepForm::Join:
  case LocalStepForm::TakeRow:
    return true;
  default:
    return false;
  }
}
// These, of packed elements of so many bytes; the same type on both sides.
void move_packed(const LocalStep &local, GroupPosition at, size_t bytes,
                 const BufferTensor &operand, BufferTensor &result);

// What the ranks of one group send, by position. `counts`: the elements that a rank sends to, gets
// from, or keeps for each position (Communicate::counts); empty lists: all pieces are as long.
struct GroupTensors {
  llvm::SmallVector<SharedTensor, 8> operands;
  llvm::SmallVector<llvm::ArrayRef<int64_t>, 8> counts;
  llvm::ArrayRef<int64_t> perm; // pairs of positions, from and to
};
// Fills in `results` by position; the members share what all of them get, and what is handed on.
// `fresh`: a tensor of the extents of the result at a position.
void run_collective(const Communicate &collective, const GroupTensors &group, Domain domain,
                    llvm::MutableArrayRef<SharedTensor> results,
                    llvm::function_ref<SharedTensor(size_t, BufferTensors::Content)> fresh);

// What an all_reduce makes of parts of as many elements as `result` has, in their order. Parts and
// result are packed, or else cells.
void reduce_in_order(const Communicate &collective, llvm::ArrayRef<const char *> parts, bool packed,
                     Domain domain, BufferTensor &result);

} // namespace spmd::runtime
