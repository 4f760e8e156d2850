// Element types, extents (numbers or expressions over symbols, counted in elements), and shapes.
#pragma once

#include "ir/ids.h"
#include "ir/support/store.h"

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/SmallVector.h"

#include <optional>
#include <string>
#include <string_view>

namespace spmd::ir {

enum class DType : uint8_t {
  Unknown,
  Bool,
  I8,
  I16,
  I32,
  I64,
  U8,
  U16,
  U32,
  U64,
  F8E4M3,
  F8E5M2,
  BF16,
  F16,
  F32,
  F64,
  C64,
  C128,
};
enum class DTypeClass : uint8_t { Unknown, Boolean, Integer, Float, Complex };

struct DTypeInfo {
  DType dtype;
  std::string_view word;
  DTypeClass form;
  unsigned bytes; // of one element
};
inline constexpr DTypeInfo kDTypes[] = {
    {DType::Unknown, "?", DTypeClass::Unknown, 0},
    {DType::Bool, "bool", DTypeClass::Boolean, 1},
    {DType::I8, "i8", DTypeClass::Integer, 1},
    {DType::I16, "i16", DTypeClass::Integer, 2},
    {DType::I32, "i32", DTypeClass::Integer, 4},
    {DType::I64, "i64", DTypeClass::Integer, 8},
    {DType::U8, "u8", DTypeClass::Integer, 1},
    {DType::U16, "u16", DTypeClass::Integer, 2},
    {DType::U32, "u32", DTypeClass::Integer, 4},
    {DType::U64, "u64", DTypeClass::Integer, 8},
    {DType::F8E4M3, "f8e4m3", DTypeClass::Float, 1},
    {DType::F8E5M2, "f8e5m2", DTypeClass::Float, 1},
    {DType::BF16, "bf16", DTypeClass::Float, 2},
    {DType::F16, "f16", DTypeClass::Float, 2},
    {DType::F32, "f32", DTypeClass::Float, 4},
    {DType::F64, "f64", DTypeClass::Float, 8},
    {DType::C64, "c64", DTypeClass::Complex, 8},
    {DType::C128, "c128", DTypeClass::Complex, 16},
};
constexpr const DTypeInfo &info(DType dtype) { return kDTypes[static_cast<unsigned>(dtype)]; }
// Unknown if no dtype has that word.
DType parse_dtype(std::string_view word);
// True where values of this dtype can carry a gradient (floats and complex numbers).
constexpr bool differentiable(DType dtype) {
  return info(dtype).form == DTypeClass::Float || info(dtype).form == DTypeClass::Complex;
}

// A count of elements: a number, or an expression over the symbols of the program.
class Extent {
public:
  constexpr Extent() = default;
  constexpr Extent(int64_t number) : bits_(number) {}
  static constexpr Extent symbolic(ExprId id) {
    return Extent(-1 - static_cast<int64_t>(id.index));
  }

  constexpr bool is_number() const { return bits_ >= 0; }
  constexpr int64_t number() const { return bits_; } // only if is_number()
  constexpr ExprId expr() const { return ExprId{static_cast<uint32_t>(-1 - bits_)}; }
  friend constexpr bool operator==(Extent, Extent) = default;

private:
  int64_t bits_ = 0;
};

// Bounds the text and the depth of an expression, whose parts are shared.
inline constexpr uint32_t kMaxExprNodes = 256;

// One node of an extent expression. Interned, so equal text of equal structure gives equal ids.
struct Expr {
  enum class Form : uint8_t {
    Symbol,
    Add,
    Subtract,
    Multiply,
    Divide,
    Modulo
  }; // Divide rounds down
  Form form = Form::Symbol;
  StringId symbol; // only Symbol
  Extent left, right;
  uint32_t nodes = 1; // of the written tree; combine() adds them up
  friend bool operator==(const Expr &, const Expr &) = default;
};
uint64_t hash_of(const Expr &expr);
using ExprTable = Interner<ExprId>;

// Folds where both sides are numbers. None on division by zero, a negative result, a number beyond
// kMaxInteger or a tree beyond kMaxExprNodes.
std::optional<Extent> combine(ExprTable &table, Expr::Form form, Extent left, Extent right);
// Reads `16`, `s0`, `(s0 / 8) * 8`; none if it is no expression. Names are interned, not resolved.
std::optional<Extent> parse_extent(llvm::StringRef text, ExprTable &table, StringTable &names);
// The text that parse_extent reads back.
std::string print(Extent extent, const ExprTable &table, const StringTable &names);

// What one rank holds (or, as a global shape, all ranks together): element type and extents,
// outermost first.
struct Shape {
  DType dtype = DType::Unknown;
  bool ranked = true; // false: the number of dimensions is not known
  llvm::SmallVector<Extent, 4> dims;
  friend bool operator==(const Shape &, const Shape &) = default;
};
uint64_t hash_of(const Shape &shape);

// One dimension whose shards may differ in size.
struct UnevenDim {
  unsigned dim = 0;
  Extent global;    // elements of all shards together
  Extent block;     // of the first shards, until no element is left; not used where sizes are given
  AttrListId sizes; // one number per shard, outermost axis first; none: the rule above
  friend bool operator==(const UnevenDim &, const UnevenDim &) = default;
};
// The sharded dimensions of a tensor that are not known to be cut evenly, in order.
struct ShardSizes {
  llvm::SmallVector<UnevenDim, 2> dims;
  friend bool operator==(const ShardSizes &, const ShardSizes &) = default;

  const UnevenDim *find(unsigned dim) const {
    for (const UnevenDim &each : dims)
      if (each.dim == dim)
        return &each;
    return nullptr;
  }
};
uint64_t hash_of(const ShardSizes &sizes);

// Number of elements; none if symbolic, unranked or beyond 2^62.
std::optional<int64_t> element_count(const Shape &shape);
// Bytes of the elements; none as above, or if the dtype is not known.
std::optional<int64_t> byte_count(const Shape &shape);

} // namespace spmd::ir
