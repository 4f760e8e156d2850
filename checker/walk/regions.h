// Which elements of a storage a name of it shows, as far as slices, selections, splits and reshapes
// say. Internal to the checker.
#pragma once

#include "rules/apply.h"

#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/SmallVector.h"

#include <optional>
#include <utility>
#include <vector>

namespace spmd::checker {

// Elements are counted in the storage's first name, row by row.
struct Region {
  struct Dim {
    int64_t extent, stride;
    bool operator==(const Dim &other) const = default;
  };
  int64_t first = 0;
  llvm::SmallVector<Dim, 4> dims;
  bool ordered = true; // these are the dimensions of the view, in its order
  bool exact = true;   // else the view shows some of these elements
};

class RegionIndex;

class Regions {
public:
  Regions(ir::Program &program, const std::vector<ir::ShapeId> &shapes, rules::Rules &rules)
      : program_(program), shapes_(shapes), rules_(rules) {}

  // Two names of one storage. True only if it is certain that no element is in both.
  bool disjoint(ir::ValueId a, ir::ValueId b);
  // True if both are known, and an element of `part` is not in `whole`.
  bool misses(ir::ValueId whole, ir::ValueId part);
  // None where extents are not numbers. Valid until another value becomes known.
  const std::optional<Region> &of(ir::ValueId value);
  // For names of the storage of a root.
  RegionIndex index(ir::ValueId root) const;
  // A body is typed again, with other shapes.
  void forget(ir::ValueId value) {
    if (!known_.empty())
      known_.erase(value.index);
  }

private:
  // Both, without copies: a write is compared with all names that may show what it writes.
  std::pair<const Region *, const Region *> both(ir::ValueId a, ir::ValueId b);
  ir::ValueId base_of(ir::ValueId view);
  std::optional<Region> whole(ir::ValueId root) const;
  void follow(Region &region, ir::ValueId view);
  bool cut(Region &region, const rules::Application &app, ir::InstId id, ir::ValueId view) const;
  const ir::Shape *shape(ir::ValueId value) const {
    return shapes_[value.index].valid() ? &program_.shapes[shapes_[value.index]] : nullptr;
  }

  ir::Program &program_;
  const std::vector<ir::ShapeId> &shapes_;
  rules::Rules &rules_;
  llvm::DenseMap<uint32_t, std::optional<Region>> known_;
};

// Finds the names of one storage that may overlap a region without comparing all pairs. The storage
// is divided into ranges of rows and as many of columns; a name is filed under the rows or the
// columns that it spans, whichever are fewer.
class RegionIndex {
public:
  RegionIndex(int64_t elements, int64_t columns) : elements_(elements), columns_(columns) {}

  // `region`: null if it is not known.
  void add(uint32_t entry, const Region *region);
  // Lists of entries, as they were added, that have all that may meet a region between them.
  llvm::SmallVector<llvm::ArrayRef<uint32_t>, 8> near(const Region *region) const;

private:
  static constexpr unsigned kStretches = 1024, kMost = 8; // of them, for one name
  struct Span {
    unsigned first, last;
    unsigned count() const { return last - first + 1; }
  };
  Span rows(const Region &region) const;
  std::optional<Span> columns(const Region &region) const;

  int64_t elements_, columns_;
  std::vector<uint32_t> anywhere_;
  std::vector<std::vector<uint32_t>> by_row_{kStretches}, by_column_{kStretches};
};

} // namespace spmd::checker
