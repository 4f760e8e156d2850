// Whole tensors and what the ranks of a small mesh hold of them: cut into blocks, split into
// addends, or repeated; and joined again. Whole numbers, exact.
#pragma once

#include "tests/property/equation_plan.h"

#include "ir/program.h"

#include <optional>
#include <random>
#include <string>

namespace spmd::property {

struct Array {
  std::vector<int> dims;
  Data data; // row major
  // Of what it is a block: its first entry and the extent of the whole, per dimension. Empty: it is
  // the whole.
  std::vector<int> first, all;
};
size_t element_count(const std::vector<int> &dims);

enum class ShardForm : uint8_t { Replicate, Partial, Shard, Varying }; // Varying: by no dimension

// What is claimed of a tensor on each axis of a mesh of one or two axes.
struct Layout {
  struct Place {
    ShardForm form = ShardForm::Replicate;
    uint8_t dim = 0; // Shard
    friend bool operator==(const Place &, const Place &) = default;
  };
  std::vector<Place> axes;
  bool swapped = false;  // both axes shard one dimension, and the second is the outer one
  bool reversed = false; // uneven blocks stand in reverse order: the last ones are full

  bool has(ShardForm form) const;
  bool shares_dim() const;   // both axes shard one dimension
  std::string print() const; // `S0 P`, `S0 S0~` where swapped
  friend bool operator==(const Layout &, const Layout &) = default;
};
// Every layout of a tensor of so many dimensions; without Varying.
std::vector<Layout> all_layouts(size_t axes, size_t rank);

using MeshSizes = std::vector<int>; // outermost first
int rank_count(const MeshSizes &mesh);

// Blocks of a dimension: the first ones full, the last ones short or empty, or in reverse.
std::vector<int> blocks_of(int extent, int count, bool reversed = false);
// Which block of a dimension a rank holds, outermost axis first.
int block_of(const Layout &layout, const MeshSizes &mesh, size_t dim, int rank);
// Number of blocks of a dimension.
int block_count(const Layout &layout, const MeshSizes &mesh, size_t dim);
// What a rank holds, or the first one.
std::vector<int> local_dims(const std::vector<int> &dims, const Layout &layout,
                            const MeshSizes &mesh, int rank = 0);

// One tensor per rank; addends are random. Where the layout varies by no dimension, each rank along
// the axis holds random data of its own.
std::vector<Array> distribute(const Array &whole, const Layout &layout, const MeshSizes &mesh,
                              std::mt19937 &random);
// The whole that the ranks hold; none if the layout is not true of them.
std::optional<Array> assemble(const std::vector<Array> &ranks, const Layout &layout,
                              const MeshSizes &mesh);

ir::Type type_of(const Layout &layout, ir::MeshId mesh);
// None on an axis that is unknown.
std::optional<Layout> layout_of(const ir::Type &type, size_t axes);
// The uneven dimensions of a tensor cut as blocks_of says; none if there are none.
ir::ShardSizesId sizes_of(ir::Program &program, const std::vector<int> &dims, const Layout &layout,
                          const MeshSizes &mesh);

} // namespace spmd::property
