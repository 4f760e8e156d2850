// Attributes of operations: interned dictionaries of typed values.
// A known key has one form whatever the reader (axis names, kinds, whole types, ...), so that text
// and JSON give the same attributes; any other key keeps the plain value.
#pragma once

#include "ir/ids.h"
#include "ir/kind.h"
#include "ir/support/store.h"

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/SmallVector.h"

#include <bit>
#include <optional>
#include <string_view>

namespace spmd::ir {

// A kind as programs write it: one of the kinds, S(i), R|I or `?`.
struct WrittenKind {
  enum class Form : uint8_t { Plain, Shard, Either, Unknown };
  Form form = Form::Plain;
  Kind kind = Kind::Replicate;       // Plain; Shard has Varying
  Combiner combiner = Combiner::Sum; // Plain Partial
  int8_t dim = 0;                    // Shard; negative counts from the end
  friend bool operator==(const WrittenKind &, const WrittenKind &) = default;
};
// `R`, `P(max)`, `S(-1)`, `R|I`, `?`; none if it is no kind.
std::optional<WrittenKind> parse_kind(llvm::StringRef text);
std::string print(WrittenKind kind);

// An axis as written: a name of the current mesh, or of another one (`dense.dp`).
struct AxisRef {
  StringId mesh; // none: the current mesh
  StringId axis;
  friend bool operator==(const AxisRef &, const AxisRef &) = default;
};

enum class AttrForm : uint8_t {
  Null,
  Bool,
  Integer,
  Float,
  String,
  Expr,
  List,
  Dict,
  Kind,
  Axes,
  Scale,
  Claim,
  Function,
  Value,
};

// One attribute value; `bits` holds the scalar or the id that `form` names.
struct AttrValue {
  AttrForm form = AttrForm::Null;
  uint64_t bits = 0;

  static AttrValue null() { return {}; }
  static AttrValue boolean(bool v) { return {AttrForm::Bool, v}; }
  static AttrValue integer(int64_t v) { return {AttrForm::Integer, static_cast<uint64_t>(v)}; }
  static AttrValue number(double v) { return {AttrForm::Float, std::bit_cast<uint64_t>(v)}; }
  static AttrValue string(StringId v) { return {AttrForm::String, v.index}; }
  static AttrValue expr(ExprId v) { return {AttrForm::Expr, v.index}; }
  static AttrValue list(AttrListId v) { return {AttrForm::List, v.index}; }
  static AttrValue dict(AttrsId v) { return {AttrForm::Dict, v.index}; }
  static AttrValue kind(WrittenKind v) {
    return {AttrForm::Kind, uint64_t(v.form) | uint64_t(v.kind) << 8 | uint64_t(v.combiner) << 16 |
                                uint64_t(uint8_t(v.dim)) << 24};
  }
  static AttrValue axes(AxisRefsId v) { return {AttrForm::Axes, v.index}; }
  static AttrValue scale(ScaleId v) { return {AttrForm::Scale, v.index}; }
  static AttrValue claim(ClaimId v) { return {AttrForm::Claim, v.index}; }
  static AttrValue function(FunctionId v) { return {AttrForm::Function, v.index}; }
  static AttrValue value(ValueId v) { return {AttrForm::Value, v.index}; }

  bool as_bool() const { return bits != 0; }
  int64_t as_integer() const { return static_cast<int64_t>(bits); }
  double as_number() const { return std::bit_cast<double>(bits); }
  WrittenKind as_kind() const {
    return {WrittenKind::Form(bits & 0xFF), Kind(bits >> 8 & 0xFF), Combiner(bits >> 16 & 0xFF),
            static_cast<int8_t>(bits >> 24 & 0xFF)};
  }
  template <class IdT> IdT as() const { return IdT{static_cast<typename IdT::IndexType>(bits)}; }
  friend bool operator==(const AttrValue &, const AttrValue &) = default;
};

struct Attr {
  StringId key;
  AttrValue value;
  friend bool operator==(const Attr &, const Attr &) = default;
};

// What form a known key asks for; the order of the rows is the order in which keys are printed.
enum class KeyForm : uint8_t { Axes, Word, Kinds, Type, ClaimList, Claim, Scale, Plain };
struct KnownKey {
  std::string_view key;
  KeyForm form;
};
inline constexpr KnownKey kKnownKeys[] = {
    {"axis", KeyForm::Axes},  {"mesh", KeyForm::Word},          {"group", KeyForm::Plain},
    {"op", KeyForm::Word},    {"src", KeyForm::Kinds},          {"dst", KeyForm::Kinds},
    {"type", KeyForm::Type},  {"dim", KeyForm::Plain},          {"partial", KeyForm::Axes},
    {"by", KeyForm::Scale},   {"expert", KeyForm::Plain},       {"vjp", KeyForm::Word},
    {"grad", KeyForm::Claim}, {"in_types", KeyForm::ClaimList}, {"out_types", KeyForm::ClaimList},
    {"dtype", KeyForm::Word},
};
// None for a key that is not known.
std::optional<unsigned> known_key(std::string_view key);

// A dictionary, keys unique, in canonical order: known keys first in table order, then
// alphabetically.
struct AttrDict {
  llvm::SmallVector<Attr, 4> attrs;
  friend bool operator==(const AttrDict &, const AttrDict &) = default;
};
uint64_t hash_of(const AttrDict &dict);
void sort_canonically(AttrDict &dict, const StringTable &names);

struct AttrList {
  llvm::SmallVector<AttrValue, 4> items;
  friend bool operator==(const AttrList &, const AttrList &) = default;
};
uint64_t hash_of(const AttrList &list);

struct AxisRefs {
  llvm::SmallVector<AxisRef, 2> refs; // outermost first
  friend bool operator==(const AxisRefs &, const AxisRefs &) = default;
};
uint64_t hash_of(const AxisRefs &refs);

// A type as an attribute or a boundary states it: whatever parts were written.
struct Claim {
  TypeId type;          // claims on some axes; none: no claim at all
  ShapeId shape;        // none if not stated
  ShapeId global_shape; // none if not stated
  friend bool operator==(const Claim &, const Claim &) = default;
};
uint64_t hash_of(const Claim &claim);

} // namespace spmd::ir
