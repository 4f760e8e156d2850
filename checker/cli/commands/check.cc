// `spmdlint check`: reads every input, checks it, renders the reports, and settles the exit code.
// Findings go to stdout or to files, words about the run to stderr.
#include "checker/cli/gates/known_findings.h"
#include "checker/cli/gates/patch.h"
#include "checker/cli/gates/source_comments.h"
#include "checker/cli/inputs/checked_input.h"
#include "checker/cli/inputs/inputs_below.h"
#include "checker/cli/output.h"
#include "checker/cli/process.h"
#include "checker/cli/report_output.h"
#include "checker/render/source/source_edit.h"
#include "checker/report/expected.h"
#include "checker/rewrite/annotate.h"

#include "ir/dialect/print_type.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/ScopeExit.h"
#include "llvm/Support/FileSystem.h"

#include <fmt/format.h>

#include <chrono>
#include <cmath>
#include <deque>

namespace spmd::checker {
namespace {

// One input with its result; addresses stay, since reports point into it.
struct Checked {
  Input input;
  CheckResult result;
};

struct Run {
  const Options &options;
  std::deque<Checked> inputs = {};
  std::vector<Report> reports = {};
  std::vector<bool> used_suppressions = {}; // of the configuration
  ExitCode code = ExitCode::Clean;
  double read_ms = 0, check_ms = 0, report_ms = 0, render_ms = 0;

