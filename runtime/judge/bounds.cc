// Sums of products by the magnitudes of their terms, reductions by their prefix sums, functions by
// a multiple of the roundoff of what is stored; copies have none.
#include "runtime/judge/bounds.h"

#include "runtime/plan/placement.h"
#include "runtime/reference/moves.h"
#include "runtime/reference/term_sums.h"

#include "ir/support/check.h"

#include "llvm/ADT/STLExtras.h"

#include <cmath>
#include <limits>

namespace spmd::runtime {

using ir::AxisId;
using ir::AxisSet;
using ir::Kind;

namespace {

constexpr double kDouble = 0x1p-53; // of what kernels and the reference compute in
constexpr double kOfScale = 8;      // roundoffs of a scalar function, in units of its scale
// What a kernel computes in double may cancel: a multiple of the largest number in it.
constexpr double kCancellation = 0x1p10;

double &cell(Tensor &tensor, size_t i) { return tensor.of<double>()[i]; }
double cell(const Tensor &tensor, size_t i) { return tensor.of<double>()[i]; }

Meaning map_cells(const Meaning &from, llvm::function_ref<double(double)> f) {
  Meaning made{from.per_rank, {}};
  for (const Tensor &piece : from.pieces) {
    made.pieces.push_back({ir::DType::F64, piece.dims, piece.of<double>()});
    for (double &value : made.pieces.back().of<double>())
      value = f(value);
  }
  return made;
}

void add_into(Meaning &sum, const Meaning &more, double times) {
  for (size_t p = 0; p < sum.pieces.size(); ++p)
    for (size_t i = 0; i < sum.pieces[p].of<double>().size(); ++i)
      cell(sum.pieces[p], i) += times * cell(more.pieces[p], i);
}

double largest(const Meaning &meaning) {
  double most = 0;
  for (const Tensor &piece : meaning.pieces)
    if (!piece.is_modular() && !piece.is_complex())
      for (double value : piece.of<double>())
        if (std::isfinite(value))
          most = std::max(most, std::abs(value));
  return most;
}

void divide(Meaning &meaning, ir::Program &program, const ir::Type &type) {
  std::optional<Rational> scale = number_of(program, type.scale, type.mesh());
  for (Tensor &piece : meaning.pieces)
    if (scale)
      multiply(piece, std::abs(scale->second), std::abs(scale->first));
}

std::vector<const Tensor *> pointers(llvm::ArrayRef<Tensor> held) {
  std::vector<const Tensor *> pointers;
  for (const Tensor &tensor : held)
    pointers.push_back(&tensor);
  return pointers;
}

Meaning magnitudes_of(ir::Program &program, const Distribution &dist, llvm::ArrayRef<Tensor> held) {
  Meaning made = dist.denote_magnitudes(pointers(held));
  divide(made, program, dist.type());
  return made;
}

double ranks_of(const StepData &data) {
  size_t ranks = 1;
  for (llvm::ArrayRef<Tensor> held : data.operands)
    ranks = std::max(ranks, held.size());
  return static_cast<double>(ranks);
}

bool is_float(ir::DType dtype) { return ir::differentiable(dtype); }

bool same_extents(const Meaning &a, const Meaning &b) {
  if (a.per_rank != b.per_rank || a.pieces.size() != b.pieces.size())
    return false;
  for (size_t p = 0; p < a.pieces.size(); ++p)
    if (a.pieces[p].dims != b.pieces[p].dims)
      return false;
  return true;
}

Meaning add_everywhere(const Meaning &bound, double more) {
  return map_cells(bound, [&](double value) { return value + more; });
}

// Of the prefix sums; where each of several groups of ranks adds up its own, no sum is beyond the
// sum of all that they hold.
double sum_of_largest(const Meaning &prefixes, bool groups, llvm::ArrayRef<Tensor> held) {
  if (!groups)
    return largest(prefixes);
  double all = 0;
  for (const Tensor &tensor : held)
    all += largest({{}, {magnitudes(tensor)}}) * static_cast<double>(held.size());
  return all;
}

// The magnitudes of the sums of the first two, three, ... parts: what is rounded, in this order.
Meaning prefix_sums(llvm::ArrayRef<Meaning> parts) {
  Meaning prefixes = map_cells(parts.front(), [](double) { return 0.0; });
  Meaning running = parts.front();
  for (const Meaning &part : parts.drop_front()) {
    add_into(running, part, 1);
    add_into(prefixes, map_cells(running, [](double value) { return std::abs(value); }), 1);
  }
  return prefixes;
}

// What takes their place where the order is not known: gamma(n - 1, u) / u times all magnitudes.
Meaning any_order(llvm::ArrayRef<Meaning> parts, double u) {
  Meaning sizes = map_cells(parts.front(), [](double value) { return std::abs(value); });
  for (const Meaning &part : parts.drop_front())
    add_into(sizes, map_cells(part, [](double value) { return std::abs(value); }), 1);
  double factor = u > 0 ? gamma(static_cast<double>(parts.size()) - 1, u) / u : 0;
  return map_cells(sizes, [&](double value) { return factor * value; });
}

} // namespace

double gamma(double k, double u) {
  double all = k * u;
  return all >= 0.5 ? std::numeric_limits<double>::infinity() : all / (1 - all);
}

std::vector<Meaning> addends(ir::Program &program, const rules::TensorInfo &known,
                             llvm::ArrayRef<Tensor> held, AxisSet axes) {
  rules::TensorInfo listed = known;
  ir::Type type = program.types[known.type];
  AxisSet kept = per_rank_axes(program, type) - axes;
  type.set_kind(axes - per_rank_axes(program, type), Kind::Varying);
  listed.type = program.types.add(type);
  llvm::Expected<Distribution> dist = Distribution::make(program, listed);
  SPMD_CHECK(static_cast<bool>(dist), "a value that was read back");
  Meaning all = dist->denote(pointers(held));
  if (std::optional<Rational> scale = number_of(program, type.scale, type.mesh()))
    for (Tensor &piece : all.pieces)
      multiply(piece, scale->second, scale->first);
  const ir::Mesh &mesh = program.meshes[type.mesh()];
  Grid per_rank(mesh, all.per_rank), over(mesh, axes & all.per_rank), others(mesh, kept);
  std::vector<Meaning> parts(static_cast<size_t>(over.size()));
  for (int64_t i = 0; i < over.size(); ++i) {
    parts[static_cast<size_t>(i)].per_rank = kept;
    for (int64_t o = 0; o < others.size(); ++o) {
      Grid::Coordinates at = over.coordinates(i), rest = others.coordinates(o);
      for (AxisId axis : kept)
        at[axis.index] = rest[axis.index];
      parts[static_cast<size_t>(i)].pieces.push_back(
          all.pieces[static_cast<size_t>(per_rank.position(at))]);
    }
  }
  return parts;
}

AxisSet acted_axes(const ResolvedInst &seen) {
  AxisSet axes;
  if (seen.op().form == rules::OpForm::Transition) {
    rules::Outcome ignored;
    if (std::optional<rules::TransitionCall> call = rules::read_call(seen.app(), ignored))
      axes = call->axes.all();
    return axes;
  }
  for (unsigned r = 0; r < seen.inst().result_count; ++r)
    if (seen.result(r))
      axes |= seen.result(r)->type().of(Kind::Partial) - seen.result(r)->type().zero();
  for (unsigned i = 0; i < seen.values().size(); ++i)
    if (seen.from(i))
      axes -= seen.from(i)->type().of(Kind::Partial);
  return axes;
}

Reduction reduction_of(Reference &reference, const ResolvedInst &seen, BodySite site,
                       const StepData &data, unsigned result) {
  Reduction reduction;
  AxisSet acted = acted_axes(seen);
  if (!acted)
    return reduction;
  ir::Program &program = reference.program();
  if (seen.op().form != rules::OpForm::Transition) {
    reduction.axes = acted;
    rules::TensorInfo known = reference.checked().known(seen.inst().result(result), site.typing);
    if (program.types[known.type].mesh() == seen.app().op_context().mesh)
      reduction.parts = addends(program, known, data.results[result], acted);
    return reduction;
  }
  llvm::SmallVector<uint32_t, 2> tensors = rules::operands_of(seen.app());
  if (result >= tensors.size() || !seen.known(tensors[result]) || !seen.result(result))
    return reduction;
  const ir::Type &from = seen.known(tensors[result])->type(), &to = seen.result(result)->type();
  if (from.mesh() != to.mesh())
    return reduction;
  AxisSet pending = (from.of(Kind::Partial) - from.zero()) & acted;
  // Contributions that a reduction reads as addends.
  if (rules::unstated_words(seen.op().transition).reduces)
    pending |= per_rank_axes(program, from) & acted;
  reduction.axes = pending - (to.of(Kind::Partial) - to.zero());
  if (reduction.axes)
    reduction.parts =
        addends(program, reference.checked().known(seen.values()[tensors[result]], site.typing),
                data.operands[tensors[result]], reduction.axes);
  return reduction;
}

double Bounds::roundoff(ir::DType dtype) const {
  if (!is_float(dtype))
    return 0;
  return run_ == Domain::Declared ? unit_roundoff(dtype) : kDouble;
}

// Rounded once when it is stored; below the normal numbers by a part of the smallest one.
Meaning Bounds::stored(const Meaning &magnitudes, double u, ir::DType dtype) const {
  double smallest = 0;
  if (run_ == Domain::Declared && is_float(dtype))
    smallest = dtype == ir::DType::F16      ? 0x1p-24
               : dtype == ir::DType::F8E4M3 ? 0x1p-9
               : dtype == ir::DType::F8E5M2 ? 0x1p-16
                                            : 0x1p-133;
  return map_cells(magnitudes, [&](double value) { return u * value + smallest; });
}

llvm::Expected<Meanings> Bounds::of(const ResolvedInst &seen, ir::InstId id, BodySite site,
                                    const StepData &data) {
  ir::Program &program = reference_.program();
  Meanings operands, results;
  for (unsigned i = 0; i < data.operands.size(); ++i) {
    if (!seen.known(i) || data.operands[i].empty()) {
      operands.push_back({});
      continue;
    }
    bool number = is_float(seen.known(i)->dtype());
    Meaning own = number ? magnitudes_of(program, *seen.known(i), data.operands[i])
                         : seen.known(i)->denote(pointers(data.operands[i]));
    operands.push_back(seen.from(i) ? reframed(program, own, *seen.known(i), *seen.from(i)) : own);
  }
  for (unsigned r = 0; r < data.results.size(); ++r)
    results.push_back(seen.to(r) && !data.results[r].empty()
                          ? magnitudes_of(program, *seen.to(r), data.results[r])
                          : Meaning());
  if (seen.op().form == rules::OpForm::Transition)
    return of_transition(seen, data, site, results);
  if (seen.op().form == rules::OpForm::Equation)
    return of_equation(seen, id, site, operands, results);
  Meanings bounds;
  for (unsigned r = 0; r < results.size(); ++r) {
    bool norms = rules::takes_norm(seen.op().boundary);
    bool computes = norms || seen.op().boundary == rules::Boundary::Scale;
    // A norm rounds each sum of squares, and what it adds to it: of all operands, then of all
    // ranks.
    double sums = norms ? gamma(static_cast<double>(operands.size()) + ranks_of(data),
                                roundoff(seen.to(r) ? seen.to(r)->dtype() : ir::DType::F32))
                        : 0;
    double u = seen.to(r) && computes ? kOfScale * roundoff(seen.to(r)->dtype()) + sums : 0;
    bounds.push_back(seen.to(r) && u > 0 ? stored(results[r], u, seen.to(r)->dtype())
                                         : map_cells(results[r], [](double) { return 0.0; }));
  }
  return bounds;
}

Meaning Bounds::of_function(const ResolvedInst &seen, const Meanings &operands,
                            const Meaning &result, ir::DType dtype) const {
  double u = roundoff(dtype), most = largest(result), elements = 1;
  for (const Meaning &operand : operands) {
    most = std::max(most, largest(operand));
    for (const Tensor &piece : operand.pieces)
      elements = std::max(elements, static_cast<double>(piece.size()));
  }
  bool by_operand = seen.op().row && seen.op().row->error_of_operand && !operands.empty() &&
                    operands[0].pieces.size() == result.pieces.size();
  for (size_t p = 0; by_operand && p < result.pieces.size(); ++p)
    by_operand = operands[0].pieces[p].dims == result.pieces[p].dims;
  Meaning bound = stored(result, kOfScale * u, dtype);
  if (by_operand)
    add_into(bound, operands[0], kOfScale * u);
  double inside = is_float(dtype) ? gamma(elements, kDouble) * most * kCancellation : 0;
  return map_cells(bound, [&](double value) { return value + inside; });
}

llvm::Expected<Meanings> Bounds::of_equation(const ResolvedInst &seen, ir::InstId id, BodySite site,
                                             const Meanings &operands, const Meanings &results) {
  Meanings bounds;
  uint64_t draws = draw_op(site.path, drawn_by(reference_.program(), id));
  llvm::Expected<std::optional<TermSums>> sums = term_sums(reference_, seen, draws, operands);
  if (!sums)
    return sums.takeError();
  for (unsigned r = 0; r < results.size(); ++r) {
    if (results[r].pieces.empty()) {
      bounds.push_back({});
      continue;
    }
    ir::DType dtype = seen.to(r)->dtype();
    double u = roundoff(dtype);
    if (!is_float(dtype)) {
      bounds.push_back(map_cells(results[r], [](double) { return 0.0; }));
      continue;
    }
    if (!*sums) {
      bounds.push_back(of_function(seen, operands, results[r], dtype));
      continue;
    }
    const TermSums &terms = **sums;
    if (terms.copies) {
      bounds.push_back(map_cells(results[r], [](double value) { return 8 * kDouble * value; }));
      continue;
    }
    // Products of narrow operands are accumulated in f32.
    bool wide = run_ == Domain::F64 || terms.widest == ir::DType::F64;
    double accumulated = gamma(terms.count, wide ? kDouble : 0x1p-24);
    Meaning bound = stored(results[r], u * (1 + accumulated), dtype);
    Meaning magnitudes =
        reframed(reference_.program(), terms.sums[r], *seen.result(r), *seen.to(r));
    if (magnitudes.pieces.size() == bound.pieces.size())
      add_into(bound, magnitudes, accumulated);
    bounds.push_back(std::move(bound));
  }
  return bounds;
}

llvm::Expected<Meanings> Bounds::of_transition(const ResolvedInst &seen, const StepData &data,
                                               BodySite site, const Meanings &results) {
  Meanings bounds;
  for (unsigned r = 0; r < results.size(); ++r) {
    if (results[r].pieces.empty()) {
      bounds.push_back({});
      continue;
    }
    ir::DType dtype = seen.to(r)->dtype();
    double u = roundoff(dtype);
    Reduction reduction = reduction_of(reference_, seen, site, data, r);
    if (reduction.parts.empty()) {
      // Moved, not computed; what is pending along other axes the comparison itself adds up.
      bounds.push_back(map_cells(results[r], [](double value) { return 8 * kDouble * value; }));
      continue;
    }
    Meaning prefixes =
        order_ == SumOrder::Ranks ? prefix_sums(reduction.parts) : any_order(reduction.parts, u);
    rules::Outcome ignored;
    std::optional<rules::TransitionCall> call = rules::read_call(seen.app(), ignored);
    uint32_t operand = rules::operands_of(seen.app())[r];
    Rational factor = factor_of({seen.app(), *call, operand, *seen.from(operand), *seen.result(r)});
    for (Tensor &piece : prefixes.pieces)
      multiply(piece, factor.first, factor.second);
    Meaning bound = stored(results[r], 2 * u, dtype);
    // Where the result is cut, or pending along other axes too, the largest one holds everywhere.
    const ir::Type &from = seen.from(operand)->type();
    bool pending = !(from.of(Kind::Partial) - from.zero() - reduction.axes).empty();
    if (!pending && same_extents(prefixes, bound))
      add_into(bound, prefixes, u);
    else
      bound = add_everywhere(bound, u * sum_of_largest(prefixes, pending, data.operands[operand]));
    bounds.push_back(std::move(bound));
  }
  return bounds;
}

} // namespace spmd::runtime
