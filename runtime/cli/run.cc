// Reads and checks first: what does not check is reported, and nothing is run.
#include "runtime/cli/run.h"

#include "rules/violations/commands/runs.h"

#include "runtime/cli/bench.h"
#include "runtime/cli/failure.h"
#include "runtime/cli/memory_need.h"
#include "runtime/cli/profile.h"
#include "runtime/cli/session.h"
#include "runtime/cli/summary.h"
#include "runtime/cli/trace_out.h"
#include "runtime/extents/scale_down.h"
#include "runtime/inputs/inputs.h"
#include "runtime/judge/run/judged_run.h"
#include "runtime/judge/last_uses.h"
#include "runtime/judge/whole_numbers.h"
#include "runtime/plan/sized_plan.h"
#include "runtime/plan/tensor_sizes.h"

#include "checker/backward/backward.h"
#include "checker/cli/input.h"
#include "checker/cli/output.h"
#include "checker/cli/present.h"
#include "checker/definitions.h"
#include "checker/rewrite/inlined_size.h"

#include "ir/support/escape.h"

#include "llvm/ADT/STLExtras.h"

#include <fmt/format.h>

#include <chrono>

namespace spmd::runtime {

using checker::ExitCode;

namespace {

// Of one call. The steps of a run are its methods in order; each says whether to go on.
class RunCall {
public:
  explicit RunCall(const RunOptions &options)
      : options_(options), sources_(options.shared.sources), summary_{.program = options.file} {
    check_options_ = options.shared.check;
    check_options_.today = checker::date_of_today();
  }

  ExitCode run() {
    if (!options_.plan) // which needs no other ranks
      session_ = Session::open(options_, code_);
    if (!session_ && code_ != ExitCode::Clean)
      return code_;
    perform();
    kept_.reset(); // before what it runs on
    if (session_)
      if (llvm::Error error = session_->finish(code_))
        fail(std::move(error));
    return code_;
  }

private:
  struct Mode {
    Tier tier;
    Domain domain;
  };
  static bool is_whole(Mode mode) { return mode.tier == Tier::Integer; }

  void perform() {
    bool ready = read() && rewrite() && derive() && make();
    if (options_.plan && ready)
      happened(print(runtime::print(checked_->program(), *plan_)));
    if (!all(ready && !options_.plan) || !agree_on_plan() || !all(fits() && finds_until()))
      return;
    for (unsigned i = 0; i < options_.seeds && code_ == ExitCode::Clean; ++i)
      execute(options_.seed + i);
    finish();
    all(true);
  }

  // --- the other ranks, if they are processes
  // ------------------------------------------------------

  // The worst exit code of all becomes that of each. False where some rank cannot go on.
  bool all(bool goes_on) {
    if (!session_)
      return goes_on;
    llvm::Expected<ExitCode> worst = session_->agree(code_);
    if (!worst)
      fail(worst.takeError());
    code_ = *worst;
    return goes_on && code_ == ExitCode::Clean;
  }

  // What rank 0 says, for all.
  uint8_t decided(uint8_t own) {
    if (!session_)
      return own;
    llvm::Expected<uint8_t> said = session_->decide(own);
    if (!said)
      fail(said.takeError());
    return *said;
  }

  // The run ends here, for all ranks.
  [[noreturn]] void fail(llvm::Error error) {
    std::string text = llvm::toString(std::move(error));
    Team &team = session_->team();
    std::optional<TeamFailure> failure = team.failure();
    if (!failure && !session_->leads())
      team.fail(TeamFailure::Form::Error, text);
    checker::divert_output(nullptr);
    std::optional<checker::Finding> finding;
    if (failure && plan_)
      finding = finding_of(*failure, checked_->program(), *plan_, options_.timeout, needed_);
    if (finding)
      report(checked_->tables(), std::vector<checker::Finding>{std::move(*finding)});
    else if (failure)
      checker::say(fmt::format("{}: rank {}: {}", options_.file, failure->ranks.front(),
                               failure->text.empty() ? "lost before the run" : failure->text));
    else
      checker::say(fmt::format("{}: {}", options_.file, text));
    happened(ExitCode::Input);
    session_->abandon(code_);
  }

