// The rows of the option table, and the parser and the help that are derived from them.
#include "checker/cli/options.h"

#include "checker/cli/choice.h"
#include "checker/cli/output.h"
#include "ir/support/format.h"
#include "ir/support/misspelling.h"
#include "ir/support/strings.h"

#include "rules/ops/registry.h"
#include "rules/redistribute/request.h"

#include "llvm/ADT/STLExtras.h"

#include <fmt/format.h>

namespace spmd::checker {
namespace {

using llvm::StringRef;

template <class T> std::string to_number(StringRef value, T &number) {
  T parsed{};
  if (value.getAsInteger(10, parsed))
    return fmt::format("`{}` is no number that fits", value);
  number = parsed;
  return "";
}

std::string set_format(Options &options, StringRef value) {
  auto [name, file] = value.split(':');
  llvm::SmallVector<StringRef, 4> known;
  for (const Renderer &row : renderers())
    known.push_back(row.name);
  if (!find_renderer(name))
    return fmt::format("no output format `{}`{}", name, nearest_hint(name, known));
  if (value.contains(':') && file.empty())
    return "the file name is missing";
  options.formats.push_back({name.str(), file.str()});
  return "";
}

// A finding, a group, or several with commas between them.
std::string add_findings(std::vector<std::string> &list, StringRef value) {
  llvm::SmallVector<StringRef, 4> entries, known;
  for (const rules::DiagnosticInfo *row : rules::all_violations())
    known.push_back(row->name);
  for (const FindingGroup &group : finding_groups())
    known.push_back(group.name);
  value.split(entries, ',', -1, /*KeepEmpty=*/false);
  for (StringRef entry : entries) {
    if (!llvm::is_contained(known, entry))
      return fmt::format("no finding or group `{}`{}", entry, nearest_hint(entry, known));
    list.push_back(entry.str());
  }
  return entries.empty() ? "a name is missing" : "";
}

std::string set_percent(double &percent, StringRef value) {
  double number = 0;
  if (value.getAsDouble(number) || !(number >= 0 && number <= 100))
    return fmt::format("`{}` is no percentage", value);
  percent = number;
  return "";
}
std::string set_min_coverage(Options &options, StringRef value) {
  return set_percent(options.min_coverage, value);
}
std::string set_min_proof(Options &options, StringRef value) {
  return set_percent(options.min_proof, value);
}

std::string add_path_map(Options &options, StringRef value) {
  auto [from, to] = value.split('=');
  if (from.empty() || !value.contains('='))
    return fmt::format("`{}` has not the form A=B", value);
  options.sources.path_map.push_back({from.str(), to.str()});
  return "";
}

std::string set_width(Options &options, StringRef value) {
  unsigned width = 0;
  std::string problem = to_number(value, width);
  options.width = width;
  return problem;
}

constexpr std::string_view kColourWords[] = {"auto", "always", "never"};
// What the other commands with a table print, too.
constexpr std::string_view kTextWords[] = {kTableWords[0], kTableWords[1]};
constexpr std::string_view kPriceWords[] = {"both", "forward"};

std::string set_memory(Options &options, StringRef value) {
  if (value == "none")
    return options.memory = rules::redistribute::kNoCap, "";
  std::string problem = to_number(value, options.memory);
  return problem.empty() && options.memory == 0 ? "0 bytes hold nothing" : problem;
}

std::string set_encoding(Options &options, StringRef value) {
  llvm::SmallVector<std::string_view, 4> names;
  for (const ir::Format &format : ir::formats())
    names.push_back(format.name);
  unsigned chosen = 0;
  std::string problem = choose(value, names, chosen);
  if (problem.empty())
    options.to = names[chosen];
  return problem;
}

template <bool Options::*Switch> std::string turn_on(Options &options, StringRef) {
  options.*Switch = true;
  return "";
}

constexpr bool kCommandLineOnly = true;

constexpr OptionRow kOptions[] = {
    {"--format", "NAME[:FILE]", "full on a terminal, else concise",
     "output format, to stdout or FILE; repeatable", kCheck, set_format,
     [](Options &o) { o.formats.clear(); }},
    {"--fail-on", kOneOf<rules::kSeverityWords>, "error", "lowest severity that gives exit code 1",
     kCheck, [](Options &o, StringRef v) { return choose(v, rules::kSeverityWords, o.fail_on); }},
    {"--exit-zero", "", "", "exit code 0 instead of 1 and 4", kCheck, turn_on<&Options::exit_zero>},
    {"--select", "NAME|GROUP", "default", "findings to report; commas or repeat",
     kCheck | kLsp | kReport,
     [](Options &o, StringRef v) { return add_findings(o.report.select, v); },
     [](Options &o) { o.report.select.clear(); }},
    {"--extend-select", "NAME|GROUP", "", "findings to report as well", kCheck | kLsp | kReport,
     [](Options &o, StringRef v) { return add_findings(o.extend_select, v); },
     [](Options &o) { o.extend_select.clear(); }},
    {"--ignore", "NAME|GROUP", "", "findings to leave out", kCheck | kLsp | kReport,
     [](Options &o, StringRef v) { return add_findings(o.report.ignore, v); },
     [](Options &o) { o.report.ignore.clear(); }},
    {"--mode", kOneOf<ir::kModeWords>, "as the program says; recorded steps gradual",
     "how axes are judged", kTyped,
     [](Options &o, StringRef v) { return choose(v, ir::kModeWords, o.check.mode.emplace()); }},
    {"--strict", "", "on", "a missing claim is reported", kTyped,
     [](Options &o, StringRef) { return o.check.permissive = false, std::string(); }},
    {"--permissive", "", "", "a missing claim is skipped", kTyped,
     [](Options &o, StringRef) { return o.check.permissive = true, std::string(); }},
    {"--infer-partial", "", "", "a result that becomes partial need not say so", kTyped,
     [](Options &o, StringRef) { return o.check.infer_partial = true, std::string(); }},
    {"--min-coverage", "PCT", "0", "typed ops among all; fewer give exit code 4", kCheck,
     set_min_coverage},
    {"--min-proof", "PCT", "0",
     "parameters whose gradient is proved on every axis, of a recorded step, or results of a "
     "program without one; fewer give exit code 4",
     kCheck, set_min_proof},
    {"--baseline", "FILE", "", "findings that are accepted as they are; new ones count", kGate,
     [](Options &o, StringRef v) { return o.baseline = v.str(), std::string(); }},
    {"--write-baseline", "", "", "write what is found to that file", kGate,
     turn_on<&Options::write_baseline>, nullptr, kCommandLineOnly},
    {"--update-baseline", "", "", "take out of that file what is gone; it does not grow", kGate,
     turn_on<&Options::update_baseline>, nullptr, kCommandLineOnly},
    {"--since", "OLD.json", "", "accept what an earlier --format=json has; repeatable", kGate,
     [](Options &o, StringRef v) { return o.since.push_back(v.str()), std::string(); },
     [](Options &o) { o.since.clear(); }, kCommandLineOnly},
    {"--annotate", "", "", "print the inferred src and dst of collectives", kCheck,
     turn_on<&Options::annotate>},
    {"--no-fold", "", "", "one report per place", kCheck,
     [](Options &o, StringRef) { return o.report.fold = false, std::string(); }},
    {"--max-findings", "N", "200", "more are counted, not shown", kCheck,
     [](Options &o, StringRef v) { return to_number(v, o.report.max_findings); }},
    {"--no-fixes", "", "", "look for no repairs", kCheck,
     [](Options &o, StringRef) { return o.report.fixes = false, std::string(); }},
    {"--diff", "", "", "print the fixes as a patch of the programs, and no findings", kGate,
     turn_on<&Options::diff>, nullptr, kCommandLineOnly},
    {"--fix", "", "", "write the fixes into the programs, and report what is left", kGate,
     turn_on<&Options::fix>},
    {"--expect", "", "", "exit code 1 unless all that the programs expect is found, and no more",
     kGate, turn_on<&Options::expect>, nullptr, kCommandLineOnly},
    {"--name", "NAME", "",
     "what reports call an input, such as the script that it was recorded from; repeatable, in the "
     "order of the inputs",
     kGate, [](Options &o, StringRef v) { return o.names.push_back(v.str()), std::string(); },
     [](Options &o) { o.names.clear(); }, kCommandLineOnly},
    {"--source-root", "DIR", ".", "where source files are looked up", kCheck | kLsp | kReport,
     [](Options &o, StringRef v) { return o.sources.root = v.str(), std::string(); }, nullptr,
     kCommandLineOnly},
    {"--path-map", "A=B", "", "paths that begin with A are looked up at B; repeatable",
     kCheck | kLsp | kReport, add_path_map, [](Options &o) { o.sources.path_map.clear(); }},
    {"--strict-schema", "", "", "warn of unknown keys", kTyped | kFmt | kValidate,
     [](Options &o, StringRef) { return o.read.strict_schema = true, std::string(); }},
    {"--allow-truncated", "", "", "an early end of a stream is a warning",
     kTyped | kFmt | kValidate, turn_on<&Options::allow_truncated>},
    {"--max-input", "BYTES", "1073741824", "most bytes of an input, unpacked; more is an error",
     kTyped | kFmt | kValidate, [](Options &o, StringRef v) { return to_number(v, o.max_input); }},
    {"--config", "FILE", "spmdlint.toml or pyproject.toml here or above", "configuration file",
     kTyped | kConfig,
     [](Options &o, StringRef v) { return o.config_file = v.str(), std::string(); }, nullptr,
     kCommandLineOnly},
    {"--isolated", "", "", "read no configuration file", kTyped | kConfig,
     turn_on<&Options::isolated>, nullptr, kCommandLineOnly},
    {"--color", kOneOf<kColourWords>, "auto", "NO_COLOR, FORCE_COLOR and TERM=dumb are honoured",
     kCheck, [](Options &o, StringRef v) { return choose(v, kColourWords, o.colour); }},
    {"--width", "N", "that of the terminal, else 100", "longer source lines are cut; 0: none is",
     kCheck, set_width},
    {"--quiet", "", "", "no counts, no words about the run", kCheck, turn_on<&Options::quiet>},
    {"--stats", "", "", "counts of the check, to stderr", kCheck, turn_on<&Options::stats>},
    {"--timing", "", "", "time of each step, to stderr", kCheck, turn_on<&Options::timing>},
    {"--stage", kOneOf<kStageWords>, "ir",
     "the program as read, with inferred types, with those of gradients or redistributions as "
     "steps "
     "too",
     kDump, [](Options &o, StringRef v) { return choose(v, kStageWords, o.stage); }},
    {"--mesh", "A=N,B=M", "", "the axes of the mesh, outermost first", kPlan,
     [](Options &o, StringRef v) { return o.mesh = v.str(), std::string(); }},
    {"--memory", "BYTES|none", "the larger of both ends", "what a rank may hold between two steps",
     kPlan, set_memory},
    {"--price", kOneOf<kPriceWords>, "both", "whether a step costs what its backward does", kPlan,
     [](Options &o, StringRef v) { return choose(v, kPriceWords, o.forward_price); }},
    {"--topology", "FILE", "bytes alone count", "bytes per second and latency of each axis",
     kPlan | kElaborate | kCost,
     [](Options &o, StringRef v) { return o.topology = v.str(), std::string(); }},
    {"--prove", "", "", "look at all states for a cheaper sequence", kPlan,
     turn_on<&Options::prove>},
    {"--dialect", kOneOf<ir::kDialectWords>, "that of the program",
     "whose terms are printed; for explain: whose differences are listed",
     kTyped | kExplain | kPlan,
     [](Options &o, StringRef v) { return choose(v, ir::kDialectWords, o.dialect.emplace()); }},
    {"--redistribute", kOneOf<kImplicitWords>, "accept", "what an implicit redistribution is",
     kElaborate, [](Options &o, StringRef v) { return choose(v, kImplicitWords, o.redistribute); }},
    {"--redistribute-limit", "BYTES", "none", "forward and backward; more is an error", kElaborate,
     [](Options &o, StringRef v) { return to_number(v, o.redistribute_limit.emplace()); }},
    {"--format", kOneOf<kTextWords>, "text", "how it is printed", kPlan | kElaborate,
     [](Options &o, StringRef v) { return choose(v, kTextWords, o.table); }},
    {"--wrt", "%VALUE,..", "all parameters", "the declared values whose gradients are derived",
     kBackward,
     [](Options &o, StringRef v) {
       for (StringRef name : llvm::split(v, ","))
         o.wrt.push_back(name.trim().str());
       return std::string();
     }},
    {"--by", kOneOf<kCostByWords>, "axis", "what bytes are added up by", kCost,
     [](Options &o, StringRef v) { return choose(v, kCostByWords, o.by); }},
    {"--format", kOneOf<kTableWords>, "text", "how the table is printed",
     kOps | kCost | kDiff | kSummary,
     [](Options &o, StringRef v) { return choose(v, kTableWords, o.table); }},
    {"--to", "text|json|jsonl", "as it is", "encoding to write", kFmt, set_encoding},
    {"-o", "OUT", "in place", "file to write, - for stdout; NAME.gz, NAME.zst are compressed", kFmt,
     [](Options &o, StringRef v) { return o.output_file = v.str(), std::string(); }},
    {"-o", "OUT.html", "stdout", "file to write", kReport,
     [](Options &o, StringRef v) { return o.output_file = v.str(), std::string(); }},
    {"--outline", "", "", "fold equal layers into functions", kFmt, turn_on<&Options::outline>},
    {"--check", "", "", "write nothing; exit code 1 if a file is not canonical", kFmt,
     turn_on<&Options::compare_only>},
    {"--help", "", "", "print this text", ~0u, turn_on<&Options::help>, nullptr, kCommandLineOnly},
};

const OptionRow *find_option(StringRef name, uint32_t command) {
  for (const OptionRow &row : kOptions)
    if (row.commands & command && name == StringRef(row.name.data(), row.name.size()))
      return &row;
  return nullptr;
}

std::string unknown_option(StringRef name, const CommandRow &command) {
  llvm::SmallVector<StringRef, 32> known;
  for (const OptionRow &row : kOptions)
    if (row.commands & command.bit)
      known.push_back(row.name);
  return fmt::format("unknown option `{}` of `{}`{}", name, command.name,
                     nearest_hint(name, known));
}

// Takes one option, and the word after it if that is its value.
std::string take_option(llvm::ArrayRef<StringRef> &words, const CommandRow &command,
                        Options &options) {
  auto [name, value] = words.front().split('=');
  bool has_value = words.front().contains('=');
  words = words.drop_front();
  const OptionRow *row = find_option(name == "-h" ? "--help" : name, command.bit);
  if (!row)
    return unknown_option(name, command);
  if (row->argument.empty() && has_value)
    return fmt::format("option `{}` takes no value", row->name);
  if (!row->argument.empty() && !has_value) {
    if (words.empty())
      return fmt::format("option `{}` needs a value: {}", row->name, row->argument);
    value = words.front();
    words = words.drop_front();
  }
  options.given.push_back(std::string(row->name));
  std::string problem = row->set(options, value);
  return problem.empty() ? "" : fmt::format("option `{}`: {}", row->name, problem);
}

} // namespace

llvm::ArrayRef<OptionRow> option_rows() { return kOptions; }

std::string nearest_hint(StringRef name, llvm::ArrayRef<StringRef> candidates) {
  StringRef nearest = ir::nearest_name(name, candidates);
  return nearest.empty() ? "" : fmt::format("; nearest is `{}`", nearest);
}

std::string parse_options(llvm::ArrayRef<StringRef> words, const CommandRow &command,
                          Options &options) {
  while (!words.empty()) {
    if (words.front() == "--") {
      for (StringRef word : words.drop_front())
        options.arguments.push_back(word.str());
      return "";
    }
    if (!ir::starts_with(words.front(), "-") || words.front() == "-") {
      options.arguments.push_back(words.front().str());
      words = words.drop_front();
      continue;
    }
    if (std::string problem = take_option(words, command, options); !problem.empty())
      return problem;
  }
  return "";
}

std::string help_text(const CommandRow &command) {
  std::string text = fmt::format("{}\n\nusage: spmdlint {}{}{}\n", command.help, command.name,
                                 command.usage.empty() ? "" : " ", command.usage);
  std::string rows = option_help(command.bit);
  if (!rows.empty())
    text += "\noptions\n" + rows;
  return command.bit & kCheck ? text + "\nformats\n" + format_help() : text;
}

std::string format_help() {
  std::string text;
  for (const Renderer &row : renderers())
    text += option_line(row.name, "", "", row.help);
  return text;
}

std::string option_help(uint32_t commands) {
  std::string text;
  for (const OptionRow &row : kOptions)
    if (row.commands & commands)
      text += option_line(row.name, row.argument, row.standard, row.help);
  return text;
}

std::string option_line(std::string_view name, std::string_view argument, std::string_view standard,
                        std::string_view help) {
  std::string left = argument.empty()
                         ? std::string(name)
                         : fmt::format("{}{}{}", name, name.size() > 2 ? "=" : " ", argument);
  std::string right = standard.empty() ? "" : fmt::format(" ({})", standard);
  return fmt::format("  {:<32} {}{}\n", left, help, right);
}

} // namespace spmd::checker
