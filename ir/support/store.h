// Containers that hand out ids: Store appends, Interner deduplicates, StringTable owns text.
// References into them stay valid only until the next insertion; ids stay valid for ever.
#pragma once

#include "ir/ids.h"
#include "ir/support/check.h"

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Allocator.h"

#include <bit>
#include <cstddef>
#include <cstring>
#include <iterator>
#include <vector>

namespace spmd::ir {

// Mixes one more word into a hash. Stable between processes: results may be printed.
constexpr uint64_t mix(uint64_t seed, uint64_t word) {
  uint64_t x = (seed ^ word) * 0x9E3779B97F4A7C15ull;
  x ^= x >> 32;
  x *= 0xD6E8FEB86659FD93ull;
  return x ^ (x >> 29);
}

// Of bytes, as it is printed and kept: it never changes.
inline uint64_t fingerprint(const void *data, size_t size) {
  const char *at = static_cast<const char *>(data);
  uint64_t seed = mix(0x51ED270B0A1F39C1ull, size);
  for (; size >= 8; at += 8, size -= 8) {
    uint64_t word;
    std::memcpy(&word, at, 8);
    seed = mix(seed, word);
  }
  if (size == 0)
    return seed;
  uint64_t tail = 0;
  std::memcpy(&tail, at, size);
  return mix(seed, tail);
}

// Of bytes, for tables in memory: a multiplication for each eight.
inline uint64_t hash_bytes(const void *data, size_t size) {
  const char *at = static_cast<const char *>(data);
  uint64_t hash = size;
  for (; size >= 8; at += 8, size -= 8) {
    uint64_t word;
    std::memcpy(&word, at, 8);
    hash = (std::rotl(hash, 23) ^ word) * 0x9E37'79B9'7F4A'7C15;
  }
  uint64_t tail = 0;
  if (size != 0)
    std::memcpy(&tail, at, size);
  return mix(hash, tail);
}

// Appends; ids are handed out densely from 0.
template <class IdT> class Store {
public:
  using T = typename IdT::Value;

  IdT add(T value) {
    SPMD_CHECK(!full(), "a store is full");
    items_.push_back(std::move(value));
    return IdT{static_cast<typename IdT::IndexType>(items_.size() - 1)};
  }
  const T &operator[](IdT id) const { return items_[checked(id)]; }
  T &operator[](IdT id) { return items_[checked(id)]; }
  size_t size() const { return items_.size(); }
  bool empty() const { return items_.empty(); }
  // True when no further id exists: what input can fill must be asked before adding.
  bool full() const { return items_.size() >= IdT::kNone; }
  void reserve(size_t n) { items_.reserve(n); }
  // Adds all of them in order, at no cost if the store is empty.
  void append(std::vector<T> &&more) {
    if (items_.empty())
      items_ = std::move(more);
    else
      items_.insert(items_.end(), std::make_move_iterator(more.begin()),
                    std::make_move_iterator(more.end()));
    SPMD_CHECK(items_.size() <= IdT::kNone, "a store is full");
  }
  llvm::ArrayRef<T> all() const { return items_; }
  auto begin() const { return items_.begin(); }
  auto end() const { return items_.end(); }

private:
  size_t checked(IdT id) const {
    SPMD_CHECK(id.index < items_.size(), "id out of range of its store");
    return id.index;
  }
  std::vector<T> items_;
};

// An open-addressing set of indices into storage that somebody else owns.
class IndexTable {
public:
  static constexpr uint32_t kEmpty = ~0u;

