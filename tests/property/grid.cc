// Blocks are taken and put together by their place alone: nothing here knows of the checker.
#include "tests/property/grid.h"

namespace spmd::property {

using ir::AxisId;
using ir::Kind;
using rules::Transition;

std::vector<int> even(int extent, size_t pieces) {
  return std::vector<int>(pieces, extent / static_cast<int>(pieces));
}
std::vector<int> ceiling(int extent, size_t pieces) {
  int block = (extent + static_cast<int>(pieces) - 1) / static_cast<int>(pieces);
  std::vector<int> lengths;
  for (size_t i = 0; i < pieces; ++i, extent -= lengths.back())
    lengths.push_back(std::min(block, extent));
  return lengths;
}

Ranks distribute(const Grid &grid, const Spec &spec, const Tensor &whole, Lengths lengths,
                 std::mt19937 &random) {
  Call pending;
  for (size_t axis = 0; axis < kAxes; ++axis)
    if (spec.kinds[axis] == Kind::Partial)
      pending.push_back(axis);
  Ranks addends;
  Tensor rest = whole;
  for (size_t i = 1; i < grid.count(pending); ++i) {
    addends.push_back(random_tensor(whole.shape, random));
    rest = add(rest, times(addends.back(), -1));
  }
  addends.push_back(rest);
  Ranks held;
  for (size_t rank = 0; rank < grid.ranks(); ++rank) {
    Tensor own = addends[grid.place(rank, pending)];
    for (size_t dim = 0; dim < whole.shape.size(); ++dim) {
      // Blocks of the outer axes are cut again: 5 over 2 and 2 is 2, 1, 1, 1.
      for (size_t axis : spec.axes_on(static_cast<int>(dim)))
        own = split(own, lengths(own.shape[dim], grid.sizes[axis]), dim)[grid.at(rank, axis)];
    }
    held.push_back(own);
  }
  return held;
}

// One dimension after the other: blocks join in order, so that all ranks along its axes hold the
// same.
std::optional<Tensor> assemble(const Grid &grid, const Spec &spec, const Ranks &held) {
  size_t dims = held[0].shape.size();
  Ranks now = held;
  for (size_t dim = 0; dim < dims; ++dim) {
    Call axes = spec.axes_on(static_cast<int>(dim));
    Ranks next;
    for (size_t rank = 0; rank < grid.ranks(); ++rank) {
      Ranks blocks(grid.count(axes));
      for (size_t other = 0; other < grid.ranks(); ++other) {
        bool same = true;
        for (size_t axis = 0; axis < kAxes; ++axis)
          same &= std::count(axes.begin(), axes.end(), axis) > 0 ||
                  grid.at(other, axis) == grid.at(rank, axis);
        if (same)
          blocks[grid.place(other, axes)] = now[other];
      }
      for (const Tensor &block : blocks)
        for (size_t d = 0; d < dims; ++d)
          if (d != dim && block.shape[d] != blocks[0].shape[d])
            return std::nullopt;
      next.push_back(concat(blocks, dim));
    }
    now = std::move(next);
  }
  // Along V and R all hold the same now; along P the addends join.
  std::optional<Tensor> sum;
  for (size_t rank = 0; rank < grid.ranks(); ++rank) {
    bool first = true;
    size_t like = rank;
    for (size_t axis = 0; axis < kAxes; ++axis)
      if (spec.kinds[axis] != Kind::Partial && grid.at(rank, axis) != 0) {
        first = false;
        like -= grid.at(rank, axis) * (axis == 0 ? grid.sizes[1] : 1);
      }
    if (!first && now[rank] != now[like])
      return std::nullopt;
    if (first && sum && sum->shape != now[rank].shape)
      return std::nullopt;
    if (first)
      sum = sum ? add(*sum, now[rank]) : now[rank];
  }
  return sum;
}

Ranks run(const Grid &grid, const Transition &row, const Form &form, const Call &axes,
          const Ranks &held) {
  Ranks result = held;
  for (size_t rank = 0; rank < grid.ranks(); ++rank) {
    if (grid.place(rank, axes) != 0)
      continue;
    std::vector<size_t> members(grid.count(axes));
    for (size_t other = 0; other < grid.ranks(); ++other) {
      bool same = true;
      for (size_t axis = 0; axis < kAxes; ++axis)
        same &= std::count(axes.begin(), axes.end(), axis) > 0 ||
                grid.at(other, axis) == grid.at(rank, axis);
      if (same)
        members[grid.place(other, axes)] = other;
    }
    Ranks group;
    for (size_t member : members)
      group.push_back(held[member]);
    if (row.composed) {
      auto [first, second] = rules::parts_of(row);
      group = execute(*second, form, execute(*first, form, group));
    } else {
      group = execute(row, form, group);
    }
    for (size_t i = 0; i < members.size(); ++i)
      result[members[i]] = group[i];
  }
  return result;
}

std::string word(Kind kind, int dim) {
  return kind == Kind::Varying && dim >= 0 ? "S(" + std::to_string(dim) + ")"
                                           : std::string(ir::info(kind).word);
}
std::string listed(const Call &axes) {
  std::string text;
  for (size_t axis : axes)
    text += (text.empty() ? "" : ", ") + std::string(kNames[axis]);
  return "(" + text + ")";
}
std::string type_text(const Spec &spec, const std::vector<int> &local,
                      const std::vector<int> &global) {
  std::string text = "f32[";
  for (size_t dim = 0; dim < local.size(); ++dim) {
    text += (dim ? ", " : "") + std::to_string(local[dim]);
    if (Call axes = spec.axes_on(static_cast<int>(dim)); !axes.empty())
      text += "@" + listed(axes);
  }
  text += "]";
  for (size_t dim = 0; dim < global.size(); ++dim)
    text += (dim ? ", " : " of [") + std::to_string(global[dim]);
  text += global.empty() ? "" : "]";
  for (size_t axis = 0; axis < kAxes; ++axis)
    if (spec.kinds[axis] != Kind::Varying || spec.dims[axis] < 0)
      text += " " + word(spec.kinds[axis], -1) + "@" + kNames[axis];
  return text;
}

Spec spec_of(const ir::Type &type) {
  Spec spec;
  for (size_t axis = 0; axis < kAxes; ++axis) {
    AxisId id{static_cast<uint8_t>(axis)};
    spec.kinds[axis] = type.kind(id).value_or(Kind::Replicate);
    spec.dims[axis] = -1;
    if (std::optional<unsigned> dim = type.dim(id)) {
      spec.dims[axis] = static_cast<int>(*dim);
      spec.orders[axis] = type.order(id);
    }
  }
  return spec;
}

} // namespace spmd::property
