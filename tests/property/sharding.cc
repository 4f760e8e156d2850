// Blocks and addends of small tensors.
#include "tests/property/sharding.h"

#include <algorithm>

namespace spmd::property {

using ir::AxisId;
using ir::Kind;

size_t element_count(const std::vector<int> &dims) {
  size_t count = 1;
  for (int extent : dims)
    count *= static_cast<size_t>(extent);
  return count;
}

bool Layout::has(ShardForm form) const {
  return std::any_of(axes.begin(), axes.end(), [&](Place place) { return place.form == form; });
}
bool Layout::shares_dim() const {
  return axes.size() == 2 && axes[0].form == ShardForm::Shard && axes[0] == axes[1];
}
std::string Layout::print() const {
  std::string text;
  for (Place place : axes) {
    text += text.empty() ? "" : " ";
    text += "RPSV"[static_cast<int>(place.form)];
    if (place.form == ShardForm::Shard)
      text += std::to_string(place.dim);
  }
  return text + (swapped ? "~" : "");
}

std::vector<Layout> all_layouts(size_t axes, size_t rank) {
  std::vector<Layout::Place> positions = {{ShardForm::Replicate, 0}, {ShardForm::Partial, 0}};
  for (size_t d = 0; d < rank; ++d)
    positions.push_back({ShardForm::Shard, static_cast<uint8_t>(d)});
  std::vector<Layout> layouts;
  for (Layout::Place outer : positions) {
    if (axes == 1)
      layouts.push_back({{outer}, false});
    for (size_t i = 0; axes == 2 && i < positions.size(); ++i) {
      layouts.push_back({{outer, positions[i]}, false});
      if (layouts.back().shares_dim())
        layouts.push_back({{outer, positions[i]}, true});
    }
  }
  return layouts;
}

int rank_count(const MeshSizes &mesh) {
  int count = 1;
  for (int size : mesh)
    count *= size;
  return count;
}

namespace {

int coordinate(const MeshSizes &mesh, int rank, size_t axis) {
  for (size_t a = mesh.size(); --a > axis;)
    rank /= mesh[a];
  return rank % mesh[axis];
}

// The rank with coordinate 0 on axes of one form.
int leader(const Layout &layout, const MeshSizes &mesh, int rank, ShardForm form) {
  int found = 0;
  for (size_t a = 0; a < mesh.size(); ++a)
    found = found * mesh[a] + (layout.axes[a].form == form ? 0 : coordinate(mesh, rank, a));
  return found;
}

// Visits the positions of a block in the whole, in the order of the block.
template <class Visit>
void each_position(const std::vector<int> &dims, const std::vector<int> &first,
                   const std::vector<int> &all, Visit visit) {
  size_t count = element_count(dims);
  std::vector<int> at(dims.size(), 0);
  for (size_t e = 0; e < count; ++e) {
    size_t place = 0;
    for (size_t d = 0; d < dims.size(); ++d)
      place = place * static_cast<size_t>(all[d]) + static_cast<size_t>(first[d] + at[d]);
    visit(e, place);
    for (size_t d = dims.size(); d-- > 0;)
      if (++at[d] < dims[d])
        break;
      else
        at[d] = 0;
  }
}

int number(std::mt19937 &random) { return static_cast<int>(random() % 19) - 9; }

} // namespace

int block_of(const Layout &layout, const MeshSizes &mesh, size_t dim, int rank) {
  int block = 0;
  for (size_t i = 0; i < mesh.size(); ++i) {
    size_t a = layout.swapped ? mesh.size() - 1 - i : i;
    if (layout.axes[a].form == ShardForm::Shard && layout.axes[a].dim == dim)
      block = block * mesh[a] + coordinate(mesh, rank, a);
  }
  return block;
}

std::vector<int> blocks_of(int extent, int count, bool reversed) {
  int block = (extent + count - 1) / count;
  std::vector<int> blocks;
  for (int b = 0; b < count; ++b)
    blocks.push_back(std::clamp(extent - b * block, 0, block));
  if (reversed)
    std::reverse(blocks.begin(), blocks.end());
  return blocks;
}

int block_count(const Layout &layout, const MeshSizes &mesh, size_t dim) {
  int count = 1;
  for (size_t a = 0; a < mesh.size(); ++a)
    if (layout.axes[a].form == ShardForm::Shard && layout.axes[a].dim == dim)
      count *= mesh[a];
  return count;
}

std::vector<int> local_dims(const std::vector<int> &dims, const Layout &layout,
                            const MeshSizes &mesh, int rank) {
  std::vector<int> local;
  for (size_t d = 0; d < dims.size(); ++d) {
    std::vector<int> blocks = blocks_of(dims[d], block_count(layout, mesh, d), layout.reversed);
    local.push_back(blocks[static_cast<size_t>(block_of(layout, mesh, d, rank))]);
  }
  return local;
}

std::vector<Array> distribute(const Array &whole, const Layout &layout, const MeshSizes &mesh,
                              std::mt19937 &random) {
  int ranks = rank_count(mesh);
  // Addends, one per rank that leads on all other axes; the last one makes up the sum.
  std::vector<Data> addends(static_cast<size_t>(ranks));
  Data rest = whole.data;
  int last = -1;
  auto owner = [&](int rank) {
    return leader(layout, mesh, leader(layout, mesh, rank, ShardForm::Replicate), ShardForm::Shard);
  };
  for (int r = 0; r < ranks; ++r) {
    if (owner(r) != r)
      continue;
    Data &made = addends[static_cast<size_t>(r)];
    for (int64_t &left : rest) {
      made.push_back(number(random));
      left -= made.back();
    }
    last = r;
  }
  if (!layout.has(ShardForm::Varying))
    for (size_t e = 0; e < rest.size(); ++e)
      addends[static_cast<size_t>(last)][e] += rest[e];
  std::vector<Array> held;
  for (int r = 0; r < ranks; ++r) {
    Array block;
    block.dims = local_dims(whole.dims, layout, mesh, r);
    block.all = whole.dims;
    for (size_t d = 0; d < whole.dims.size(); ++d) {
      std::vector<int> blocks =
          blocks_of(whole.dims[d], block_count(layout, mesh, d), layout.reversed);
      int first = 0;
      for (int b = 0; b < block_of(layout, mesh, d, r); ++b)
        first += blocks[static_cast<size_t>(b)];
      block.first.push_back(first);
    }
    const Data &from = addends[static_cast<size_t>(owner(r))];
    block.data.resize(element_count(block.dims));
    each_position(block.dims, block.first, block.all,
                  [&](size_t e, size_t place) { block.data[e] = from[place]; });
    held.push_back(std::move(block));
  }
  return held;
}

std::optional<Array> assemble(const std::vector<Array> &ranks, const Layout &layout,
                              const MeshSizes &mesh) {
  size_t rank = ranks[0].dims.size();
  std::vector<std::vector<int>> blocks(rank);
  Array whole;
  for (size_t d = 0; d < rank; ++d) {
    blocks[d].assign(static_cast<size_t>(block_count(layout, mesh, d)), -1);
    for (size_t r = 0; r < ranks.size(); ++r) {
      int &known = blocks[d][static_cast<size_t>(block_of(layout, mesh, d, static_cast<int>(r)))];
      if (ranks[r].dims.size() != rank || (known >= 0 && known != ranks[r].dims[d]))
        return std::nullopt;
      known = ranks[r].dims[d];
    }
    whole.dims.push_back(0);
    for (int extent : blocks[d])
      whole.dims[d] += extent;
  }
  whole.data.assign(element_count(whole.dims), 0);
  for (size_t r = 0; r < ranks.size(); ++r) {
    int at = static_cast<int>(r), lead = leader(layout, mesh, at, ShardForm::Replicate);
    if (lead != at) {
      if (ranks[r].data != ranks[static_cast<size_t>(lead)].data)
        return std::nullopt;
      continue;
    }
    std::vector<int> first(rank, 0);
    for (size_t d = 0; d < rank; ++d)
      for (int b = 0; b < block_of(layout, mesh, d, at); ++b)
        first[d] += blocks[d][static_cast<size_t>(b)];
    each_position(ranks[r].dims, first, whole.dims,
                  [&](size_t e, size_t place) { whole.data[place] += ranks[r].data[e]; });
  }
  return whole;
}

ir::Type type_of(const Layout &layout, ir::MeshId mesh) {
  ir::Type type;
  type.set_mesh(mesh);
  for (size_t a = 0; a < layout.axes.size(); ++a) {
    AxisId axis{static_cast<uint8_t>(a)};
    Layout::Place place = layout.axes[a];
    type.set_kind(axis, place.form == ShardForm::Replicate ? Kind::Replicate
                        : place.form == ShardForm::Partial ? Kind::Partial
                                                           : Kind::Varying);
    if (place.form == ShardForm::Shard)
      type.set_shard(axis, place.dim, layout.shares_dim() && layout.swapped == (a == 0) ? 1 : 0);
  }
  return type;
}

std::optional<Layout> layout_of(const ir::Type &type, size_t axes) {
  Layout layout;
  for (size_t a = 0; a < axes; ++a) {
    AxisId axis{static_cast<uint8_t>(a)};
    if (type.unknown.contains(axis))
      return std::nullopt;
    Layout::Place place;
    if (type.dim(axis))
      place = {ShardForm::Shard, static_cast<uint8_t>(*type.dim(axis))};
    else if (type.of(Kind::Varying).contains(axis))
      place.form = ShardForm::Varying;
    else if (type.of(Kind::Partial).contains(axis) && !type.zero().contains(axis))
      place.form = ShardForm::Partial;
    layout.axes.push_back(place);
  }
  layout.swapped = layout.shares_dim() && type.order(AxisId{0}) > type.order(AxisId{1});
  return layout;
}

ir::ShardSizesId sizes_of(ir::Program &program, const std::vector<int> &dims, const Layout &layout,
                          const MeshSizes &mesh) {
  ir::ShardSizes sizes;
  for (size_t d = 0; d < dims.size(); ++d)
    if (int count = block_count(layout, mesh, d); dims[d] % count) {
      std::vector<int> blocks = blocks_of(dims[d], count, layout.reversed);
      ir::UnevenDim uneven{
          static_cast<unsigned>(d), ir::Extent(dims[d]), ir::Extent(blocks[0]), {}};
      if (layout.reversed) {
        ir::AttrList list;
        for (int block : blocks)
          list.items.push_back(ir::AttrValue::integer(block));
        uneven.sizes = program.lists.add(std::move(list));
      }
      sizes.dims.push_back(uneven);
    }
  return sizes.dims.empty() ? ir::ShardSizesId() : program.shard_sizes.add(std::move(sizes));
}

} // namespace spmd::property
