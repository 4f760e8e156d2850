// Reads an input, adds what the configuration says, and checks it.
#include "checker/cli/inputs/checked_input.h"

#include "checker/cli/output.h"
#include "checker/cli/report_output.h"

namespace spmd::checker {

CheckOptions check_options_for(const ir::Program &program, const Options &options) {
  CheckOptions check = options.check;
  if (!check.mode && is_recorded_step(program))
    check.mode = ir::Mode::Gradual;
  return check;
}

std::unique_ptr<CheckedInput> check_loaded(Input input, const Options &options) {
  auto made = std::make_unique<CheckedInput>();
  made->input = std::move(input);
  if (!made->input.checkable())
    return made;
  options.configuration.add_to(made->program());
  made->options = check_options_for(made->program(), options);
  made->options.today = date_of_today();
  made->result = check(made->program(), made->options);
  made->options.infer_partial |= made->result.gradual != nullptr;
  return made;
}

std::unique_ptr<CheckedInput> load_checked(const std::string &path, const Options &options) {
  std::unique_ptr<CheckedInput> made = check_loaded(load(path, options), options);
  print_stderr(print_input_errors(made->input));
  return made->input.checkable() ? std::move(made) : nullptr;
}

Report CheckedInput::report(const ReportOptions &wanted) {
  return make_report(input.name, input.bytes(), program(), result, options, wanted);
}

} // namespace spmd::checker
