// One step for each group of axes with the same words, on the pieces along these axes.
#include "runtime/reference/moves.h"

#include "rules/shapes/attrs.h"

#include "ir/support/check.h"
#include "ir/support/error.h"

#include "llvm/ADT/STLExtras.h"

#include <fmt/format.h>

namespace spmd::runtime {

using ir::AxisId;
using ir::AxisSet;
using ir::Kind;
using ir::WrittenKind;

namespace {

using Pieces = std::vector<Tensor>;
using Lengths = llvm::SmallVector<int64_t, 8>;

bool is_average(const rules::TransitionCall &call) { return call.combiner == ir::Combiner::Avg; }

// One call over the ranks of these axes, outermost first; none: over an axis of size 1.
struct Step {
  rules::AxisEffect effect;
  llvm::SmallVector<AxisId, 4> axes;
};

AxisSet set_of(llvm::ArrayRef<AxisId> axes) {
  AxisSet set;
  for (AxisId axis : axes)
    set |= axis;
  return set;
}

llvm::SmallVector<Step, 2> steps_of(const MovedValue &value) {
  const rules::Application &app = value.app;
  const rules::TensorInfo &arg = app.args[value.operand];
  const ir::Type &type = app.type(arg);
  const ir::Shape *declared = nullptr;
  if (value.operand < app.results.size() && app.results[value.operand].shape.valid())
    declared = &app.program.shapes[app.results[value.operand].shape];
  AxisSet per_rank = app.local_axes() | (type.of(Kind::Varying) - type.sharded());
  rules::TransitionOperand view{
      app, value.call, type, app.shape(arg), declared, app.mesh().typed_axes() - per_rank};
  llvm::SmallVector<Step, 2> steps;
  auto step = [&](size_t written, std::optional<AxisId> axis) {
    rules::AxisEffect effect = rules::effect_of(view, written, axis);
    if (steps.empty() || !(steps.back().effect == effect))
      steps.push_back({effect, {}});
    if (axis)
      steps.back().axes.push_back(*axis);
  };
  for (size_t i = 0; i < value.call.axes.written.size(); ++i) {
    llvm::ArrayRef<AxisId> pieces = value.call.axes.written[i].axes;
    for (AxisId axis : pieces)
      step(i, axis);
    if (pieces.empty())
      step(i, std::nullopt);
  }
  return steps;
}

// The pieces along some axes, for each coordinate of the lists on the others.
class PiecesAlongAxes {
public:
  PiecesAlongAxes(const ir::Mesh &mesh, llvm::ArrayRef<AxisId> axes, AxisSet others)
      : mesh_(mesh), axes_(axes), others_(mesh, others) {
    for (AxisId axis : axes)
      size_ *= mesh[axis].size();
  }

  int64_t size() const { return size_; }
  int64_t groups() const { return others_.size(); }

  Pieces group(const Meaning &meaning, int64_t g) const {
    Grid per_rank(mesh_, meaning.per_rank);
    Pieces pieces;
    for (int64_t i = 0; i < size_; ++i)
      pieces.push_back(meaning.pieces[static_cast<size_t>(per_rank.position(at(g, i)))]);
    return pieces;
  }
  // Puts a group back: one piece where the axes are no list any more.
  void put(Meaning &meaning, int64_t g, Pieces pieces) const {
    Grid per_rank(mesh_, meaning.per_rank);
    meaning.pieces.resize(static_cast<size_t>(per_rank.size()));
    for (size_t i = 0; i < pieces.size(); ++i)
      meaning.pieces[static_cast<size_t>(per_rank.position(at(g, static_cast<int64_t>(i))))] =
          std::move(pieces[i]);
  }

  // Of piece i of a group.
  Grid::Coordinates at(int64_t g, int64_t i) const {
    Grid::Coordinates at = others_.coordinates(g);
    for (AxisId axis : llvm::reverse(axes_)) {
      at[axis.index] = i % mesh_[axis].size();
      i /= mesh_[axis].size();
    }
    return at;
  }

private:
  const ir::Mesh &mesh_;
  llvm::ArrayRef<AxisId> axes_;
  Grid others_;
  int64_t size_ = 1;
};

// What one step does to the pieces of one group along its axes.
class StepOnPieces {
public:
  StepOnPieces(const MovedValue &value, const Step &step, const PiecesAlongAxes &groups,
               int64_t group)
      : value_(value), step_(step), groups_(groups), group_(group), ranks_(groups.size()) {}

