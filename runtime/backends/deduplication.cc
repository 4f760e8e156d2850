// Keys that meet under one hash are compared word by word; where they differ, nothing is shared.
#include "runtime/backends/deduplication.h"

#include "ir/support/store.h"

namespace spmd::runtime {

void Deduplication::begin(size_t words) {
  words_ = words;
  count_ = 0;
  keys_.clear();
}

llvm::MutableArrayRef<uint64_t> Deduplication::next() {
  ++count_;
  keys_.resize(count_ * words_);
  return llvm::MutableArrayRef(keys_.data(), keys_.size()).take_back(words_);
}

void Deduplication::end() {
  firsts_.clear();
  done_by_.clear();
  known_.clear();
  for (uint32_t piece = 0; piece < count_; ++piece) {
    uint64_t hash = 0;
    for (uint64_t word : key(piece))
      hash = ir::mix(hash, word);
    hash >>= 1; // the largest numbers stand for empty slots of the map
    auto place = static_cast<uint32_t>(firsts_.size());
    auto [known, is_new] = known_.try_emplace(hash, place);
    if (!is_new && key(firsts_[known->second]) == key(piece)) {
      done_by_.push_back(known->second);
      continue;
    }
    firsts_.push_back(piece);
    done_by_.push_back(place);
  }
}

} // namespace spmd::runtime
