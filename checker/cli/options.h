// The command line: one table of options shared by all commands, and one table of commands. Help,
// errors and parsing are derived from the tables.
#pragma once

#include "checker/cli/configuration.h"
#include "checker/cli/exit_code.h"
#include "checker/render/render.h"
#include "checker/report/communication.h"

#include "ir/dialect/dialect.h"
#include "ir/input/input.h"
#include "ir/input/read_file.h"

#include <optional>

namespace spmd::checker {

enum class When : uint8_t { Auto, Always, Never };

// Where one rendering goes.
struct FormatRequest {
  std::string name;
  std::string file; // empty: stdout
};

// The words of an option are those of its enumeration, in order.
enum class Stage : uint8_t { Ir, Types, Grads, Plan };
enum class TableFormat : uint8_t { Text, Json, Markdown };
inline constexpr std::string_view kCostByWords[] = {"axis", "scope", "op", "phase"}; // TrafficBy
enum class Implicit : uint8_t { Error, Warn, AcceptRule }; // what an implicit redistribution is
inline constexpr std::string_view kStageWords[] = {"ir", "types", "grads", "plan"};
inline constexpr std::string_view kTableWords[] = {"text", "json", "md"};
inline constexpr std::string_view kImplicitWords[] = {"error", "warn", "accept"};

struct Options {
  std::vector<std::string> arguments; // what is no option
  CheckOptions check;
  ReportOptions report;
  ir::ReadOptions read;
  SourceOptions sources;
  std::vector<FormatRequest> formats;
  std::vector<std::string> extend_select;
  rules::Severity fail_on = rules::Severity::Error;
  bool exit_zero = false;
  double min_coverage = 0, min_proof = 0;
  std::vector<std::string> names; // of the inputs, in their order; those without: their paths
  std::string baseline;           // empty: none
  std::vector<std::string> since; // outputs of earlier runs
  bool diff = false;              // check: fixes as a patch
  bool fix = false;               // check: fixes into the programs
  bool expect = false;            // check: against what the program expects
  TrafficBy by = TrafficBy::Axis; // cost
  bool write_baseline = false, update_baseline = false;
  When colour = When::Auto;
  std::optional<unsigned> width;
  bool quiet = false, stats = false, timing = false, annotate = false;
  bool allow_truncated = false;
  uint64_t max_input = ir::kMaxInput; // bytes
  Configuration configuration;
  std::string config_file;                      // empty: the nearest one
  bool isolated = false;                        // no configuration is read
  Stage stage = Stage::Ir;                      // dump
  TableFormat table = TableFormat::Text;        // ops, plan, elaborate
  std::string to, output_file;                  // fmt
  bool compare_only = false;                    // fmt
  bool outline = false;                         // fmt
  std::string mesh, topology;                   // plan
  uint64_t memory = 0;                          // plan; 0: what the ends need
  bool forward_price = false, prove = false;    // plan
  std::optional<ir::Dialect> dialect;           // elaborate; none: the program's
  std::optional<uint64_t> redistribute_limit;   // elaborate: of bytes
  Implicit redistribute = Implicit::AcceptRule; // elaborate
  std::vector<std::string> wrt;                 // backward; empty: all parameters
  bool help = false;
  std::vector<std::string> given; // options that the command line names, with their dashes
};

// Bits of OptionRow::commands.
inline constexpr uint32_t kCheck = 1, kExplain = 2, kDump = 4, kOps = 8, kFmt = 16, kValidate = 32,
                          kSchema = 64, kConfig = 128, kBackward = 256, kPlan = 512,
                          kElaborate = 1024, kGate = 2048, kCost = 4096, kDiff = 8192,
                          kSummary = 16384, kReveal = 32768, kLsp = 65536, kReport = 131072,
                          kPlain = 262144; // of commands that have --help alone
// Commands that type programs.
inline constexpr uint32_t kTyped =
    kCheck | kDump | kBackward | kElaborate | kCost | kDiff | kSummary | kReveal | kLsp | kReport;

struct OptionRow {
  std::string_view name;     // with its dashes
  std::string_view argument; // `NAME[:FILE]`; empty: a switch
  std::string_view standard; // what holds without it, as help prints it; empty: off
  std::string_view help;
  uint32_t commands;
  // Empty, or what is wrong with the value.
  std::string (*set)(Options &options, llvm::StringRef value);
  // Of an option that adds to a list: forgets what was added before.
  void (*reset)(Options &options) = nullptr;
  // It makes no sense in a configuration file, or only the caller may decide it: what is read and
  // written besides the inputs.
  bool command_line_only = false;
};
llvm::ArrayRef<OptionRow> option_rows();

using CommandFunction = ExitCode (*)(const Options &options);
struct CommandRow {
  std::string_view name, usage, help;
  uint32_t bit; // of its options
  CommandFunction fn;
};
llvm::ArrayRef<CommandRow> command_rows();

ExitCode run_check(const Options &options);
ExitCode run_explain(const Options &options);
ExitCode run_dump(const Options &options);
ExitCode run_backward(const Options &options);
ExitCode run_plan(const Options &options);
ExitCode run_elaborate(const Options &options);
ExitCode run_ops(const Options &options);
ExitCode run_fmt(const Options &options);
ExitCode run_validate(const Options &options);
ExitCode run_schema(const Options &options);
ExitCode run_config(const Options &options);
ExitCode run_cost(const Options &options);
ExitCode run_diff(const Options &options);
ExitCode run_summary(const Options &options);
ExitCode run_reveal(const Options &options);
ExitCode run_report(const Options &options);
ExitCode run_lsp(const Options &options);
ExitCode run_completions(const Options &options);
ExitCode run_man(const Options &options);
ExitCode run_version(const Options &options);
ExitCode run_help(const Options &options);

// Fills `options` from the words after the command. Empty, or what is wrong with the call.
std::string parse_options(llvm::ArrayRef<llvm::StringRef> words, const CommandRow &command,
                          Options &options);
// `; nearest is `check``, or empty.
std::string nearest_hint(llvm::StringRef name, llvm::ArrayRef<llvm::StringRef> candidates);
// A command with its options; the options of some commands, a line each; a line.
std::string help_text(const CommandRow &command);
std::string option_help(uint32_t commands);
std::string format_help();
std::string option_line(std::string_view name, std::string_view argument, std::string_view standard,
                        std::string_view help);

} // namespace spmd::checker
