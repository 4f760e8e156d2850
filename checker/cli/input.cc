// Loads an input and words what is wrong with it.
// Relies on the readers: a program with errors is dropped, never passed on.
#include "checker/cli/input.h"

#include "checker/cli/output.h"

#include <fmt/format.h>

namespace spmd::checker {
namespace {

std::string print_error(const Input &input, const ir::InputError &error,
                        std::string_view severity) {
  auto [line, col] = std::pair(error.line, error.col);
  if (line == 0 && input.buffer)
    std::tie(line, col) = ir::line_and_column(input.bytes(), error.offset);
  std::string place = line ? fmt::format("{}:{}:{}", input.name, line, col) : input.name;
  std::string key = error.path.empty() ? "" : fmt::format(" ({})", error.path);
  return printable(
             fmt::format("{}: {}[{}]: {}{}", place, severity, error.name, error.message, key)) +
         '\n';
}

} // namespace

Input load(const std::string &path, const ir::ReadOptions &options) {
  Input input{.name = path == "-" ? kStdinName : path, .buffer = nullptr, .read = {}};
  std::string problem;
  input.buffer = read_input(path, problem);
  if (!input.buffer) {
    input.read.errors.push_back({.name = "unreadable", .message = std::move(problem), .path = {}});
    return input;
  }
  input.read = ir::read_program(input.bytes(), options);
  if (input.read.errors.empty())
    input.read.errors = ir::verify(input.read.program);
  return input;
}

std::string print_input_errors(const Input &input) {
  std::string text;
  for (const ir::InputError &error : input.read.errors)
    text += print_error(input, error, "error");
  for (const ir::InputError &warning : input.read.warnings)
    text += print_error(input, warning, "warning");
  return text;
}

} // namespace spmd::checker
