// The certificate of a plan: rules first, then blocks. Of the search nothing is used here.
#include "rules/redistribute/verify.h"

#include "rules/shards/shards.h"
#include "rules/shards/sizes.h"
#include "rules/transitions/axes.h"
#include "rules/transitions/blocks.h"
#include "rules/transitions/call.h"

#include "ir/claims.h"
#include "ir/mesh/symbols.h"

#include "llvm/ADT/STLExtras.h"

#include <fmt/format.h>

namespace spmd::rules::redistribute {

using ir::AxisId;
using ir::AxisSet;
using ir::Kind;
using ir::WrittenKind;

TensorInfo arg_of(ir::Program &program, ir::TypeId id, ir::ShapeId whole) {
  const ir::Type type = program.types[id];
  const ir::Mesh &mesh = program.meshes[type.mesh()];
  ir::Shape local = program.shapes[whole];
  ir::ShardSizes sizes;
  for (unsigned dim = 0; dim < local.dims.size(); ++dim) {
    llvm::SmallVector<AxisId, 2> axes = ir::shards_of(type, dim);
    if (axes.empty())
      continue;
    ir::Extent extent = local.dims[dim];
    int64_t ranks = 1;
    for (AxisId axis : axes)
      ranks *= mesh[axis].size();
    if (std::optional<ir::Extent> piece =
            exact_quotient(program, extent, ir::rank_extent(program, ranks))) {
      local.dims[dim] = *piece;
      continue;
    }
    std::optional<NestedBlocks> nested = extent.is_number()
                                             ? nested_blocks(program, mesh, axes, extent.number(),
                                                             program.rank.value_or(mesh.offset))
                                             : std::nullopt;
    if (!nested)
      return {id, {}, {}};
    local.dims[dim] = ir::Extent(nested->length);
    if (!nested->blocks.even())
      sizes.dims.push_back(nested->blocks.as_dim(dim));
  }
  TensorInfo arg{id, program.shapes.add(std::move(local)), {}};
  if (!sizes.dims.empty())
    arg.sizes = program.shard_sizes.add(std::move(sizes));
  return arg;
}

Outcome apply_step(ir::Program &program, Rules &rules, const Step &step, const TensorInfo &value,
                   ir::ShapeId whole) {
  ir::OpNameId name{program.strings.add(name_of(step.op)).index};
  ir::ContextId context =
      program.contexts.add({.mesh = program.types[value.type].mesh(), .local = {}});
  Slot slot;
  slot.form = Slot::Form::Tensor;
  slot.count = 1;
  ResultClaim claim;
  // Uneven blocks of a result follow from the whole that it states.
  TensorInfo result = arg_of(program, step.after, whole);
  if (result.sizes.valid()) {
    claim.shape = result.shape;
    claim.global = whole;
  }
  Application app{program, rules.resolve(name), attributes_of(program, step), context, slot, value,
                  claim};
  Outcome out;
  forget_results(app, out);
  apply_transition(app, out, [](const TransitionCall &) { return false; });
  return out;
}

namespace {

constexpr int64_t kMostRanks = 1 << 12;
constexpr int64_t kMostTerms = 64;

// Terms of the sums that the source is: one bit each.
struct Piece {
  llvm::SmallVector<std::pair<int64_t, int64_t>, 4> box; // first and end, per dimension
  uint64_t terms;
};
using Box = llvm::SmallVector<std::pair<int64_t, int64_t>, 4>;

// What one rank holds: a tensor over a box of the whole, the sum of pieces of source terms.
struct RankTensor {
  Box box;
  llvm::SmallVector<Piece, 2> pieces;
};

int64_t volume(const Box &box) {
  int64_t product = 1;
  for (auto [begin, end] : box)
    product *= std::max<int64_t>(0, end - begin);
  return product;
}

Box common(const Box &a, const Box &b) {
  Box box;
  for (size_t i = 0; i < a.size(); ++i)
    box.push_back({std::max(a[i].first, b[i].first), std::min(a[i].second, b[i].second)});
  return box;
}

// Carries a plan out on all ranks of the typed axes of a mesh. Every step is described by its row
// and its words alone.
class Replay {
public:
  Replay(const ir::Program &program, const ir::Mesh &mesh, llvm::ArrayRef<ir::Extent> extents)
      : program_(program), mesh_(mesh) {
    for (AxisId axis : mesh.typed_axes()) {
      axes_ |= axis;
      strides_[axis.index] = ranks_;
      ranks_ *= mesh[axis].size();
    }
    for (ir::Extent extent : extents)
      whole_.push_back({0, extent.number()});
  }

