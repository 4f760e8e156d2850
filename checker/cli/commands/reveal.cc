// `spmdlint reveal FILE PLACE`: the types of a value with what makes it and what takes it, or of
// all that stands at a line of the source.
#include "checker/cli/commands/table.h"
#include "checker/cli/inputs/checked_input.h"
#include "checker/cli/output.h"
#include "checker/definitions.h"

#include "ir/support/strings.h"
#include "ir/text/text.h"

#include "llvm/ADT/STLExtras.h"

#include <fmt/format.h>

namespace spmd::checker {
namespace {

constexpr size_t kMostUses = 8;

class Revealer {
public:
  Revealer(CheckedInput &checked, const Options &options)
      : checked_(checked), program_(checked.program()),
        words_(options.dialect.value_or(ir::dialect_of(program_))),
        report_(checked.report({.fixes = false, .select = {}, .ignore = {}})) {}

  // Empty if there is none.
  std::string value(llvm::StringRef name);
  std::string line(llvm::StringRef path, uint32_t line);

private:
  std::string typed(ir::ValueId value) const;
  std::string at(const Place &place) const;
  std::string instruction(ir::InstId inst) const;

  CheckedInput &checked_;
  const ir::Program &program_;
  ir::Dialect words_;
  Report report_;
};

std::string Revealer::typed(ir::ValueId value) const {
  ir::TypeId type = checked_.result.types[value.index];
  std::string text = type.valid() ? ir::print_type(program_, program_.types[type],
                                                   checked_.result.shapes[value.index],
                                                   program_.values[value].global_shape)
                                  : "not reached";
  if (type.valid() && words_ != ir::Dialect::Spmd)
    text += fmt::format("; {}: {}", ir::kDialectWords[static_cast<unsigned>(words_)],
                        ir::print_words(program_, program_.types[type], words_));
  return fmt::format("  {}: {}\n", ir::print_named(program_, value), text);
}

std::string Revealer::at(const Place &place) const {
  SourcePlace found = locate(report_, place);
  return print(found) + (found.scope.empty() ? "" : " in " + found.scope);
}

std::string Revealer::instruction(ir::InstId id) const {
  const ir::Inst &inst = program_.insts[id];
  std::string text = fmt::format("{}: {}\n", at(Place::inst(id)), ir::print_inst(program_, id));
  llvm::SmallVector<ir::ValueId, 8> shown;
  for (uint32_t i = 0; i < inst.result_count; ++i)
    shown.push_back(inst.result(i));
  for (ir::ValueId value : tensors_of(program_, id))
    if (!llvm::is_contained(shown, value))
      shown.push_back(value);
  for (ir::ValueId value : shown)
    text += typed(value);
  return text;
}

std::string Revealer::value(llvm::StringRef name) {
  std::string text;
  for (uint32_t i = 0; i < program_.values.size(); ++i) {
    ir::ValueId value{i};
    if (name != ir::print_value(program_, value))
      continue;
    if (ir::InstId made = defining_inst(program_, value); made.valid()) {
      text += instruction(made);
    } else {
      for (uint32_t param = 0; param < program_.params.size(); ++param)
        if (program_.params[param].value == value)
          text += fmt::format("{}: declared\n", at({Place::Form::Param, param}));
      text += typed(value);
    }
    size_t uses = 0;
    for (uint32_t inst = 0; inst < program_.insts.size(); ++inst)
      if (llvm::is_contained(tensors_of(program_, ir::InstId{inst}), value) && uses++ < kMostUses)
        text += fmt::format("used at {}: {}\n", at(Place::inst(ir::InstId{inst})),
                            ir::print_inst(program_, ir::InstId{inst}));
    if (uses > kMostUses)
      text += fmt::format("and at {} more places\n", uses - kMostUses);
  }
  return text;
}

// A path as the trace has it, or the end of it.
std::string Revealer::line(llvm::StringRef path, uint32_t line) {
  std::string text;
  for (uint32_t i = 0; i < program_.insts.size(); ++i) {
    SourcePlace place = locate(report_, Place::inst(ir::InstId{i}));
    llvm::StringRef own = place.path;
    bool same = own == path || (own.size() > path.size() && own.take_back(path.size()) == path &&
                                own[own.size() - path.size() - 1] == '/');
    if (same && place.line <= line && std::max(place.line, place.end_line) >= line)
      text += instruction(ir::InstId{i});
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
  Revealer revealer(*checked, options);
  std::string text = is_value ? revealer.value(place) : revealer.line(path, line);
  if (text.empty()) {
    say(fmt::format("{}: {} `{}`", options.arguments.front(),
                    is_value ? "no value is named" : "no operation stands at", place.str()));
    return ExitCode::Call;
  }
  return print_text(ir::printable_lines(text));
}

} // namespace spmd::checker
