// A program in order: declarations, instructions, outputs; then what only the whole of it tells.
#include "checker/walk/walk.h"

namespace spmd::checker {

using ir::InstId;
using ir::ValueId;

constexpr uint32_t kProgressOps = 1 << 15; // how often progress is reported

Walk::Walk(ir::Program &program, const CheckOptions &options, CheckResult &result,
           InferenceMaker infer)
    : state_(program, options, result), program_(program), result_(result),
      inference_(infer ? infer(state_) : nullptr), undecided_(state_), contracts_(state_),
      gradients_(state_, contracts_, undecided_), edits_(state_),
      typing_(state_, undecided_, contracts_, gradients_, edits_, mover),
      interface_(state_, undecided_, contracts_, gradients_) {
  state_.inference = inference_.get();
}

void Walk::run() {
  contracts_.judge_functions();
  for (uint32_t i = 0; i < program_.params.size(); ++i)
    interface_.declare(i);
  const size_t declared = state_.body_result->entries.size();
  const uint32_t first = program_.main.first.index, last = program_.main.last.index;
  for (uint32_t i = first; i < last; ++i) {
    typing_.instruction(InstId{i});
    if (state_.options.progress && (i - first) % kProgressOps == kProgressOps - 1)
      state_.options.progress(i - first, last - first);
  }
  const size_t reported = state_.body_result->entries.size();
  gradients_.judge_declared(declared);
  const size_t late = state_.body_result->entries.size() - reported;
  for (uint32_t i = 0; i < program_.outputs.size(); ++i)
    interface_.output(i);
  contracts_.judge_unread();
  undecided_.settle(declared, reported, late);
  Collector(program_, state_.bodies).add(state_.main, result_);
  undecided_.settle_src_dst();
  typing_.keep_typings();
  state_.main = {};
  result_.stats.applications = state_.rules.distinct();
}

std::optional<std::vector<Finding>> Walk::retype(const Edit &edit) {
  edits_.begin(edit);
  for (InstId id = edits_.first(); id.index < program_.main.last.index; ++id.index)
    if (edits_.concerns(id))
      edits_.retype(id, [&](InstId each) { typing_.instruction(each); });
  for (uint32_t i = 0; i < program_.outputs.size(); ++i)
    if (edits_.changed(program_.outputs[i].value))
      interface_.output(i);
  CheckResult made;
  Collector collector(program_, state_.bodies);
  collector.add(state_.main, made);
  edits_.end();
  if (collector.refused())
    return std::nullopt;
  return std::move(made.findings);
}

void Walk::resume() {
  state_.recording = false;
  undecided_.use_decided_src_dst();
  interface_.resume();
  for (uint32_t i = 0; i < program_.values.size(); ++i)
    state_.storage.define(ValueId{i});
  for (uint32_t i = program_.main.first.index; i < program_.main.last.index; ++i) {
    typing_.resume(InstId{i});
    if (state_.rules.resolve(program_.insts[InstId{i}].op).form == rules::OpForm::Transition)
      gradients_.note_move(InstId{i});
  }
  contracts_.resume();
}

} // namespace spmd::checker
