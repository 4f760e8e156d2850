// The ops at the edges of the typed world, by name: readers and printers have to know some of them.
// What each of them does: rules/boundary/boundary.cc.
#pragma once

#include "ir/dialect/words.h"

#include "llvm/ADT/StringRef.h"

#include <cstdint>
#include <iterator>
#include <string_view>

namespace spmd::ir {

// First those that rules type, then those with bodies, which the checker types.
enum class Boundary : uint8_t {
  None,
  AssertType,
  MutateType,
  ToLocal,
  FromLocal,
  Rng,
  Fork,
  AxisIndex,
  Scale,
  Alias,
  ReinterpretMesh,
  Backward,
  Grad,
  Step,
  TotalNorm,
  ClipNorm,
  Report,
  Store,
  Send,
  Recv,
  Wait,
  Token,
  Diverge,
  Unlike,
  Call,
  Checkpoint,
  LocalMap,
  Scan,
  Cond,
  While,
};

struct BoundaryName {
  std::string_view name;
  bool states_type =
      false; // its attributes are a type: in JSON the members of that stand among them
};
// In the order of the enumeration.
inline constexpr BoundaryName kBoundaryNames[] = {
    {""},
    {.name = "assert_type", .states_type = true},
    {.name = "mutate_type", .states_type = true},
    {.name = "to_local"},
    {.name = "from_local", .states_type = true},
    {.name = "rng", .states_type = true},
    {.name = "fork"},
    {.name = "axis_index"},
    {.name = "scale"},
    {.name = "alias"},
    {.name = "reinterpret_mesh", .states_type = true},
    {.name = "backward"},
    {.name = "grad"},
    {.name = "step"},
    {.name = "total_norm"},
    {.name = "clip_norm"},
    {.name = "report"},
    {.name = "store"},
    {.name = "send"},
    {.name = "recv"},
    {.name = "wait"},
    {.name = "token"},
    {.name = "diverge"},
    {.name = "unlike"},
    {.name = "call"},
    {.name = "checkpoint"},
    {.name = "local_map"},
    {.name = "scan"},
    {.name = "cond"},
    {.name = "while"},
};
static_assert(std::size(kBoundaryNames) == static_cast<size_t>(Boundary::While) + 1);

// Empty for None.
constexpr std::string_view boundary_name(Boundary op) {
  return kBoundaryNames[static_cast<size_t>(op)].name;
}
// None: no op at the edge of the typed world has that name.
inline Boundary find_boundary(llvm::StringRef name) {
  for (size_t i = 1; i < std::size(kBoundaryNames); ++i)
    if (name == llvm::StringRef(kBoundaryNames[i].name))
      return static_cast<Boundary>(i);
  return Boundary::None;
}
// Whether a spelling is our own name of the op.
inline bool is_boundary(llvm::StringRef spelling, Boundary op) {
  return spelling == llvm::StringRef(boundary_name(op));
}
// Whether the attributes of an op are a type. One that redistributes may state its words instead.
inline bool states_type(llvm::StringRef op) {
  op.consume_front("spmd.");
  return kBoundaryNames[static_cast<size_t>(find_boundary(op))].states_type ||
         is_redistribute_word(op);
}

} // namespace spmd::ir
