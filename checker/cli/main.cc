// The `spmdlint` binary: finds the command that is named, reads its options, runs it.
// Relies on nothing being set up before main: start-up is a few table look-ups.
#include "checker/cli/configuration_file.h"
#include "checker/cli/output.h"
#include "checker/cli/process.h"
#include "ir/support/strings.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/FileSystem.h"

#include <fmt/format.h>

namespace spmd::checker {
namespace {

constexpr CommandRow kCommands[] = {
    {"check", "[FILE|DIR|-]...", "types programs and reports what does not follow", kCheck | kGate,
     run_check},
    {"explain", "[NAME]...", "manual of a finding, op, kind, transition or exit code", kExplain,
     run_explain},
    {"dump", "FILE", "canonical text of a program, as read or with inferred types", kDump,
     run_dump},
    {"backward", "FILE", "the program with its gradients as instructions, with types", kBackward,
     run_backward},
    {"plan", "'FROM -> TO'", "the cheapest steps from one type of a tensor to another", kPlan,
     run_plan},
    {"elaborate", "FILE", "the program with its implicit redistributions written out", kElaborate,
     run_elaborate},
    {"cost", "FILE", "what the program communicates: calls, bytes that a rank sends, time", kCost,
     run_cost},
    {"summary", "FILE", "one page: mesh, parameters and how they are cut, what is proved", kSummary,
     run_summary},
    {"reveal", "FILE %VALUE|PATH:LINE",
     "the types of a value, or at a line of the source, and where they arose", kReveal, run_reveal},
    {"report", "[FILE|DIR|-]...", "one HTML page: findings, communication, modules, the program",
     kReport, run_report},
    {"lsp", "[TRACE]...",
     "a language server for editors: programs, and Python sources of a recording", kLsp, run_lsp},
    {"diff", "OLD NEW", "what differs between two traces in types and communication", kDiff,
     run_diff},
    {"ops", "[NAME]", "the op table: equations and spellings", kOps, run_ops},
    {"fmt", "FILE...", "writes programs in canonical form, or converts them", kFmt, run_fmt},
    {"validate", "FILE...", "reads programs and says what is wrong with their form", kValidate,
     run_validate},
    {"schema", "trace|config|output", "the JSON Schema of what is read and written", kSchema,
     run_schema},
    {"config", "show|init|verify", "what the configuration says; a file to start from", kConfig,
     run_config},
    {"completions", "bash|zsh|fish", "a script by which a shell completes commands and options",
     kPlain, run_completions},
    {"man", "", "a manual page of all commands, for `man -l -`", kPlain, run_man},
    {"version", "", "prints the version", kPlain, run_version},
    {"help", "[COMMAND]", "prints this text, or the options of a command", kPlain, run_help},
};

const CommandRow *find_command(llvm::StringRef name) {
  const auto *row = llvm::find_if(kCommands, [&](const CommandRow &command) {
    return name == llvm::StringRef(command.name.data(), command.name.size());
  });
  return row == std::end(kCommands) ? nullptr : row;
}

std::string unknown_command(llvm::StringRef name) {
  llvm::SmallVector<llvm::StringRef, 8> known;
  for (const CommandRow &row : kCommands)
    known.push_back(row.name);
  return fmt::format("unknown command `{}`{}", name.str(), nearest_hint(name, known));
}

// All commands.
std::string help_text() {
  std::string text =
      "spmdlint reads SPMD tensor programs, types them, and reports what does not follow\n\n"
      "usage: spmdlint [COMMAND] [OPTION]... [ARGUMENT]...\n\ncommands (check if none is named)\n";
  for (const CommandRow &row : command_rows())
    text += fmt::format("  {:<34} {}\n", fmt::format("{} {}", row.name, row.usage), row.help);
  text += "\nexit codes\n";
  llvm::SmallVector<ExitCodeInfo, 8> codes(std::begin(kExitCodes), std::end(kExitCodes));
  llvm::sort(codes, [](const ExitCodeInfo &a, const ExitCodeInfo &b) { return a.code < b.code; });
  for (const ExitCodeInfo &row : codes)
    text += fmt::format("  {:<4} {}\n", static_cast<unsigned>(row.code), row.meaning);
  return text + "\n`spmdlint help COMMAND` prints the options of a command\n";
}

// A bare word that names no file was meant to be a command.
bool looks_like_command(llvm::StringRef word) {
  return !ir::starts_with(word, "-") && word.find_first_of("./") == llvm::StringRef::npos &&
         !llvm::sys::fs::exists(word);
}

// Empty unless a command that takes one argument, or none, is given more. Those that take two say
// themselves which.
std::string too_many_arguments(const CommandRow &command, const Options &options) {
  const llvm::StringRef usage(command.usage.data(), command.usage.size());
  const size_t most = usage.empty() ? 0 : 1;
  if (usage.contains(' ') || usage.contains("...") || options.arguments.size() <= most)
    return "";
  return fmt::format("`{}` takes {}: `{}` is too much", command.name,
                     most ? "one argument" : "no argument", options.arguments[most]);
}

ExitCode run(llvm::ArrayRef<llvm::StringRef> words) {
  const CommandRow *command = words.empty() ? find_command("help") : find_command(words.front());
  if (command && !words.empty())
    words = words.drop_front();
  if (!command && (words.front() == "--help" || words.front() == "-h"))
    return print_text(help_text());
  if (!command && words.front() == "--version")
    return run_version({});
  if (!command && looks_like_command(words.front()))
    return wrong_call(unknown_command(words.front()));
  if (!command)
    command = find_command("check");
  Options options;
  if (std::string problem = parse_call(words, *command, options); !problem.empty())
    return wrong_call(problem);
  if (options.help)
    return print_text(help_text(*command));
  if (std::string problem = too_many_arguments(*command, options); !problem.empty())
    return wrong_call(problem);
  return command->fn(options);
}

} // namespace

llvm::ArrayRef<CommandRow> command_rows() { return kCommands; }

ExitCode run_version(const Options &) { return print_text(fmt::format("spmdlint {}\n", kVersion)); }

ExitCode run_help(const Options &options) {
  if (options.arguments.empty())
    return print_text(help_text());
  const CommandRow *command = find_command(options.arguments.front());
  return command ? print_text(help_text(*command))
                 : wrong_call(unknown_command(options.arguments.front()));
}

} // namespace spmd::checker

int main(int argc, char **argv) {
  spmd::checker::prepare_process();
  llvm::SmallVector<llvm::StringRef, 16> words(argv + 1, argv + argc);
  return static_cast<int>(spmd::checker::run(words));
}