  int64_t ranks() const { return ranks_; }
  int64_t terms(const ir::Type &type) const {
    int64_t terms = 1;
    for (AxisId axis : pending(type))
      terms *= mesh_[axis].size();
    return terms;
  }
  void start(const ir::Type &type); // once
  // Empty, or what is wrong.
  std::string step(const Step &step);
  std::string finish(const ir::Type &source, const ir::Type &target) const;

private:
  using Shards = llvm::SmallVector<llvm::SmallVector<AxisId, 2>, 6>; // by dimension
  using Group = llvm::SmallVector<int64_t, 16>;                      // ranks

  static AxisSet pending(const ir::Type &type) { return type.of(Kind::Partial) - type.zero(); }
  int64_t at(int64_t rank, AxisId axis) const {
    return coordinates_[axis.index][static_cast<size_t>(rank)];
  }
  int64_t term_of(const ir::Type &type, int64_t rank) const {
    int64_t term = 0;
    for (AxisId axis : pending(type))
      term = term * mesh_[axis].size() + at(rank, axis);
    return term;
  }
  Shards shards_of(const ir::Type &type) const {
    Shards shards;
    for (unsigned dim = 0; dim < whole_.size(); ++dim)
      shards.push_back(ir::shards_of(type, dim));
    return shards;
  }
  Box block(const Shards &shards, int64_t rank) const;
  void cut(Box &box, unsigned dim, AxisId axis, int64_t rank) const;
  static void keep_inside(RankTensor &holding);
  static void coalesce(RankTensor &holding);
  // The ranks that agree with the first, which is 0 on the axes, off them; in the order of the
  // axes, outermost first.
  Group group(int64_t first, llvm::ArrayRef<AxisId> axes) const;
  bool leads(int64_t rank, llvm::ArrayRef<AxisId> axes) const {
    return llvm::all_of(axes, [&](AxisId axis) { return at(rank, axis) == 0; });
  }
  std::optional<RankTensor> joined(llvm::ArrayRef<int64_t> group, bool side_by_side) const;
  void place(const Step &step, int64_t rank, RankTensor &holding) const;

