// One violation at one place of a program.
#pragma once

#include "ir/ids.h"
#include "rules/violation.h"

#include <algorithm>
#include <string>

namespace spmd::checker {

// Where a finding stands: an instruction, or a row of a table of the program.
struct Place {
  enum class Form : uint8_t {
    Inst,
    Param,
    Output,
    Rule,
    Suppression,
    File,
    Function,
    Symbol,
    Frame
  };
  Form form = Form::Inst;
  uint32_t index =
      0; // InstId, FunctionId, FrameId, or index into params, outputs, rules, suppressions, files,
         // symbols

  static Place inst(ir::InstId id) { return {Form::Inst, id.index}; }
  ir::InstId as_inst() const { return ir::InstId{index}; }
  friend bool operator==(const Place &, const Place &) = default;
};

struct Finding {
  rules::Violation violation;
  Place place;
  uint32_t application =
      ~0u; // equal for equal applications of a rule; ~0 where no rule was applied
  bool suppressed = false;
  std::string reason;   // why it is suppressed
  uint32_t clash = ~0u; // into CheckResult::clashes; ~0: no word of a collective is in question

  bool note = false;     // it says only that something was not judged
  bool inferred = false; // it stands on cuts that nobody stated: a warning until a run confirms it

  const rules::DiagnosticInfo &info() const { return rules::info(violation); }
  rules::Severity severity() const {
    if (note)
      return rules::Severity::Info;
    return inferred ? std::max(info().severity, rules::Severity::Warning) : info().severity;
  }
};

} // namespace spmd::checker
