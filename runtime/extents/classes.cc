// A change breaks products; each is repaired by changing one more class, by trial, until none is
// broken. Within one such search a class changes once.
#include "runtime/extents/classes.h"

#include "llvm/ADT/STLExtras.h"

#include <algorithm>

namespace spmd::runtime {

namespace {

constexpr unsigned kMaxTrials = 4000; // of one search

// Of the whole numbers above 1 that divide it the smallest.
int64_t smallest_prime(int64_t number) {
  for (int64_t p = 2; p * p <= number && p < 100000; ++p)
    if (number % p == 0)
      return p;
  return number;
}

} // namespace

ExtentClasses::Var ExtentClasses::add(int64_t extent) {
  auto var = static_cast<Var>(parents_.size());
  parents_.push_back(var);
  classes_.push_back({extent, extent, std::min<int64_t>(extent, 2), false, false, {}});
  return var;
}

ExtentClasses::Var ExtentClasses::find(Var var) const {
  while (parents_[var] != var)
    var = parents_[var] = parents_[parents_[var]];
  return var;
}

void ExtentClasses::unite(Var a, Var b) {
  a = find(a), b = find(b);
  if (a == b)
    return;
  parents_[b] = a;
  classes_[a].fixed |= classes_[b].fixed;
  classes_[a].least = std::max(classes_[a].least, classes_[b].least);
  classes_[a].products.append(classes_[b].products);
}

void ExtentClasses::fix(Var var) { classes_[find(var)].fixed = true; }

void ExtentClasses::at_least(Var var, int64_t extent) {
  int64_t &least = classes_[find(var)].least;
  least = std::max(least, extent);
}

void ExtentClasses::relate(Var lhs, llvm::ArrayRef<Var> rhs, int64_t a, int64_t b) {
  auto product = static_cast<uint32_t>(products_.size());
  products_.push_back({lhs, {rhs.begin(), rhs.end()}, a, b});
  classes_[find(lhs)].products.push_back(product);
  for (Var var : rhs)
    classes_[find(var)].products.push_back(product);
}

std::pair<int64_t, int64_t> ExtentClasses::sides(const Product &product) const {
  int64_t left = product.a, right = product.b;
  bool too_large = __builtin_mul_overflow(left, now(product.lhs), &left);
  for (Var var : product.rhs)
    too_large |= __builtin_mul_overflow(right, now(var), &right);
  return too_large ? std::pair<int64_t, int64_t>(0, 0) : std::pair(left, right);
}

bool ExtentClasses::holds(const Product &product) const {
  auto [left, right] = sides(product);
  return left == right;
}

const ExtentClasses::Product *ExtentClasses::broken() const {
  if (all_) {
    for (const Product &product : products_)
      if (!holds(product))
        return &product;
    return nullptr;
  }
  for (const auto &[var, was] : log_)
    for (uint32_t product : classes_[var].products)
      if (!holds(products_[product]))
        return &products_[product];
  return nullptr;
}

bool ExtentClasses::change(Var var, int64_t extent) {
  var = find(var);
  Class &changed = classes_[var];
  if (changed.fixed || changed.changed || extent == changed.now || extent < 1 ||
      (shrinking_ && (extent > changed.now || extent < changed.least)) || budget_ == 0)
    return false;
  --budget_;
  log_.push_back({var, changed.now});
  changed.now = extent;
  changed.changed = true;
  return true;
}

void ExtentClasses::roll_back(size_t to) {
  while (log_.size() > to) {
    Class &changed = classes_[log_.back().first];
    changed.now = log_.back().second;
    changed.changed = false;
    log_.pop_back();
  }
}

bool ExtentClasses::repair(const Product &product) {
  auto [left, right] = sides(product);
  if (left == 0 || right == 0)
    return false;
  auto try_change = [&](Var var, int64_t extent) {
    size_t mark = log_.size();
    if (change(var, extent) && complete())
      return true;
    roll_back(mark);
    return false;
  };
  for (Var var : product.rhs) {
    if (llvm::count_if(product.rhs, [&](Var other) { return same(other, var); }) > 1)
      continue; // it would count twice
    int64_t own = now(var);
    if (left % right == 0 && try_change(var, own * (left / right)))
      return true;
    if (right % left == 0 && own % (right / left) == 0 && try_change(var, own / (right / left)))
      return true;
  }
  return right % product.a == 0 && try_change(product.lhs, right / product.a);
}

bool ExtentClasses::complete() {
  const Product *product = broken();
  return !product || repair(*product);
}

bool ExtentClasses::solve() {
  all_ = true;
  shrinking_ = false;
  budget_ = kMaxTrials;
  bool done = complete();
  all_ = false;
  if (!done)
    roll_back(0);
  for (const auto &[var, was] : log_)
    classes_[var].changed = false;
  log_.clear();
  return done;
}

bool ExtentClasses::reduce(Var var, int64_t extent) {
  budget_ = kMaxTrials;
  bool done = change(var, extent) && complete();
  if (!done)
    roll_back(0);
  for (const auto &[each, was] : log_)
    classes_[each].changed = false;
  log_.clear();
  return done;
}

void ExtentClasses::shrink() {
  shrinking_ = true;
  std::vector<Var> roots;
  for (Var var = 0; var < parents_.size(); ++var)
    if (find(var) == var && !classes_[var].fixed && classes_[var].now > classes_[var].least)
      roots.push_back(var);
  // What is in no product needs no common divisor.
  for (Var var : roots)
    if (classes_[var].products.empty())
      classes_[var].now = classes_[var].least;
  bool progress = true;
  while (progress) {
    progress = false;
    llvm::stable_sort(roots, [&](Var a, Var b) { return now(a) > now(b); });
    for (Var var : roots) {
      int64_t left = now(var);
      while (left > 1 && now(var) > 1) {
        int64_t prime = smallest_prime(left);
        if (now(var) % prime == 0 && reduce(var, now(var) / prime))
          progress = true;
        left /= prime;
      }
    }
  }
}

} // namespace spmd::runtime