  // `listed`, `per_rank`: whether the operand and the result differ by rank along the axes; else
  // they are one piece.
  llvm::Expected<Pieces> run(Pieces pieces, bool listed, bool per_rank) const {
    if (step_.effect.identity || !step_.effect.row)
      return pieces;
    using rules::TransitionOp;
    const TransitionOp op = step_.effect.row->op;
    if (step_.effect.row->src == Kind::Partial && listed)
      pieces = {joined_by(pieces, value_.call.asked(step_.effect.src))}, listed = false;
    if (op == TransitionOp::ReduceScatter || (op == TransitionOp::Convert && per_rank && !listed))
      return per_rank ? cut(pieces.front()) : pieces;
    if (op == TransitionOp::Reduce)
      return at_root(pieces.front());
    if (!listed)
      return per_rank ? Pieces(static_cast<size_t>(ranks_), pieces.front()) : pieces;
    switch (op) {
    case TransitionOp::AllGather:
    case TransitionOp::Convert:
      return joined(std::move(pieces), per_rank);
    case TransitionOp::Reinterpret:
      return Pieces{joined_by(pieces, step_.effect.dst.combiner)};
    case TransitionOp::Broadcast:
      return of_root(pieces);
    case TransitionOp::CollectivePermute:
      return permuted(pieces);
    case TransitionOp::AllToAll:
      return exchanged(pieces);
    default:
      report_bug(__FILE__, __LINE__, "a transition that does not move pieces");
    }
  }

private:
  const rules::Application &app() const { return value_.app; }
  unsigned rank_of(bool result) const {
    const Distribution &end = result ? value_.to : value_.from;
    return static_cast<unsigned>(end.whole().size());
  }
  // Whether a dimension is made or taken: as the words say, else as the declared ranks do.
  bool stacks() const {
    const rules::AxisEffect &effect = step_.effect;
    return effect.src_stated ? effect.src.form != WrittenKind::Form::Shard
                             : rank_of(true) > rank_of(false);
  }
  bool unbinds() const {
    const rules::AxisEffect &effect = step_.effect;
    return effect.dst_stated ? effect.dst.form != WrittenKind::Form::Shard
                             : rank_of(true) < rank_of(false);
  }

  llvm::Expected<unsigned> dim(const WrittenKind *word, llvm::StringRef key, unsigned rank) const {
    int64_t dim = rules::number_attr(app(), {key}).value_or(0);
    if (word && word->form == WrittenKind::Form::Shard)
      dim = word->dim;
    if (std::optional<unsigned> place = rules::place_of(dim, rank))
      return *place;
    return make_error(fmt::format("there is no dimension {}", dim));
  }
  llvm::Expected<Lengths> lengths(llvm::StringRef key, int64_t extent, int64_t piece) const {
    Lengths lengths;
    llvm::Expected<Lengths> said = value_.stated_lengths(key, groups_.at(group_, piece));
    if (!said || !said->empty())
      return said;
    const ir::AttrValue *stated = app().attr(key);
    if (!stated || stated->form == ir::AttrForm::Null) {
      if (extent % ranks_ != 0)
        return make_error(fmt::format("{} elements do not divide by {}", extent, ranks_));
      lengths.assign(static_cast<size_t>(ranks_), extent / ranks_);
      return lengths;
    }
    std::optional<rules::Numbers> numbers = rules::numbers_attr(app(), {key});
    if (!numbers || static_cast<int64_t>(numbers->size()) != ranks_)
      return make_error(fmt::format("{} are no numbers, one for each rank", key.str()));
    lengths.assign(numbers->begin(), numbers->end());
    return lengths;
  }
  bool says(llvm::StringRef key) const {
    return llvm::any_of(app().slots, [&](const rules::Slot &slot) {
      return slot.name.valid() && slot.count > 0 && app().program.strings[slot.name] == key;
    });
  }
  llvm::Expected<size_t> root() const {
    int64_t root = rules::number_attr(app(), {"root"}).value_or(0);
    if (root < 0 || root >= ranks_)
      return make_error(fmt::format("there is no root {} among {} ranks", root, ranks_));
    return static_cast<size_t>(root);
  }

  static Tensor joined_by(llvm::ArrayRef<Tensor> pieces, ir::Combiner combiner) {
    Tensor sum = pieces.front();
    for (const Tensor &piece : pieces.drop_front())
      combine_into(sum, piece, combiner);
    return sum;
  }

  llvm::Expected<Pieces> joined(Pieces pieces, bool per_rank) const {
    bool stack = stacks();
    auto at = dim(stack ? nullptr : &step_.effect.src, "dim", rank_of(stack));
    if (!at)
      return at.takeError();
    Tensor made = stack ? stacked(pieces, *at) : concatenated(pieces, *at);
    return Pieces(per_rank ? static_cast<size_t>(ranks_) : 1, made);
  }

