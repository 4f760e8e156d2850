// Writes new extents into shapes, claims and the attributes that size something.
#include "runtime/extents/constraints.h"

#include "runtime/tensor/element_bytes.h"

#include "ir/claims.h"
#include "ir/support/error.h"

#include "llvm/ADT/STLExtras.h"

#include <fmt/format.h>

namespace spmd::runtime {

using ir::AttrValue;
using ir::ValueId;
using rules::AttributeExtents;

namespace {

// The numbers of a list, -1 for what data say; none if it holds something else.
std::optional<llvm::SmallVector<int64_t, 6>> whole_numbers(const ir::AttrList &list) {
  llvm::SmallVector<int64_t, 6> numbers;
  for (const AttrValue &item : list.items) {
    if (item.form == ir::AttrForm::Expr) {
      numbers.push_back(-1);
      continue;
    }
    if (item.form != ir::AttrForm::Integer)
      return std::nullopt;
    numbers.push_back(item.as_integer());
  }
  return numbers;
}

} // namespace

AttrValue ExtentConstraints::list_of(llvm::ArrayRef<int64_t> numbers) const {
  ir::AttrList list;
  for (int64_t number : numbers)
    list.items.push_back(AttrValue::integer(number));
  return AttrValue::list(program_.lists.add(std::move(list)));
}

// Expressions of `old`, which only data give values to, stay.
AttrValue ExtentConstraints::with_expressions(const AttrValue &made, const AttrValue &old) const {
  ir::AttrList list = program_.lists[made.as<ir::AttrListId>()];
  const ir::AttrList &was = program_.lists[old.as<ir::AttrListId>()];
  for (size_t i = 0; i < list.items.size() && i < was.items.size(); ++i)
    if (was.items[i].form == ir::AttrForm::Expr)
      list.items[i] = was.items[i];
  return AttrValue::list(program_.lists.add(std::move(list)));
}

// The trailing extents of a result or an operand, -1 where one is to be inferred.
std::optional<AttrValue> ExtentConstraints::as_shape(const Site &site,
                                                     llvm::ArrayRef<int64_t> numbers) const {
  llvm::SmallVector<ValueId, 8> tensors(site.results.begin(), site.results.end());
  tensors.append(site.args.begin(), site.args.end());
  for (bool trailing : {false, true})
    for (ValueId tensor : tensors) {
      size_t rank = vars(tensor).size();
      if (numbers.size() > rank || (numbers.size() != rank && !trailing))
        continue;
      size_t first = rank - numbers.size();
      bool fits = true;
      llvm::SmallVector<int64_t, 6> made;
      for (size_t i = 0; i < numbers.size(); ++i) {
        fits &= numbers[i] == -1 || numbers[i] == before(tensor, first + i);
        made.push_back(numbers[i] == -1 ? -1 : now(tensor, first + i));
      }
      if (fits)
        return list_of(made);
    }
  return std::nullopt;
}

// Strides of what lies without gaps.
std::optional<AttrValue> ExtentConstraints::as_strides(const Site &site,
                                                       llvm::ArrayRef<int64_t> numbers) const {
  for (ValueId tensor : site.results) {
    if (numbers.size() != vars(tensor).size())
      continue;
    llvm::SmallVector<int64_t, 6> made(numbers.size());
    int64_t old_stride = 1, new_stride = 1;
    bool fits = true;
    for (size_t d = numbers.size(); d-- > 0;) {
      fits &= numbers[d] == old_stride;
      made[d] = new_stride;
      old_stride *= before(tensor, d);
      new_stride *= now(tensor, d);
    }
    if (fits)
      return list_of(made);
  }
  return std::nullopt;
}

// The dimension in which results and operand 0 differ.
std::optional<ExtentConstraints::Var> ExtentConstraints::moved_dim(const Site &site) const {
  for (ValueId result : site.results)
    for (ValueId arg : site.args)
      if (vars(arg).size() == vars(result).size())
        for (size_t d = 0; d < vars(arg).size(); ++d)
          if (before(arg, d) != before(result, d))
            return static_cast<Var>(d);
  return std::nullopt;
}

// One number for each result along the dimension that is divided; or extents of pieces that ranks
// send.
std::optional<AttrValue> ExtentConstraints::as_parts(const Site &site,
                                                     llvm::ArrayRef<int64_t> numbers) const {
  std::optional<Var> dim = moved_dim(site);
  llvm::SmallVector<int64_t, 6> made;
  if (dim && numbers.size() == site.results.size()) {
    bool fits = true;
    for (size_t i = 0; i < numbers.size(); ++i) {
      fits &= *dim < vars(site.results[i]).size() && numbers[i] == before(site.results[i], *dim);
      if (fits)
        made.push_back(now(site.results[i], *dim));
    }
    if (fits)
      return list_of(made);
  }
  auto [old_ranks, new_ranks] = ranks_of(program_.insts[site.id]);
  if (site.args.empty() || vars(site.args[0]).empty() ||
      static_cast<int64_t>(numbers.size()) != old_ranks)
    return std::nullopt;
  int64_t old_extent = before(site.args[0], 0), new_extent = now(site.args[0], 0);
  for (int64_t i = 0; i < new_ranks; ++i) {
    int64_t old = numbers[static_cast<size_t>(std::min(i, old_ranks - 1))];
    int64_t scaled = old * new_extent * old_ranks;
    if (scaled % (old_extent * new_ranks) != 0)
      return std::nullopt;
    made.push_back(scaled / (old_extent * new_ranks));
  }
  return list_of(made);
}

// The one that attribute `dim` names; the first if there is none.
ExtentConstraints::Var ExtentConstraints::stated_dim(const Site &site) const {
  const AttrValue *attr = program_.find(program_.insts[site.id].attrs, "dim");
  if (!attr || attr->form != ir::AttrForm::Integer || site.args.empty())
    return 0;
  int64_t dim = attr->as_integer(), rank = static_cast<int64_t>(vars(site.args[0]).size());
  return static_cast<Var>(dim < 0 ? dim + rank : dim);
}

// Another dimension may have as many elements.
std::optional<int64_t> ExtentConstraints::as_piece(const Site &site, int64_t number) const {
  Var dim = stated_dim(site);
  if (site.args.empty() || site.results.empty() || dim >= vars(site.args[0]).size() ||
      dim >= vars(site.results[0]).size())
    return std::nullopt;
  if (number >= before(site.args[0], dim))
    return now(site.args[0], dim);
  return number == before(site.results[0], dim) ? std::optional(now(site.results[0], dim))
                                                : std::nullopt;
}

// A position along the dimension that is cut, in proportion to its extent.
std::optional<int64_t> ExtentConstraints::as_bound(const Site &site, int64_t number) const {
  if (site.args.empty()) { // a sequence of numbers
    ValueId made = site.results.empty() ? ValueId() : site.results[0];
    bool length = made.valid() && vars(made).size() == 1 && number == before(made, 0);
    return length ? now(made, 0) : number;
  }
  std::optional<Var> dim = moved_dim(site);
  if (!dim) // all of the dimension
    dim = stated_dim(site);
  if (*dim >= vars(site.args[0]).size())
    return number;
  int64_t old_extent = before(site.args[0], *dim), new_extent = now(site.args[0], *dim);
  if (number >= old_extent || number == 0 || number == -old_extent)
    return number == old_extent ? new_extent : number == -old_extent ? -new_extent : number;
  return number * new_extent % old_extent == 0 ? std::optional(number * new_extent / old_extent)
                                               : std::nullopt;
}

// Of the first dimension that has it, of results before operands.
std::optional<int64_t> ExtentConstraints::as_extent(const Site &site, int64_t number) const {
  for (llvm::ArrayRef<ValueId> tensors :
       {llvm::ArrayRef<ValueId>(site.results), llvm::ArrayRef<ValueId>(site.args)})
    for (ValueId tensor : tensors)
      for (size_t d = 0; d < vars(tensor).size(); ++d)
        if (before(tensor, d) == number)
          return now(tensor, d);
  return std::nullopt;
}

std::optional<int64_t> ExtentConstraints::as_number(const Site &site, AttributeExtents::Number form,
                                                    int64_t number) const {
  switch (form) {
  case AttributeExtents::Number::Unknown:
  case AttributeExtents::Number::None:
  case AttributeExtents::Number::Place:
    return number;
  case AttributeExtents::Number::Extent:
    return as_extent(site, number);
  case AttributeExtents::Number::Bound:
    return as_bound(site, number);
  case AttributeExtents::Number::Piece:
    return as_piece(site, number);
  case AttributeExtents::Number::Rank:
    return meshes_.rank(number);
  case AttributeExtents::Number::Root: // the part that a rank had is another's
    return number % std::max<int64_t>(ranks_of(program_.insts[site.id]).second, 1);
  }
  return std::nullopt;
}

// Pairs of coordinates: a shift, around the ends or not.
AttrValue ExtentConstraints::permutation(const ir::Inst &inst, const AttrValue &value) const {
  auto [old_ranks, new_ranks] = ranks_of(inst);
  std::optional<int64_t> shift;
  bool wraps = false;
  for (const AttrValue &pair : program_.lists[value.as<ir::AttrListId>()].items) {
    if (pair.form != ir::AttrForm::List)
      return value;
    std::optional<llvm::SmallVector<int64_t, 6>> ends =
        whole_numbers(program_.lists[pair.as<ir::AttrListId>()]);
    if (!ends || ends->size() != 2)
      return value;
    int64_t own = (((*ends)[1] - (*ends)[0]) % old_ranks + old_ranks) % old_ranks;
    if (shift && *shift != own)
      return value;
    shift = own;
    wraps |= ((*ends)[1] - (*ends)[0] + old_ranks) % old_ranks != (*ends)[1] - (*ends)[0] &&
             2 * own <= old_ranks;
    wraps |= 2 * own > old_ranks && (*ends)[1] > (*ends)[0];
  }
  if (!shift)
    return value;
  int64_t by = 2 * *shift > old_ranks ? *shift - old_ranks : *shift;
  ir::AttrList list;
  for (int64_t from = 0; from < new_ranks; ++from) {
    int64_t to = from + by;
    if (!wraps && (to < 0 || to >= new_ranks))
      continue;
    list.items.push_back(list_of({from, (to % new_ranks + new_ranks) % new_ranks}));
  }
  return AttrValue::list(program_.lists.add(std::move(list)));
}

llvm::Expected<AttrValue> ExtentConstraints::followed(const Site &site, llvm::StringRef key,
                                                      const AttrValue &value) {
  using List = AttributeExtents::List;
  const AttributeExtents extents = extents_of(site, key);
  auto made_or_error = [&](const auto &made) -> llvm::Expected<AttrValue> {
    if (!made)
      return make_error(fmt::format("attribute `{}` of `{}` cannot follow the new extents",
                                    key.str(), program_.op_name(program_.insts[site.id].op).str()));
    return *made;
  };
  if (value.form == ir::AttrForm::Integer) {
    std::optional<AttrValue> made;
    if (auto number = as_number(site, extents.number, value.as_integer()))
      made = AttrValue::integer(*number);
    return made_or_error(made);
  }
  if (value.form != ir::AttrForm::List)
    return value;
  if (extents.list == List::Permutation)
    return permutation(program_.insts[site.id], value);
  std::optional<llvm::SmallVector<int64_t, 6>> numbers =
      whole_numbers(program_.lists[value.as<ir::AttrListId>()]);
  if (!numbers)
    return value;
  if (extents.list == List::Strides)
    return made_or_error(as_strides(site, *numbers));
  const bool pieces = extents.list == List::Pieces || extents.list == List::PiecesOrExtents;
  const bool shape = extents.list == List::Extents || extents.list == List::PiecesOrExtents;
  if (!shape && !pieces)
    return value;
  std::optional<AttrValue> made = pieces ? as_parts(site, *numbers) : std::nullopt;
  if (!made && shape)
    made = as_shape(site, *numbers);
  if (made)
    made = with_expressions(*made, value);
  return made_or_error(made);
}

ir::ShapeId ExtentConstraints::resized(ir::ShapeId id, ValueId value) const {
  if (!id.valid() || program_.shapes[id].dims.size() != vars(value).size())
    return id;
  ir::Shape shape = program_.shapes[id];
  for (size_t d = 0; d < shape.dims.size(); ++d)
    if (!is_open(value, d))
      shape.dims[d] = now(value, d);
  return program_.shapes.add(shape);
}

// Of even blocks; others keep their extents.
ir::ShapeId ExtentConstraints::resized_global(ir::ShapeId id, ValueId value) const {
  if (!id.valid() || program_.shapes[id].dims.size() != vars(value).size() ||
      !checked_.types[value.index].valid()) // of a body, which keeps its extents
    return id;
  ir::Shape shape = program_.shapes[id];
  const ir::Type &type = program_.types[checked_.types[value.index]];
  for (unsigned d = 0; d < shape.dims.size(); ++d) {
    int64_t ranks = 1;
    for (ir::AxisId axis : ir::shards_of(type, d))
      ranks *= meshes_.new_size(program_.meshes[type.mesh()][axis]);
    bool uneven = checked_.sizes[value.index].valid() &&
                  program_.shard_sizes[checked_.sizes[value.index]].find(d);
    if (!uneven && !is_open(value, d))
      shape.dims[d] = now(value, d) * ranks;
  }
  return program_.shapes.add(shape);
}

llvm::Error ExtentConstraints::apply() {
  for (uint32_t i = 0; i < program_.values.size(); ++i) {
    ir::Value &value = program_.values[ValueId{i}];
    value.shape = resized(value.shape, ValueId{i});
    value.global_shape = resized_global(value.global_shape, ValueId{i});
  }
  for (uint32_t i = program_.main.first.index; i < program_.main.last.index; ++i) {
    Site site = site_of(ir::InstId{i});
    ir::AttrDict dict = program_.attrs[program_.insts[site.id].attrs];
    for (ir::Attr &attr : dict.attrs) {
      llvm::StringRef key = program_.strings[attr.key];
      if (attr.value.form == ir::AttrForm::Claim) {
        ir::Claim claim = program_.claims[attr.value.as<ir::ClaimId>()];
        ValueId of = !site.results.empty() ? site.results[0]
                     : !site.args.empty()  ? site.args[0]
                                           : ValueId();
        if (of.valid()) {
          claim.shape = resized(claim.shape, of);
          claim.global_shape = resized_global(claim.global_shape, of);
          attr.value = AttrValue::claim(program_.claims.add(claim));
        }
        continue;
      }
      llvm::Expected<AttrValue> value = followed(site, key, attr.value);
      if (!value)
        return value.takeError();
      attr.value = *value;
    }
    program_.insts[site.id].attrs = program_.attrs.add(dict);
  }
  return llvm::Error::success();
}

} // namespace spmd::runtime
