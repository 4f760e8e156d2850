// How far rounding can take the result of one step from what is meant, per element: from the data
// that the ranks had, by the unit roundoffs of what was accumulated, sent and stored.
#pragma once

#include "runtime/backends/sum_order.h"
#include "runtime/reference/reference.h"

namespace spmd::runtime {

// One instruction as a run carried it out: per tensor, what the ranks of its mesh hold.
struct StepData {
  llvm::ArrayRef<llvm::ArrayRef<Tensor>> operands, results;
};

// k u / (1 - k u); infinite where k u is 1/2 or more: then there is no bound.
double gamma(double k, double u);

// The addends of a value along its pending axes: one meaning for each coordinate on `axes` (in mesh
// order), of data divided by the scale. Lists along the axes count as addends too.
std::vector<Meaning> addends(ir::Program &program, const rules::TensorInfo &known,
                             llvm::ArrayRef<Tensor> held, ir::AxisSet axes);

// What a step adds up over ranks: along which axes, and what is added.
struct Reduction {
  ir::AxisSet axes; // none: it adds nothing up
  std::vector<Meaning> parts;
};
Reduction reduction_of(Reference &reference, const ResolvedInst &seen, BodySite site,
                       const StepData &data, unsigned result);
// Axes along which a step moves or adds up data.
ir::AxisSet acted_axes(const ResolvedInst &seen);

class Bounds {
public:
  // `run`: the domain of the data. The reference is in F64.
  Bounds(Reference &reference, Domain run, SumOrder order = SumOrder::Ranks)
      : reference_(reference), run_(run), order_(order) {}

  // Per result, of data divided by its scale; without pieces: no bound is known.
  llvm::Expected<Meanings> of(const ResolvedInst &seen, ir::InstId id, BodySite site,
                              const StepData &data);

private:
  double roundoff(ir::DType dtype) const;
  Meaning stored(const Meaning &magnitudes, double u, ir::DType dtype) const;
  llvm::Expected<Meanings> of_equation(const ResolvedInst &seen, ir::InstId id, BodySite site,
                                       const Meanings &operands, const Meanings &results);
  Meaning of_function(const ResolvedInst &seen, const Meanings &operands, const Meaning &result,
                      ir::DType dtype) const;
  llvm::Expected<Meanings> of_transition(const ResolvedInst &seen, const StepData &data,
                                         BodySite site, const Meanings &results);

  Reference &reference_;
  Domain run_;
  SumOrder order_;
};

} // namespace spmd::runtime
