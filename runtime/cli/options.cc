// The rows of the option table of `spmdrun`.
#include "runtime/cli/options.h"

#include "checker/cli/choice.h"
#include "checker/cli/configuration_file.h"
#include "checker/cli/report_output.h"

#include "ir/support/strings.h"

#include "llvm/ADT/STLExtras.h"

#include <fmt/format.h>

#include <array>
#include <limits>

namespace spmd::runtime {

using checker::choose;
using checker::Joined;
using checker::kOneOf;
using llvm::StringRef;

namespace {

using Columns = std::array<std::string_view, std::size(kBackends)>;
constexpr Columns columns(std::string_view BackendRow::*column) {
  Columns words;
  for (size_t i = 0; i < words.size(); ++i)
    words[i] = kBackends[i].*column;
  return words;
}
constexpr Joined kBackendNames(columns(&BackendRow::name), "|");
constexpr Joined kBackendHelp(columns(&BackendRow::help), "; ");

struct RunOptionRow {
  std::string_view name, argument, standard, help;
  // Empty, or what is wrong with the value.
  std::string (*set)(RunOptions &options, StringRef value);
};

template <class T> std::string number(StringRef value, T least, T most, T &out) {
  uint64_t parsed = 0;
  if (value.getAsInteger(10, parsed) || parsed < uint64_t(least) || parsed > uint64_t(most))
    return fmt::format("`{}` is no number from {} to {}", value.str(), least, most);
  out = static_cast<T>(parsed);
  return "";
}

// `dp=2,tp=4`: calls `f` with each name and its number.
template <class F> std::string pairs(StringRef value, F &&f) {
  llvm::SmallVector<StringRef, 4> entries;
  value.split(entries, ',', -1, /*KeepEmpty=*/false);
  for (StringRef entry : entries) {
    auto [name, text] = entry.split('=');
    int64_t size = 0;
    if (name.empty() || text.getAsInteger(10, size) || size < 0 || size > int64_t(1) << 40)
      return fmt::format("`{}` has not the form NAME=NUMBER", entry.str());
    f(name.str(), size);
  }
  return entries.empty() ? "a name is missing" : "";
}

std::string set_mesh(RunOptions &options, StringRef value) {
  bool empty = false;
  std::string problem = pairs(value, [&](std::string name, int64_t size) {
    empty |= size == 0;
    options.mesh.push_back({std::move(name), size});
  });
  return problem.empty() && empty ? "an axis has at least one rank" : problem;
}

// `4096`, `12M`, `2GiB`
std::string set_memory(RunOptions &options, StringRef value) {
  uint64_t amount = 0;
  StringRef unit = value;
  if (!unit.consumeInteger(10, amount)) {
    unit.consume_back("B");
    unit.consume_back("i");
    size_t shift = unit.empty() ? 0 : 10 * (1 + StringRef("KMGT").find(unit));
    if (unit.size() <= 1 && shift <= 40 &&
        amount <= std::numeric_limits<uint64_t>::max() >> shift) {
      options.memory_limit = amount << shift;
      return "";
    }
  }
  return fmt::format("`{}` is no amount of memory such as 512M or 4GiB", value.str());
}

std::string set_check(RunOptions &options, StringRef value) {
  if (value.consume_front("sample:")) {
    options.check = CheckMode::SampleCount;
    return number<unsigned>(value, 1, 1000000000, options.drawn);
  }
  return choose(value, kCheckModeWords, options.check);
}

constexpr std::string_view kDtypeModeWords[] = {"declared", "f64"};

std::string set_backend(RunOptions &options, StringRef value) {
  size_t chosen = 0;
  std::string problem = choose(value, columns(&BackendRow::name), chosen);
  options.backend = &kBackends[chosen];
  return problem;
}

template <bool RunOptions::*Switch> std::string turn_on(RunOptions &options, StringRef) {
  options.*Switch = true;
  return "";
}
template <std::string RunOptions::*Text>
std::string set_text(RunOptions &options, StringRef value) {
  options.*Text = value.str();
  return value.empty() ? "a value is missing" : "";
}

constexpr RunOptionRow kRows[] = {
    {"--mesh", "AXIS=N,..", "as the program says",
     "axes of other sizes; local extents and sizes of views follow", set_mesh},
    {"--set", "SYMBOL=N,..", "their hints", "values of symbols",
     [](RunOptions &o, StringRef v) {
       return pairs(v, [&](std::string name, int64_t n) {
         o.symbols.push_back({std::move(name), n});
       });
     }},
    {"--scale-down", "", "", "the smallest extents that keep the form of the program; axes of 2",
     turn_on<&RunOptions::scale_down>},
    {"--plan", "", "", "print the steps and what they take; run nothing",
     turn_on<&RunOptions::plan>},
    {"--check", kOneOf<kCheckModeWords>, "outputs",
     "outputs and gradients against the reference; every eighth step, or every step; N steps alone",
     set_check},
    {"--tier", kOneOf<kTierChoiceWords>, "auto",
     "numbers: a finite field, floats, small whole ones; auto: field, then real",
     [](RunOptions &o, StringRef v) { return choose(v, kTierChoiceWords, o.tier); }},
    {"--dtype-mode", kOneOf<kDtypeModeWords>, "declared", "rounding of floats in the real tier",
     [](RunOptions &o, StringRef v) { return choose(v, kDtypeModeWords, o.f64); }},
    {"--seed", "N", "0", "of inputs and random ops",
     [](RunOptions &o, StringRef v) {
       return number<uint64_t>(v, 0, std::numeric_limits<int64_t>::max(), o.seed);
     }},
    {"--seeds", "K", "1", "runs, with seeds from --seed on",
     [](RunOptions &o, StringRef v) { return number<unsigned>(v, 1, 1000000, o.seeds); }},
    {"--strict", "", "", "exit code 1 unless all claims are upheld", turn_on<&RunOptions::strict>},
    {"--losses", kOneOf<kLossChoiceWords>, "auto",
     "what the loss of one device is of those that ranks have; auto: as the forward tells",
     [](RunOptions &o, StringRef v) { return choose(v, kLossChoiceWords, o.losses); }},
    {"--no-backward", "", "", "forward only", turn_on<&RunOptions::no_backward>},
    {"--only", "GLOB", "", "check values in these scopes alone", set_text<&RunOptions::only>},
    {"--until", "%VALUE", "", "run up to where the value is there, and check it",
     set_text<&RunOptions::until>},
    {"--input", "NAME=FILE", "",
     "data of an input: .npy, or .safetensors; NAME@RANK=FILE of one rank",
     [](RunOptions &o, StringRef v) { return o.inputs.push_back(v.str()), std::string(); }},
    {"--verdicts", "FILE", "", "write the verdict of every claim as JSON",
     set_text<&RunOptions::verdicts>},
    {"--profile", "FILE", "", "write how long each step takes, for Perfetto",
     set_text<&RunOptions::profile>},
    {"--bench", "N", "", "time N more runs, nothing read in between; on devices, bare calls, too",
     [](RunOptions &o, StringRef v) { return number<unsigned>(v, 1, 1000000, o.bench); }},
    {"--trace-out", "DIR", "", "write the values of the last run as .npy with an index",
     set_text<&RunOptions::trace_out>},
    {"--trace-ranks", "", "", "write what each rank holds, too", turn_on<&RunOptions::trace_ranks>},
    {"--threads", "N", "1", "ranks are divided among them; results stay the same",
     [](RunOptions &o, StringRef v) { return number<unsigned>(v, 1, 1024, o.threads); }},
    {"--max-rounds", "N", "100000", "of one `while`; more are an error",
     [](RunOptions &o, StringRef v) {
       return number<uint64_t>(v, 1, std::numeric_limits<int64_t>::max(), o.max_rounds);
     }},
    {"--memory-limit", "BYTES", "what is free", "refuse what would take more", set_memory},
    {"--backend", kBackendNames, kStandardBackend.name, kBackendHelp, set_backend},
    {"--nproc", "N", "", "start the ranks on this host, a process each; --backend=mpi unless said",
     [](RunOptions &o, StringRef v) { return number<unsigned>(v, 1, 4096, o.nproc); }},
    {"--graphs", "", "three runs or more",
     "--backend=nccl: record the steps in the second run, replay them later",
     turn_on<&RunOptions::graphs>},
    {"--no-graphs", "", "", "--backend=nccl: give the device every step in every run",
     turn_on<&RunOptions::no_graphs>},
    {"--deterministic", "", "", "--backend=nccl: sums over ranks in the same order in every run",
     turn_on<&RunOptions::deterministic>},
    {"--timeout", "SECONDS", "60", "that a rank may keep the others waiting",
     [](RunOptions &o, StringRef v) { return number<unsigned>(v, 1, 1000000, o.timeout); }},
    {"--join-timeout", "SECONDS", "30", "until all ranks are there",
     [](RunOptions &o, StringRef v) { return number<unsigned>(v, 1, 1000000, o.join_timeout); }},
    {"--skip-unavailable", "", "", "exit code 77 where the backend is not there",
     turn_on<&RunOptions::skip_unavailable>},
    {"--version", "", "", "print the version", turn_on<&RunOptions::version>},
};

const RunOptionRow *find_row(StringRef name) {
  for (const RunOptionRow &row : kRows)
    if (name == StringRef(row.name.data(), row.name.size()))
      return &row;
  return nullptr;
}

const checker::OptionRow *find_shared(StringRef name) {
  for (const checker::OptionRow &row : checker::option_rows())
    if (row.commands & checker::kCheck && name == StringRef(row.name.data(), row.name.size()))
      return &row;
  return nullptr;
}

std::string unknown(StringRef name) {
  llvm::SmallVector<StringRef, 48> known;
  for (const RunOptionRow &row : kRows)
    known.push_back(row.name);
  for (const checker::OptionRow &row : checker::option_rows())
    if (row.commands & checker::kCheck)
      known.push_back(row.name);
  return fmt::format("unknown option `{}`{}", name.str(), checker::nearest_hint(name, known));
}

std::string one(RunOptions &options, const RunOptionRow &row, llvm::ArrayRef<StringRef> &words) {
  StringRef value = words.front().split('=').second;
  bool has_value = words.front().contains('=');
  words = words.drop_front();
  if (row.argument.empty() && has_value)
    return fmt::format("option `{}` takes no value", row.name);
  if (!row.argument.empty() && !has_value) {
    if (words.empty())
      return fmt::format("option `{}` needs a value: {}", row.name, row.argument);
    value = words.front();
    words = words.drop_front();
  }
  std::string problem = row.set(options, value);
  return problem.empty() ? "" : fmt::format("option `{}`: {}", row.name, problem);
}

// Our own options are taken out; the rest is for the table of `check`.
std::string split(llvm::ArrayRef<StringRef> words, RunOptions &options,
                  llvm::SmallVectorImpl<StringRef> &rest) {
  while (!words.empty()) {
    StringRef name = words.front().split('=').first;
    if (words.front() == "--") {
      rest.append(words.begin(), words.end());
      return "";
    }
    if (const RunOptionRow *row = find_row(name)) {
      if (std::string problem = one(options, *row, words); !problem.empty())
        return problem;
      continue;
    }
    const checker::OptionRow *shared = find_shared(name == "-h" ? "--help" : name);
    if (ir::starts_with(name, "-") && name != "-" && !shared)
      return unknown(name);
    bool takes_next = shared && !shared->argument.empty() && !words.front().contains('=');
    rest.push_back(words.front());
    words = words.drop_front();
    if (takes_next && !words.empty()) {
      rest.push_back(words.front());
      words = words.drop_front();
    }
  }
  return "";
}

// What is asked for and the backend cannot do; or empty.
std::string beyond_backend(const RunOptions &options, const BackendRow &backend) {
  const std::string_view simulated = kStandardBackend.name;
  if (options.nproc && backend.simulates)
    return fmt::format(
        "the {} backend simulates all ranks in one process: `--nproc` is for `--backend={}`",
        backend.name, kProcessBackend.name);
  if (!backend.holds_data && (!options.profile.empty() || options.bench))
    return fmt::format("the {} backend does nothing that takes time: `{}` is for the others",
                       backend.name, options.bench ? "--bench" : "--profile");
  if (!backend.holds_data && options.check != CheckMode::Off && !options.plan)
    return fmt::format("the {} backend holds no data that could be checked: add `--check=off`",
                       backend.name);
  if (!backend.any_numbers && (options.f64 || options.tier == TierChoice::Field))
    return fmt::format("devices compute in the declared element types: leave `--dtype-mode=f64` "
                       "and `--tier=field` to the {} backend",
                       simulated);
  if (!backend.records && (options.graphs || options.no_graphs))
    return fmt::format("`{}` is about what devices do: add `--backend={}`",
                       options.graphs ? "--graphs" : "--no-graphs",
                       first_backend(&BackendRow::records).name);
  if (options.graphs && options.no_graphs)
    return "`--graphs` and `--no-graphs` exclude each other";
  if (!backend.holds_data && !options.trace_out.empty())
    return fmt::format("the {} backend holds no data that `--trace-out` could write", backend.name);
  if (!backend.simulates && ir::ends_with(StringRef(options.trace_out), ".safetensors"))
    return "where each rank is a process, each writes its own files: `--trace-out` must name a "
           "folder";
  return "";
}

bool says_backend(llvm::ArrayRef<StringRef> words) {
  return llvm::any_of(words, [](StringRef word) {
    return word == "--backend" || ir::starts_with(word, "--backend=");
  });
}

} // namespace

std::string parse_run_call(llvm::ArrayRef<StringRef> words, RunOptions &options) {
  llvm::SmallVector<StringRef, 16> rest;
  if (std::string problem = split(words, options, rest); !problem.empty())
    return problem;
  const checker::CommandRow command{"check", "FILE", "", checker::kCheck, nullptr};
  if (std::string problem = checker::parse_call(rest, command, options.shared); !problem.empty())
    return problem;
  options.help = options.shared.help;
  if (options.help || options.version)
    return "";
  if (options.shared.arguments.size() != 1)
    return options.shared.arguments.empty()
               ? "no program is named; `spmdrun -` reads standard input"
               : fmt::format("one program is run at a time, not {}",
                             options.shared.arguments.size());
  options.file = options.shared.arguments.front();
  if (std::string problem = checker::formats_problem(options.shared); !problem.empty())
    return problem;
  if (options.nproc && !says_backend(words))
    options.backend = &kProcessBackend;
  if (std::string problem = beyond_backend(options, *options.backend); !problem.empty())
    return problem;
  if ((!options.backend->simulates || options.nproc) && options.file == "-")
    return "each rank reads the program: it must be a file";
  return "";
}

std::vector<std::string> rank_arguments(llvm::ArrayRef<StringRef> words,
                                        const RunOptions &options) {
  std::vector<std::string> kept = {fmt::format("--backend={}", options.backend->name)};
  for (size_t i = 0; i < words.size(); ++i) {
    if (words[i] == "--nproc")
      ++i;
    else if (!ir::starts_with(words[i], "--nproc="))
      kept.push_back(words[i].str());
  }
  return kept;
}

std::string data_arguments(const RunOptions &options, uint64_t seed) {
  std::string line = fmt::format("--seed={}", seed);
  for (const AxisSize &axis : options.mesh)
    line += fmt::format(" --mesh={}={}", axis.axis, axis.size);
  for (const auto &[symbol, value] : options.symbols)
    line += fmt::format(" --set={}={}", symbol, value);
  for (const std::string &word : options.inputs)
    line += fmt::format(" --input={}", word);
  if (options.scale_down)
    line += " --scale-down";
  if (options.no_backward)
    line += " --no-backward";
  if (options.max_rounds != kMaxRounds)
    line += fmt::format(" --max-rounds={}", options.max_rounds);
  if (options.losses != LossChoice::Auto)
    line += fmt::format(" --losses={}", kLossChoiceWords[static_cast<size_t>(options.losses)]);
  return line;
}

std::string common_arguments(const RunOptions &options) {
  return fmt::format(
      "{} --seeds={} --check={}:{} --tier={} --f64={} --until={} --graphs={} --deterministic={} "
      "--bench={}",
      data_arguments(options, options.seed), options.seeds, static_cast<int>(options.check),
      options.drawn, static_cast<int>(options.tier), options.f64, options.until,
      records_steps(options), options.deterministic, options.bench);
}

std::string run_help() {
  std::string text =
      "spmdrun type-checks a program, executes it on ranks, simulated or real ones, forward and "
      "backward,\n"
      "and checks that the data uphold the types\n\nusage: spmdrun FILE [OPTION]...\n\n"
      "options\n";
  for (const RunOptionRow &row : kRows)
    text += checker::option_line(row.name, row.argument, row.standard, row.help);
  return text + "\noptions of `spmdlint check`, for reading, checking and reporting\n" +
         checker::option_help(checker::kCheck) + "\nformats\n" + checker::format_help();
}

} // namespace spmd::runtime
