// `spmdlint reveal FILE PLACE`: the types of a value with what makes it and what takes it, and
// where its kinds arose; or of all that stands at a line of the source.
#include "checker/cli/commands/table.h"
#include "checker/cli/inputs/checked_input.h"
#include "checker/cli/inputs/described.h"
#include "checker/cli/output.h"
#include "checker/program_queries.h"

#include "ir/support/strings.h"
#include "ir/text/text.h"

#include "llvm/ADT/STLExtras.h"

#include <fmt/format.h>

namespace spmd::checker {
namespace {

constexpr size_t kMostUses = 8;

// Empty if there is none.
std::string reveal_value(const ir::Program &program, const Described &described,
                         llvm::StringRef name) {
  std::string text;
  for (uint32_t i = 0; i < program.values.size(); ++i) {
    ir::ValueId value{i};
    if (name != ir::print_value(program, value))
      continue;
    if (ir::InstId made = defining_inst(program, value); made.valid()) {
      text += described.instruction(made, true);
    } else {
      for (uint32_t param = 0; param < program.params.size(); ++param)
        if (program.params[param].value == value)
          text += fmt::format("{}: declared\n", described.at({Place::Form::Param, param}));
      text += described.typed(value) + described.why(value);
    }
    size_t uses = 0;
    for (uint32_t inst = 0; inst < program.insts.size(); ++inst)
      if (llvm::is_contained(tensors_of(program, ir::InstId{inst}), value) && uses++ < kMostUses)
        text += fmt::format("used at {}: {}\n", described.at(Place::inst(ir::InstId{inst})),
                            ir::print_inst(program, ir::InstId{inst}));
    if (uses > kMostUses)
      text += fmt::format("and at {} more places\n", uses - kMostUses);
  }
  return text;
}

} // namespace

ExitCode run_reveal(const Options &options) {
  if (options.arguments.size() != 2) {
    say("`reveal` takes a file and a value or a line: `%x`, `model.py:34`");
    return ExitCode::Call;
  }
  llvm::StringRef place = options.arguments.back();
  auto [path, number] = place.rsplit(':');
  uint32_t line = 0;
  bool is_value = ir::starts_with(place, "%");
  if (!is_value && (number.getAsInteger(10, line) || line == 0 || path.empty())) {
    say(fmt::format("`{}` is neither a value (`%x`) nor a line (`model.py:34`)", place.str()));
    return ExitCode::Call;
  }
  std::unique_ptr<CheckedInput> checked = load_checked(options.arguments.front(), options);
  if (!checked)
    return ExitCode::Input;
  const ir::Program &program = checked->program();
  Report report = checked->report({.fixes = false, .select = {}, .ignore = {}});
  Described described(report, options.dialect.value_or(ir::dialect_of(program)));
  std::string text = is_value ? reveal_value(program, described, place) : "";
  for (ir::InstId id : is_value ? std::vector<ir::InstId>() : described.at_line(path, line))
    text += described.instruction(id, true);
  if (text.empty()) {
    say(fmt::format("{}: {} `{}`", options.arguments.front(),
                    is_value ? "no value is named" : "no operation stands at", place.str()));
    return ExitCode::Call;
  }
  return print_text(ir::printable_lines(text));
}

} // namespace spmd::checker
