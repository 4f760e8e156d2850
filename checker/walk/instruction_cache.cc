// Keys and results of instructions, found by their hash.
#include "checker/walk/instruction_cache.h"

#include <cstring>

namespace spmd::checker {

using ir::ValueId;

namespace {

uint64_t two_words(const uint32_t *at) {
  uint64_t both;
  std::memcpy(&both, at, sizeof both);
  return both;
}

// Keys are compared at every instruction: two words at a time. `size` is even.
bool equal_keys(const uint32_t *a, const uint32_t *b, size_t size) {
  uint64_t differ = 0;
  for (const uint32_t *end = a + size; a != end; a += 2, b += 2)
    differ |= two_words(a) ^ two_words(b);
  return differ == 0;
}

} // namespace

bool InstructionCache::has_key(const Entry &entry) const {
  return entry.key_size == key_.size() &&
         equal_keys(key_.data(), keys_.data() + entry.key, key_.size());
}

uint32_t &InstructionCache::slot() {
  return table_.find(ir::hash_bytes(key_.data(), key_.size() * sizeof(uint32_t)),
                     [&](uint32_t i) { return has_key(entries_[i]); });
}

InstructionCache::Entry *InstructionCache::find() {
  uint32_t at = order_.likely();
  if (at == ir::Successors::kNone || !has_key(entries_[at]))
    at = slot();
  if (at == ir::IndexTable::kEmpty)
    return nullptr;
  order_.meet(at);
  return &entries_[at];
}

void InstructionCache::add(Entry entry, llvm::ArrayRef<uint32_t> results) {
  const auto index = static_cast<uint32_t>(entries_.size());
  slot() = index;
  table_.inserted();
  entry.key = static_cast<uint32_t>(keys_.size());
  entry.key_size = static_cast<uint32_t>(key_.size());
  keys_.insert(keys_.end(), key_.begin(), key_.end());
  entry.results = static_cast<uint32_t>(results_.size());
  results_.insert(results_.end(), results.begin(), results.end());
  entries_.push_back(entry);
  order_.meet(index);
}

uint32_t InstructionCache::number_of(ValueId value, const rules::Arg &known) {
  uint64_t hash = ir::mix(ir::mix(known.type.index, known.shape.index), known.sizes.index);
  uint32_t &at = numbers_.find(hash, [&](uint32_t i) { return known_[i] == known; });
  if (at == ir::IndexTable::kEmpty) {
    at = static_cast<uint32_t>(known_.size());
    numbers_.inserted();
    known_.push_back(known);
  }
  return known_as_[value.index] = at;
}

} // namespace spmd::checker
