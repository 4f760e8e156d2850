// Types of a tensor on the mesh of a program, drawn.
#pragma once

#include "ir/program.h"

#include <random>
#include <vector>

namespace spmd::bench {

enum class Order : uint8_t { Any, Mesh };

// Each axis shards a dimension, at a random place or in mesh order, is replicated, or partial.
inline ir::TypeId random_type(ir::Program &program, unsigned rank, bool partial, Order order,
                              std::mt19937 &random) {
  ir::Type type;
  type.set_mesh(ir::MeshId{0});
  std::vector<std::vector<ir::AxisId>> dims(rank);
  for (ir::AxisId axis : program.meshes[ir::MeshId{0}].typed_axes()) {
    unsigned choice = static_cast<unsigned>(random() % (rank + (partial ? 2 : 1)));
    if (choice >= rank) {
      type.set_kind(axis, choice == rank ? ir::Kind::Replicate : ir::Kind::Partial);
      continue;
    }
    auto place = static_cast<ptrdiff_t>(
        order == Order::Mesh ? dims[choice].size() : random() % (dims[choice].size() + 1));
    dims[choice].insert(dims[choice].begin() + place, axis);
  }
  for (unsigned dim = 0; dim < rank; ++dim)
    for (unsigned place = 0; place < dims[dim].size(); ++place) {
      type.set_kind(dims[dim][place], ir::Kind::Varying);
      type.set_shard(dims[dim][place], dim, place);
    }
  return program.types.add(type);
}

} // namespace spmd::bench