  const ir::Program &program_;
  const ir::Mesh &mesh_;
  AxisSet axes_;
  std::array<int64_t, ir::kMaxAxes> strides_{};
  std::array<std::vector<int64_t>, ir::kMaxAxes> coordinates_; // by axis and rank
  int64_t ranks_ = 1;
  Box whole_;
  std::vector<RankTensor> held_;
};

void Replay::cut(Box &box, unsigned dim, AxisId axis, int64_t rank) const {
  auto &[begin, end] = box[dim];
  int64_t size = mesh_[axis].size(), piece = (end - begin + size - 1) / size;
  begin = std::min(end, begin + at(rank, axis) * piece);
  end = std::min(end, begin + piece);
}

Box Replay::block(const Shards &shards, int64_t rank) const {
  Box box = whole_;
  for (unsigned dim = 0; dim < box.size(); ++dim)
    for (AxisId axis : shards[dim])
      cut(box, dim, axis, rank);
  return box;
}

void Replay::keep_inside(RankTensor &holding) {
  for (Piece &piece : holding.pieces)
    piece.box = common(piece.box, holding.box);
  llvm::erase_if(holding.pieces, [](const Piece &piece) { return volume(piece.box) == 0; });
}

// Pieces of the same terms that fill the box are one.
void Replay::coalesce(RankTensor &holding) {
  if (holding.pieces.size() < 2)
    return;
  int64_t filled = 0;
  for (const Piece &piece : holding.pieces) {
    if (piece.terms != holding.pieces.front().terms)
      return;
    for (const Piece *before = holding.pieces.begin(); before != &piece; ++before)
      if (volume(common(before->box, piece.box)))
        return;
    filled += volume(piece.box);
  }
  if (filled != volume(holding.box))
    return;
  holding.pieces.truncate(1);
  holding.pieces.front().box = holding.box;
}

void Replay::start(const ir::Type &type) {
  for (AxisId axis : axes_)
    for (int64_t rank = 0; rank < ranks_; ++rank)
      coordinates_[axis.index].push_back(rank / strides_[axis.index] % mesh_[axis].size());
  Shards shards = shards_of(type);
  for (int64_t rank = 0; rank < ranks_; ++rank) {
    RankTensor holding;
    holding.box = block(shards, rank);
    holding.pieces.push_back({holding.box, uint64_t(1) << term_of(type, rank)});
    keep_inside(holding);
    held_.push_back(std::move(holding));
  }
}

Replay::Group Replay::group(int64_t first, llvm::ArrayRef<AxisId> axes) const {
  Group ranks = {first};
  for (AxisId axis : axes) {
    Group more;
    for (int64_t rank : ranks)
      for (int64_t i = 0; i < mesh_[axis].size(); ++i)
        more.push_back(rank + i * strides_[axis.index]);
    ranks = std::move(more);
  }
  return ranks;
}

// Side by side the boxes must fill one box; else they are addends and must be the same.
std::optional<RankTensor> Replay::joined(llvm::ArrayRef<int64_t> group, bool side_by_side) const {
  RankTensor all;
  int64_t filled = 0;
  for (int64_t rank : group) {
    const RankTensor &part = held_[static_cast<size_t>(rank)];
    bool empty = volume(part.box) == 0;
    if (all.box.empty() || (side_by_side && volume(all.box) == 0))
      all.box = part.box;
    else if (!side_by_side && all.box != part.box)
      return std::nullopt;
    for (size_t d = 0; side_by_side && !empty && d < all.box.size(); ++d)
      all.box[d] = {std::min(all.box[d].first, part.box[d].first),
                    std::max(all.box[d].second, part.box[d].second)};
    filled += volume(part.box);
    for (const Piece &piece : part.pieces) {
      auto *same = llvm::find_if(all.pieces, [&](const Piece &p) { return p.box == piece.box; });
      if (same == all.pieces.end())
        all.pieces.push_back(piece);
      else if (same->terms & piece.terms)
        return std::nullopt; // an addend would count twice
      else
        same->terms |= piece.terms;
    }
  }
  if (side_by_side && filled != volume(all.box))
    return std::nullopt;
  coalesce(all);
  return all;
}

// What of it a rank keeps.
void Replay::place(const Step &step, int64_t rank, RankTensor &holding) const {
  for (size_t i = 0; i < step.axes.size(); ++i) {
    const WrittenKind &src = step.src[i], &dst = step.dst[i];
    bool from_shard = src.form == WrittenKind::Form::Shard,
         to_shard = dst.form == WrittenKind::Form::Shard;
    if (to_shard)
      cut(holding.box, static_cast<unsigned>(dst.dim), step.axes[i], rank);
    else if (dst.kind == Kind::Partial && !from_shard && src.kind != Kind::Partial &&
             at(rank, step.axes[i]))
      holding.pieces.clear();
  }
}

std::string Replay::step(const Step &step) {
  bool gathers = step.op == TransitionOp::AllGather || step.op == TransitionOp::AllToAll;
  bool sums = step.op == TransitionOp::AllReduce || step.op == TransitionOp::ReduceScatter;
  bool reorders = step.op == TransitionOp::Reorder;
  // Zeros around the own block.
  bool fills = step.op == TransitionOp::Convert && step.src[0].form == WrittenKind::Form::Shard;
  auto sources = reorders
                     ? reorder_sources(mesh_, step.axes, shards_of(program_.types[step.before]),
                                       shards_of(program_.types[step.after]))
                     : decltype(reorder_sources(mesh_, step.axes, {}, {})){};
  std::vector<RankTensor> next(held_.size());
  for (int64_t first = 0; first < ranks_; ++first) {
    if (!leads(first, step.axes))
      continue;
    Group ranks = group(first, step.axes);
    std::optional<RankTensor> all;
    if (gathers || sums || fills) {
      all = joined(ranks, !sums);
      if (!all)
        return fmt::format("rank {} cannot join what its group holds", first);
    }
    for (size_t i = 0; i < ranks.size(); ++i) {
      auto rank = static_cast<size_t>(ranks[i]);
      RankTensor &result = next[rank];
      if (reorders) {
        result = held_[static_cast<size_t>(ranks[static_cast<size_t>(sources[i])])];
        continue;
      }
      result = gathers || sums ? *all : held_[rank];
      place(step, ranks[i], result);
      if (fills)
        result.box = all->box;
      keep_inside(result);
    }
  }
  held_ = std::move(next);
  return "";
}

// Each rank has its block of the target, and the ranks whose terms are summed hold each term of
// each element once.
std::string Replay::finish(const ir::Type &source, const ir::Type &target) const {
  int64_t terms_of_source = terms(source);
  llvm::SmallVector<AxisId, 4> summed;
  for (AxisId axis : pending(target) - source.zero()) // a zero is any number of addends
    summed.push_back(axis);
  Shards shards = shards_of(target);
  for (int64_t rank = 0; rank < ranks_; ++rank) {
    const Box &box = held_[static_cast<size_t>(rank)].box;
    Box wanted = block(shards, rank);
    if (box != wanted && (volume(box) || volume(wanted)))
      return fmt::format("rank {} holds another block", rank);
    if (!leads(rank, summed))
      continue;
    llvm::SmallVector<const Piece *, 8> pieces;
    int64_t held = 0;
    for (int64_t other : group(rank, summed))
      for (const Piece &piece : held_[static_cast<size_t>(other)].pieces) {
        for (const Piece *before : pieces)
          if ((before->terms & piece.terms) && volume(common(before->box, piece.box)))
            return fmt::format("rank {} counts an addend twice", rank);
        pieces.push_back(&piece);
        held += volume(piece.box) * std::popcount(piece.terms);
      }
    if (held != volume(wanted) * terms_of_source)
      return fmt::format("rank {} misses an addend", rank);
  }
  return "";
}

std::string findings_of(const Outcome &out) {
  return out.violations.empty() ? "" : std::string(info(out.violations.front()).name);
}

} // namespace

// The kinds and shards agree; where either kind would do, or no claim is made, nothing is asked.
static bool upholds(const ir::Type &found, const ir::Type &wanted) {
  for (unsigned index = 0; index < ir::kMaxAxes; ++index) {
    AxisId axis{static_cast<uint8_t>(index)};
    std::optional<Kind> kind = wanted.kind(axis), have = found.kind(axis);
    if (!kind || found.either().contains(axis) || found.unknown.contains(axis))
      continue;
    if (have != kind || found.dim(axis) != wanted.dim(axis) ||
        (kind == Kind::Partial && found.combiner(axis) != wanted.combiner(axis)) ||
        (found.dim(axis) && found.order(axis) != wanted.order(axis)))
      return false;
  }
  return true;
}

std::string verify(ir::Program &program, Rules &rules, const Request &request, const Plan &plan) {
  const ir::Type source = program.types[request.source], target = program.types[request.target];
  const ir::Mesh &mesh = program.meshes[source.mesh()];
  const ir::Shape whole = program.shapes[request.shape];
  auto wrong = [&](size_t i, std::string what) {
    return fmt::format("step {} of the plan ({}): {}", i + 1, name_of(plan.steps[i].op), what);
  };
  TensorInfo value = arg_of(program, request.source, request.shape);
  for (size_t i = 0; i < plan.steps.size(); ++i) {
    const Step &step = plan.steps[i];
    if (step.before != value.type)
      return wrong(i, "does not begin where the one before it ends");
    Outcome out = apply_step(program, rules, step, value, request.shape);
    if (std::string finding = findings_of(out); !finding.empty())
      return wrong(i, finding);
    if (out.types[0] != step.after)
      return wrong(i, "gives another type");
    TensorInfo result = arg_of(program, step.after, request.shape);
    if (out.shapes[0].valid() && result.shape.valid() && out.shapes[0] != result.shape)
      return wrong(i, "gives another shape");
    value = {step.after, out.shapes[0], out.sizes[0]};
  }
  if (!upholds(program.types[value.type], target))
    return "the plan does not lead to the type that is asked for";
  bool numbers = llvm::all_of(whole.dims, [](ir::Extent each) { return each.is_number(); });
  AxisSet combining = source.combining() | target.combining();
  Replay replay(program, mesh,
                whole.dims.size() && numbers ? whole.dims : llvm::ArrayRef<ir::Extent>());
  if (!numbers || combining || replay.ranks() > kMostRanks || replay.terms(source) > kMostTerms)
    return "";
  replay.start(source);
  for (size_t i = 0; i < plan.steps.size(); ++i)
    if (std::string problem = replay.step(plan.steps[i]); !problem.empty())
      return wrong(i, problem);
  return replay.finish(source, target);
}

} // namespace spmd::rules::redistribute
