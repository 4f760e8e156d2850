// Reads the shapes of results off the factors of an application, and holds them against what the
// program states.
#include "rules/factors/shape_rule.h"

#include "rules/shapes/extent_facts.h"
#include "rules/violations/operands.h"

#include "llvm/ADT/STLExtras.h"

#include <fmt/format.h>

namespace spmd::rules {

namespace {

using ir::Extent;
using Extents = llvm::SmallVector<std::optional<Extent>, 5>;

class ShapeReader {
public:
  ShapeReader(const Application &app, const Equation &equation, const Binding &binding,
              Outcome &out)
      : app_(app), equation_(equation), binding_(binding), out_(out) {}

  void run(const FactorMap &map, bool consistent) {
    for (unsigned k = 0; k < app_.results.size(); ++k) {
      out_.shapes[k] = app_.results[k].shape;
      if (consistent && k < map.results.size() && map.results[k])
        settle(k, extents(map, *map.results[k]));
    }
  }

private:
  Extents extents(const FactorMap &map, const TensorFactors &factors) const {
    Extents out;
    for (const DimFactors &dim : factors)
      out.push_back(product(map, dim));
    return out;
  }
  std::optional<Extent> product(const FactorMap &map, const DimFactors &dim) const {
    if (std::optional<Extent> same = merged_from_same_factors(map, dim))
      return same;
    std::optional<Extent> total(Extent(1));
    for (uint8_t factor : dim) {
      std::optional<Extent> extent = map.factors[factor].extent;
      if (!extent || !total)
        return std::nullopt;
      total = *total == Extent(1)
                  ? extent
                  : combine(app_.program.exprs, ir::Expr::Form::Multiply, *total, *extent);
    }
    return total;
  }
  // The extent of a dimension of an operand that is merged of the same factors.
  std::optional<Extent> merged_from_same_factors(const FactorMap &map,
                                                 const DimFactors &dim) const {
    for (size_t arg = 0; dim.size() > 1 && arg < map.args.size(); ++arg)
      for (size_t d = 0; map.args[arg] && d < map.args[arg]->size(); ++d)
        if (const ir::Shape *shape = app_.shape(app_.args[arg]);
            shape && d < shape->dims.size() && (*map.args[arg])[d] == dim)
          return shape->dims[d];
    return std::nullopt;
  }

  void settle(unsigned result, const Extents &extents) {
    ir::ShapeId declared = app_.results[result].shape;
    if (declared.valid() && app_.program.shapes[declared].ranked) {
      if (differs(extents, app_.program.shapes[declared]))
        report(extents, app_.program.shapes[declared]);
      return;
    }
    // `f32[...]` states the element type alone.
    ir::Shape shape;
    shape.dtype = declared.valid()
                      ? app_.program.shapes[declared].dtype
                      : result_dtype(app_, row_of(app_, equation_), equation_, binding_, result);
    for (const std::optional<Extent> &extent : extents) {
      if (!extent)
        return;
      shape.dims.push_back(*extent);
    }
    out_.shapes[result] = app_.program.shapes.add(std::move(shape));
  }
  bool differs(const Extents &extents, const ir::Shape &declared) {
    if (extents.size() != declared.dims.size())
      return true;
    for (size_t dim = 0; dim < extents.size(); ++dim)
      if (extents[dim] &&
          !may_be_equal(app_.program, declared.dims[dim], *extents[dim], out_.undecided, [&] {
            return fmt::format("the declared and the actual extent "
                               "of dimension {} of the result",
                               dim);
          }))
        return true;
    return false;
  }
  void report(const Extents &extents, const ir::Shape &declared) {
    Extents stated(declared.dims.begin(), declared.dims.end());
    out_.violations.push_back(
        ShapeMismatch{"the declared and the actual shape", print(stated), print(extents)});
  }
  std::string print(const Extents &extents) const {
    std::string text = "[";
    for (const std::optional<Extent> &extent : extents) {
      text += text.size() > 1 ? ", " : "";
      text += extent ? ir::print(*extent, app_.program.exprs, app_.program.strings) : "?";
    }
    return text + "]";
  }

  const Application &app_;
  const Equation &equation_;
  const Binding &binding_;
  Outcome &out_;
};

// Numbers by position are the framework's own attributes, whose meaning is not known here.
bool has_unread_numbers(const Application &app, const Binding &binding) {
  for (const Slot &slot : app.slots) {
    bool read = llvm::is_contained(binding.slots, &slot) || &slot == binding.generator;
    if (!read && !slot.name.valid() && slot.form == Slot::Form::Literal)
      return true;
  }
  return false;
}

bool depends_on_attributes(const OpDef *row) {
  return row && (!row->placed.empty() || row->factors || row->extents || row->reduces);
}

} // namespace

FactorMap shape_factors(const Application &app, const Equation &equation, const Binding &binding,
                        Outcome &found) {
  if (!has_unread_numbers(app, binding) || !depends_on_attributes(row_of(app, equation)))
    return map_factors(app, equation, binding, found);
  FactorMap none;
  none.args.resize(app.args.size());
  none.results.resize(app.results.size());
  return none;
}

void apply_shapes(const Application &app, const Equation &equation, const Binding &binding,
                  const FactorMap &map, const Outcome &found, Outcome &out) {
  out.shapes.resize(app.results.size());
  out.violations.append(found.violations.begin(), found.violations.end());
  out.undecided.append(found.undecided.begin(), found.undecided.end());
  ShapeReader(app, equation, binding, out).run(map, found.violations.empty());
}

void judge_gradient_shapes(const Application &forward, const Equation &equation,
                           const Binding &binding, const FactorMap &map, Outcome &out) {
  bool other_results = forward.attr("output_mask") != nullptr;
  if (other_results || has_unread_numbers(forward, binding))
    return;
  Outcome judged;
  apply_shapes(forward, equation, binding, map, {}, judged);
  for (Violation &violation : judged.violations)
    if (auto *differs = violation.as<ShapeMismatch>()) {
      differs->what = "the shapes of the gradient and of what it is the gradient of";
      out.violations.push_back(std::move(violation));
    }
}

} // namespace spmd::rules