  bool agree_on_plan() {
    if (!session_)
      return true;
    llvm::Expected<std::optional<Session::Difference>> found =
        session_->compare({{"the version", std::string(checker::kVersion)},
                           {"the plan", fmt::format("{:016x}", plan_->fingerprint)},
                           {"the backend", std::string(options_.backend->name)},
                           {"the library", session_->library()},
                           {"the device", options_.deterministic ? session_->device() : ""},
                           {"the call", words_for_ranks(options_)}});
    if (!found)
      fail(found.takeError());
    if (*found)
      return all(refuse(rules::RunPlansDiffer{std::to_string((*found)->rank), (*found)->text},
                        {checker::Place::Form::File, ~0u}));
    if (session_->size() == world_->size())
      return true;
    checker::say(fmt::format("{}: the program has {} ranks, and {} were started", options_.file,
                             world_->size(), session_->size()));
    return all(stop(ExitCode::Call));
  }

  void happened(ExitCode code) { code_ = checker::worse(code_, code); }
  bool stop(ExitCode code) {
    happened(code);
    return false;
  }
  void print_note(const std::string &text) {
    if (!options_.shared.quiet)
      checker::say(text);
  }
  ExitCode print(const std::string &text) {
    std::string problem = checker::write_stdout(ir::printable_lines(text));
    if (problem.empty())
      return code_;
    checker::say(problem);
    return ExitCode::Call;
  }

  bool read() {
    checker::Progress progress(ir::printable("reading " + options_.file), options_.shared.quiet);
    checker::Options options = options_.shared;
    options.read.progress = [&](uint64_t done, uint64_t all) { progress.show(done, all); };
    input_ = checker::load(options_.file, options);
    if (std::string errors = checker::print_input_errors(input_); !errors.empty())
      checker::print_stderr(errors);
    if (!input_.readable())
      return stop(ExitCode::Input);
    options_.shared.configuration.add_to(input_.read.program);
    return true;
  }

  // Reports what the types of a program draw. False if it is not to be run.
  bool check(ir::Program &program) {
    // Each rank has tensors of its own, however they are cut.
    if (program.mode == ir::Mode::Gradual)
      program.mode = ir::Mode::Local;
    check_options_.undeclared = checker::is_recorded_step(program);
    result_ = checker::check(program, check_options_);
    if (result_.clean())
      return true;
    report(program, std::nullopt);
    return stop(ExitCode::Findings);
  }

  // Findings of the check, or those of the run in their place.
  void report(ir::Program &program, std::optional<std::vector<checker::Finding>> findings) {
    if (findings)
      result_.findings = std::move(*findings);
    checker::ReportOptions options = checker::report_options(options_.shared);
    checker::Report report = checker::make_report(input_.name, input_.bytes(), program, result_,
                                                  check_options_, options);
    if (!checker::render(options_.shared, report, sources_))
      happened(ExitCode::Call);
  }

  // Other extents, as the command line asks for them.
  bool rewrite() {
    ir::Program &program = input_.read.program;
    if (!check(program))
      return false;
    if (std::optional<checker::TooManyInlined> many = checker::too_many_inlined(program)) {
      checker::Finding finding{rules::RunInput{"the program", std::move(many->message)},
                               checker::Place::inst(many->call)};
      report(program, std::vector<checker::Finding>{std::move(finding)});
      return stop(ExitCode::Call);
    }
    Resize resize{.axes = {}, .symbols = options_.symbols, .scale_down = options_.scale_down};
    for (const AxisSize &axis : options_.mesh)
      resize.axes.push_back({axis.axis, axis.size});
    if (!needs_resize(program, resize))
      return true;
    llvm::Expected<std::vector<std::string>> notes = resize_program(program, result_, resize);
    if (!notes) {
      checker::say(fmt::format("{}: {}", options_.file, llvm::toString(notes.takeError())));
      return stop(ExitCode::Call);
    }
    for (const std::string &note : *notes)
      print_note(note);
    if (check(program))
      return true;
    print_note("the findings are those of the program with other extents");
    return false;
  }

