// Slices, and what writes them back; pads. Where a block begins is an attribute, or the number in
// an operand; how long it is, the tensors say.
#include "runtime/kernels/moves/moves.h"

namespace spmd::runtime {

using llvm::Expected;

namespace {

// A block of a dense array, one begin and one step per dimension of it; `removed`: a dimension that
// the block lacks.
struct Cut {
  Dims first, step;
  std::optional<unsigned> removed;
};

// A place that may count from the end, within an extent.
int64_t within(int64_t place, int64_t extent) {
  return std::clamp<int64_t>(place < 0 ? place + extent : place, 0, extent);
}

Cut no_cut(size_t rank) { return {Dims(rank, 0), Dims(rank, 1), std::nullopt}; }

class Cutter {
public:
  // `whole`: extents of what is cut; `part`: those of the block.
  Cutter(const MoveSite &at, const Dims &whole, const Dims &part)
      : at_(at), whole_(whole), part_(part) {}

  // `shift`: operands before the attributes by position.
  Expected<Cut> read(unsigned shift) {
    std::optional<int64_t> start;
    switch (at_.context.variant()) {
    case Variant::StridedStarts:
      return of_starts("start_indices", "strides");
    case Variant::StartOperands:
      return of_operands();
    case Variant::OneStartOperand:
      return of_dim(start_operand(), 1, shift);
    case Variant::Unrecorded:
      return cannot_run(at_.context, "its indices are not recorded");
    case Variant::OneEntry:
      start = start_operand();
      return of_dim(start ? start : at_.number({"index"}, shift + 1), 1, shift);
    case Variant::Length:
      start = start_operand();
      return of_dim(start ? start : at_.number({"start"}, shift + 1), 1, shift);
    default:
      start = at_.number({"start"}, shift + 1);
      if (!start)
        start = start_operand();
      return of_dim(start.value_or(0), at_.number({"step"}, shift + 3).value_or(1), shift);
    }
  }

private:
  // The first member of the operands that say where to begin.
  std::optional<int64_t> start_operand() const {
    std::optional<unsigned> arg = at_.arg("i");
    return arg ? std::optional(static_cast<int64_t>(at_.first(*arg))) : std::nullopt;
  }
  Expected<Cut> of_dim(std::optional<int64_t> start, int64_t step, unsigned shift) {
    Expected<unsigned> dim = at_.dim(whole_.size(), 0, shift);
    if (!dim)
      return dim.takeError();
    if (!start || step < 1)
      return cannot_run(at_.context, "its attributes do not say where it begins");
    Cut cut = no_cut(whole_.size());
    cut.first[*dim] = within(*start, whole_[*dim]);
    cut.step[*dim] = step;
    if (part_.size() + 1 == whole_.size())
      cut.removed = *dim;
    return cut;
  }
  Expected<Cut> of_starts(llvm::StringRef starts, llvm::StringRef steps) {
    std::optional<rules::Numbers> first = rules::numbers_attr(at_.context.app, {starts}),
                                  step = rules::numbers_attr(at_.context.app, {steps});
    Cut cut = no_cut(whole_.size());
    if (!first || first->size() != whole_.size() || (step && step->size() != whole_.size()))
      return cannot_run(at_.context, "its attributes do not say where it begins");
    cut.first.assign(first->begin(), first->end());
    if (step)
      cut.step.assign(step->begin(), step->end());
    return cut;
  }
  // A number per dimension, moved so that the block fits.
  Expected<Cut> of_operands() {
    Cut cut = no_cut(whole_.size());
    unsigned operand = at_.context.operand("i");
    llvm::SmallVector<bool, 5> given(whole_.size(), false);
    for (unsigned k = 0; k < at_.context.members(operand); ++k) {
      unsigned d = list_position(*at_.context.binding[operand], k);
      if (d >= whole_.size() || part_.size() != whole_.size())
        return cannot_run(at_.context, "it begins in more dimensions than there are");
      given[d] = true;
      auto first = static_cast<int64_t>(at_.first(*at_.arg("i", k)));
      first += first < 0 ? whole_[d] : 0;
      cut.first[d] = std::clamp<int64_t>(first, 0, whole_[d] - part_[d]);
    }
    for (size_t d = 0; d < whole_.size(); ++d)
      if (!given[d] && part_[d] != whole_[d])
        return cannot_run(at_.context, "where it begins is a number that its list does not keep");
    return cut;
  }

