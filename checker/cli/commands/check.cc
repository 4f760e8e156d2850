// `spmdlint check`: reads every input, checks it, renders the reports, and settles the exit code.
// Findings go to stdout or to files, words about the run to stderr.
#include "checker/cli/input.h"
#include "checker/cli/inputs_below.h"
#include "checker/cli/output.h"
#include "checker/cli/present.h"
#include "checker/rewrite/annotate.h"

#include "ir/text/text.h"

#include "llvm/ADT/ScopeExit.h"

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

bool is_recorded_step(const ir::Program &program) {
  return program.mode == ir::Mode::Local && program.producer.frontend.valid() &&
         program.phase == ir::ProgramPhase::Step;
}

void check_input(Run &run, SourceCache &sources, const std::string &path) {
  Checked &checked = run.inputs.emplace_back();
  Input &input = checked.input;
  {
    auto timer = timed(run.read_ms);
    Progress progress(printable("reading " + path), run.options.quiet);
    Options options = run.options;
    options.read.progress = [&](uint64_t done, uint64_t all) { progress.show(done, all); };
    input = load(path, options);
  }
  if (!input.readable())
    run.happened(ExitCode::Input);
  if (!input.checkable()) {
    run.reports.push_back(make_unread_report(input.name, input.bytes(), input.read.errors));
    return;
  }
  run.options.configuration.add_to(input.read.program);
  CheckOptions options = run.options.check;
  {
    auto timer = timed(run.check_ms);
    Progress progress(printable("checking " + path), run.options.quiet);
    // Nobody declares what a script that was recorded as it is holds.
    if (!options.mode && is_recorded_step(input.read.program))
      options.mode = ir::Mode::Gradual;
    options.progress = [&](uint64_t done, uint64_t all) { progress.show(done, all); };
    checked.result = check(input.read.program, options);
    options.infer_partial |= checked.result.gradual != nullptr;
  }
  auto timer = timed(run.report_ms);
  Report report = make_report(input.name, input.bytes(), input.read.program, checked.result,
                              options, run.options.report);
  report.input_warnings = input.read.warnings;
  report.input_errors = input.read.errors; // that it ends early
  add_changed_sources(report, sources);
  run.reports.push_back(std::move(report));
}

// `src = V, taken as reinterpret(V, P)`, `dst = R by `mul` at model.py:41:13`
std::string inferred_text(const Report &report, const InferredAt &at) {
  const ir::Program &program = *report.program;
  std::string text = "src = " + ir::print(at.word.src);
  if (read_as_addends(program, at))
    text += ", taken as reinterpret(V, P)";
  text += "; dst = " + ir::print(at.word.dst);
  switch (at.why) {
  case InferredAt::Why::Call:
    break;
  case InferredAt::Why::Use:
    text += " by ";
    if (at.use.form == Place::Form::Inst)
      text += fmt::format("`{}` at ", program.op_name(program.insts[at.use.as_inst()].op).str());
    text += print(locate(report, at.use));
    break;
  case InferredAt::Why::NoGradient:
    text += ": no gradient passes";
    break;
  case InferredAt::Why::NoUse:
    text += ": no use decides";
    break;
  }
  return text;
}

// `model.py:41:13: %r = all_reduce %h { axis = tp, dst = R, src = P }  // on tp: src = P; dst = R
// by ..`
void print_inferred(const Run &run) {
  std::string text;
  for (const Report &report : run.reports) {
    if (!report.program)
      continue;
    for (const Annotation &each : annotate(*report.program, *report.result)) {
      const ir::Program &program = *report.program;
      ir::MeshId mesh = program.contexts[program.insts[each.inst].context].mesh;
      std::string why;
      for (const InferredAt &at : each.words)
        why += fmt::format("{}on {}: {}", why.empty() ? "" : "; ",
                           ir::print_axes(program, mesh, at.word.axes), inferred_text(report, at));
      text += printable(fmt::format("{}: {}  // {}", print(locate(report, Place::inst(each.inst))),
                                    each.line, why));
      text += '\n';
    }
  }
  (void)write_stdout(text);
}

// `--exit-zero` forgives findings and coverage, nothing else.
void judge(Run &run) {
  const Options &options = run.options;
  if (options.exit_zero)
    return;
  for (const Report &report : run.reports) {
    if (!report.program)
      continue;
    if (fails(report, options.fail_on))
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
      print_note(
          run, fmt::format(
                   "{}: the gradients of {:.1f} % of the parameters are proved on every axis, and "
                   "--min-proof asks for {}",
                   printable(report.input), std::floor(proof * 10) / 10, options.min_proof));
    }
  }
}

void print_words(const Run &run) {
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
  if (std::string problem = formats_problem(options); !problem.empty()) {
    say(problem);
    return ExitCode::Call;
  }
  options.check.today = date_of_today();
  Run run{.options = options};
  SourceCache sources(options.sources);
  for (const std::string &path : find_inputs(run))
    check_input(run, sources, path);
  {
    auto timer = timed(run.render_ms);
    if (!render(run.options, run.reports, sources))
      run.happened(ExitCode::Call);
  }
  if (options.annotate)
    print_inferred(run);
  judge(run);
  print_words(run);
  return run.code;
}

} // namespace spmd::checker
