// Which bytes of a device a command reads and writes.
#pragma once

#include "runtime/kernels/composed/commands.h"

namespace spmd::runtime {

// Bytes [first, last) of a device.
struct Bytes {
  SpmdAddress first = 0, last = 0;
  bool meets(Bytes other) const { return first < other.last && other.first < last; }
  bool within(Bytes other) const { return other.first <= first && last <= other.last; }
};

// Sorts and scatters: only their steps say what they read and write.
bool accesses_listed_by_step(const Command &command);
// All that another command may read, and all that it may write. Of a loop nest: by array, those
// that `adds` reads last.
llvm::SmallVector<Bytes, 8> bytes_read(const Command &command);
Bytes bytes_written(const Command &command);
// So many bytes go to and from memory, where what is met again in a loop is read once.
uint64_t traffic(const Command &command);
// How often the innermost of it is done.
int64_t iterations(const Command &command);
// How many elements it writes.
int64_t results(const Command &command);
// From `data` on, so far as the loops go; none where one of them has no iterations.
Bytes span_of(SpmdAddress data, uint32_t bytes, llvm::ArrayRef<int64_t> extents,
              llvm::ArrayRef<int64_t> strides);
// Whether iterations may run in any order: what is written over is read in that very iteration, if
// at all.
bool may_be_in_place(const Command &command);

} // namespace spmd::runtime