  bool derive() {
    ir::Program &program = input_.read.program;
    if (options_.no_backward || !checker::has_loss(program))
      return true;
    if (std::optional<checker::NoBackward> none =
            checker::derive_backward(program, check_options_)) {
      print_note(fmt::format("forward only: {}", none->message));
      // What is left of the derivation is no program to run.
      input_ = checker::load(options_.file, options_.shared);
      options_.shared.configuration.add_to(input_.read.program);
      return rewrite();
    }
    summary_.backward = true;
    return check(program);
  }

  // A finding that keeps the run from beginning.
  bool refuse(rules::Violation violation, checker::Place place = kFile) {
    checker::Finding finding{std::move(violation), place};
    report(checked_->tables(), std::vector<checker::Finding>{std::move(finding)});
    return stop(ExitCode::Call);
  }
  static constexpr checker::Place kFile{checker::Place::Form::File, ~0u};

  // What was derived stands nowhere; what it was derived from does.
  checker::Place place_of_inst(ir::InstId inst) const {
    const ir::Program &program = checked_->program();
    if (inst.valid() && program.insts[inst].bwd_of.valid())
      inst = checker::defining_inst(program, program.insts[inst].bwd_of);
    return inst.valid() ? checker::Place::inst(inst) : kFile;
  }

  // The integer tier is for sums of products alone: false, and said, where something else is
  // computed.
  bool stays_whole() {
    std::optional<ir::InstId> other = first_not_whole(checked_->tables());
    if (!other)
      return true;
    const ir::Program &program = checked_->program();
    return refuse(rules::RunInput{"the integer tier",
                                  fmt::format("`{}` does not keep whole numbers whole: take "
                                              "`--tier=field`",
                                              program.op_name(program.insts[*other].op).str())},
                  checker::Place::inst(*other));
  }

  bool make() {
    checked_ = checker::verify_types(std::move(input_.read.program), check_options_);
    SPMD_CHECK(checked_.has_value(), "a program that was just found clean");
    if (options_.tier == TierChoice::Integer && !stays_whole())
      return false;
    llvm::Expected<World> world = World::make(checked_->program());
    if (!world)
      return refuse(rules::RunInput{"the program", llvm::toString(world.takeError())});
    world_.emplace(std::move(*world));
    summary_.ranks = world_->size();
    roots_ = recorded_losses(*checked_, options_.losses);
    for (const LossRoot &root : roots_)
      if (std::string text = runtime::print(checked_->program(), root); !text.empty())
        summary_.losses.push_back(std::move(text));
    sized_by_data_ = has_tensor_sizes(checked_->program());
    if (sized_by_data_)
      return take_inputs() && plan_for(options_.seed, modes().front());
    return plan_for(options_.seed, modes().front()) && (options_.plan || take_inputs());
  }

  // The plan; where data say how much is moved, that of these inputs. What comes before is
  // simulated here for all ranks, so that processes find the same plan.
  bool plan_for(uint64_t seed, Mode mode) {
    // In the field numbers are residues: how much is moved is what real data say.
    Domain domain = mode.domain == Domain::Field ? Domain::Declared : mode.domain;
    if (plan_ && planned_ == std::tuple(seed, domain, is_whole(mode)))
      return true;
    auto started = [&](const Plan &first) { return simulated(first, seed, {mode.tier, domain}); };
    sizes_.lengths.clear();
    ir::InstId failed;
    PlanOptions asked{.max_rounds = options_.max_rounds, .failed = &failed};
    llvm::Expected<Plan> plan = sized_by_data_
                                    ? make_sized_plan(*checked_, *world_, started, sizes_, asked)
                                    : make_plan(*checked_, *world_, asked);
    if (!plan && code_ != ExitCode::Clean) { // said already
      llvm::consumeError(plan.takeError());
      return false;
    }
    if (!plan)
      return refuse(rules::RunInput{"the program", llvm::toString(plan.takeError())},
                    place_of_inst(failed));
    plan_.emplace(std::move(*plan));
    planned_ = {seed, domain, is_whole(mode)};
    summary_.steps = plan_->steps.size();
    summary_.peak_bytes = std::max(summary_.peak_bytes, plan_->peak_bytes);
    return true;
  }

