// Attributes as shapes need them: numbers, lists of numbers, extents; whatever name a framework
// uses.
#pragma once

#include "rules/application.h"

#include "llvm/ADT/SmallVector.h"

#include <initializer_list>
#include <optional>

namespace spmd::rules {

using Numbers = llvm::SmallVector<int64_t, 4>;

// The first of the named attributes that is there and not null, else null.
const ir::AttrValue *any_attr(const Application &app, std::initializer_list<llvm::StringRef> names);
// None if there is none of them, or it is no whole number.
std::optional<int64_t> number_attr(const Application &app,
                                   std::initializer_list<llvm::StringRef> names);
bool flag_attr(const Application &app, llvm::StringRef name);
// One number counts as a list of one.
std::optional<Numbers> numbers_attr(const Application &app,
                                    std::initializer_list<llvm::StringRef> names);
// Text of a word; empty if there is none.
llvm::StringRef word_attr(const Application &app, std::initializer_list<llvm::StringRef> names);
// `reduction` as a word or torch's number; absent: what the spelling means, None under our names.
// Nothing if it is another word.
std::optional<LossReduction> reduction_of(const Application &app);
ir::DType dtype_attr(const Application &app);
// The dimensions that an op works on, whatever a framework calls them; `axis` is a mesh axis here.
const ir::AttrValue *dim_attr(const Application &app);
std::optional<int64_t> dim_number(const Application &app);
std::optional<Numbers> dim_numbers(const Application &app);
// Their positions among `rank` dimensions, ascending, each once. None if one lies outside, or if
// they are not stated in numbers.
std::optional<llvm::SmallVector<unsigned, 4>> placed_dims(const Application &app, DefaultDim absent,
                                                          size_t rank);
// A part of a structured attribute, such as JAX's `dimension_numbers`: a dictionary's entry, or a
// member of a list by its place. None if there is no such part.
std::optional<ir::AttrValue> attr_part(const Application &app, const ir::AttrValue &value,
                                       llvm::StringRef key, unsigned place);
std::optional<Numbers> numbers_of(const Application &app, const ir::AttrValue &value);

// An element of a list of extents: known, to be inferred (-1), or neither.
struct WantedExtent {
  std::optional<ir::Extent> extent;
  bool inferred = false;
};
using WantedExtents = llvm::SmallVector<WantedExtent, 5>;
std::optional<WantedExtents> extents_attr(const Application &app,
                                          std::initializer_list<llvm::StringRef> names);

// Counts negative positions from the end. None if there is no such dimension.
std::optional<unsigned> place_of(int64_t dim, size_t rank);

} // namespace spmd::rules