  const MoveSite &at_;
  const Dims &whole_, &part_;
  llvm::StringRef name_;
};

// The box of a block: its strides where it lies, and where it is cut from.
Expected<Box> cut_box(const MoveSite &at, const Dims &whole, const Dims &part, unsigned shift) {
  Expected<Cut> cut = Cutter(at, whole, part).read(shift);
  if (!cut)
    return cut.takeError();
  Strides strides = strides_of(whole);
  Box box = box_of(part);
  box.from_strides.clear();
  int64_t last = 0;
  for (unsigned d = 0, e = 0; d < whole.size(); ++d) {
    box.from += cut->first[d] * strides[d];
    last += cut->first[d] * strides[d];
    if (cut->removed == d)
      continue;
    if (e == part.size() || (part[e] && cut->first[d] + (part[e] - 1) * cut->step[d] >= whole[d]))
      return cannot_run(at.context, "it reaches beyond its operand");
    box.from_strides.push_back(strides[d] * cut->step[d]);
    ++e;
  }
  if (box.from_strides.size() != part.size() || (count(part) && last >= count(whole)))
    return cannot_run(at.context, "the block has another number of dimensions, or begins outside");
  return box;
}

// The diagonal that a block is of, as the box of a slice.
Expected<Box> diagonal_box(const MoveSite &at, const Dims &whole, const Dims &part,
                           unsigned shift) {
  int64_t offset = at.number({"offset"}, shift).value_or(0);
  std::optional<unsigned> a = rules::place_of(at.number({"dim1"}, shift + 1).value_or(0),
                                              whole.size()),
                          b = rules::place_of(at.number({"dim2"}, shift + 2).value_or(1),
                                              whole.size());
  if (!a || !b || a == b || part.size() + 1 != whole.size())
    return cannot_run(at.context, "a diagonal is one of two dimensions");
  Strides strides = strides_of(whole);
  Box box = box_of(part);
  box.from_strides.clear();
  for (unsigned d = 0; d < whole.size(); ++d)
    if (d != *a && d != *b)
      box.from_strides.push_back(strides[d]);
  box.from_strides.push_back(strides[*a] + strides[*b]);
  box.from = offset >= 0 ? offset * strides[*b] : -offset * strides[*a];
  return box;
}

void swap_ends(Box &box) {
  std::swap(box.from, box.to);
  std::swap(box.from_strides, box.to_strides);
}

} // namespace

Expected<Moves> slice(const MoveSite &at) {
  unsigned arg = *at.arg("a");
  Expected<Box> box = cut_box(at, at.dims(arg), *at.results[0], 1);
  if (!box)
    return box.takeError();
  Moves moves;
  moves.list.push_back({arg, 0, std::move(*box)});
  return moves;
}

Expected<Moves> slice_backward(const MoveSite &at) {
  unsigned arg = *at.arg("g");
  const Dims &whole = *at.results[0], &part = at.dims(arg);
  bool diagonal = at.context.variant() == Variant::Diagonal;
  // By position, the extents of the result stand before the other attributes.
  Expected<Box> box = diagonal ? diagonal_box(at, whole, part, 2) : cut_box(at, whole, part, 2);
  if (!box)
    return box.takeError();
  swap_ends(*box);
  Moves moves;
  moves.list.push_back({arg, 0, std::move(*box)});
  return moves;
}

Expected<Moves> slice_scatter(const MoveSite &at) {
  unsigned target = *at.arg("a");
  std::optional<unsigned> source = at.arg("s");
  const Dims &whole = at.dims(target);
  Moves moves;
  moves.list.push_back({target, 0, box_of(whole)});
  if (!source)
    return cannot_run(at.context, "what it writes is no tensor");
  const Dims &part = at.dims(*source);
  if (at.context.variant() == Variant::Strided) {
    std::optional<rules::Numbers> strides =
        rules::numbers_attr(at.context.app, {"stride", "strides"});
    if (!strides || strides->size() != part.size())
      return cannot_run(at.context, "its attributes do not say its strides");
    Box box = box_of(part);
    box.to_strides.assign(strides->begin(), strides->end());
    box.to = at.number({"storage_offset"}, 4).value_or(0);
    int64_t last = box.to;
    for (size_t d = 0; d < part.size(); ++d)
      last += std::max<int64_t>(part[d] - 1, 0) * box.to_strides[d];
    if (count(part) && last >= count(whole))
      return cannot_run(at.context, "it reaches beyond its operand");
    moves.list.push_back({*source, 0, std::move(box)});
    return moves;
  }
  Expected<Box> box = at.context.variant() == Variant::Diagonal ? diagonal_box(at, whole, part, 2)
                                                                : cut_box(at, whole, part, 2);
  if (!box)
    return box.takeError();
  swap_ends(*box);
  moves.list.push_back({*source, 0, std::move(*box)});
  return moves;
}

// Pads.

namespace {

// Elements before, after and between, per dimension; negative ones cut.
struct Padding {
  Dims before, after, between;
};

Expected<Padding> padding_of(const MoveSite &at, size_t rank) {
  Padding padding{Dims(rank, 0), Dims(rank, 0), Dims(rank, 0)};
  const rules::Application &app = at.context.app;
  if (const ir::AttrValue *config = rules::any_attr(app, {"padding_config"})) {
    for (unsigned d = 0; d < rank; ++d) {
      std::optional<ir::AttrValue> part = rules::attr_part(app, *config, "", d);
      std::optional<rules::Numbers> numbers = part ? rules::numbers_of(app, *part) : std::nullopt;
      if (!numbers || numbers->size() != 3)
        return cannot_run(at.context, "its padding is not three numbers per dimension");
      padding.before[d] = (*numbers)[0];
      padding.after[d] = (*numbers)[1];
      padding.between[d] = (*numbers)[2];
    }
    return padding;
  }
  std::optional<rules::Numbers> pad = rules::numbers_attr(app, {"pad", "padding"});
  if (!pad || pad->size() % 2 || pad->size() / 2 > rank)
    return cannot_run(at.context, "its attributes do not say the padding");
  for (size_t i = 0; i < pad->size() / 2; ++i) { // from the last dimension on
    padding.before[rank - 1 - i] = (*pad)[2 * i];
    padding.after[rank - 1 - i] = (*pad)[2 * i + 1];
  }
  return padding;
}

Expected<Moves> pad_with(const MoveSite &at, unsigned arg, unsigned value) {
  const Dims &from = at.dims(arg), &to = *at.results[0];
  Expected<Padding> padding = padding_of(at, from.size());
  if (!padding)
    return padding.takeError();
  Strides from_strides = strides_of(from), to_strides = strides_of(to);
  Box box;
  for (size_t d = 0; d < from.size(); ++d) {
    int64_t step = padding->between[d] + 1, before = padding->before[d];
    // The elements that fall into the result.
    int64_t first = before < 0 ? (-before + step - 1) / step : 0;
    int64_t place = before + first * step;
    int64_t room = place < to[d] ? (to[d] - place + step - 1) / step : 0;
    box.extents.push_back(std::clamp<int64_t>(from[d] - first, 0, room));
    box.from_strides.push_back(from_strides[d]);
    box.to_strides.push_back(to_strides[d] * step);
    box.from += first * from_strides[d];
    box.to += place * to_strides[d];
  }
  Moves moves;
  moves.fill = value;
  moves.list.push_back({arg, 0, std::move(box)});
  return moves;
}

// Where the elements of a padded dimension come from; out of range: there are too many of them.
using Source = int64_t (*)(int64_t place, int64_t extent);
int64_t reflected(int64_t place, int64_t extent) {
  return place < 0 ? -place : place >= extent ? 2 * (extent - 1) - place : place;
}
int64_t replicated(int64_t place, int64_t extent) {
  return std::clamp<int64_t>(place, 0, extent - 1);
}
int64_t wrapped(int64_t place, int64_t extent) {
  return place < 0 ? place + extent : place >= extent ? place - extent : place;
}

// A run of positions in a row of the result that come from a run in the operand.
struct Run {
  int64_t to, from, length, step;
};
bool add_runs(int64_t before, int64_t extent, int64_t result, Source source,
              llvm::SmallVectorImpl<Run> &runs) {
  for (int64_t i = 0; i < result; ++i) {
    int64_t from = source(i - before, extent);
    if (from < 0 || from >= extent)
      return false;
    if (!runs.empty()) {
      Run &last = runs.back();
      int64_t step = from - last.from;
      if (last.length == 1 && step >= -1 && step <= 1) {
        last.step = step, ++last.length;
        continue;
      }
      if (last.length > 1 && from == last.from + last.length * last.step) {
        ++last.length;
        continue;
      }
    }
    runs.push_back({i, from, 1, 1});
  }
  return true;
}

Expected<Moves> pad_from(const MoveSite &at, Source source) {
  unsigned arg = *at.arg("a");
  const Dims &from = at.dims(arg), &to = *at.results[0];
  Expected<Padding> padding = padding_of(at, from.size());
  if (!padding)
    return padding.takeError();
  Strides from_strides = strides_of(from), to_strides = strides_of(to);
  Moves moves;
  moves.list.push_back({arg, 0, {}});
  for (size_t d = 0; d < from.size(); ++d) {
    llvm::SmallVector<Run, 4> runs;
    if (!add_runs(padding->before[d], from[d], to[d], source, runs))
      return cannot_run(at.context, "its padding is longer than the dimension");
    llvm::SmallVector<Move, 4> longer;
    for (const Move &move : moves.list)
      for (const Run &run : runs) {
        longer.push_back(move);
        Box &box = longer.back().box;
        box.extents.push_back(run.length);
        box.from_strides.push_back(from_strides[d] * run.step);
        box.to_strides.push_back(to_strides[d]);
        box.from += run.from * from_strides[d];
        box.to += run.to * to_strides[d];
      }
    moves.list = std::move(longer);
  }
  return moves;
}

} // namespace

Expected<Moves> constant_pad(const MoveSite &at) {
  llvm::StringRef mode = rules::word_attr(at.context.app, {"mode"});
  if (mode == "reflect")
    return pad_from(at, reflected);
  if (mode == "replicate")
    return pad_from(at, replicated);
  if (mode == "circular")
    return pad_from(at, wrapped);
  return pad_with(at, *at.arg("a"), at.context.operand("v"));
}
Expected<Moves> reflection_pad(const MoveSite &at) { return pad_from(at, reflected); }
Expected<Moves> replication_pad(const MoveSite &at) { return pad_from(at, replicated); }
Expected<Moves> circular_pad(const MoveSite &at) { return pad_from(at, wrapped); }

} // namespace spmd::runtime
