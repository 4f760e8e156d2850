// Commands that become one with a later one, which alone reads what they make: a chain of functions
// of elements goes through memory once, and copies go into what reads them. Results keep their
// bits.
#pragma once

#include "runtime/device/memory_access.h"

#include "llvm/ADT/DenseMap.h"

#include <map>

namespace spmd::runtime {

// A tensor on the device. While it holds something, no other one does that has some of its bytes.
struct DeviceTensor {
  uint32_t id = 0;
  Bytes bytes;
};

// Of one step.
struct FusedStep {
  std::vector<Command> commands;        // in the place of its own; none: others do its work
  llvm::SmallVector<uint32_t, 4> fused; // steps whose work it does, in part at least
};

// Steps that follow one another, with no branch or loop between them.
class Fusion {
public:
  // `scratch`: holds nothing from one step to the next.
  explicit Fusion(Bytes scratch) : scratch_(scratch) {}

  // In the order in which they go on.
  void add(uint32_t step, llvm::ArrayRef<Command> commands, llvm::ArrayRef<DeviceTensor> reads,
           llvm::ArrayRef<DeviceTensor> writes);
  // What is no command; it may use the scratch.
  void add_other(uint32_t step, llvm::ArrayRef<DeviceTensor> reads,
                 llvm::ArrayRef<DeviceTensor> writes);
  // Nobody reads it from now on.
  void end(uint32_t id) { tensors_[id].ends = true; }

  // The steps that are not what they were.
  std::map<uint32_t, FusedStep> run();

private:
  struct Item {
    uint32_t step = 0;
    std::optional<Command> command; // none: something else, or it is part of another one
    llvm::SmallVector<DeviceTensor, 4> reads, writes; // of the tensors that it does read and write
    llvm::SmallVector<uint32_t, 4> fused;
  };
  struct Users {
    std::vector<uint32_t> items; // in order
    bool ends = false;
  };
  struct FusedReader {
    uint32_t item;
    Command command;
  };

  static bool may_write(const Item &item, Bytes bytes);
  struct StepTensors {
    llvm::ArrayRef<DeviceTensor> reads, writes;
    llvm::ArrayRef<DeviceTensor> written; // of `writes`, by what came before
  };
  void note_bytes(Item &item, StepTensors of, llvm::SmallVectorImpl<DeviceTensor> &between);
  void note(uint32_t item);
  std::optional<std::vector<uint32_t>> readers_of(uint32_t item) const;
  bool stays(uint32_t item, uint32_t reader) const;
  void fuse(uint32_t item);
  void commit(uint32_t item, llvm::ArrayRef<FusedReader> readers);

  Bytes scratch_;
  std::vector<Item> items_;
  llvm::DenseMap<uint32_t, Users> tensors_;
  uint32_t next_scratch_ = ~0u - 8; // ids of what lies in the scratch
  std::vector<uint32_t> changed_;   // steps
};

} // namespace spmd::runtime
