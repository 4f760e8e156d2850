// `spmdlint dump`: canonical text of a program, as it was read or with the types that follow;
// `spmdlint backward`: the same of a program with its gradients written out.
// Relies on the text printer: a type that was inferred is printed like one that was declared. With
// `--dialect` dump writes the program in the words of a framework, and says of each line what these
// leave out.
#include "checker/cli/commands/table.h"
#include "checker/cli/input.h"
#include "checker/cli/output.h"
#include "checker/cli/report_output.h"

#include "checker/backward/backward.h"
#include "checker/dialect/translate.h"
#include "checker/report/report.h"
#include "checker/rewrite/inlined_size.h"
#include "checker/rewrite/redistribute.h"
#include "ir/dialect/print_type.h"
#include "ir/text/text.h"
#include "rules/shards/sizes.h"

#include "llvm/ADT/STLExtras.h"

#include <fmt/format.h>

#include <tuple>

namespace spmd::checker {
namespace {

void state_types(ir::Program &program, const CheckResult &result) {
  for (uint32_t i = 0; i < program.values.size(); ++i) {
    ir::Value &value = program.values[ir::ValueId{i}];
    if (result.types[i].valid())
      value.declared = result.types[i];
    if (!value.shape.valid())
      value.shape = result.shapes[i];
    if (!value.global_shape.valid() && result.sizes[i].valid() && result.types[i].valid())
      value.global_shape =
          rules::global_shape(program, program.types[result.types[i]],
                              {result.types[i], result.shapes[i], result.sizes[i]});
  }
}

// A line for each: `FILE:LINE:COL: lost[jax]: %y: Reduced on tp is R`.
void print_no_equivalent(const Input &input, llvm::ArrayRef<NoEquivalent> no_equivalent,
                         ir::Dialect dialect) {
  Report report;
  report.input = input.name;
  report.bytes = input.bytes();
  report.program = const_cast<ir::Program *>(&input.read.program);
  report.lines = ir::InputLines(report.bytes);
  std::string text;
  for (const NoEquivalent &each : no_equivalent) {
    text += printable(fmt::format("{}: lost[{}]: {}", print(locate(report, each.place)),
                                  ir::kDialectWords[static_cast<unsigned>(dialect)], each.text)) +
            '\n';
  }
  print_stderr(text);
}

ExitCode print_translated(Input &input, const Options &options) {
  std::vector<NoEquivalent> no_equivalent =
      translate(input.read.program, options.check, *options.dialect);
  std::string problem = write_stdout(ir::print_text_in_dialect(input.read.program));
  if (!problem.empty()) {
    say(problem);
    return ExitCode::Call;
  }
  print_no_equivalent(input, no_equivalent, *options.dialect);
  return no_equivalent.empty() ? ExitCode::Clean : ExitCode::Findings;
}

ExitCode print(const ir::Program &program, const Options &options) {
  ir::Dialect words = options.dialect.value_or(ir::dialect_of(program));
  return print_text(words == ir::Dialect::Spmd ? ir::print_text(program)
                                               : ir::print_text(program, words));
}

// Per value the type of its gradient: the dual on every axis, whether the program has one or not.
ExitCode print_gradients(Input &input, const Options &options) {
  ir::Program &program = input.read.program;
  CheckResult result = check(program, options.check);
  Table table{.columns = {{"value"}, {"type"}, {"type of its gradient"}}, .rows = {}};
  for (uint32_t i = 0; i < program.values.size(); ++i) {
    if (!result.types[i].valid() || !result.shapes[i].valid())
      continue;
    const ir::Type &type = program.types[result.types[i]];
    if (type.gradient_free() || !ir::differentiable(program.shapes[result.shapes[i]].dtype))
      continue;
    auto text = [&](const ir::Type &of) {
      return ir::print_type(program, of, result.shapes[i],
                            program.values[ir::ValueId{i}].global_shape);
    };
    table.rows.push_back({ir::print_named(program, ir::ValueId{i}), text(type), text(type.dual())});
  }
  return print_text(ir::printable_lines(print_table(table, TableFormat::Text)));
}

} // namespace

ExitCode run_dump(const Options &options) {
  if (options.arguments.size() != 1) {
    say("`dump` takes one file");
    return ExitCode::Call;
  }
  Input input = load(options.arguments.front(), options);
  print_stderr(print_input_errors(input));
  if (!input.readable())
    return ExitCode::Input;
  bool planned = options.stage == Stage::Plan;
  std::optional<TooManyInlined> many = too_many_inlined(input.read.program);
  if (planned && many) {
    say(many->message);
    return ExitCode::Call;
  }
  if (planned && check(input.read.program, options.check).clean())
    if (expand_redistributes(input.read.program, options.check, /*keep_stated=*/true))
      note_assumed_sizes(input.read.program, options);
  if (planned || options.stage == Stage::Types) {
    CheckResult result = check(input.read.program, options.check);
    state_types(input.read.program, result);
    if (!result.clean())
      say("the program has errors; what does not follow is `?`");
  }
  if (options.stage == Stage::Grads)
    return print_gradients(input, options);
  if (options.dialect)
    return print_translated(input, options);
  return print(input.read.program, options);
}

// The values that `--wrt` names; empty, or what is wrong.
static std::string find_wrt(const ir::Program &program, llvm::ArrayRef<std::string> names,
                            std::vector<ir::ValueId> &found) {
  for (const std::string &name : names) {
    const auto param = llvm::find_if(program.params, [&](const ir::Param &each) {
      return ir::print_value(program, each.value) == name ||
             (each.name.valid() && program.strings[each.name] == name);
    });
    if (param == program.params.end())
      return fmt::format("option `--wrt`: the program declares no value `{}`", name);
    const ir::ShapeId shape = program.values[param->value].shape;
    if (shape.valid() && !ir::differentiable(program.shapes[shape].dtype))
      return fmt::format("option `--wrt`: `{}` has no gradient: its elements are no floats", name);
    found.push_back(param->value);
  }
  return "";
}

ExitCode run_backward(const Options &options) {
  if (options.arguments.size() != 1) {
    say("`backward` takes one file");
    return ExitCode::Call;
  }
  Input input = load(options.arguments.front(), options);
  print_stderr(print_input_errors(input));
  if (!input.readable())
    return ExitCode::Input;
  ir::Program &program = input.read.program;
  if (!has_loss(program)) {
    say("the program has no loss to differentiate, or its gradients are in it already");
    return ExitCode::Findings;
  }
  std::vector<ir::ValueId> wrt;
  if (std::string problem = find_wrt(program, options.wrt, wrt); !problem.empty()) {
    say(printable(problem));
    return ExitCode::Call;
  }
  if (std::optional<NoBackward> none = derive_backward(program, options.check, wrt)) {
    say(fmt::format("no backward: {}", none->message));
    return ExitCode::Findings;
  }
  state_types(program, check(program, options.check));
  return print(program, options);
}

} // namespace spmd::checker
