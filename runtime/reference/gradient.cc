// The gradient of what a program means: the entries of a run in reverse. Ordinary ops through their
// derived rows on whole tensors, everything that moves data by the transpose of what it did. The
// duals of transitions have no part in it: they are what it is there to check.
#include "runtime/reference/moves.h"
#include "runtime/reference/run.h"

#include "runtime/plan/placement.h"

#include "rules/bind.h"
#include "rules/derivative.h"
#include "rules/violations/operands.h"

#include "ir/support/check.h"
#include "ir/support/error.h"

#include "llvm/ADT/STLExtras.h"

#include <fmt/format.h>

namespace spmd::runtime {

using ir::AxisSet;
using ir::ValueId;

namespace {

void add_to(Meaning &sum, Meaning more) {
  if (sum.pieces.empty()) {
    sum = std::move(more);
    return;
  }
  for (size_t p = 0; p < sum.pieces.size(); ++p)
    combine_into(sum.pieces[p], more.pieces[p], ir::Combiner::Sum);
}

void scale(Meaning &meaning, Rational factor) {
  for (Tensor &piece : meaning.pieces)
    multiply(piece, factor.first, factor.second);
}

// True if no mention of the operand is a value: a condition, or a position.
bool is_position(const rules::Equation &equation, unsigned operand) {
  bool position = true;
  for (unsigned r = 0; r < equation.ref_count; ++r)
    if (equation.refs[r].operand == operand)
      position &= equation.refs[r].role != rules::RefRole::Value ||
                  equation.refs[r].index != rules::kNoFactor;
  return position;
}

// The same meaning seen as of another type, and gradients back.
struct Retyping {
  const ir::Program &program;
  const std::optional<Distribution> &from, &to;

