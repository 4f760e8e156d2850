// Sums and products of contents, and functions of them.
#include "checker/gradual/micro_batches/contents.h"

#include "llvm/ADT/STLExtras.h"

#include <algorithm>

namespace spmd::checker {

using Form = Content::Form;

constexpr size_t kMostAddends = 512;           // of one value; with more of them it is not followed
constexpr int64_t kLargest = int64_t{1} << 31; // sums and products of such numbers fit

Contents::Contents() {
  add({Form::Open});
  add({Form::Free});
  add({Form::Number});
}

Contents::Id Contents::add(Content content) {
  const auto [at, added] = ids_.try_emplace(std::move(content), static_cast<Id>(by_id_.size()));
  if (added)
    by_id_.push_back(&at->first);
  return at->second;
}

Contents::Id Contents::number(int64_t value) {
  return value > kLargest || value < -kLargest ? kOpen : add({Form::Number, value, {}});
}

Contents::Id Contents::part(uint32_t source, int64_t part) {
  return add({Form::Addends, 0, {{{source, part}}}});
}

Contents::Id Contents::of_addends(std::vector<Addend> addends) {
  llvm::sort(addends);
  addends.erase(std::unique(addends.begin(), addends.end()), addends.end());
  return addends.size() > kMostAddends ? kOpen : add({Form::Addends, 0, std::move(addends)});
}

// What is made of both: of two parts of one tensor, nothing is known.
static Addend joined(const Addend &a, const Addend &b) {
  Addend all(a);
  all.insert(all.end(), b.begin(), b.end());
  llvm::sort(all);
  Addend once;
  for (const PartOf &each : all)
    if (once.empty() || once.back().source != each.source)
      once.push_back(each);
    else if (once.back().part != each.part)
      once.back().part = PartOf::kMany;
  return once;
}

Contents::Id Contents::sum(Id a, Id b) {
  if (a == kZero || b == kZero)
    return a == kZero ? b : a;
  if (a == kOpen || b == kOpen)
    return kOpen;
  const Content &one = *by_id_[a], &other = *by_id_[b];
  if (one.form == Form::Number && other.form == Form::Number)
    return number(one.number + other.number);
  if (one.form != Form::Addends || other.form != Form::Addends)
    return one.form == Form::Addends ? a : other.form == Form::Addends ? b : kFree;
  if (a == b)
    return a;
  if (const auto known = sums_.find({a, b}); known != sums_.end())
    return known->second;
  std::vector<Addend> addends(one.addends);
  addends.insert(addends.end(), other.addends.begin(), other.addends.end());
  return sums_[{a, b}] = of_addends(std::move(addends));
}

Contents::Id Contents::product(Id a, Id b) {
  if (a == kZero || b == kZero)
    return kZero;
  if (a == kOpen || b == kOpen)
    return kOpen;
  const Content &one = *by_id_[a], &other = *by_id_[b];
  if (one.form == Form::Number && other.form == Form::Number)
    return number(one.number * other.number);
  if (one.form != Form::Addends || other.form != Form::Addends)
    return one.form == Form::Addends ? a : other.form == Form::Addends ? b : kFree;
  if (const auto known = products_.find({a, b}); known != products_.end())
    return known->second;
  if (one.addends.size() * other.addends.size() > kMostAddends)
    return kOpen;
  std::vector<Addend> addends;
  for (const Addend &left : one.addends)
    for (const Addend &right : other.addends)
      addends.push_back(joined(left, right));
  return products_[{a, b}] = of_addends(std::move(addends));
}

Contents::Id Contents::function(llvm::ArrayRef<Id> of) {
  Addend all;
  for (Id id : of) {
    if (id == kOpen)
      return kOpen;
    for (const Addend &each : by_id_[id]->addends)
      all = joined(all, each);
  }
  return all.empty() ? kFree : of_addends({all});
}

} // namespace spmd::checker