  void happened(ExitCode what) { code = worse(code, what); }
};

// Adds the time until its end to a sum of milliseconds.
auto timed(double &sum) {
  auto start = std::chrono::steady_clock::now();
  return llvm::make_scope_exit([&sum, start] {
    sum +=
        std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  });
}

void print_note(const Run &run, const std::string &text) {
  if (!run.options.quiet)
    say(text);
}

std::vector<std::string> find_inputs(Run &run) {
  std::vector<std::string> paths;
  for (const std::string &argument : run.options.arguments) {
    if (argument == "-" || !is_folder(argument)) {
      paths.push_back(argument);
      continue;
    }
    InputsBelow below = inputs_below(argument);
    for (const std::string &problem : below.problems) {
      run.happened(ExitCode::Input);
      say(printable(problem));
    }
    for (const std::string &note : below.notes)
      print_note(run, printable(note));
    paths.insert(paths.end(), below.files.begin(), below.files.end());
  }
  return paths;
}

// Which suppressions of the configuration, the last ones of each program, were of use.
void note_suppressions(Run &run, const CheckResult &result) {
  size_t count = run.options.configuration.suppressions.size();
  run.used_suppressions.resize(count);
  for (size_t i = 0; i < count && count <= result.used_suppressions.size(); ++i)
    if (result.used_suppressions[result.used_suppressions.size() - count + i])
      run.used_suppressions[i] = true;
}

// A suppression that matches nothing will swallow the next mistake of its kind.
void tell_unused_suppressions(const Run &run) {
  bool checked = run.code != ExitCode::Interrupted &&
                 llvm::any_of(run.reports, [](const Report &report) { return report.program; });
  const Configuration &configuration = run.options.configuration;
  for (size_t i = 0; checked && i < configuration.suppressions.size(); ++i) {
    const Configuration::Suppression &row = configuration.suppressions[i];
    const rules::DiagnosticInfo &info = *rules::find_violation(row.finding);
    bool elsewhere =
        info.drawn_by == rules::ReportedBy::Run || info.drawn_by == rules::ReportedBy::Elaborate;
    if ((i < run.used_suppressions.size() && run.used_suppressions[i]) || elsewhere ||
        !selected(run.options.report, info))
      continue;
    bool lapsed = !row.until.empty() && row.until <= run.options.check.today;
    print_note(run, fmt::format("note: the suppression of {}{} in the configuration {}",
                                row.finding, row.scope.empty() ? "" : " in " + row.scope,
                                lapsed ? "has lapsed on " + row.until : "matches nothing"));
  }
}

// Writes the fixes into a program that people write, and reads it again. What is known is repaired,
// too. A recording stays as it is: it is the script that has to change.
void fix_input(Run &run, Input &input, const std::string &path) {
  const bool by_hand = input.readable() && ir::format_of(input.bytes()).by_hand;
  if (!by_hand || path == "-" || input.compression != ir::Compression::None)
    return;
  Options options = run.options;
  options.report.accept.clear();
  options.report.compared = false;
  Patch patch = make_patch(input, options);
  if (patch.fixed == 0)
    return;
  if (std::string problem = write_file(path, patch.after); !problem.empty()) {
    run.happened(ExitCode::Call);
    say(problem);
    return;
  }
  print_note(run, fmt::format("{}: repaired {} finding{}", printable(path), patch.fixed,
                              patch.fixed == 1 ? "" : "s"));
  input = load(path, run.options);
}

void check_input(Run &run, SourceCache &sources, SourceComments &comments,
                 const std::string &path) {
  const size_t index = run.inputs.size();
  const bool named = index < run.options.names.size();
  const std::string &name = named ? run.options.names[index] : path;
  Checked &checked = run.inputs.emplace_back();
  Input &input = checked.input;
  {
    auto timer = timed(run.read_ms);
    Progress progress(printable("reading " + name), run.options.quiet);
    Options options = run.options;
    options.read.progress = [&](uint64_t done, uint64_t all) { progress.show(done, all); };
    input = load(path, options);
  }
  if (run.options.fix)
    fix_input(run, input, path);
  if (named)
    input.name = name;
  if (!input.readable())
    run.happened(ExitCode::Input);
  if (!input.checkable()) {
    run.reports.push_back(make_unread_report(input.name, input.bytes(), input.read.errors));
    return;
  }
  run.options.configuration.add_to(input.read.program);
  CheckOptions options = check_options_for(input.read.program, run.options);
  {
    auto timer = timed(run.check_ms);
    Progress progress(printable("checking " + name), run.options.quiet);
    options.progress = [&](uint64_t done, uint64_t all) { progress.show(done, all); };
    checked.result = check(input.read.program, options);
    options.infer_partial |= checked.result.gradual != nullptr;
  }
  auto timer = timed(run.report_ms);
  note_suppressions(run, checked.result);
  comments.read(input.read.program);
  Report report = make_report(input.name, input.bytes(), input.read.program, checked.result,
                              options, run.options.report);
  if (named && !ir::format_of(input.bytes()).by_hand)
    report.lines = ir::InputLines(); // those of a recording mean nothing to whoever reads the name
  report.input_warnings = input.read.warnings;
  report.input_errors = input.read.errors; // that it ends early
  add_changed_sources(report, sources);
  run.reports.push_back(std::move(report));
}

// What was found of the inputs before an interrupt is reported.
void check_inputs(Run &run, SourceCache &sources, SourceComments &comments,
                  llvm::ArrayRef<std::string> paths) {
  if (paths.size() == 1)
    return check_input(run, sources, comments, paths.front());
  InterruptNote interrupt;
  for (size_t i = 0; i < paths.size(); ++i) {
    if (interrupt.came()) {
      run.happened(ExitCode::Interrupted);
      say(fmt::format("interrupted: {} of {} inputs were checked", i, paths.size()));
      return;
    }
    check_input(run, sources, comments, paths[i]);
  }
}

// `src = V, taken as reinterpret(V, P)`, `dst = R by `mul` at model.py:41:13`
std::string inferred_text(const Report &report, const InferredSrcDst &at) {
  const ir::Program &program = *report.program;
  std::string text = "src = " + ir::print(at.word.src);
  if (read_as_addends(program, at))
    text += ", taken as reinterpret(V, P)";
  text += "; dst = " + ir::print(at.word.dst);
  switch (at.why) {
  case InferredSrcDst::Why::Call:
    break;
  case InferredSrcDst::Why::Use:
    text += " by ";
    if (at.use.form == Place::Form::Inst)
      text += fmt::format("`{}` at ", program.op_name(program.insts[at.use.as_inst()].op).str());
    text += print(locate(report, at.use));
    break;
  case InferredSrcDst::Why::NoGradient:
    text += ": no gradient passes";
    break;
  case InferredSrcDst::Why::NoUse:
    text += ": no use decides";
    break;
  }
  return text;
}

// `model.py:41:13: %r = all_reduce %h { axis = tp, dst = R, src = P }  // on tp: src = P; dst = R
// by ..`
void print_inferred(Run &run) {
  std::string text;
  for (const Report &report : run.reports) {
    if (!report.program)
      continue;
    for (const Annotation &each : annotate(*report.program, *report.result)) {
      const ir::Program &program = *report.program;
      ir::MeshId mesh = program.contexts[program.insts[each.inst].context].mesh;
      std::string why;
      for (const InferredSrcDst &at : each.words)
        why += fmt::format("{}on {}: {}", why.empty() ? "" : "; ",
                           ir::print_axes(program, mesh, at.word.axes), inferred_text(report, at));
      text += printable(fmt::format("{}: {}  // {}", print(locate(report, Place::inst(each.inst))),
                                    each.line, why));
      text += '\n';
    }
  }
  if (std::string problem = write_stdout(text); !problem.empty()) {
    run.happened(ExitCode::Call);
    say(problem);
  }
}

// `--expect`: findings are as they should be where the program expects them.
void hold_against_expected(Run &run, const Report &report) {
  size_t unmet = 0;
  for (const ExpectationOutcome &each : outcomes_of_expectations(*report.program, *report.result)) {
    if (each.difference.empty())
      continue;
    ++unmet;
    say(printable(fmt::format("{}: {}", print(locate(report, each.place)), each.difference)));
  }
  if (unmet)
    run.happened(ExitCode::Findings);
  size_t expected = report.program->expectations.size();
  print_note(run, fmt::format("{}: {} expectation{}, {} difference{}", printable(report.input),
                              expected, expected == 1 ? "" : "s", unmet, unmet == 1 ? "" : "s"));
}

// `--exit-zero` forgives findings and coverage, nothing else.
void judge(Run &run) {
  const Options &options = run.options;
  if (options.exit_zero)
    return;
  for (const Report &report : run.reports) {
    if (!report.program)
      continue;
    if (options.expect)
      hold_against_expected(run, report);
    else if (fails(report, options.fail_on))
      run.happened(ExitCode::Findings);
    double coverage = totals_of(report).coverage();
    if (!report.judged.anything()) {
      run.happened(ExitCode::Coverage);
      print_note(run, fmt::format("{}: nothing was judged: {}", printable(report.input),
                                  why_nothing(report.judged, report.result->stats)));
    } else if (coverage < options.min_coverage) {
      run.happened(ExitCode::Coverage);
      print_note(run, fmt::format("{}: {:.1f} % of the ops typed, and --min-coverage asks for {}",
                                  printable(report.input), std::floor(coverage * 10) / 10,
                                  options.min_coverage));
    } else if (double proof = totals_of(report).proof(); proof < options.min_proof) {
      run.happened(ExitCode::Coverage);
      print_note(run, fmt::format("{}: {:.1f} % of the {} are proved on every axis, and "
                                  "--min-proof asks for {}",
                                  printable(report.input), std::floor(proof * 10) / 10,
                                  report.judged.results ? "results" : "gradients of parameters",
                                  options.min_proof));
    }
  }
}

void print_kinds_in(const Run &run) {
  const Options &options = run.options;
  for (const Checked &checked : run.inputs)
    if (std::string errors = print_input_errors(checked.input);
        !errors.empty() && !(options.quiet && checked.input.readable()))
      print_stderr(errors);
  if (!prints_counts(options))
    print_note(run, counts_line(totals_of(run.reports)));
  for (const Report &report : run.reports) {
    if (!options.stats || !report.program)
      continue;
    const CheckStats &stats = report.result->stats;
    say(fmt::format(
        "{}: {} ops, {} without a rule, {} distinct applications, {} results of unknown kind, "
        "counted per axis",
        report.input, stats.ops, stats.unknown_ops, stats.applications, stats.silent));
  }
  if (options.timing)
    say(fmt::format("read {:.2f} ms, check {:.2f} ms, report {:.2f} ms, render {:.2f} ms",
                    run.read_ms, run.check_ms, run.report_ms, run.render_ms));
}

} // namespace

// The fixes of all inputs as one patch on stdout, and what it comes to. Of a recording it is one of
// the script.
void print_patches(Run &run, SourceCache &sources) {
  std::string text;
  unsigned fixed = 0, remaining = 0;
  for (size_t i = 0; i < run.inputs.size(); ++i) {
    const Checked &checked = run.inputs[i];
    if (!checked.input.readable())
      continue;
    if (!ir::format_of(checked.input.bytes()).by_hand) {
      unsigned edited = 0;
      text += source_patch(run.reports[i], sources, edited);
      fixed += edited;
      remaining += llvm::count_if(run.reports[i].diagnostics,
                                  [](const Diagnostic &each) { return !each.first->suppressed; }) -
                   edited;
      continue;
    }
    Patch patch = make_patch(checked.input, run.options);
    text += patch.text;
    fixed += patch.fixed, remaining += patch.remaining;
  }
  if (std::string problem = write_stdout(text); !problem.empty()) {
    run.happened(ExitCode::Call);
    say(problem);
  }
  print_note(run, fmt::format("the patch repairs {} finding{} and leaves {}", fixed,
                              fixed == 1 ? "" : "s", remaining));
}

// Empty, or what is wrong with the options of baselines. Reads what is known.
std::string read_known(const Options &options, KnownFindings &known) {
  if (options.baseline.empty() && (options.write_baseline || options.update_baseline))
    return fmt::format("`--{}-baseline` needs `--baseline=FILE`",
                       options.write_baseline ? "write" : "update");
  if (options.write_baseline && options.update_baseline)
    return "`--write-baseline` and `--update-baseline` exclude each other";
  for (const std::string &path : options.since)
    if (std::string problem = known.read(path, /*output=*/true); !problem.empty())
      return problem;
  if (options.baseline.empty() || options.write_baseline)
    return "";
  std::string problem = known.read(options.baseline, /*output=*/false);
  bool absent = !llvm::sys::fs::exists(options.baseline);
  return absent ? problem + "; `--write-baseline` makes it" : problem;
}

// Writes the baseline if asked to, and counts what became of the one that was there.
void close_known(Run &run, const KnownFindings &known) {
  const Options &options = run.options;
  if (run.code == ExitCode::Interrupted)
    return;
  if (options.write_baseline || (options.update_baseline && run.code != ExitCode::Input))
    if (std::string problem = write_file(
            options.baseline, KnownFindings::baseline_of(run.reports, options.update_baseline));
        !problem.empty()) {
      run.happened(ExitCode::Call);
      say(problem);
    }
  if (options.write_baseline || !options.report.compared)
    return;
  KnownFindings::Counts counts = known.counts();
  std::string text = fmt::format("{} known", counts.known);
  if (counts.moved)
    text += fmt::format(" ({} moved)", counts.moved);
  text += fmt::format(", {} fixed, {} new", counts.fixed, counts.fresh);
  if (counts.fixed && !options.baseline.empty() && !options.update_baseline)
    text += "; `--update-baseline` takes out what is fixed";
  print_note(run, text);
}

// What accepts findings, asked in this order.
void add_accept(Options &options, SourceComments &comments, KnownFindings &known) {
  ReportOptions &report = options.report;
  report.accept.push_back([&](const Report &made, const Diagnostic &diagnostic) {
    return comments.accept(made, diagnostic);
  });
  report.compared =
      !options.since.empty() || (!options.baseline.empty() && !options.write_baseline);
  if (report.compared)
    report.accept.push_back([&](const Report &made, const Diagnostic &diagnostic) {
      return known.accept(made, diagnostic);
    });
  if (options.write_baseline || options.update_baseline)
    report.max_findings = ~0u;
}

// Where sources lie elsewhere than their places say, people and services look them up from here.
void name_sources(Options &options, const SourceCache &sources) {
  if (options.sources.root == SourceOptions().root && options.sources.path_map.empty())
    return;
  options.report.shown_path = [&](const ir::Program &program, ir::FileId file) {
    return sources.shown_path(program, file);
  };
}

ExitCode run_check(const Options &given) {
  if (given.arguments.empty()) {
    say("no input is named; `spmdlint check -` reads standard input");
    return ExitCode::Call;
  }
  Options options = given;
  options.report = report_options(given);
  if (std::string problem = selection_problem(options.report); !problem.empty()) {
    say(problem);
    return ExitCode::Call;
  }
  if (options.fix && options.diff) {
    say("`--fix` and `--diff` exclude each other");
    return ExitCode::Call;
  }
  if (std::string problem = formats_problem(options); !problem.empty()) {
    say(problem);
    return ExitCode::Call;
  }
  options.check.today = date_of_today();
  KnownFindings known;
  if (std::string problem = read_known(options, known); !problem.empty()) {
    say(problem);
    return ExitCode::Call;
  }
  SourceCache sources(options.sources);
  SourceComments comments(sources);
  add_accept(options, comments, known);
  name_sources(options, sources);
  Run run{.options = options};
  const std::vector<std::string> paths = find_inputs(run);
  if (options.names.size() > paths.size()) {
    say(fmt::format("`--name` is given {} times, for {} input{}", options.names.size(),
                    paths.size(), paths.size() == 1 ? "" : "s"));
    return ExitCode::Call;
  }
  check_inputs(run, sources, comments, paths);
  comments.add_findings(run.reports, options.report);
  if (options.diff) {
    print_patches(run, sources);
  } else {
    auto timer = timed(run.render_ms);
    if (!render(run.options, run.reports, sources))
      run.happened(ExitCode::Call);
  }
  if (options.annotate)
    print_inferred(run);
  close_known(run, known);
  if (!options.write_baseline)
    judge(run);
  print_kinds_in(run);
  tell_unused_suppressions(run);
  return run.code;
}

} // namespace spmd::checker
