// Views of lists, of whatever kind they are, and lists without a value. LLVM took away its function
// for the first, and what it has instead takes a SmallVector for one element in older versions; it
// renamed that for the second.
#pragma once

#include "llvm/ADT/ArrayRef.h"

#include <algorithm>
#include <iterator>
#include <type_traits>

namespace spmd::ir {

template <class List> auto as_array(const List &list) {
  using Element = std::remove_cv_t<std::remove_pointer_t<decltype(std::data(list))>>;
  return llvm::ArrayRef<Element>(std::data(list), std::size(list));
}
template <class Element> llvm::ArrayRef<Element> as_array(const Element *first, size_t count) {
  return {first, count};
}

template <class List, class Value> void erase_value(List &list, const Value &value) {
  list.erase(std::remove(list.begin(), list.end(), value), list.end());
}

} // namespace spmd::ir