  bool take_inputs() {
    for (const std::string &word : options_.inputs)
      if (std::string problem = files_.add(word); !problem.empty())
        return refuse(rules::RunInput{word, problem});
    inputs_.emplace(*checked_, *world_, files_);
    if (inputs_->problems().empty())
      return true;
    std::vector<checker::Finding> findings;
    for (const InputProblem &problem : inputs_->problems()) {
      checker::Place place = kFile;
      if (problem.param)
        place = {checker::Place::Form::Param, static_cast<uint32_t>(*problem.param)};
      findings.push_back({rules::RunInput{problem.input, problem.text}, place});
    }
    report(checked_->tables(), std::move(findings));
    return stop(ExitCode::Call);
  }

  bool fits() {
    MemoryScope scope{.rank = {}, .compares = options_.check != CheckMode::Off};
    scope.gradients = !roots_.empty();
    scope.stepwise = is_stepwise(options_.check);
    const std::vector<uint32_t> drawn = drawn_for(options_.seed);
    if (options_.check == CheckMode::Drawn)
      scope.drawn = drawn;
    uint64_t sharers = 1;
    if (session_) {
      scope.rank = session_->rank();
      scope.compares &= session_->leads();
      scope.reads = scope.stepwise;
      sharers = session_->local_size();
    }
    MemoryNeed need = memory_need(checked_->program(), *plan_, *world_, scope);
    needed_ = checker::print_bytes(int64_t(need.bytes));
    uint64_t limit = options_.memory_limit.value_or(available_memory() / sharers);
    if (need.bytes <= limit || !options_.backend->holds_data)
      return true;
    return refuse(rules::RunMemory{checker::print_bytes(int64_t(need.bytes)),
                                   checker::print_bytes(int64_t(limit)), need.largest});
  }

  // --- execution ---------------------------------------------------------------------------------

  llvm::SmallVector<Mode, 3> modes() {
    Mode field{Tier::Field, Domain::Field}, integer{Tier::Integer, Domain::Declared};
    Mode real{Tier::Real, options_.f64 ? Domain::F64 : Domain::Declared};
    switch (options_.tier) {
    case TierChoice::Field:
      return {field};
    case TierChoice::Real:
      return {real};
    case TierChoice::Integer:
      return {integer};
    case TierChoice::Auto:
      break;
    }
    if (!options_.backend->any_numbers)
      return first_not_whole(checked_->tables()) ? llvm::SmallVector<Mode, 3>{real}
                                                 : llvm::SmallVector<Mode, 3>{integer, real};
    return {field, real};
  }

  void execute(uint64_t seed) {
    for (Mode mode : modes())
      if (!execute(seed, mode))
        return;
    // Rounding may hide what it could have caused: in double it is much smaller.
    bool open = decided(
        summary_.report.count(Verdict::Undecided) + summary_.report.count(Verdict::Blind) > 0);
    if (open && options_.tier == TierChoice::Auto && !options_.f64 && options_.backend->any_numbers)
      execute(seed, {Tier::Real, Domain::F64});
  }

