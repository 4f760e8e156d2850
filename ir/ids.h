// Every id in the system: an index into one store of one program.
// Ids are cheap to copy, compare by value, and ids of different things cannot be mixed up.
#pragma once

#include <compare>
#include <cstdint>

namespace spmd::ir {

template <class T, class Index = uint32_t> struct Id {
  using Value = T;
  using IndexType = Index;
  static constexpr Index kNone = static_cast<Index>(~Index(0));

  Index index = kNone;

  // False for a default-made id, which names nothing.
  constexpr bool valid() const { return index != kNone; }
  friend constexpr auto operator<=>(const Id &, const Id &) = default;
};

// Tags: types that exist as entries of a table but need no C++ type of their own.
struct String;
struct OpName;
struct Type;
struct Scale;
struct Mesh;
struct Shape;
struct ShardSizes;
struct Expr;
struct AttrList;
struct AttrDict;
struct AxisRefs;
struct Claim;
struct Operands;
struct SourceFile;
struct Frame;
struct Location;
struct Context;
struct Function;
struct Value;
struct Inst;

using StringId = Id<String>;
using OpNameId = Id<OpName>;
using TypeId = Id<Type>;
using ScaleId = Id<Scale, uint16_t>;
using MeshId = Id<Mesh, uint16_t>;
using ShapeId = Id<Shape>;
using ShardSizesId = Id<ShardSizes>;
using ExprId = Id<Expr>;
using AttrListId = Id<AttrList>;
using AttrsId = Id<AttrDict>;
using AxisRefsId = Id<AxisRefs>;
using ClaimId = Id<Claim>;
using OperandsId = Id<Operands>;
using FileId = Id<SourceFile>;
using FrameId = Id<Frame>;
using LocId = Id<Location>;
using ContextId = Id<Context, uint16_t>;
using FunctionId = Id<Function>;
using ValueId = Id<Value>;
using InstId = Id<Inst>;

} // namespace spmd::ir
