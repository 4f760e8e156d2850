// The members of JSON objects, and ids by the text that they were read from: both spare reading a
// text twice.
#pragma once

#include "ir/input/json_cursor.h"
#include "ir/support/store.h"
#include "ir/support/successors.h"

namespace spmd::ir {

// The known members of the object at hand; when it goes, the cursor stands behind the object.
class JsonMembers {
public:
  // Moves to the value of a key; false if the key is absent.
  bool at(unsigned key) const {
    if (values_[key] == JsonCursor::kAbsent || json_.failed())
      return false;
    json_.seek(values_[key]);
    return true;
  }
  bool has(unsigned key) const { return values_[key] != JsonCursor::kAbsent; }
  // The text of a value; empty if the key is absent.
  llvm::StringRef raw(unsigned key) const {
    return has(key) && !json_.failed() ? json_.raw(values_[key], ends_[key]) : llvm::StringRef();
  }
  JsonCursor::Token token() const { return object_; }
  JsonCursor::Token token(unsigned key) const { return has(key) ? values_[key] : object_; }
  // False if the value is no object.
  explicit operator bool() const { return is_object_; }
  bool has_unknown() const { return has_unknown_; } // keys beside those that were asked for

  JsonMembers(const JsonMembers &) = delete;

protected:
  explicit JsonMembers(JsonCursor &json) : json_(json) {}
  JsonCursor &json_;
  const JsonCursor::Token *values_ = nullptr, *ends_ = nullptr; // by key
  JsonCursor::Token object_ = 0;
  bool is_object_ = false, has_unknown_ = false;
};

template <size_t N> class JsonObject : public JsonMembers {
public:
  template <class F>
  JsonObject(JsonCursor &json, const std::array<std::string_view, N> &keys, F &&unknown)
      : JsonMembers(json) {
    values_ = fields_.at.data();
    ends_ = fields_.end.data();
    is_object_ = json.fields(keys, fields_, [&](auto &&...key) {
      has_unknown_ = true;
      unknown(key...);
    });
    object_ = fields_.object;
    end_ = json.at();
  }
  ~JsonObject() { json_.seek(end_); }

private:
  JsonCursor::Fields<N> fields_;
  JsonCursor::Token end_;
};

// Ids by the raw text they were read from.
class RawCache {
public:
  struct Key {
    llvm::StringRef a = {}, b = {}, c = {};
    uint64_t salt = 0; // whatever else the meaning depends on
    friend bool operator==(const Key &x, const Key &y) {
      return x.salt == y.salt && x.a == y.a && x.b == y.b && x.c == y.c;
    }
  };
  std::optional<uint32_t> find(const Key &key) {
    uint32_t at = order_.likely();
    if (at == Successors::kNone || !(entries_[at].key == key))
      at = slot_of(key);
    if (at == IndexTable::kEmpty)
      return std::nullopt;
    order_.meet(at);
    return entries_[at].id;
  }
  void add(const Key &key, uint32_t id) {
    uint32_t &slot = slot_of(key);
    if (slot != IndexTable::kEmpty)
      return;
    slot = static_cast<uint32_t>(entries_.size());
    entries_.push_back({key, id});
    table_.inserted();
    order_.meet(slot);
  }

private:
  struct Entry {
    Key key;
    uint32_t id;
  };
  uint32_t &slot_of(const Key &key) {
    uint64_t hash = mix(hash_bytes(key.a.data(), key.a.size()), key.salt);
    for (llvm::StringRef part : {key.b, key.c})
      hash = part.empty() ? hash : mix(hash, hash_bytes(part.data(), part.size()));
    return table_.find(hash, [&](uint32_t i) { return entries_[i].key == key; });
  }
  Successors order_;
  std::vector<Entry> entries_;
  IndexTable table_;
};

} // namespace spmd::ir