  llvm::Expected<Pieces> cut(const Tensor &whole) const {
    auto at = dim(unbinds() ? nullptr : &step_.effect.dst, "dim", rank_of(false));
    if (!at)
      return at.takeError();
    Pieces pieces;
    if (unbinds()) {
      for (int64_t i = 0; i < ranks_; ++i)
        pieces.push_back(taken(whole, *at, i));
      return pieces;
    }
    return chunks(whole, *at, "splits", 0);
  }

  llvm::Expected<Pieces> chunks(const Tensor &whole, unsigned at, llvm::StringRef key,
                                int64_t piece) const {
    llvm::Expected<Lengths> stated = lengths(key, whole.dims[at], piece);
    if (!stated)
      return stated.takeError();
    if (static_cast<int64_t>(stated->size()) != ranks_)
      return make_error(fmt::format("{} are no numbers, one for each rank", key.str()));
    int64_t first = 0;
    Pieces pieces;
    for (int64_t length : *stated) {
      if (length < 0 || first + length > whole.dims[at])
        return make_error(
            fmt::format("{} ask for more than {} elements", key.str(), whole.dims[at]));
      pieces.push_back(slice_of(whole, at, first, length));
      first += length;
    }
    return pieces;
  }

  llvm::Expected<Pieces> of_root(llvm::ArrayRef<Tensor> pieces) const {
    llvm::Expected<size_t> from = root();
    if (!from)
      return from.takeError();
    return Pieces{pieces[*from]};
  }

  llvm::Expected<Pieces> at_root(const Tensor &whole) const {
    llvm::Expected<size_t> to = root();
    if (!to)
      return to.takeError();
    Pieces pieces(static_cast<size_t>(ranks_), zeros_like(whole, whole.dims));
    pieces[*to] = whole;
    return pieces;
  }

  llvm::Expected<Pieces> permuted(llvm::ArrayRef<Tensor> pieces) const {
    const ir::AttrValue *perm = app().attr("perm");
    if (!perm || perm->form != ir::AttrForm::List)
      return make_error("perm is no list of pairs");
    Pieces moved(pieces.size(), zeros_like(pieces.front(), pieces.front().dims));
    for (const ir::AttrValue &pair : app().program.lists[perm->as<ir::AttrListId>()].items) {
      std::optional<rules::Numbers> ends = rules::numbers_of(app(), pair);
      bool right = ends && ends->size() == 2 &&
                   llvm::all_of(*ends, [&](int64_t end) { return end >= 0 && end < ranks_; });
      if (!right)
        return make_error("perm is no list of pairs of ranks");
      moved[static_cast<size_t>((*ends)[1])] = pieces[static_cast<size_t>((*ends)[0])];
    }
    return moved;
  }

  // Each piece is cut, and each rank gets one part of all.
  llvm::Expected<Pieces> exchanged(llvm::ArrayRef<Tensor> pieces) const {
    bool stated = step_.effect.src_stated && step_.effect.dst_stated;
    bool shards = step_.effect.src.form == WrittenKind::Form::Shard;
    bool stack = stated && !shards && !app().attr("in_splits") && !app().attr("out_splits") &&
                 !says("in_splits") && !says("out_splits");
    auto split = dim(shards ? &step_.effect.dst : nullptr, "split_dim", rank_of(false));
    auto join = dim(shards ? &step_.effect.src : nullptr, "concat_dim", rank_of(false));
    if (!split || !join)
      return llvm::joinErrors(split.takeError(), join.takeError());
    std::vector<Pieces> parts;
    for (size_t from = 0; from < pieces.size(); ++from) {
      llvm::Expected<Pieces> cut =
          chunks(pieces[from], *split, "in_splits", static_cast<int64_t>(from));
      if (!cut)
        return cut.takeError();
      parts.push_back(std::move(*cut));
    }
    Pieces made;
    for (size_t to = 0; to < pieces.size(); ++to) {
      Pieces got;
      for (Pieces &from : parts)
        got.push_back(stack ? taken(from[to], *split, 0) : std::move(from[to]));
      made.push_back(stack ? stacked(got, *join) : concatenated(got, *join));
    }
    return made;
  }

