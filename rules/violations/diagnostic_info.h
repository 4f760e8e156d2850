// What every way to be wrong consists of: a name, a severity, a sentence, and a manual page.
#pragma once

#include "ir/attrs.h"
#include "ir/ids.h"
#include "ir/kind.h"
#include "ir/mesh/axis.h"

#include <string>
#include <string_view>
#include <variant>

namespace spmd::rules {

enum class Severity : uint8_t { Error, Warning, Info };
inline constexpr std::string_view kSeverityWords[] = {"error", "warning", "info"};

// Who reports a finding: checking a program; showing what was found; writing out what it leaves
// implicit; running it. Only of the first kind can a program be shown that triggers it.
enum class ReportedBy : uint8_t { Check, Report, Elaborate, Run };

struct DiagnosticInfo {
  std::string_view name = {}; // kebab-case; never reused
  Severity severity = Severity::Error;
  ReportedBy drawn_by = ReportedBy::Check;
  // It holds for cuts that nobody stated; others say that tensors are no parts of one, which they
  // need not be.
  bool holds_for_inferred_cuts = false;
  // What is computed is right, and communication could be spared: reported where it is asked for.
  bool is_cost = false;
  // It was found by following values through the program, and holds whatever is not known of their
  // types.
  bool needs_no_types = false;
  // A collective on an operand would end the finding and leave what is computed as wrong as it was:
  // none is offered as a fix.
  bool collectives_only_silence = false;
  // `{op}` is the spelling of the program; every other placeholder is a field of the struct.
  std::string_view message = {};
  std::string_view explain =
      {}; // manual text: what was observed, why it is wrong, what is usually meant
  std::string_view wrong = {}; // a program that draws this finding
  std::string_view right = {}; // its repair
};

// Position of a tensor among those that the instruction takes, lists flattened.
struct OperandIndex {
  uint32_t index = 0;
  friend bool operator==(OperandIndex, OperandIndex) = default;
};
struct ResultIndex {
  uint32_t index = 0;
  friend bool operator==(ResultIndex, ResultIndex) = default;
};
// A product of sizes of axes, which may be symbols (ir/mesh/symbols.h).
struct RankCount {
  int64_t count = 1;
  friend bool operator==(RankCount, RankCount) = default;
};
// Several kinds are possible where a plain word would mislead: `replicate`, `a number`.
struct Addend {
  enum class Form : uint8_t { Operand, Number } form = Form::Operand;
  OperandIndex operand;
  friend bool operator==(Addend, Addend) = default;
};

// A typed argument of a finding; `--format=json` prints it by this type.
using Field = std::variant<OperandIndex, ResultIndex, Addend, RankCount, ir::AxisSet, ir::Kind,
                           ir::WrittenKind, ir::Combiner, int64_t, ir::TypeId, ir::ShapeId,
                           ir::ValueId, std::string>;

} // namespace spmd::rules