  // False where nothing more is to be run.
  bool execute(uint64_t seed, Mode mode) {
    if (sized_by_data_)
      kept_.reset(); // it may be another plan
    bool planned = !sized_by_data_ || (plan_for(seed, mode) && fits());
    if (!all(planned && prepare(seed, mode)))
      return false;
    JudgeOptions judge{
        .mode = options_.check, .tier = mode.tier, .domain = mode.domain, .seed = seed};
    judge.rerun = rerun(seed);
    judge.until = until();
    (summary_.backward ? judge.derived : judge.recorded) = roots_;
    const std::vector<uint32_t> drawn = drawn_for(seed);
    judge.drawn = drawn;
    judge.judges = !session_ || session_->leads();
    judge.team = session_ ? &session_->team() : nullptr;
    auto given = [&](size_t param) { return given_to_ranks(param, input_options(seed, mode)); };
    judge.given = given;
    if (mode.domain == Domain::Field)
      judge.sizes = &sizes_;
    judge.order = options_.backend->order;
    checker::Progress progress(ir::printable("running " + options_.file), options_.shared.quiet);
    auto goes_on = [&](uint64_t done, uint64_t all) { return progress.show(done, all), true; };
    judge.goes_on = goes_on;
    auto begin = std::chrono::steady_clock::now();
    const uint64_t received = session_ ? session_->team().received() : 0;
    llvm::Expected<RunReport> report = run_judged(*checked_, *plan_, *world_, *kept_, judge);
    std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - begin;
    if (options_.shared.timing)
      checker::say(fmt::format("run {:>10.2f} ms, seed {}{}", took.count(), seed,
                               session_ ? fmt::format(", {} bytes from other ranks",
                                                      session_->team().received() - received)
                                        : ""));
    if (!report && session_)
      fail(report.takeError());
    if (!report && report.errorIsA<LoopGoesOn>())
      return refuse_loop(report.takeError());
    if (!report) {
      checker::say(fmt::format("{}: {}", options_.file, llvm::toString(report.takeError())));
      return stop(ExitCode::Input);
    }
    summary_.note_tier(mode.tier, mode.domain);
    bool refuted = decided(report->refuted());
    if (summary_.runs++ == 0)
      summary_.report = std::move(*report);
    else
      join_reports(summary_.report, std::move(*report));
    last_ = {mode.tier, mode.domain};
    last_seed_ = seed;
    return !refuted;
  }

  std::vector<uint32_t> drawn_for(uint64_t seed) const {
    return options_.check == CheckMode::Drawn
               ? drawn_steps(checked_->program(), *plan_, seed, options_.drawn)
               : std::vector<uint32_t>();
  }

  // The backend with the inputs, the one of the last run if that can be; false, and said, if it
  // cannot run the plan.
  bool prepare(uint64_t seed, Mode mode) {
    if (kept_ && last_.domain == mode.domain && kept_->restart(seed)) {
      if (!write_inputs(*kept_, *plan_, seed, mode))
        kept_.reset();
      return kept_ != nullptr;
    }
    kept_.reset(); // its memory is needed
    kept_ = prepared(seed, mode);
    return kept_ != nullptr;
  }
  std::unique_ptr<Backend> prepared(uint64_t seed, Mode mode) {
    CpuOptions cpu{.domain = mode.domain, .seed = seed, .threads = options_.threads};
    return with_inputs(session_ ? session_->backend(cpu) : options_.backend->make(cpu), *plan_,
                       seed, mode);
  }
  std::unique_ptr<Backend> simulated(const Plan &plan, uint64_t seed, Mode mode) {
    return with_inputs(
        make_cpu_backend({.domain = mode.domain, .seed = seed, .threads = options_.threads}), plan,
        seed, mode);
  }
  std::unique_ptr<Backend> with_inputs(std::unique_ptr<Backend> backend, const Plan &plan,
                                       uint64_t seed, Mode mode) {
    llvm::Error error = backend->prepare(checked_->tables(), plan, *world_);
    if (error.isA<NoDeviceMemory>()) {
      llvm::handleAllErrors(std::move(error),
                            [&](const NoDeviceMemory &memory) { refuse(memory_finding(memory)); });
      return nullptr;
    }
    if (error) {
      checker::say(fmt::format("{}: {}", options_.file, llvm::toString(std::move(error))));
      stop(ExitCode::Coverage);
      return nullptr;
    }
    if (!write_inputs(*backend, plan, seed, mode))
      return nullptr;
    return backend;
  }
  static InputOptions input_options(uint64_t seed, Mode mode) {
    return {.seed = seed, .domain = mode.domain, .whole_numbers = is_whole(mode)};
  }
  std::vector<JudgeOptions::Given> given_to_ranks(size_t param, const InputOptions &options) const {
    const PlannedValue &value = plan_->values[plan_->params[param]];
    std::vector<JudgeOptions::Given> given;
    for (std::vector<RankId> &ranks :
         inputs_->ranks_by_part(param, world_->ranks(plan_->buffers[value.buffer].mesh))) {
      Tensor tensor = inputs_->on_rank(param, ranks.front(), options);
      given.push_back({std::move(ranks), std::move(tensor)});
    }
    return given;
  }
  bool write_inputs(Backend &backend, const Plan &plan, uint64_t seed, Mode mode) {
    if (llvm::Error wrong = inputs_->write_to(backend, plan, input_options(seed, mode))) {
      checker::say(fmt::format("{}: {}", options_.file, llvm::toString(std::move(wrong))));
      return stop(ExitCode::Input);
    }
    return true;
  }

