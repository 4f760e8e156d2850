// Which of several pieces of work are the same one: equal work is done once, and what it makes is
// shared.
#pragma once

#include "ir/support/arrays.h"

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/DenseMap.h"

#include <cstdint>
#include <vector>

namespace spmd::runtime {

// Work is a key: words that say all that it depends on. Tensors are distinguished by their
// addresses, so that no claim of a type is believed: ranks share what they were given by the same
// work, or as the same bits.
class Deduplication {
public:
  // Forgets what was added; keys of `words` words follow.
  void begin(size_t words);
  // The key of the next piece, to be filled in before the one after it is asked for.
  llvm::MutableArrayRef<uint64_t> next();
  // When all are there.
  void end();

  // The pieces that are to be done, in order.
  llvm::ArrayRef<uint32_t> firsts() const { return firsts_; }
  // By piece: the place in firsts() of what does it.
  llvm::ArrayRef<uint32_t> done_by() const { return done_by_; }

private:
  llvm::ArrayRef<uint64_t> key(uint32_t piece) const {
    return ir::as_array(keys_).slice(piece * words_, words_);
  }
  size_t words_ = 0;
  uint32_t count_ = 0;
  std::vector<uint64_t> keys_;
  std::vector<uint32_t> firsts_, done_by_;
  llvm::DenseMap<uint64_t, uint32_t> known_; // by hash: place in firsts_
};

} // namespace spmd::runtime
