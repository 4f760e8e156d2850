// Dimensions as runs of those of the tensor that was split, through views and permutations.
#include "checker/gradual/blocks/all_to_all_views.h"

#include "rules/shapes/attrs.h"
#include "rules/transitions/axes.h"
#include "rules/transitions/call.h"

#include "ir/support/product.h"

#include "llvm/ADT/STLExtras.h"

namespace spmd::checker {

using ir::ValueId;

constexpr size_t kViews = 3; // of one tensor that are followed

// Divides the runs of a dimension so that each factor of it has whole ones. False: it cannot be
// done.
bool AllToAllViews::refine(Dim &runs, llvm::ArrayRef<int64_t> factors, std::vector<Dim> &parts) {
  size_t at = 0;
  for (int64_t factor : factors) {
    Dim &part = parts.emplace_back();
    while (factor > 1) {
      if (at == runs.size())
        return false;
      Run run = runs[at];
      if (factor % run.extent == 0) {
        factor /= run.extent;
        ++at;
      } else if (run.extent % factor == 0) {
        // Of what came from ranks, a part is none of theirs.
        if (run.dim == kRanks)
          return false;
        runs[at] = {run.dim, run.outer * factor, run.extent / factor};
        run.extent = std::exchange(factor, 1);
      } else {
        return false;
      }
      part.push_back(run);
    }
  }
  return at == runs.size();
}

// False: not every element of the result is one of the operand, or some extent is not known.
bool AllToAllViews::move(Track &track, const rules::FactorMap &map, const Extents &after) {
  std::vector<std::optional<Dim>> of_factor(map.factors.size());
  for (unsigned d = 0; d < track.dims.size(); ++d) {
    const rules::DimFactors &dim = (*map.args[0])[d];
    llvm::SmallVector<int64_t, 3> factors;
    for (uint8_t f : dim) {
      if (!map.factors[f].extent || !map.factors[f].extent->is_number())
        return false;
      factors.push_back(map.factors[f].extent->number());
    }
    std::vector<Dim> parts;
    if (!refine(track.dims[d], factors, parts))
      return false;
    for (size_t i = 0; i < parts.size(); ++i)
      of_factor[dim[i]] = parts[i];
  }
  track.dims.clear();
  for (unsigned d = 0; d < after->size(); ++d) {
    Dim &dim = track.dims.emplace_back();
    int64_t extent = 1;
    for (uint8_t f : (*map.results[0])[d]) {
      if (!of_factor[f])
        return false;
      for (const Run &run : *of_factor[f]) {
        dim.push_back(run);
        extent = ir::saturating_product(extent, run.extent);
      }
    }
    if (extent != (*after)[d])
      return false;
  }
  return true;
}

void AllToAllViews::move(ValueId operand, const Extents &before, ValueId result,
                         const Extents &after, const rules::FactorMap &map) {
  if (!before || !after || map.args.empty() || map.results.empty() || !map.args[0] ||
      !map.results[0] || map.args[0]->size() != before->size() ||
      map.results[0]->size() != after->size())
    return;
  Tracks tracks = tracks_.lookup(operand.index);
  const auto several = [](const rules::DimFactors &dim) { return dim.size() > 1; };
  if (before->size() < after->size() || llvm::any_of(*map.args[0], several)) {
    if (tracks.size() >= kViews) // an exchange has added one
      tracks.erase(tracks.begin(), tracks.end() - (kViews - 1));
    tracks.push_back(track_of(operand, before));
  }
  llvm::erase_if(tracks, [&](Track &track) { return !move(track, map, after); });
  keep(std::move(tracks), result, after);
}

// A tensor as itself.
AllToAllViews::Track AllToAllViews::track_of(ValueId value, const Extents &extents) {
  Track track;
  track.of = value;
  track.extents = *extents;
  for (unsigned d = 0; d < extents->size(); ++d)
    track.dims.push_back((*extents)[d] > 1 ? Dim{{int(d), 1, (*extents)[d]}} : Dim{});
  return track;
}

void AllToAllViews::keep(Tracks tracks, ValueId value, const Extents &extents) {
  for (const Track &track : tracks)
    if (std::optional<BlockLists::Joined> joined = join(track, extents)) {
      joined_[value.index] = *joined;
      returned_.insert(track.came.index);
      for (unsigned d = 0; d < track.dims.size(); ++d)
        if (const Dim &dim = track.dims[d]; dim.size() == 1 && dim[0].outer == 1 &&
                                            dim[0].dim != kRanks &&
                                            dim[0].extent == track.extents[dim[0].dim])
          kept_[value.index].push_back({unsigned(dim[0].dim), d});
      return;
    }
  if (!tracks.empty())
    tracks_[value.index] = std::move(tracks);
}

void AllToAllViews::copy(ValueId operand, ValueId result) {
  if (Tracks tracks = tracks_.lookup(operand.index); !tracks.empty())
    tracks_[result.index] = std::move(tracks);
}

void AllToAllViews::exchange(const rules::Application &app, ValueId operand, const Extents &before,
                             ValueId result, const Extents &after) {
  if (app.op.transition != rules::TransitionOp::AllToAll || !before || before != after)
    return;
  for (llvm::StringRef name : {"split_dim", "concat_dim"})
    if (rules::number_attr(app, {name}).value_or(0) != 0)
      return;
  rules::Outcome ignored;
  const std::optional<rules::CallAxes> called = rules::resolve_axes(app, {}, ignored);
  Tracks tracks = tracks_.lookup(operand.index);
  tracks.push_back(track_of(operand, before));
  llvm::erase_if(tracks, [&](Track &track) {
    if (!called || track.axes || track.dims.empty() || track.dims[0].empty())
      return true;
    track.axes = called->all();
    track.ranks = rules::size_of(app.mesh(), track.axes);
    track.came = result;
    Dim &front = track.dims[0];
    const Run first = front[0];
    if (first.outer != 1 || first.extent % track.ranks != 0)
      return true;
    track.split = unsigned(first.dim);
    front[0] = {kRanks, 1, track.ranks};
    if (first.extent > track.ranks)
      front.insert(front.begin() + 1, {first.dim, track.ranks, first.extent / track.ranks});
    return false;
  });
  keep(std::move(tracks), result, after);
}

// Where the parts of all ranks stand directly in front of the blocks of a dimension, they are the
// whole of it, and each rank has its part of the dimension that was split.
std::optional<BlockLists::Joined> AllToAllViews::join(const Track &track, const Extents &extents) {
  if (!track.axes)
    return std::nullopt;
  std::optional<unsigned> whole, cut, to;
  for (unsigned d = 0; d < track.dims.size(); ++d) {
    const Dim &dim = track.dims[d];
    for (size_t i = 0; i < dim.size(); ++i) {
      if (i == 0 && dim[i].dim == int(track.split) && dim[i].outer == track.ranks)
        cut = d;
      if (dim[i].dim != kRanks || i + 1 == dim.size() || dim[i + 1].dim == kRanks)
        continue;
      const int of = dim[i + 1].dim;
      int64_t outer = 1;
      for (size_t k = i + 1; k < dim.size() && dim[k].dim == of && dim[k].outer == outer; ++k)
        outer *= dim[k].extent;
      if (outer == track.extents[of] && i == 0)
        whole = unsigned(of), to = d;
    }
  }
  // Of as many as there are ranks each has one, which leaves no run.
  if (whole && !cut && track.extents[track.split] == track.ranks && llvm::count(*extents, 1) == 1)
    cut = unsigned(llvm::find(*extents, 1) - extents->begin());
  if (!whole || !cut || *whole == track.split)
    return std::nullopt;
  return BlockLists::Joined{track.of, track.axes, *whole, cut, std::pair(*to, track.split)};
}

} // namespace spmd::checker