  rules::RunMemory memory_finding(const NoDeviceMemory &memory) const {
    return {checker::print_bytes(int64_t(memory.needed)),
            memory.free ? checker::print_bytes(int64_t(*memory.free)) : "less than that",
            largest_values(checked_->program(), *plan_), std::to_string(session_->rank())};
  }

  bool refuse_loop(llvm::Error error) {
    llvm::handleAllErrors(std::move(error), [&](const LoopGoesOn &loop) {
      checker::Finding finding{
          rules::RunInput{"the loop",
                          fmt::format("it goes on after {} rounds (`--max-rounds`)", loop.rounds)},
          place_of_inst(loop.loop)};
      this->report(checked_->tables(), std::vector<checker::Finding>{std::move(finding)});
    });
    return stop(ExitCode::Input);
  }

  std::string rerun(uint64_t seed) const {
    std::string line = fmt::format("spmdrun {} {}", options_.file, words_of_run(options_, seed));
    if (session_)
      line += fmt::format(" --nproc={}", session_->size());
    return line;
  }

  // The value that `--until` names.
  ir::ValueId until() const { return find_value(checked_->program(), options_.until); }

  bool finds_until() {
    if (options_.until.empty() || until().valid())
      return true;
    checker::say(fmt::format("the program has no value `{}`", options_.until));
    return stop(ExitCode::Call);
  }

  // --- the end
  // -------------------------------------------------------------------------------------

  void finish() {
    if (options_.check == CheckMode::Off)
      summary_.report.claims.clear();
    if (!options_.trace_out.empty() && summary_.runs && code_ == ExitCode::Clean)
      write_trace();
    if (!options_.profile.empty() && summary_.runs && code_ == ExitCode::Clean)
      write_profile();
    if (options_.bench && summary_.runs && code_ == ExitCode::Clean)
      run_bench();
    if (!summary_.runs)
      return;
    if (options_.only.empty() || restrict_to_scope()) {
      if (!summary_.report.findings.empty() || !options_.shared.formats.empty())
        report(checked_->tables(), summary_.report.findings);
      if (summary_.report.refuted() || fails() ||
          (options_.strict && options_.check != CheckMode::Off && !summary_.all_upheld()))
        happened(ExitCode::Findings);
      say_summary();
      write_verdicts();
    }
  }

  // A warning that the call wants to fail on.
  bool fails() const {
    return llvm::any_of(summary_.report.findings, [&](const checker::Finding &finding) {
      return finding.severity() <= options_.shared.fail_on;
    });
  }

  void write_verdicts() {
    if (options_.verdicts.empty())
      return;
    summary_.seed = options_.seed;
    summary_.seeds = options_.seeds;
    std::string problem =
        checker::write_file(options_.verdicts, print_verdicts(summary_, checked_->program()));
    if (problem.empty())
      return;
    checker::say(problem);
    happened(ExitCode::Call);
  }