  const MovedValue &value_;
  const Step &step_;
  const PiecesAlongAxes &groups_;
  int64_t group_, ranks_;
};

bool is_list(Kind kind) { return kind == Kind::Varying || kind == Kind::Partial; }

llvm::Expected<Meaning> step_on(const MovedValue &value, const Step &step, const Meaning &meaning) {
  const ir::Mesh &mesh = value.app.mesh();
  AxisSet axes = set_of(step.axes);
  bool listed = !(meaning.per_rank & axes).empty(),
       per_rank = !(value.to.per_rank_axes() & axes).empty();
  if (axes.empty()) { // one piece, which may be stacked or cut all the same
    listed = is_list(step.effect.src.kind), per_rank = is_list(step.effect.dst.kind);
  } else if (listed && (meaning.per_rank & axes) != axes)
    return make_error("the value is a list along some axes of the call, and no list along others");
  if (!listed && !per_rank)
    return meaning;
  AxisSet others = meaning.per_rank - axes;
  PiecesAlongAxes groups(mesh, step.axes, others);
  Meaning made{per_rank ? others | axes : others, {}};
  for (int64_t g = 0; g < groups.groups(); ++g) {
    Pieces pieces = groups.group(meaning, g);
    if (!listed)
      pieces.resize(1);
    llvm::Expected<Pieces> after =
        StepOnPieces(value, step, groups, g).run(std::move(pieces), listed, per_rank);
    if (!after)
      return after.takeError();
    if (after->size() != (per_rank ? static_cast<size_t>(groups.size()) : 1))
      return make_error("its operand is of no known kind");
    groups.put(made, g, std::move(*after));
  }
  return made;
}

bool joins(const Step &step) {
  return step.effect.row && (step.effect.row->op == rules::TransitionOp::AllGather ||
                             (step.effect.row->op == rules::TransitionOp::Convert &&
                              step.effect.row->src == Kind::Varying));
}

} // namespace

llvm::Expected<Meaning> moved(const MovedValue &value, const Meaning &meaning) {
  llvm::SmallVector<Step, 2> steps = steps_of(value);
  // Of blocks within blocks the innermost axis joins first.
  if (!steps.empty() && joins(steps.front()))
    std::reverse(steps.begin(), steps.end());
  Meaning made = meaning;
  for (const Step &step : steps) {
    llvm::Expected<Meaning> next = step_on(value, step, made);
    if (!next)
      return next.takeError();
    made = std::move(*next);
  }
  return made;
}

Rational factor_of(const MovedValue &value) {
  const rules::Application &app = value.app;
  // Nothing on one device stands for these.
  AxisSet uncounted = app.program.local_axes(app.op_context().mesh);
  Rational factor{1, 1};
  for (const Step &step : steps_of(value)) {
    const WrittenKind &src = step.effect.src, &dst = step.effect.dst;
    bool sums = step.effect.row && step.effect.row->src == Kind::Partial;
    bool counts = step.effect.row && step.effect.row->op == rules::TransitionOp::Reinterpret &&
                  src.kind != Kind::Varying && src.kind != Kind::Partial &&
                  dst.kind == Kind::Partial;
    for (AxisId axis : step.axes) {
      int64_t size = app.mesh()[axis].size();
      if (sums && is_average(value.call) &&
          (uncounted.contains(axis) || value.from.per_rank_axes().contains(axis)))
        factor.second *= size;
      if (counts && uncounted.contains(axis))
        factor.first *= size;
    }
  }
  return factor;
}

Meaning transposed(llvm::function_ref<llvm::Expected<Meaning>(const Meaning &)> map,
                   const Meaning &like, const Meaning &gradient) {
  Meaning made{like.per_rank, {}};
  Meaning numbering{like.per_rank, {}};
  for (const Tensor &piece : like.pieces) {
    // Accumulated in the form of the gradient's cells.
    made.pieces.push_back(zeros_like(gradient.pieces.front(), piece.dims));
    made.pieces.back().dtype = piece.dtype;
    numbering.pieces.push_back(
        {ir::DType::F64, piece.dims, std::vector<double>(static_cast<size_t>(piece.size()))});
  }
  for (size_t p = 0; p < like.pieces.size(); ++p) {
    // Where each element of one piece went: its place, counted from 1, among zeros.
    std::vector<double> &ids = numbering.pieces[p].of<double>();
    for (size_t i = 0; i < ids.size(); ++i)
      ids[i] = static_cast<double>(i + 1);
    llvm::Expected<Meaning> went = map(numbering);
    SPMD_CHECK(static_cast<bool>(went), "a map that went forward");
    for (size_t q = 0; q < went->pieces.size(); ++q) {
      const std::vector<double> &from = went->pieces[q].of<double>();
      made.pieces[p].visit([&](auto &cells) {
        using Cell = typename std::decay_t<decltype(cells)>::value_type;
        const std::vector<Cell> &worth = gradient.pieces[q].of<Cell>();
        for (size_t i = 0; i < from.size(); ++i)
          if (from[i] > 0)
            cells[static_cast<size_t>(from[i]) - 1] += worth[i];
      });
    }
    std::fill(ids.begin(), ids.end(), 0.0);
  }
  return made;
}

} // namespace spmd::runtime
