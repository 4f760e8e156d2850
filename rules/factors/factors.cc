// Writing a map of factors, and the maps of ops whose results are sized by an attribute or by one
// of their operands.
#include "rules/factors/factors.h"

#include "rules/shapes/attrs.h"
#include "rules/shapes/checked.h"
#include "rules/shapes/extent_facts.h"
#include "rules/violations/operands.h"

#include "llvm/ADT/STLExtras.h"

#include <fmt/format.h>

#include <bit>

namespace spmd::rules {

using ir::Extent;

unsigned FactorSink::count(unsigned operand) const {
  bool there = operand < equation_.operand_count && binding_[operand];
  return there ? binding_[operand]->count : 0;
}

unsigned FactorSink::position(unsigned operand, unsigned member) const {
  const Slot &slot = *binding_[operand];
  if (slot.form != Slot::Form::List || slot.literal.form != ir::AttrForm::Integer)
    return member;
  // A list with gaps says by bits which of its places hold a tensor: the place is that of the bit
  // that is left when those of the members before it are cleared, the lowest first.
  uint64_t present = slot.literal.bits;
  for (; member; --member)
    present &= present - 1;
  return static_cast<unsigned>(std::countr_zero(present));
}

const ir::Shape *FactorSink::shape(unsigned operand, unsigned member) const {
  if (member >= count(operand))
    return nullptr;
  const ir::Shape *shape = app_.shape(app_.args[arg(operand, member)]);
  return shape && shape->ranked ? shape : nullptr;
}

ir::AxisSet axes_cutting(const Application &app, size_t arg, unsigned dim) {
  const ir::Type &type = app.type(app.args[arg]);
  ir::AxisSet axes;
  for (ir::AxisId axis : type.sharded() & app.global_axes())
    if (type.dim(axis) == dim)
      axes |= axis;
  return axes;
}

bool FactorSink::cut(unsigned operand, unsigned member, unsigned dim) const {
  return !axes_cutting(app_, arg(operand, member), dim).empty();
}

TensorFactors FactorSink::fresh(unsigned operand, unsigned member) {
  TensorFactors factors;
  for (Extent extent : shape(operand, member)->dims)
    factors.push_back({map_.add(extent)});
  set(operand, member, factors);
  return factors;
}

TensorFactors FactorSink::fresh_whole(unsigned operand) {
  TensorFactors factors = fresh(operand);
  for (const DimFactors &dim : factors)
    whole(dim);
  return factors;
}

void FactorSink::fresh_whole_from(unsigned first) {
  for (unsigned i = first; i < equation_.operand_count; ++i)
    if (count(i) == 1 && shape(i))
      fresh_whole(i);
}

void FactorSink::set(unsigned operand, unsigned member, TensorFactors factors) {
  map_.args[arg(operand, member)] = std::move(factors);
}

// Broadcasting as in NumPy: one element is stretched over what the others have there, so that any
// other extent takes the place of 1 (numpy.org, "Broadcasting").
bool FactorSink::unify(uint8_t factor, Extent extent, unsigned operand, unsigned member,
                       unsigned dim) {
  std::optional<Extent> &known = map_.factors[factor].extent;
  if (!known || *known == Extent(1))
    known = extent;
  if (*known == extent || extent == Extent(1))
    return true;
  // A symbol may come to 1, which is stretched.
  bool one = compare(app_.program, *known, Extent(1)) != Equality::Different ||
             compare(app_.program, extent, Extent(1)) != Equality::Different;
  Equality equality = compare(app_.program, *known, extent);
  if (equality == Equality::Different && !one)
    return clash(*known, extent, operand, member, dim);
  if (equality != Equality::Equal)
    out_.undecided.push_back(undecided(app_.program, place(operand, member, dim), *known, extent));
  // Which of the two is stretched decides what the result has, and nobody knows it. Where both must
  // be one extent a number says more than a symbol.
  if (equality != Equality::Equal && one)
    known = std::nullopt;
  else if (extent.is_number())
    known = extent;
  return true;
}

bool FactorSink::equal(uint8_t factor, Extent extent, unsigned operand, unsigned member,
                       unsigned dim) {
  std::optional<Extent> &known = map_.factors[factor].extent;
  // A rank may hold a single element of a dimension that is cut: that is no 1 to be stretched. It
  // binds this member and the first one, which gave the extent that it is held against.
  map_.factors[factor].strict = true;
  map_.multiplied.resize(app_.args.size());
  map_.multiplied.set(arg(operand, 0));
  map_.multiplied.set(arg(operand, member));
  if (known && !rules::may_be_equal(app_.program, *known, extent, out_.undecided,
                                    [&] { return place(operand, member, dim); }))
    return clash(*known, extent, operand, member, dim);
  if (!known || !known->is_number())
    known = extent;
  return true;
}

std::string FactorSink::place(unsigned operand, unsigned member, unsigned dim) const {
  return fmt::format("dimension {} of operand {} and what the other operands have there", dim,
                     arg(operand, member));
}

bool FactorSink::clash(Extent known, Extent found, unsigned operand, unsigned member,
                       unsigned dim) {
  return mismatch(place(operand, member, dim),
                  ir::print(known, app_.program.exprs, app_.program.strings),
                  ir::print(found, app_.program.exprs, app_.program.strings));
}

bool FactorSink::mismatch(std::string what, std::string expected, std::string found,
                          ir::AxisSet axes) {
  map_.mismatched = true;
  // Extents are those of one rank, so that a wrong cut shows as a wrong extent: what follows on the
  // axes of the first operand that is cut is not known.
  for (size_t i = 0; axes.empty() && i < app_.args.size(); ++i)
    if (app_.type(app_.args[i]).mesh() == app_.op_context().mesh)
      axes = app_.type(app_.args[i]).sharded() & app_.global_axes();
  out_.violations.push_back(
      ShapeMismatch{std::move(what), std::move(expected), std::move(found), axes});
  return false;
}

bool FactorSink::may_be_equal(Extent a, Extent b, std::string what) {
  return rules::may_be_equal(app_.program, a, b, out_.undecided, [&] { return what; });
}

bool FactorSink::may_divide(Extent extent, Extent n, std::string what) {
  return rules::may_divide(app_.program, extent, n, out_.undecided, [&] { return what; });
}

bool unknown_factors(const Application &, FactorSink &) { return false; }

bool sized_factors(const Application &app, FactorSink &sink) {
  std::optional<WantedExtents> size =
      extents_attr(app, {"input_size", "input_sizes", "sizes", "size", "shape"});
  if (!size)
    return false;
  TensorFactors factors;
  for (const WantedExtent &wanted : *size)
    factors.push_back({sink.factor(wanted.extent)});
  sink.result(std::move(factors));
  return true;
}

bool keyed_factors(const Application &app, FactorSink &sink) {
  std::optional<WantedExtents> size = extents_attr(app, {"shape"});
  if (!size || !sink.shape(0))
    return false;
  TensorFactors factors = sink.fresh(0);
  sink.set(0, factors);
  for (const WantedExtent &wanted : *size)
    factors.push_back({sink.factor(wanted.extent)});
  sink.result(std::move(factors));
  return true;
}

bool sized_whole_factors(const Application &app, FactorSink &sink) {
  std::optional<WantedExtents> size =
      extents_attr(app, {"input_size", "input_sizes", "sizes", "size", "shape"});
  if (!size)
    return false;
  sink.fresh_whole_from(0);
  TensorFactors factors;
  for (const WantedExtent &wanted : *size)
    factors.push_back({sink.factor(wanted.extent, true)});
  sink.result(std::move(factors));
  return true;
}

bool number_factors(const Application &, FactorSink &sink) {
  sink.fresh_whole_from(0);
  sink.result({});
  return true;
}

bool arange_factors(const Application &app, FactorSink &sink) {
  if (any_attr(app, {"size", "shape"}))
    return sized_whole_factors(app, sink);
  std::optional<int64_t> end = number_attr(app, {"end"});
  int64_t start = any_attr(app, {"start"}) ? number_attr(app, {"start"}).value_or(INT64_MIN) : 0;
  int64_t step = any_attr(app, {"step"}) ? number_attr(app, {"step"}).value_or(0) : 1;
  if (!end || start == INT64_MIN || step <= 0 || *end < start)
    return false;
  // ceil((end - start) / step), as torch has it.
  sink.result({{sink.factor((CheckedInt(*end) - start + step - 1).over(step).extent())}});
  return true;
}

bool like_first_factors(const Application &, FactorSink &sink) {
  if (!sink.shape(0))
    return false;
  sink.result(sink.fresh_whole(0));
  sink.fresh_whole_from(1);
  return true;
}

// A difference reads both neighbours, and the one of the last row of a block is on another rank:
// dimensions along which differences are taken are whole.
bool gradient_factors(const Application &app, FactorSink &sink) {
  const ir::Shape *shape = sink.shape(0);
  if (!shape)
    return false;
  const TensorFactors factors = sink.fresh(0);
  std::optional<Numbers> dims = dim_numbers(app);
  for (unsigned d = 0; d < factors.size(); ++d)
    if (!dims ||
        llvm::any_of(*dims, [&](int64_t dim) { return place_of(dim, factors.size()) == d; }))
      sink.whole(factors[d]);
  for (unsigned k = 0; k < sink.result_count(); ++k)
    sink.result(factors);
  return true;
}

// torch.nn.functional.embedding_bag: a table, the rows that bags hold one after another, and where
// each bag begins; with `include_last_offset` one number more, where the last bag ends. A bag may
// begin anywhere and takes any rows of the table, so that only their columns may be cut.
bool bag_factors(const Application &app, FactorSink &sink) {
  const ir::Shape *t = sink.shape(0), *rows = sink.shape(1), *starts = sink.shape(2);
  if (!t || !rows || !starts || t->dims.size() != 2 || rows->dims.size() != 1 ||
      starts->dims.size() != 1)
    return false;
  const TensorFactors table = sink.fresh(0), held = sink.fresh(1);
  sink.whole(table[0]);
  sink.whole(held[0]);
  sink.fresh_whole(2);
  follow(sink, 3, held);
  Extent bags = starts->dims[0];
  std::optional<Extent> count = bags;
  if (flag_attr(app, "include_last_offset"))
    count = bags.is_number() ? (CheckedInt(bags.number()) - 1).extent() : std::nullopt;
  sink.result({{sink.factor(count, true)}, table[1]});
  return true;
}

// An index counts the elements of the whole tensor, and may name any of them.
bool take_factors(const Application &, FactorSink &sink) {
  if (!sink.shape(0) || !sink.shape(1))
    return false;
  sink.fresh_whole(0);
  sink.result(sink.fresh(1));
  return true;
}

} // namespace spmd::rules