  bool restrict_to_scope() {
    std::string problem = only_scope(checked_->program(), options_.only, summary_.report);
    if (problem.empty())
      return true;
    checker::say(problem);
    return stop(ExitCode::Call);
  }

  // On stdout, unless a format that other programs read goes there.
  void say_summary() {
    bool machine = llvm::any_of(options_.shared.formats, [](const checker::FormatRequest &format) {
      return format.file.empty() && !checker::find_renderer(format.name)->for_people;
    });
    std::string text = print_summary(summary_, checked_->program());
    if (summary_.times)
      text += print_times(*summary_.times);
    if (machine && !options_.shared.quiet)
      checker::say_lines(llvm::StringRef(text).rtrim());
    else if (!machine && !options_.shared.quiet)
      happened(print(text));
    else if (std::string open = print_open(summary_, checked_->program()); !open.empty())
      checker::say_lines(fmt::format("{}: not all was decided\n{}", options_.file,
                                     llvm::StringRef(open).rtrim().str()));
  }

  // What `time` measures of the last run's plan, with its inputs; on rank 0.
  template <class Times, class Time> std::optional<Times> measured(Time time) {
    if (!all(prepare(last_seed_, last_)))
      return std::nullopt;
    llvm::Expected<Times> times = time(session_ ? &session_->team() : nullptr);
    if (!times && session_)
      fail(times.takeError());
    if (!times) {
      checker::say(fmt::format("{}: {}", options_.file, llvm::toString(times.takeError())));
      stop(ExitCode::Input);
      return std::nullopt;
    }
    return session_ && !session_->leads() ? std::nullopt : std::optional<Times>(std::move(*times));
  }

  void run_bench() {
    std::optional<RunTimes> times = measured<RunTimes>([&](Team *team) {
      return time_runs(*plan_, *kept_, *inputs_, input_options(last_seed_, last_), team,
                       options_.bench);
    });
    if (times)
      summary_.times = std::move(times);
  }

  void write_profile() {
    std::optional<TimesByRank> times =
        measured<TimesByRank>([&](Team *team) { return time_steps(*plan_, *kept_, team); });
    if (!times)
      return;
    std::string problem = checker::write_file(
        options_.profile, print_profile(checked_->program(), *plan_, *times, !session_));
    if (problem.empty())
      return;
    checker::say(problem);
    stop(ExitCode::Call);
  }

  void write_trace() {
    if (!all(prepare(last_seed_, last_)))
      return;
    std::optional<RankId> own;
    if (session_)
      own = session_->rank();
    std::string problem = trace_out(*checked_, *plan_, *world_, *kept_,
                                    {.target = options_.trace_out,
                                     .ranks = options_.trace_ranks,
                                     .own = own,
                                     .domain = last_.domain,
                                     .seed = last_seed_,
                                     .program = options_.file});
    if (problem.empty())
      return;
    checker::say(problem);
    stop(ExitCode::Call);
  }

  const RunOptions &options_;
  std::unique_ptr<Session> session_; // null: the run is this process alone
  std::string needed_;               // memory
  checker::CheckOptions check_options_;
  checker::SourceCache sources_;
  checker::Input input_;
  checker::CheckResult result_;
  std::optional<checker::CheckedProgram> checked_;
  std::vector<LossRoot> roots_; // of a backward that was recorded
  std::optional<World> world_;
  std::optional<Plan> plan_;
  InputFiles files_;
  std::optional<Inputs> inputs_;
  std::unique_ptr<Backend> kept_; // of the last run
  Summary summary_;
  bool sized_by_data_ = false;
  TensorSizes sizes_;
  std::tuple<uint64_t, Domain, bool>
      planned_; // what plan_ is for: seed, domain, inputs are whole numbers
  Mode last_{Tier::Real, Domain::Declared};
  uint64_t last_seed_ = 0;
  ExitCode code_ = ExitCode::Clean;
};

} // namespace

checker::ExitCode run_program(const RunOptions &options) { return RunCall(options).run(); }

} // namespace spmd::runtime
