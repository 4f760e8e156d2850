// The results of instructions without findings, by all that they depend on: checker/README.md, "Two
// caches". Internal to the checker.
#pragma once

#include "ir/support/successors.h"
#include "rules/apply.h"

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/SmallVector.h"

#include <array>
#include <vector>

namespace spmd::checker {

// Equal instructions have equal results: what is kept has no finding, which would name a place.
class InstructionCache {
public:
  static constexpr uint32_t kNone = ~0u;
  struct Entry {
    const rules::Outcome *outcome = nullptr;
    uint64_t silent = 0; // (result, axis) pairs that are unknown
    bool transition = false;
    bool infers = false; // words that it leaves out (Outcome::inferred)
    // Whether what it writes keeps its type, whatever else names the storage.
    enum class Writes : uint8_t { Unasked, Keep, Change } writes = Writes::Unasked;
    uint32_t results = 0, key = 0, key_size = 0; // where they are kept
  };

  explicit InstructionCache(size_t value_count) : known_as_(value_count, kNone) {}

  // Words that two instructions have alike only if rules see the same in both; an even number.
  llvm::SmallVector<uint32_t, 64> &key() { return key_; }

  Entry *find();                                           // that of the key; null if there is none
  void add(Entry entry, llvm::ArrayRef<uint32_t> results); // for the key, which is not there
  llvm::ArrayRef<uint32_t> results(const Entry &entry, uint32_t count) const {
    return llvm::ArrayRef<uint32_t>(results_.data() + entry.results, count);
  }

  // What is known of a value, numbered: equal where it is. None until it is asked for.
  uint32_t number(ir::ValueId value) const { return known_as_[value.index]; }
  uint32_t number_of(ir::ValueId value, const rules::Arg &known);
  const rules::Arg &known(uint32_t number) const { return known_[number]; }
  void set_number(ir::ValueId value, uint32_t number) { known_as_[value.index] = number; }
  void forget_number(ir::ValueId value) { known_as_[value.index] = kNone; }

private:
  uint32_t &slot();
  bool has_key(const Entry &entry) const;

  llvm::SmallVector<uint32_t, 64> key_;
  std::vector<Entry> entries_;
  ir::Successors order_;
  std::vector<uint32_t> results_; // numbers of what is known of them
  std::vector<uint32_t> keys_;
  ir::IndexTable table_;
  std::vector<uint32_t> known_as_; // per value; none until asked
  std::vector<rules::Arg> known_;
  ir::IndexTable numbers_;
};

// Tuples of words, numbered from 0 in the order in which they are met.
template <size_t N> class Tuples {
public:
  using Tuple = std::array<uint32_t, N>;

  uint32_t number(const Tuple &tuple) {
    uint32_t &at = table_.find(ir::hash_bytes(tuple.data(), sizeof tuple),
                               [&](uint32_t i) { return tuples_[i] == tuple; });
    if (at == ir::IndexTable::kEmpty) {
      at = static_cast<uint32_t>(tuples_.size());
      table_.inserted();
      tuples_.push_back(tuple);
    }
    return at;
  }

private:
  std::vector<Tuple> tuples_;
  ir::IndexTable table_;
};

} // namespace spmd::checker
