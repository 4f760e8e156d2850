// Extents that must stay in proportion, as classes: equal extents are one class, and classes are
// related by products. Finds other extents that keep all of them.
#pragma once

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/SmallVector.h"

#include <cstdint>
#include <vector>

namespace spmd::runtime {

class ExtentClasses {
public:
  using Var = uint32_t;

  Var add(int64_t extent);
  void unite(Var a, Var b); // their extents are equal
  void fix(Var var);        // keeps its extent
  void at_least(Var var, int64_t extent);
  // a * lhs == b * product of rhs, of the new extents.
  void relate(Var lhs, llvm::ArrayRef<Var> rhs, int64_t a = 1, int64_t b = 1);

  // Changes extents until all of them hold; where there is a choice, those on right sides. False:
  // it cannot be, or was not found; then nothing has changed.
  bool solve();
  // Makes them smaller, one after another, as long as all of them hold.
  void shrink();

  int64_t before(Var var) const { return classes_[find(var)].before; }
  int64_t now(Var var) const { return classes_[find(var)].now; }
  bool fixed(Var var) const { return classes_[find(var)].fixed; }
  bool same(Var a, Var b) const { return find(a) == find(b); }

private:
  struct Class {
    int64_t before, now, least;
    bool fixed = false, changed = false;
    llvm::SmallVector<uint32_t, 4> products;
  };
  struct Product {
    Var lhs;
    llvm::SmallVector<Var, 3> rhs;
    int64_t a, b;
  };
  Var find(Var var) const;
  // Both sides of a product as they are now; 0 if they are too large to count.
  std::pair<int64_t, int64_t> sides(const Product &product) const;
  bool holds(const Product &product) const;
  const Product *broken() const;
  bool change(Var var, int64_t extent);
  bool repair(const Product &product);
  bool complete();
  void roll_back(size_t to);
  bool reduce(Var var, int64_t extent);

  mutable std::vector<Var> parents_;
  std::vector<Class> classes_;
  std::vector<Product> products_;
  std::vector<std::pair<Var, int64_t>> log_; // classes that changed, with what they were
  bool shrinking_ = false, all_ = false;
  unsigned budget_ = 0;
};

} // namespace spmd::runtime
