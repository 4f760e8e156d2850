// Reads each call of a transition as its rule does; a redistribution to a whole type is what its
// plan sends.
#include "checker/report/communication.h"

#include "checker/dialect/printer.h"

#include "ir/dialect/print_type.h"
#include "ir/mesh/symbols.h"
#include "rules/apply.h"
#include "rules/redistribute/call.h"
#include "rules/redistribute/plan.h"
#include "rules/transitions/call.h"

#include "llvm/ADT/STLExtras.h"

#include <algorithm>
#include <map>

namespace spmd::checker {

using rules::Collective;

namespace {

class Reader {
public:
  Reader(ir::Program &program, const CheckResult &result)
      : program_(program), result_(result), rules_(program), planner_(program) {}

  void read(ir::InstId id, std::vector<CommCall> &out);

private:
  std::optional<int64_t> bytes_of(const rules::TensorInfo &arg) const {
    if (!arg.shape.valid() || ir::is_symbolic(program_, program_.meshes[mesh_]))
      return std::nullopt;
    return ir::byte_count(program_.shapes[arg.shape]);
  }
  // Of the larger side of all operands and all results.
  std::optional<int64_t> larger_side(const TypedCall &call) const;
  CommCall message(Collective collective, ir::AxisSet axes, int64_t ranks) const {
    return {.inst = inst_,
            .collective = collective,
            .mesh = mesh_,
            .axes = axes,
            .ranks = ranks,
            .bytes = {}};
  }
  void call(const rules::Application &app, const TypedCall &typed, std::vector<CommCall> &out);
  void planned(const rules::Application &app, std::vector<CommCall> &out);

