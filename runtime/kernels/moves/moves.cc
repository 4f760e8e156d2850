// What plans of moves are made from, the loops of a box, and the way back.
#include "runtime/kernels/moves/moves.h"

namespace spmd::runtime {

template <> Residue element(double number) { return residue_of(number); }

Box simplified(const Box &box) {
  struct Loop {
    int64_t extent, from, to;
  };
  llvm::SmallVector<Loop, 6> loops;
  for (size_t d = 0; d < box.extents.size(); ++d)
    if (box.extents[d] != 1)
      loops.push_back({box.extents[d], box.from_strides[d], box.to_strides[d]});
  llvm::stable_sort(loops,
                    [](const Loop &a, const Loop &b) { return std::abs(a.to) > std::abs(b.to); });
  Box made;
  made.from = box.from, made.to = box.to;
  for (const Loop &loop : loops) {
    bool continues = !made.extents.empty() && made.from_strides.back() == loop.from * loop.extent &&
                     made.to_strides.back() == loop.to * loop.extent;
    if (continues) {
      made.extents.back() *= loop.extent;
      made.from_strides.back() = loop.from;
      made.to_strides.back() = loop.to;
    } else {
      made.extents.push_back(loop.extent);
      made.from_strides.push_back(loop.from);
      made.to_strides.push_back(loop.to);
    }
  }
  return made;
}

std::optional<unsigned> MoveSite::arg(std::string_view operand, unsigned member) const {
  unsigned place = context.operand(operand);
  if (place >= context.row.equation.equation.operand_count || member >= context.members(place))
    return std::nullopt;
  return context.binding[place]->first + member;
}

std::optional<int64_t> MoveSite::number(std::initializer_list<llvm::StringRef> names,
                                        unsigned position) const {
  std::optional<double> found = argument(context, names, position);
  return found ? std::optional(static_cast<int64_t>(*found)) : std::nullopt;
}

llvm::Expected<unsigned> MoveSite::dim(size_t rank, int64_t absent, unsigned position) const {
  std::optional<int64_t> stated = rules::dim_number(context.app);
  if (!stated && rules::dim_attr(context.app))
    return cannot_run(context, "its dimension is no number");
  if (!stated && position != ~0u)
    stated = number({}, position);
  std::optional<unsigned> place = rules::place_of(stated.value_or(absent), rank);
  if (!place)
    return cannot_run(context, "it has no such dimension");
  return *place;
}

Box box_between(llvm::ArrayRef<int64_t> extents, llvm::ArrayRef<int64_t> from,
                llvm::ArrayRef<int64_t> to) {
  return {Dims(extents.begin(), extents.end()), strides_of(from), strides_of(to), 0, 0};
}
Box box_of(llvm::ArrayRef<int64_t> dims) { return box_between(dims, dims, dims); }

static Box back_of(Box box) {
  std::swap(box.from, box.to);
  std::swap(box.from_strides, box.to_strides);
  return box;
}

bool covers(const Box &box, int64_t size) {
  llvm::SmallVector<std::pair<int64_t, int64_t>, 6> loops; // step, extent
  for (size_t d = 0; d < box.extents.size(); ++d)
    if (box.extents[d] != 1)
      loops.push_back({box.to_strides[d], box.extents[d]});
  llvm::sort(loops);
  int64_t run = 1;
  for (const auto &[step, extent] : loops) {
    if (step != run)
      return false;
    run *= extent;
  }
  return run == size && box.to == 0;
}

llvm::Expected<bool> put_back(const VjpCall &vjp, MovePlan plan) {
  const Call<double> &call = vjp.call;
  llvm::SmallVector<const Dims *, 6> args, results;
  for (const View<const double> &arg : call.args)
    args.push_back(arg.dims);
  for (const View<const double> &gradient : vjp.gradients)
    results.push_back(gradient.dims);
  auto first = [&](unsigned arg) { return call.args[arg][0]; };
  llvm::Expected<Moves> moves = plan({call.context, args, results, first});
  if (!moves)
    return moves.takeError();
  if (moves->fill == vjp.operand)
    return false;
  llvm::SmallVector<unsigned, 2> boxes(results.size(), 0);
  for (const Move &move : moves->list)
    if (++boxes[move.result] > 1)
      return false;
  unsigned asked = call.context.binding[vjp.operand]->first + vjp.member;
  llvm::SmallVector<std::pair<const double *, Box>, 2> back;
  for (const Move &move : moves->list)
    if (move.arg == asked && vjp.gradients[move.result])
      back.push_back({vjp.gradients[move.result].data, back_of(move.box)});
  bool covered = back.size() == 1 && covers(back[0].second, vjp.result.size());
  if (!covered)
    std::fill_n(vjp.result.data, vjp.result.size(), 0.0);
  for (const auto &[from, box] : back)
    covered ? copy_box(from, vjp.result.data, box) : add_box(from, vjp.result.data, box);
  return true;
}

} // namespace spmd::runtime
