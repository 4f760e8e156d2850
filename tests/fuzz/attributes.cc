// Attributes of anything that the tables know: a row, a transition, a boundary op, a call, the
// gradient of an operand. Of the input three bytes say which one, over operands of how many
// dimensions, and how they are checked; then come attributes. Text and JSON must read them the same
// way, and whatever they are the check ends with a report, the same one with and without
// memoisation.
#include "tests/fuzz/fuzz.h"

#include "checker/render/render.h"
#include "checker/report/report.h"
#include "rules/attributes/attributes.h"
#include "rules/boundary/boundary.h"
#include "rules/derivative.h"
#include "rules/ops/registry.h"
#include "rules/transitions/transition.h"

using namespace spmd;

namespace {

struct Target {
  std::string name;
  unsigned operands;
  std::vector<std::string> attributes; // the first name of each
};

void add_target(std::vector<Target> &targets, std::string name, unsigned operands,
                const rules::AttributeList &list) {
  Target &made = targets.emplace_back(Target{std::move(name), operands, {}});
  for (const rules::AttributeSpec &spec : list.specs)
    made.attributes.emplace_back(spec.first_name());
}

std::vector<Target> all_targets() {
  std::vector<Target> targets;
  for (llvm::ArrayRef<rules::OpDef> family : rules::op_families())
    for (const rules::OpDef &row : family) {
      rules::AttributeList list = rules::attributes_of(row, nullptr);
      unsigned count = row.equation.equation.operand_count;
      add_target(targets, std::string(row.name), count, list);
      if (count == 0 || !rules::derivative(row, 0))
        continue;
      std::string_view operand = row.equation.equation.operands[0].name;
      add_target(targets, "vjp." + std::string(row.name) + "." + std::string(operand), count + 1,
                 list);
    }
  for (llvm::ArrayRef<rules::Transition> rows : {rules::transitions(), rules::joint_transitions()})
    for (const rules::Transition &row : rows)
      if (targets.back().name != row.name())
        add_target(targets, std::string(row.name()), 1, rules::attributes_of_transition(row.op));
  for (const rules::BoundaryOp &row : rules::boundary_ops())
    add_target(targets, std::string(row.name()), row.operands,
               rules::attributes_of_boundary(row.op));
  for (const rules::CallOp &row : rules::call_ops())
    add_target(targets, std::string(row.name()), 2, rules::attributes_of_boundary(row.op));
  return targets;
}

// One attribute after another, each up to a `;`. A first byte beyond ASCII stands for a name that
// the op knows.
std::string attributes_of(const Target &target, llvm::StringRef bytes) {
  std::string text;
  while (!bytes.empty()) {
    auto [one, rest] = bytes.split(';');
    bytes = rest;
    if (one.empty())
      continue;
    text += text.empty() ? " { " : ", ";
    auto first = static_cast<unsigned char>(one.front());
    if (first >= 0x80 && !target.attributes.empty())
      text += target.attributes[first % target.attributes.size()] + " = " + one.drop_front().str();
    else
      text += one.str();
  }
  return text.empty() ? text : text + " }";
}

std::string program_of(const Target &target, unsigned shapes, llvm::StringRef attributes) {
  static constexpr const char *kShapes[] = {"f32[2, 3, 4]", "f32[4@tp, 6]", "i64[6]", "f32[]"};
  static constexpr const char *kKinds[] = {"R@dp", "V@dp", "P@dp", "I@dp"};
  std::string text = "mesh m { dp = 2, tp = 2 }\n"
                     "func @f(%p) {\n  %q = neg %p\n  return %q\n}\n";
  std::string operands;
  for (unsigned i = 0; i < target.operands; ++i) {
    unsigned shape = (shapes >> i) & 3;
    text += "%" + std::to_string(i) + " = input " + kShapes[shape] + " " +
            kKinds[(shapes + i) & 3] + (shape == 1 ? "\n" : " R@tp\n");
    operands += (i ? ", %" : " %") + std::to_string(i);
  }
  return text + "%r = " + target.name + operands + attributes_of(target, attributes) + "\n";
}

std::string report_of(ir::Program &program, llvm::StringRef bytes,
                      const checker::CheckOptions &options) {
  checker::CheckResult result = checker::check(program, options);
  SPMD_CHECK(result.types.size() == program.values.size(), "a value without a type");
  std::vector<checker::Report> reports;
  reports.push_back(checker::make_report("fuzz", bytes, program, result, options,
                                         {.max_findings = 20, .select = {"all"}, .ignore = {}}));
  std::string text;
  llvm::raw_string_ostream out(text);
  checker::SourceCache sources({});
  checker::find_renderer("concise")->fn(reports, sources, {}, out);
  return out.str();
}

// What is found, without the places, which each form has its own of.
std::string names_of(ir::Program &program, const checker::CheckOptions &options) {
  std::string names;
  for (const checker::Finding &finding : checker::check(program, options).findings)
    names += std::string(finding.info().name) + ' ';
  return names;
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static const std::vector<Target> targets = all_targets();
  if (size < 4)
    return 0;
  const Target &target = targets[(data[0] | data[1] << 8) % targets.size()];
  std::string text = program_of(target, data[2], fuzz::bytes_of(data + 4, size - 4));
  checker::CheckOptions options{.permissive = bool(data[3] & 1),
                                .infer_partial = bool(data[3] & 2)};
  if (data[3] & 12)
    options.mode = data[3] & 4 ? ir::Mode::Local : ir::Mode::Gradual;
  ir::ReadResult first = ir::read_text(text), second = ir::read_text(text);
  if (!fuzz::is_sound(first))
    return 0;
  std::string with = report_of(first.program, text, options);
  checker::CheckOptions plain = options;
  plain.memoise = false;
  SPMD_CHECK(report_of(second.program, text, plain) == with, "memoisation changes the report");
  fuzz::round_trip(second, ir::print_text, ir::read_text, ir::print_json);
  ir::ReadResult json = ir::read_json(ir::print_json(second.program));
  SPMD_CHECK(json.errors.empty(), "what was printed cannot be read");
  SPMD_CHECK(names_of(json.program, options) == names_of(second.program, options),
             "text and JSON are judged otherwise");
  return 0;
}
