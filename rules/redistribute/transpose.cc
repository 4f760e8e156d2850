// Dual rows, read off the table of transitions.
#include "rules/redistribute/transpose.h"

#include "rules/transitions/transition.h"

#include "ir/claims.h"
#include "ir/support/check.h"

#include "llvm/ADT/STLExtras.h"

namespace spmd::rules::redistribute {
namespace {

using ir::AxisId;
using ir::Kind;
using ir::WrittenKind;

// convert and reinterpret are two names of one row where bytes and value stay: one of them is
// taken.
TransitionOp plain_op(const Transition &row) {
  bool local = row.collective == Collective::None && row.local_step == LocalStep::None;
  return local && find_transition(TransitionOp::Convert, row.src, row.dst) ? TransitionOp::Convert
                                                                           : row.op;
}

WrittenKind dual_word(Kind kind, WrittenKind forward) {
  return kind == Kind::Varying ? forward : WrittenKind{.kind = kind};
}

// The order of its axes is that of what it leads to, outermost first.
void order_axes(const ir::Program &program, Step &step) {
  const ir::Type &after = program.types[step.after];
  llvm::SmallVector<size_t, 4> order;
  for (size_t i = 0; i < step.axes.size(); ++i)
    order.push_back(i);
  auto key = [&](size_t i) {
    AxisId axis = step.axes[i];
    std::optional<unsigned> dim = after.dim(axis);
    return dim ? std::pair<unsigned, unsigned>(*dim, after.order(axis))
               : std::pair<unsigned, unsigned>(ir::kMaxDims, axis.index);
  };
  llvm::sort(order, [&](size_t a, size_t b) { return key(a) < key(b); });
  Step sorted = step;
  for (size_t i = 0; i < order.size(); ++i) {
    sorted.axes[i] = step.axes[order[i]];
    sorted.src[i] = step.src[order[i]];
    sorted.dst[i] = step.dst[order[i]];
  }
  step = std::move(sorted);
}

} // namespace

Step transpose(ir::Program &program, const Step &step) {
  Step dual;
  dual.axes = step.axes;
  dual.before = program.types.add(program.types[step.after].dual());
  dual.after = program.types.add(program.types[step.before].dual());
  for (size_t i = 0; i < step.axes.size(); ++i) {
    const Transition *row = find_transition(step.op, step.src[i].kind, step.dst[i].kind);
    // Reduced that is forgotten: the gradient stays.
    const Transition *back = row ? rules::dual_of(*row) : nullptr;
    SPMD_CHECK(back || !row, "a step of a plan has no backward");
    dual.op = back ? plain_op(*back) : TransitionOp::Convert;
    Kind src = back ? back->src : Kind::Partial, dst = back ? back->dst : Kind::Partial;
    dual.src.push_back(dual_word(src, step.dst[i]));
    dual.dst.push_back(dual_word(dst, step.src[i]));
  }
  dual.bytes = dual.padded_bytes = step.backward_bytes;
  dual.backward_bytes = step.bytes;
  dual.hops = step.backward_hops;
  dual.backward_hops = step.hops;
  if (dual.op == TransitionOp::Reorder)
    order_axes(program, dual);
  return dual;
}

Request transpose(ir::Program &program, const Request &request) {
  Request dual = request;
  dual.source = program.types.add(program.types[request.target].dual());
  dual.target = program.types.add(program.types[request.source].dual());
  return dual;
}

Plan transpose(ir::Program &program, const Plan &plan) {
  Plan dual;
  for (const Step &step : llvm::reverse(plan.steps)) {
    Step back = transpose(program, step);
    if (back.before != back.after)
      dual.steps.push_back(std::move(back));
  }
  for (const Step &step : dual.steps) {
    dual.bytes += step.bytes;
    dual.padded_bytes += step.padded_bytes;
    dual.backward_bytes += step.backward_bytes;
    dual.collectives += step.hops ? 1 : 0;
  }
  dual.peak_bytes = plan.peak_bytes;
  dual.cap = plan.cap;
  dual.within_cap = plan.within_cap;
  return dual;
}

} // namespace spmd::rules::redistribute
