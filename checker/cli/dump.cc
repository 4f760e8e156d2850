// `spmdlint dump`: canonical text of a program, as it was read or with the types that follow.
// Relies on the text printer: a type that was inferred is printed like one that was declared.
#include "checker/cli/input.h"
#include "checker/cli/output.h"

#include "rules/shards.h"

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
  if (options.stage == "types") {
    CheckResult result = check(input.read.program, options.check);
    state_types(input.read.program, result);
    if (!result.clean())
      say("the program has errors; what does not follow is `?`");
  }
  std::string problem = write_stdout(ir::print_text(input.read.program));
  if (problem.empty())
    return ExitCode::Clean;
  say(problem);
  return ExitCode::Call;
}

} // namespace spmd::checker
