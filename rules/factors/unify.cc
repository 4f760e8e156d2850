// The first operand that has a factor sets its extent; all others are held against it.
#include "rules/factors/unify.h"

#include "rules/shapes/blocks.h"
#include "rules/shapes/extent_facts.h"
#include "rules/violations/operands.h"

#include "llvm/ADT/STLExtras.h"

#include <fmt/format.h>

namespace spmd::rules {

using ir::Extent;

ExtentUnifier::ExtentUnifier(const Application &app, const Equation &equation,
                             const Binding &binding, llvm::ArrayRef<MapFactors> of_row,
                             const MapFactors &rest, FactorSet placed, FactorMap &map, Outcome &out)
    : app_(app), equation_(equation), binding_(binding), map_(map), out_(out) {
  find_strict(of_row, placed);
  if (equation.sum_count > 1)
    find_summed_alone(of_row, rest);
}

// In a row of several sums another one may have operands that are longer.
void ExtentUnifier::find_summed_alone(llvm::ArrayRef<MapFactors> of_row, const MapFactors &rest) {
  for (unsigned s = 0; s < equation_.sum_count; ++s) {
    const Sum &sum = equation_.sums[s];
    for (unsigned t = sum.first_term; t < unsigned(sum.first_term) + sum.term_count; ++t) {
      const Atom &atom = equation_.atoms[equation_.terms[t].first_atom];
      const Ref &ref = equation_.refs[atom.first];
      if (equation_.terms[t].atom_count != 1 || atom.form != Atom::Form::Ref || !ref.has_dims ||
          ref.operand == kGenerator || !binding_[ref.operand])
        continue;
      for (unsigned d = 0; d < ref.dim_count; ++d) {
        const Dim &dim = equation_.dims[ref.first_dim + d];
        bool is_rest = dim.form == Dim::Form::Rest;
        if ((!is_rest && dim.form != Dim::Form::Factor) || is_result_dim(sum, dim.form, dim.first))
          continue;
        for (uint8_t factor : is_rest ? rest : of_row[dim.first])
          for (unsigned i = 0; i < binding_[ref.operand]->count; ++i)
            map_.summed_alone.emplace_back(factor,
                                           static_cast<uint32_t>(binding_[ref.operand]->first + i));
      }
    }
  }
}

bool ExtentUnifier::is_result_dim(const Sum &sum, Dim::Form form, uint8_t factor) const {
  for (unsigned r = 0; r < sum.result_count; ++r) {
    const Result &result = equation_.results[sum.first_result + r];
    for (unsigned d = 0; d < result.dim_count; ++d) {
      const Dim &dim = equation_.dims[result.first_dim + d];
      if (dim.form == form && (form == Dim::Form::Rest || dim.first == factor))
        return true;
    }
    if (!result.has_dims)
      return true; // not reported here
  }
  return false;
}

// Products of plain operands do not broadcast what they sum over.
void ExtentUnifier::find_strict(llvm::ArrayRef<MapFactors> of_row, FactorSet placed) {
  seen_.resize(map_.factors.size());
  for (uint8_t f = 0; f < equation_.factor_count; ++f)
    for (uint8_t factor : of_row[f])
      map_.factors[factor].strict = !(placed >> f & 1) && is_summed(f);
  map_.multiplied.resize(map_.args.size());
  for (uint32_t arg = 0; arg < map_.args.size(); ++arg)
    map_.multiplied[arg] = is_multiplied(arg);
}

bool ExtentUnifier::is_summed(uint8_t factor) const {
  for (unsigned r = 0; r < equation_.result_count; ++r)
    for (unsigned d = 0; d < equation_.results[r].dim_count; ++d) {
      const Dim &dim = equation_.dims[equation_.results[r].first_dim + d];
      if (dim.form == Dim::Form::Factor && dim.first == factor)
        return false;
      for (unsigned m = 0; dim.form == Dim::Form::Merged && m < dim.count; ++m)
        if (equation_.merged[dim.first + m] == factor)
          return false;
    }
  return true;
}

bool ExtentUnifier::is_multiplied(uint32_t arg) const {
  for (unsigned a = 0; a < equation_.atom_count; ++a) {
    const Atom &atom = equation_.atoms[a];
    if (atom.form != Atom::Form::Ref)
      continue;
    const Ref &ref = equation_.refs[atom.first];
    const Slot *slot = ref.operand == kGenerator ? nullptr : binding_[ref.operand];
    if (ref.role == RefRole::Value && slot && arg >= slot->first && arg < slot->first + slot->count)
      return true;
  }
  return false;
}

void ExtentUnifier::single_factors() {
  for (uint32_t arg = 0; arg < map_.args.size(); ++arg)
    for (unsigned d = 0; map_.args[arg] && d < map_.args[arg]->size(); ++d)
      if (const DimFactors &dim = (*map_.args[arg])[d]; dim.size() == 1)
        unify(dim[0], app_.shape(app_.args[arg])->dims[d], arg, d);
}

void ExtentUnifier::unify(uint8_t factor, Extent extent, uint32_t arg, unsigned dim) {
  Seen &seen = seen_[factor];
  std::optional<Extent> &known = map_.factors[factor].extent;
  // A block of one element is one of several.
  auto broadcasts = [&](Extent one, uint32_t operand, unsigned at) {
    return one == Extent(1) && !map_.binds(factor, operand) &&
           axes_cutting(app_, operand, at).empty();
  };
  if (seen.conflict || (seen.any && (known == extent || broadcasts(extent, arg, dim))))
    return;
  if (!seen.any || broadcasts(*known, seen.arg, seen.dim)) {
    known = extent;
    seen = {true, false, arg, dim};
    return;
  }
  // A symbol may come to 1, which is stretched.
  auto may_stretch = [&](Extent one, uint32_t operand, unsigned at) {
    return compare(app_.program, one, Extent(1)) != Equality::Different &&
           !map_.binds(factor, operand) && axes_cutting(app_, operand, at).empty();
  };
  Equality equality = compare(app_.program, *known, extent);
  if (equality == Equality::Equal)
    return;
  bool first = may_stretch(*known, seen.arg, seen.dim), second = may_stretch(extent, arg, dim);
  seen.conflict = equality == Equality::Different || (first && second);
  if (equality == Equality::Different && !first && !second)
    report(seen, *known, arg, dim, extent);
  else
    out_.undecided.push_back(undecided(app_.program, describe(seen, arg, dim), *known, extent));
  if (seen.conflict && first == second)
    known = std::nullopt;
  else if (first || (!second && extent.is_number()))
    known = extent;
}

std::string ExtentUnifier::print(Extent extent) const {
  return ir::print(extent, app_.program.exprs, app_.program.strings);
}

std::string ExtentUnifier::describe(const Seen &seen, uint32_t arg, unsigned dim) {
  return fmt::format("dimension {} of operand {} and dimension {} of operand {}", seen.dim,
                     seen.arg, dim, arg);
}

void ExtentUnifier::report(const Seen &seen, Extent known, uint32_t arg, unsigned dim,
                           Extent found) {
  out_.violations.push_back(
      ShapeMismatch{describe(seen, arg, dim), print(known), print(found),
                    axes_cutting(app_, seen.arg, seen.dim) | axes_cutting(app_, arg, dim)});
}

void ExtentUnifier::single_elements() {
  for (uint32_t arg = 0; arg < map_.args.size(); ++arg)
    for (unsigned d = 0; map_.args[arg] && d < map_.args[arg]->size(); ++d) {
      Extent extent = app_.shape(app_.args[arg])->dims[d];
      if ((*map_.args[arg])[d].empty() && extent.is_number() && extent != Extent(1))
        out_.violations.push_back(
            ShapeMismatch{fmt::format("one element and dimension {} of operand {}", d, arg), "1",
                          std::to_string(extent.number()), axes_cutting(app_, arg, d)});
    }
}

void ExtentUnifier::merged_factors() {
  for (uint32_t arg = 0; arg < map_.args.size(); ++arg)
    for (unsigned d = 0; map_.args[arg] && d < map_.args[arg]->size(); ++d)
      if (const DimFactors &dim = (*map_.args[arg])[d]; dim.size() > 1)
        divide(dim, app_.shape(app_.args[arg])->dims[d]);
}

void ExtentUnifier::divide(const DimFactors &dim, Extent whole) {
  std::optional<uint8_t> missing;
  std::optional<Extent> known(Extent(1));
  for (uint8_t factor : dim) {
    const std::optional<Extent> &extent = map_.factors[factor].extent;
    if (!extent && missing)
      return;
    if (extent)
      known = times(app_.program, *known, extent);
    else
      missing = factor;
    if (!known)
      return;
  }
  if (!missing || *known == Extent(0))
    return;
  auto what = [&] {
    return fmt::format("an extent of {} and a multiple of what is merged in it", print(whole));
  };
  if (!may_divide(app_.program, whole, *known, out_.undecided, what))
    out_.violations.push_back(ShapeMismatch{what(), print(*known), print(whole)});
  else
    map_.factors[*missing].extent = quotient(app_.program, whole, *known);
}

} // namespace spmd::rules