  Meaning forward(const Meaning &meaning) const {
    return from && to ? reframed(program, meaning, *from, *to) : meaning;
  }
  Meaning back(const Meaning &like, const Meaning &gradient) const {
    if (!from || !to ||
        (from->per_rank_axes() == to->per_rank_axes() && from->type().mesh() == to->type().mesh()))
      return gradient;
    auto map = [&](const Meaning &meaning) -> llvm::Expected<Meaning> { return forward(meaning); };
    return transposed(map, like, gradient);
  }
};

} // namespace

// The tensors that an instruction has a derivative by.
static llvm::Error
each_derivative(const ResolvedInst &seen, bool all,
                llvm::function_ref<llvm::Error(unsigned arg, std::string_view name,
                                               std::optional<int64_t> member)>
                    f) {
  llvm::SmallVector<rules::RowUse, 1> uses = rules::row_uses(seen.app());
  for (unsigned u = 0; u < uses.size(); ++u) {
    const rules::RowUse &use = uses[u];
    const rules::Equation &equation = use.row->equation.equation;
    rules::Application bound = seen.app().bound_to(use);
    rules::OperandMismatch ignored;
    std::optional<rules::Binding> binding = rules::bind_operands(bound, equation, ignored);
    if (!binding)
      return make_error("operands that the row does not take");
    for (unsigned i = 0; i < equation.operand_count; ++i) {
      const rules::Slot *slot = (*binding)[i];
      bool differentiable = use.row->gradient && !is_position(equation, i);
      for (unsigned m = 0; slot && differentiable && m < slot->count; ++m) {
        unsigned arg = slot->first + m;
        const ir::Type &known = seen.app().type(seen.app().args[arg]);
        if (all ? !seen.from(arg) || !ir::differentiable(seen.from(arg)->dtype())
                : known.gradient_free())
          continue;
        if (!rules::derivative(*use.row, i))
          return make_error(fmt::format("`{}` has no derivative by {}", use.row->name,
                                        equation.operands[i].name));
        std::optional<int64_t> member;
        if (uses.size() > 1)
          member = u;
        else if (equation.operands[i].list != rules::ListForm::Single)
          member = m;
        if (llvm::Error problem = f(arg, equation.operands[i].name, member))
          return problem;
      }
    }
  }
  return llvm::Error::success();
}

llvm::Error ReferenceRun::transpose(const Entry &entry, std::vector<Meaning> &gradients) {
  if (llvm::all_of(entry.outputs, [&](NodeId node) { return gradients[node].pieces.empty(); }))
    return llvm::Error::success();
  if (!entry.inst.valid()) {
    for (size_t i = 0; i < entry.inputs.size(); ++i) {
      Meaning made = transposed(entry.maps[i], trace_.nodes[entry.inputs[i]],
                                gradients[entry.outputs.front()]);
      if (entry.factor != Rational{1, 1})
        scale(made, entry.factor);
      add_to(gradients[entry.inputs[i]], std::move(made));
    }
    return llvm::Error::success();
  }
  auto found = reference_.resolve_inst(entry.inst, entry.site);
  if (!found)
    return found.takeError();
  const ResolvedInst &seen = **found;
  if (!seen.app().op_context().grad && !differentiated_.contains(entry.inst.index))
    return llvm::Error::success();
  Meanings operands, results;
  for (unsigned i = 0; i < entry.inputs.size(); ++i)
    operands.push_back(
        Retyping{program_, seen.known(i), seen.from(i)}.forward(trace_.nodes[entry.inputs[i]]));
  for (unsigned r = 0; r < entry.outputs.size(); ++r) {
    Retyping out{program_, seen.result(r), seen.to(r)};
    const Meaning &gradient = gradients[entry.outputs[r]];
    if (gradient.pieces.empty()) {
      results.push_back({});
      continue;
    }
    Meaning like =
        Retyping{program_, seen.to(r), seen.result(r)}.forward(trace_.nodes[entry.outputs[r]]);
    results.push_back(out.back(like, gradient));
  }
  auto give = [&](unsigned arg, Meaning gradient) {
    if (gradient.pieces.empty())
      return;
    Retyping in{program_, seen.known(arg), seen.from(arg)};
    const Meaning &like = trace_.nodes[entry.inputs[arg]];
    add_to(gradients[entry.inputs[arg]], in.back(like, gradient));
  };
  if (seen.op().form == rules::OpForm::Equation) {
    uint64_t draws = draw_op(entry.site.path, drawn_by(program_, entry.inst));
    return each_derivative(
        seen, differentiated_.contains(entry.inst.index),
        [&](unsigned arg, std::string_view name, std::optional<int64_t> member) -> llvm::Error {
          llvm::Expected<Meaning> made =
              reference_.derivative(seen, draws, operands, results, arg, name, member);
          if (!made)
            return made.takeError();
          give(arg, std::move(*made));
          return llvm::Error::success();
        });
  }
  for (unsigned i = 0; i < entry.inputs.size(); ++i) {
    const Distribution *from = seen.from(i) ? &*seen.from(i) : nullptr;
    bool free = from && from->type().gradient_free() && !differentiated_.contains(entry.inst.index);
    if (!from || free || !ir::differentiable(from->dtype()))
      continue;
    llvm::Expected<Meaning> made =
        reference_.transposed_move(seen, entry.site, i, operands, results);
    if (!made)
      return made.takeError();
    give(i, std::move(*made));
  }
  return llvm::Error::success();
}

llvm::Expected<Meaning> Reference::transposed_move(const ResolvedInst &seen, BodySite site,
                                                   unsigned arg, llvm::ArrayRef<Meaning> operands,
                                                   llvm::ArrayRef<Meaning> results) {
  bool collective = seen.op().form == rules::OpForm::Transition;
  unsigned result = 0;
  if (collective) {
    llvm::SmallVector<uint32_t, 2> tensors = rules::operands_of(seen.app());
    const auto *at = llvm::find(tensors, arg);
    if (at == tensors.end())
      return Meaning();
    result = static_cast<unsigned>(at - tensors.begin());
  } else if (arg != 0) {
    return Meaning();
  }
  if (result >= results.size() || results[result].pieces.empty())
    return Meaning();
  if (collective) {
    rules::Outcome ignored;
    std::optional<rules::TransitionCall> call = rules::read_call(seen.app(), ignored);
    SPMD_CHECK(call, "a call that was checked");
    auto said_to = [&](llvm::StringRef key, const Grid::Coordinates &at) {
      return stated_lengths(seen, site, operands, key, at);
    };
    MovedValue value{seen.app(),           *call,  static_cast<uint32_t>(arg), *seen.from(arg),
                     *seen.result(result), said_to};
    auto map = [&](const Meaning &meaning) { return moved(value, meaning); };
    Meaning made = transposed(map, operands[arg], results[result]);
    scale(made, factor_of(value));
    return made;
  }
  if (seen.op().boundary == rules::Boundary::Scale) {
    Meaning made = results[result];
    llvm::Expected<Rational> factor = factor_of_scale(seen);
    if (!factor)
      return factor.takeError();
    scale(made, *factor);
    return made;
  }
  auto map = [&](const Meaning &meaning) -> llvm::Expected<Meaning> {
    llvm::Expected<Meanings> made = boundary(seen, {meaning});
    if (!made)
      return made.takeError();
    return std::move(made->front());
  };
  llvm::Expected<Meaning> there = map(operands[arg]);
  if (!there)
    return there.takeError();
  return transposed(map, operands[arg], results[result]);
}

// No gradient flows through it.
bool ReferenceRun::cuts_gradients(const Entry &entry) {
  if (!entry.inst.valid())
    return false;
  const ir::Inst &inst = program_.insts[entry.inst];
  const rules::OpDef *row = reference_.resolve(inst.op).row;
  bool passes = program_.contexts[inst.context].grad || differentiated_.contains(entry.inst.index);
  return !passes || (row && !row->gradient);
}

Meaning ReferenceRun::seeded(NodeId root, const Meaning *seed) const {
  Meaning made = trace_.nodes[root];
  const ir::Mesh &mesh = program_.meshes[program_.types[trace_.known[root].type].mesh()];
  Grid all(mesh, made.per_rank), given(mesh, seed ? seed->per_rank : AxisSet());
  for (size_t p = 0; p < made.pieces.size(); ++p) {
    if (seed) {
      auto at = given.position(all.coordinates(static_cast<int64_t>(p)));
      made.pieces[p] = seed->pieces[static_cast<size_t>(at)];
      continue;
    }
    made.pieces[p].visit([](auto &cells) {
      for (auto &cell : cells)
        cell = 1;
    });
  }
  return made;
}

std::vector<Derivative> ReferenceRun::derivatives(ValueId loss, const Meaning *seed,
                                                  llvm::ArrayRef<ValueId> of) {
  NodeId root = main_.find(loss);
  if (root == kNoNode || trace_.nodes[root].pieces.empty())
    return std::vector<Derivative>(of.size(), {{}, "the loss was not computed"});
  std::vector<Meaning> gradients(trace_.nodes.size());
  // What depends on a gradient that is not known is not known either: by node, into `reasons`.
  std::vector<std::string> reasons;
  std::vector<uint32_t> unknown(trace_.nodes.size(), ~0u);
  gradients[root] = seeded(root, seed);
  for (const Entry &entry : llvm::reverse(trace_.entries)) {
    uint32_t reason = ~0u;
    for (NodeId node : entry.outputs)
      reason = std::min(reason, unknown[node]);
    if (reason != ~0u && cuts_gradients(entry))
      continue;
    if (reason == ~0u) {
      llvm::Error problem = transpose(entry, gradients);
      if (!problem)
        continue;
      reason = static_cast<uint32_t>(reasons.size());
      reasons.push_back(llvm::toString(std::move(problem)));
    }
    for (NodeId node : entry.inputs)
      unknown[node] = std::min(unknown[node], reason);
  }
  std::vector<Derivative> found;
  for (ValueId value : of) {
    NodeId node = main_.find(value);
    if (node == kNoNode)
      found.push_back({});
    else if (unknown[node] != ~0u)
      found.push_back({{}, reasons[unknown[node]]});
    else
      found.push_back({gradients[node], ""});
  }
  return found;
}

llvm::Expected<Meanings> ReferenceRun::gradients(ValueId loss, llvm::ArrayRef<ValueId> of) {
  Meanings found;
  for (Derivative &each : derivatives(loss, nullptr, of)) {
    if (!each.unknown.empty())
      return make_error(each.unknown);
    found.push_back(std::move(each.meaning));
  }
  return found;
}

} // namespace spmd::runtime