  // The slot of an equal entry, or the slot where a new index belongs.
  template <class Equal> uint32_t &find(uint64_t hash, Equal &&equal) {
    if ((count_ + 1) * 4 > slots_.size() * 3)
      grow();
    size_t mask = slots_.size() - 1;
    for (size_t at = hash & mask;; at = (at + 1) & mask) {
      Slot &slot = slots_[at];
      if (slot.index == kEmpty) {
        slot.hash = hash;
        return slot.index;
      }
      if (slot.hash == hash && equal(slot.index))
        return slot.index;
    }
  }
  // To be called once after an empty slot was filled.
  void inserted() { ++count_; }

private:
  struct Slot {
    uint64_t hash = 0;
    uint32_t index = kEmpty;
  };
  void grow() {
    std::vector<Slot> old(slots_.empty() ? 64 : slots_.size() * 2);
    old.swap(slots_);
    for (const Slot &slot : old) {
      if (slot.index == kEmpty)
        continue;
      size_t at = slot.hash & (slots_.size() - 1);
      while (slots_[at].index != kEmpty)
        at = (at + 1) & (slots_.size() - 1);
      slots_[at] = slot;
    }
  }
  std::vector<Slot> slots_;
  size_t count_ = 0;
};

// Equal values get equal ids. T needs operator== and a function hash_of(const T &) found by name.
template <class IdT> class Interner {
public:
  using T = typename IdT::Value;

  IdT add(T value) {
    uint64_t hash = hash_of(value);
    uint32_t &slot = table_.find(hash, [&](uint32_t i) { return items_[i] == value; });
    if (slot == IndexTable::kEmpty) {
      SPMD_CHECK(!full(), "an interner is full");
      slot = static_cast<uint32_t>(items_.size());
      items_.push_back(std::move(value));
      IdT id{static_cast<typename IdT::IndexType>(slot)};
      table_.inserted();
      return id;
    }
    return IdT{static_cast<typename IdT::IndexType>(slot)};
  }
  const T &operator[](IdT id) const {
    SPMD_CHECK(id.index < items_.size(), "id out of range of its interner");
    return items_[id.index];
  }
  size_t size() const { return items_.size(); }
  // As of a store.
  bool full() const { return items_.size() >= IdT::kNone; }

private:
  std::vector<T> items_;
  IndexTable table_;
};

// Interned text; views stay valid as long as the table.
class StringTable {
public:
  StringId add(llvm::StringRef text) {
    uint64_t hash = hash_bytes(text.data(), text.size());
    uint32_t &slot = table_.find(hash, [&](uint32_t i) { return items_[i] == text; });
    if (slot == IndexTable::kEmpty) {
      slot = static_cast<uint32_t>(items_.size());
      items_.push_back(text.copy(arena_));
      StringId id{slot};
      table_.inserted();
      return id;
    }
    return StringId{slot};
  }
  llvm::StringRef operator[](StringId id) const {
    SPMD_CHECK(id.index < items_.size(), "string id out of range");
    return items_[id.index];
  }
  size_t size() const { return items_.size(); }

private:
  std::vector<llvm::StringRef> items_;
  IndexTable table_;
  llvm::BumpPtrAllocator arena_;
};

// Lists of small plain values in one flat array. Not interned: lists of operands hardly ever
// repeat, and looking for those that do costs more than they do. The empty list is always 0.
template <class IdT, class Item> class ListStore {
public:
  IdT add(llvm::ArrayRef<Item> list) {
    if (list.empty())
      return IdT{0};
    SPMD_CHECK(ends_.size() < IdT::kNone, "a store of lists is full");
    items_.insert(items_.end(), list.begin(), list.end());
    ends_.push_back(items_.size());
    return IdT{static_cast<typename IdT::IndexType>(ends_.size() - 1)};
  }
  llvm::ArrayRef<Item> operator[](IdT id) const {
    SPMD_CHECK(id.index < ends_.size(), "list id out of range");
    size_t first = id.index == 0 ? 0 : ends_[id.index - 1];
    return llvm::ArrayRef<Item>(items_.data() + first, ends_[id.index] - first);
  }
  size_t size() const { return ends_.size(); }

private:
  std::vector<Item> items_;
  std::vector<size_t> ends_ = {0};
};

} // namespace spmd::ir
