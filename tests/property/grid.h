// Tensors spread over a grid of two mesh axes, a and b: which kinds and dimensions the axes have,
// what each rank then holds, and what it denotes.
#pragma once

#include "ir/type.h"
#include "tests/property/transition_meaning.h"

#include <algorithm>
#include <array>

namespace spmd::property {

inline constexpr size_t kAxes = 2;
inline constexpr const char *kNames[] = {"a", "b"};
using Call = std::vector<size_t>; // axes, outermost first

struct Grid {
  std::array<size_t, kAxes> sizes;
  size_t ranks() const { return sizes[0] * sizes[1]; }
  size_t at(size_t rank, size_t axis) const {
    return axis == 0 ? rank / sizes[1] : rank % sizes[1];
  }
  // The place of a rank among those that differ along these axes, outermost first.
  size_t place(size_t rank, const Call &axes) const {
    size_t place = 0;
    for (size_t axis : axes)
      place = place * sizes[axis] + at(rank, axis);
    return place;
  }
  size_t count(const Call &axes) const {
    size_t count = 1;
    for (size_t axis : axes)
      count *= sizes[axis];
    return count;
  }
};

struct Spec {
  std::array<ir::Kind, kAxes> kinds{};
  std::array<int, kAxes> dims{-1, -1}; // of V; -1: a list
  std::array<unsigned, kAxes> orders{};
  friend bool operator==(const Spec &, const Spec &) = default;

  Call axes_on(int dim) const {
    Call axes;
    for (size_t axis = 0; axis < kAxes; ++axis)
      if (kinds[axis] == ir::Kind::Varying && dims[axis] == dim)
        axes.push_back(axis);
    if (axes.size() == 2 && orders[axes[0]] > orders[axes[1]])
      std::swap(axes[0], axes[1]);
    return axes;
  }
  void append(size_t axis, int dim) {
    orders[axis] = static_cast<unsigned>(axes_on(dim).size());
    kinds[axis] = ir::Kind::Varying;
    dims[axis] = dim;
  }
  void remove(size_t axis) {
    for (size_t other = 0; other < kAxes; ++other)
      if (other != axis && dims[other] >= 0 && dims[other] == dims[axis])
        orders[other] = 0;
    kinds[axis] = ir::Kind::Replicate;
    dims[axis] = -1;
    orders[axis] = 0;
  }
  Spec dual() const {
    Spec spec = *this;
    for (ir::Kind &kind : spec.kinds)
      kind = ir::info(kind).dual;
    return spec;
  }
};

Spec spec_of(const ir::Type &type);

// How long the pieces of a dimension are.
using Lengths = std::vector<int> (*)(int extent, size_t pieces);
std::vector<int> even(int extent, size_t pieces);
std::vector<int> ceiling(int extent, size_t pieces); // equal until none is left

// What the ranks hold of a tensor: their blocks, of one of the addends where the sum is pending.
Ranks distribute(const Grid &grid, const Spec &spec, const Tensor &whole, Lengths lengths,
                 std::mt19937 &random);
// The tensor; none if ranks that should hold the same do not, or blocks do not fit together.
std::optional<Tensor> assemble(const Grid &grid, const Spec &spec, const Ranks &held);
// Each group of ranks along the axes carries out the row.
Ranks run(const Grid &grid, const rules::Transition &row, const Form &form, const Call &axes,
          const Ranks &held);

// `S(0)`, `P`
std::string word(ir::Kind kind, int dim);
// `(a, b)`
std::string listed(const Call &axes);
// `f32[2@(a, b), 4]`; `global`: all extents, empty if they are not stated.
std::string type_text(const Spec &spec, const std::vector<int> &local,
                      const std::vector<int> &global = {});

} // namespace spmd::property
