// Reads and checks first: what does not check is reported, and nothing is run.
#include "runtime/cli/run/program_reader.h"

#include "runtime/extents/scale_down.h"

#include "checker/backward/backward.h"
#include "checker/rewrite/inlined_size.h"
#include "rules/violations/commands/runs.h"

#include "ir/support/escape.h"

#include <fmt/format.h>

namespace spmd::runtime {

using checker::ExitCode;

ProgramReader::ProgramReader(const RunOptions &options, ReadProgram &read, Reporter &reporter)
    : options_(options), read_(read), reporter_(reporter) {
  read_.check_options = options.shared.check;
  read_.check_options.today = checker::date_of_today();
}

std::optional<checker::CheckedProgram> ProgramReader::load() {
  if (!read() || !resize() || !derive_backward())
    return std::nullopt;
  std::optional<checker::CheckedProgram> checked =
      checker::check_and_lower(std::move(program()), read_.check_options);
  SPMD_CHECK(checked.has_value(), "a program that was just found clean");
  return checked;
}

bool ProgramReader::read() {
  checker::Progress progress(ir::printable("reading " + options_.file), options_.shared.quiet);
  checker::Options options = options_.shared;
  options.read.progress = [&](uint64_t done, uint64_t all) { progress.show(done, all); };
  read_.input = checker::load(options_.file, options);
  if (std::string errors = checker::print_input_errors(read_.input); !errors.empty())
    checker::print_stderr(errors);
  if (!read_.input.readable())
    return reporter_.stop(ExitCode::Input);
  options_.shared.configuration.add_to(program());
  return true;
}

// False, and reported, if the program is not to be run.
bool ProgramReader::check() {
  // Each rank has tensors of its own, however they are cut.
  if (program().mode == ir::Mode::Gradual)
    program().mode = ir::Mode::Local;
  read_.check_options.undeclared = checker::is_recorded_step(program());
  read_.result = checker::check(program(), read_.check_options);
  if (read_.result.clean())
    return true;
  reporter_.report(program(), std::nullopt);
  return reporter_.stop(ExitCode::Findings);
}

bool ProgramReader::resize() {
  if (!check())
    return false;
  if (std::optional<checker::TooManyInlined> many = checker::too_many_inlined(program()))
    return reporter_.refuse(program(), rules::RunInput{"the program", std::move(many->message)},
                            checker::Place::inst(many->call));
  Resize resize{.axes = {}, .symbols = options_.symbols, .scale_down = options_.scale_down};
  for (const AxisSize &axis : options_.mesh)
    resize.axes.push_back({axis.axis, axis.size});
  if (!needs_resize(program(), resize))
    return true;
  llvm::Expected<std::vector<std::string>> notes = resize_program(program(), read_.result, resize);
  if (!notes)
    return reporter_.stop_at_file(ExitCode::Call, notes.takeError());
  for (const std::string &note : *notes)
    reporter_.note(note);
  if (check())
    return true;
  reporter_.note("the findings are those of the program with other extents");
  return false;
}

bool ProgramReader::derive_backward() {
  if (options_.no_backward || !checker::has_loss(program()))
    return true;
  if (std::optional<checker::NoBackward> none =
          checker::derive_backward(program(), read_.check_options)) {
    reporter_.note(fmt::format("forward only: {}", none->message));
    // What is left of the derivation is no program to run.
    read_.input = checker::load(options_.file, options_.shared);
    options_.shared.configuration.add_to(program());
    return resize();
  }
  derived_ = true;
  return check();
}

} // namespace spmd::runtime
