// Kinds as programs write them, the table of known attribute keys, and interning of attributes.
#include "ir/attrs.h"

#include "llvm/ADT/STLExtras.h"

namespace spmd::ir {

namespace {

uint64_t mix_value(uint64_t seed, const AttrValue &value) {
  return mix(mix(seed, static_cast<uint64_t>(value.form)), value.bits);
}

std::optional<WrittenKind> parse_shard(llvm::StringRef number) {
  int dim = 0;
  if (number.getAsInteger(10, dim) || dim < INT8_MIN || dim > INT8_MAX)
    return std::nullopt;
  return WrittenKind{WrittenKind::Form::Shard, Kind::Varying, Combiner::Sum,
                     static_cast<int8_t>(dim)};
}

std::optional<WrittenKind> parse_combiner(llvm::StringRef text) {
  const auto *found = llvm::find(kCombinerWords, std::string_view(text.data(), text.size()));
  if (found == kCombinerWords.end())
    return std::nullopt;
  auto combiner = static_cast<Combiner>(found - kCombinerWords.begin());
  return WrittenKind{WrittenKind::Form::Plain, Kind::Partial, combiner};
}

} // namespace

std::optional<WrittenKind> parse_kind(llvm::StringRef text) {
  if (text == "R|I")
    return WrittenKind{WrittenKind::Form::Either};
  if (text == "?")
    return WrittenKind{WrittenKind::Form::Unknown};
  for (const KindInfo &row : kKinds)
    if (text == llvm::StringRef(row.word.data(), row.word.size()))
      return WrittenKind{WrittenKind::Form::Plain, row.kind};
  if (!text.consume_back(")"))
    return std::nullopt;
  if (text.consume_front("S("))
    return parse_shard(text);
  if (text.consume_front("P("))
    return parse_combiner(text);
  return std::nullopt;
}

std::string print(WrittenKind word) {
  switch (word.form) {
  case WrittenKind::Form::Shard:
    return "S(" + std::to_string(word.dim) + ")";
  case WrittenKind::Form::Either:
    return "R|I";
  case WrittenKind::Form::Unknown:
    return "?";
  case WrittenKind::Form::Plain:
    break;
  }
  std::string text(info(word.kind).word);
  if (word.kind == Kind::Partial && word.combiner != Combiner::Sum)
    text.append("(").append(ir::word(word.combiner)).append(")");
  return text;
}

std::optional<unsigned> known_key(std::string_view key) {
  for (unsigned i = 0; i < std::size(kKnownKeys); ++i)
    if (kKnownKeys[i].key == key)
      return i;
  return std::nullopt;
}

void sort_canonically(AttrDict &dict, const StringTable &names) {
  if (dict.attrs.size() < 2)
    return;
  struct Row {
    size_t place;
    llvm::StringRef key;
    Attr attr;
    bool operator<(const Row &other) const {
      return place != other.place ? place < other.place : key < other.key;
    }
  };
  llvm::SmallVector<Row, 8> rows;
  for (const Attr &attr : dict.attrs) {
    llvm::StringRef key = names[attr.key];
    std::optional<unsigned> known = known_key({key.data(), key.size()});
    rows.push_back({known.value_or(std::size(kKnownKeys)), key, attr});
  }
  llvm::stable_sort(rows);
  for (size_t i = 0; i < rows.size(); ++i)
    dict.attrs[i] = rows[i].attr;
}

uint64_t hash_of(const AttrDict &dict) {
  uint64_t hash = mix(1, dict.attrs.size());
  for (const Attr &attr : dict.attrs)
    hash = mix_value(mix(hash, attr.key.index), attr.value);
  return hash;
}

uint64_t hash_of(const AttrList &list) {
  uint64_t hash = mix(2, list.items.size());
  for (const AttrValue &item : list.items)
    hash = mix_value(hash, item);
  return hash;
}

uint64_t hash_of(const AxisRefs &refs) {
  return hash_bytes(refs.refs.data(), refs.refs.size() * sizeof(AxisRef));
}

uint64_t hash_of(const Claim &claim) {
  return mix(mix(mix(3, claim.type.index), claim.shape.index), claim.global_shape.index);
}

} // namespace spmd::ir