  ir::Program &program_;
  const CheckResult &result_;
  rules::Rules rules_;
  rules::redistribute::Planner planner_;
  ir::InstId inst_;
  ir::MeshId mesh_;
};

std::optional<int64_t> Reader::larger_side(const TypedCall &call) const {
  int64_t before = 0, after = 0;
  for (const rules::TensorInfo &arg : call.args) {
    std::optional<int64_t> bytes = bytes_of(arg);
    if (!bytes)
      return std::nullopt;
    before += *bytes;
  }
  for (const rules::TensorInfo &arg : call.results)
    after += bytes_of(arg).value_or(0);
  return std::max(before, after);
}

// The collective that the rows of a name have in common; None of a name that moves nothing.
Collective collective_of(rules::TransitionOp op) {
  for (const rules::Transition &row : rules::transitions())
    if (row.op == op)
      return row.collective;
  return op == rules::TransitionOp::Reorder ? Collective::Permute : Collective::None;
}

void Reader::call(const rules::Application &app, const TypedCall &typed,
                  std::vector<CommCall> &out) {
  rules::Outcome ignored;
  std::optional<rules::TransitionCall> call = rules::read_call(app, ignored);
  if (!call)
    return;
  std::optional<int64_t> bytes = larger_side(typed);
  auto add = [&](Collective collective, ir::AxisSet axes, int64_t ranks) {
    if (collective == Collective::None || ranks < 2)
      return;
    CommCall made = message(collective, axes, ranks);
    made.combiner = call->combiner;
    if (bytes)
      made.bytes = rules::ring_bytes(collective, *bytes, ranks);
    out.push_back(made);
  };
  if (call->op != rules::TransitionOp::Redistribute) {
    add(collective_of(call->op), call->axes.all(), call->axes.size());
    return;
  }
  for (uint32_t operand : rules::operands_of(app)) {
    ir::Type type = app.type(app.args[operand]).without_shards();
    rules::TransitionOperand view{app, *call, type};
    for (size_t i = 0; i < call->axes.written.size(); ++i)
      for (ir::AxisId axis : call->axes.written[i].axes)
        if (rules::AxisEffect effect = rules::effect_of(view, i, axis); effect.row)
          add(effect.row->collective, axis, rules::size_of(app.mesh(), axis));
  }
}

void Reader::planned(const rules::Application &app, std::vector<CommCall> &out) {
  std::optional<rules::redistribute::Request> request = rules::redistribute::request_of(app);
  if (!request || rules::redistribute::refuse(program_, *request) ||
      !rules::redistribute::can_be_planned(program_, *request))
    return;
  const rules::redistribute::Plan plan = planner_.plan(*request); // a copy: plans make types
  for (const rules::redistribute::Step &step : plan.steps) {
    Collective collective = collective_of(step.op);
    ir::AxisSet axes;
    for (ir::AxisId axis : step.axes)
      axes |= axis;
    if (collective == Collective::None)
      continue;
    out.push_back(message(collective, axes, rules::size_of(app.mesh(), axes)));
    out.back().bytes = static_cast<int64_t>(step.bytes);
  }
}

void Reader::read(ir::InstId id, std::vector<CommCall> &out) {
  const ir::Inst inst = program_.insts[id];
  const rules::ResolvedOp &op = rules_.resolve(inst.op);
  const bool sends = op.boundary == rules::Boundary::Send;
  if (op.form != rules::OpForm::Transition && !sends)
    return;
  inst_ = id;
  mesh_ = program_.contexts[inst.context].mesh;
  if (!mesh_.valid())
    return;
  TypedCall typed = call_of(program_, result_, inst);
  // What no check reached has no types to read the call by.
  if (llvm::any_of(typed.args, [](const rules::TensorInfo &arg) { return !arg.type.valid(); }))
    return;
  rules::Application app{program_,         op,         inst.attrs,  inst.context,
                         typed.list.slots, typed.args, typed.claims};
  if (sends) {
    ir::AxisSet axes = rules::communicated_axes(app);
    out.push_back(
        message(Collective::None, axes, axes.empty() ? 1 : rules::size_of(app.mesh(), axes)));
    out.back().bytes = larger_side(typed);
  } else if (rules::redistribute::states_whole_type(app)) {
    planned(app, out);
  } else {
    call(app, typed, out);
  }
}

} // namespace

std::vector<CommCall> comm_calls(ir::Program &program, const CheckResult &result) {
  std::vector<CommCall> out;
  Reader reader(program, result);
  for (uint32_t i = 0; i < program.insts.size(); ++i)
    reader.read(ir::InstId{i}, out);
  return out;
}

namespace {

constexpr size_t kDepth = 4; // of a part of the model

} // namespace

std::string scope_of(const ir::Program &program, ir::InstId inst) {
  ir::LocId loc = program.insts[inst].loc;
  if (!loc.valid() || !program.locs[loc].scope.valid())
    return "";
  return program.strings[program.locs[loc].scope].str();
}

std::string without_numbers(llvm::StringRef name, size_t parts) {
  llvm::SmallVector<llvm::StringRef, 8> split;
  name.split(split, '.');
  split.resize(std::min<size_t>(split.size(), parts));
  std::string text;
  for (llvm::StringRef part : split) {
    bool number = !part.empty() && llvm::all_of(part, [](char c) { return c >= '0' && c <= '9'; });
    text += (text.empty() ? "" : ".") + (number ? "*" : part.str());
  }
  return text;
}

std::array<std::string_view, 3> traffic_columns(TrafficBy by) {
  if (by == TrafficBy::Axis)
    return {"collective", "axis", "phase"};
  if (by == TrafficBy::Scope)
    return {"part", "collective", "axis"};
  if (by == TrafficBy::Phase)
    return {"phase", "collective", "axis"};
  return {"op", "collective", "axis"};
}

TrafficKey traffic_key(const ir::Program &program, const CommCall &message, TrafficBy by) {
  constexpr std::string_view kPhases[] = {"", "forward", "backward", "recomputed", "optimizer"};
  const ir::Inst &inst = program.insts[message.inst];
  std::string axes =
      message.axes.empty() ? "?" : ir::print_axes(program, message.mesh, message.axes);
  std::string collective(message.collective == Collective::None
                             ? rules::boundary_name(rules::Boundary::Send)
                             : rules::kCollectiveWords[static_cast<unsigned>(message.collective)]);
  std::string phase(kPhases[static_cast<unsigned>(inst.phase)]);
  if (by == TrafficBy::Axis)
    return {collective, axes, phase};
  if (by == TrafficBy::Phase)
    return {phase, collective, axes};
  if (by == TrafficBy::Scope)
    return {without_numbers(scope_of(program, message.inst), kDepth), collective, axes};
  return {program.op_name(inst.op).str(), collective, axes};
}

TrafficRows add_up(const ir::Program &program, llvm::ArrayRef<CommCall> messages, TrafficBy by) {
  std::map<TrafficKey, Traffic> rows;
  for (const CommCall &message : messages) {
    Traffic &row = rows[traffic_key(program, message, by)];
    ++row.calls;
    row.unknown += !message.bytes;
    row.bytes += message.bytes.value_or(0);
  }
  TrafficRows sorted(rows.begin(), rows.end());
  llvm::stable_sort(sorted,
                    [](const auto &a, const auto &b) { return a.second.bytes > b.second.bytes; });
  return sorted;
}

} // namespace spmd::checker
