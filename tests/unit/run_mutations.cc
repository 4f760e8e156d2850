// The checks can fail: each collective and each local step of the example programs is left out,
// done twice or done over other ranks, past all that the types say, and must then be refuted by
// some tier. What is not is listed with its reason.
#include "runtime/inputs/inputs.h"
#include "runtime/judge/run/judged_run.h"

#include "tests/unit/checked_programs.h"

#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <sstream>

using namespace spmd;
using namespace spmd::runtime;

namespace {

enum class Mutation : uint8_t { None, Drop, Twice, OtherRanks };
constexpr std::string_view kWords[] = {"as it is", "left out", "twice", "over other ranks"};

// Mutants that no tier refutes, and why that is right: path, step, mutation.
struct Survivor {
  std::string_view path, step, why;
};
constexpr std::array<Survivor, 0> kSurvivors{};

// Steps after `at` move up by one.
void make_room(Plan &plan, uint32_t at) {
  auto move = [&](uint32_t &step) { step += step > at; };
  for (Execution &execution : plan.executions) {
    move(execution.steps.first);
    move(execution.steps.last);
  }
  for (Branch &branch : plan.branches) {
    move(branch.then_end);
    move(branch.else_end);
  }
  for (Loop &loop : plan.loops) {
    move(loop.cond_end);
    move(loop.body_end);
  }
}

bool same_extents(const Plan &plan, BufferId a, BufferId b) {
  return plan.buffers[a].dims == plan.buffers[b].dims &&
         plan.buffers[a].mesh == plan.buffers[b].mesh;
}

void replace_by_copy(Plan &plan, Step &step, BufferId from, BufferId to) {
  LocalStep local;
  local.form = same_extents(plan, from, to) ? LocalStepForm::Copy : LocalStepForm::Zero;
  local.result = to;
  if (local.form == LocalStepForm::Copy) {
    local.operands = {static_cast<uint32_t>(plan.uses.size()), 1};
    plan.uses.push_back({from, {}});
  }
  plan.local_steps.push_back(local);
  step.form = StepForm::LocalStep;
  step.index = static_cast<uint32_t>(plan.local_steps.size() - 1);
}

// Another group of as many ranks, with which the step would run too.
bool take_other_group(Plan &plan, CommunicatorId &group, const World &world) {
  const Communicator own = plan.communicators[group];
  for (uint32_t i = 0; i < plan.communicators.size(); ++i) {
    const Communicator &other = plan.communicators[CommunicatorId{i}];
    if (other.mesh == own.mesh && other.axes != own.axes &&
        world.count(own.mesh, other.axes) == world.count(own.mesh, own.axes)) {
      group = CommunicatorId{i};
      return true;
    }
  }
  return false;
}

bool mutate_communicate(Plan &plan, const World &world, uint32_t at, Mutation mutation) {
  Step &step = plan.steps[at];
  Communicate collective = plan.communicates[step.index];
  switch (mutation) {
  case Mutation::Drop:
    if (collective.operand == collective.result)
      return false;
    replace_by_copy(plan, step, collective.operand, collective.result);
    return true;
  case Mutation::Twice: {
    bool changes = collective.collective == rules::Collective::AllReduce &&
                   collective.combiner == ir::Combiner::Sum;
    if (!changes || !same_extents(plan, collective.operand, collective.result))
      return false;
    collective.operand = collective.result;
    plan.communicates.push_back(collective);
    Step again = step;
    again.index = static_cast<uint32_t>(plan.communicates.size() - 1);
    make_room(plan, at);
    plan.steps.insert(plan.steps.begin() + at + 1, again);
    return true;
  }
  case Mutation::OtherRanks:
    if (!take_other_group(plan, collective.group, world))
      return false;
    plan.communicates[step.index] = collective;
    return true;
  case Mutation::None:
    break;
  }
  return false;
}

bool mutate_local_step(Plan &plan, const World &world, uint32_t at, Mutation mutation) {
  Step &step = plan.steps[at];
  LocalStep local = plan.local_steps[step.index];
  bool moves = local.form == LocalStepForm::TakeOwnSlice ||
               local.form == LocalStepForm::KeepOnRoot || local.form == LocalStepForm::PlaceOwn ||
               local.form == LocalStepForm::Scale || local.form == LocalStepForm::Coordinate;
  if (!moves)
    return false;
  if (mutation == Mutation::Drop) {
    BufferId from = local.operands.count ? plan.uses[local.operands.first].buffer : BufferId();
    if (!from.valid()) {
      plan.local_steps[step.index].form = LocalStepForm::Zero;
      return true;
    }
    replace_by_copy(plan, step, from, local.result);
    return true;
  }
  if (mutation == Mutation::OtherRanks && local.group.valid() &&
      take_other_group(plan, local.group, world)) {
    plan.local_steps[step.index] = local;
    return true;
  }
  return false;
}

bool mutate(Plan &plan, const World &world, uint32_t at, Mutation mutation) {
  if (plan.steps[at].form == StepForm::Communicate)
    return mutate_communicate(plan, world, at, mutation);
  if (plan.steps[at].form == StepForm::LocalStep)
    return mutate_local_step(plan, world, at, mutation);
  return false;
}

struct Subject {
  std::string path;
  checker::CheckedProgram program;
  World world;
  Plan plan;
};

llvm::Expected<RunReport> judged(Subject &subject, const Plan &plan, Domain domain) {
  CpuOptions options;
  options.domain = domain;
  std::unique_ptr<Backend> backend = make_cpu_backend(options);
  if (llvm::Error failed = backend->prepare(subject.program.mutable_program(), plan, subject.world))
    return llvm::Expected<RunReport>(std::move(failed));
  Inputs inputs(subject.program, subject.world, InputFiles());
  InputOptions drawing;
  drawing.domain = domain;
  for (size_t p = 0; p < plan.params.size(); ++p) {
    if (!plan.params[p].valid())
      continue;
    const PlannedValue &value = plan.values[plan.params[p]];
    for (RankId rank :
         subject.world.ranks(subject.program.program().types[value.known.type].mesh()))
      if (llvm::Error failed = backend->write(value.buffer, rank, inputs.on_rank(p, rank, drawing)))
        return llvm::Expected<RunReport>(std::move(failed));
  }
  JudgeOptions judging;
  judging.mode = CheckMode::All;
  judging.domain = domain;
  judging.tier = domain == Domain::Field ? Tier::Field : Tier::Real;
  llvm::Expected<RunReport> report =
      run_judged(subject.program, plan, subject.world, *backend, judging);
  return report;
}

std::string first_finding(Subject &subject, const RunReport &report) {
  for (const checker::Finding &finding : report.findings) {
    std::string text =
        fmt::format("{}: {}", finding.info().name, message_of(subject.program.program(), finding));
    checker::CheckResult none;
    for (const checker::Note &note : explain_finding(subject.program.program(), none, finding))
      text += "\n  " + note.text;
    return text;
  }
  return "none";
}

std::vector<std::string> examples() {
  std::vector<std::string> paths;
  for (const auto &entry : std::filesystem::recursive_directory_iterator("examples"))
    if (entry.path().extension() == ".spmd" &&
        entry.path().filename().string().find("broken") == std::string::npos)
      paths.push_back(entry.path().string());
  std::sort(paths.begin(), paths.end());
  return paths;
}

// None, with why, if it cannot be run.
std::optional<Subject> subject_of(const std::string &path, std::string &why) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  ir::ReadResult read = ir::read_program(text.str());
  REQUIRE(read.errors.empty());
  std::optional<checker::CheckedProgram> program =
      checker::check_and_lower(std::move(read.program));
  REQUIRE(program);
  llvm::Expected<World> world = World::make(program->program());
  if (!world) {
    why = llvm::toString(world.takeError());
    return std::nullopt;
  }
  llvm::Expected<Plan> plan = make_plan(*program, *world);
  if (!plan) {
    why = llvm::toString(plan.takeError());
    return std::nullopt;
  }
  return Subject{path, std::move(*program), std::move(*world), std::move(*plan)};
}

bool is_listed(const std::string &path, const std::string &mutant) {
  for (const Survivor &survivor : kSurvivors)
    if (survivor.path == path && survivor.step == mutant)
      return true;
  return false;
}

} // namespace

TEST_CASE("mutations: examples uphold their types as they are") {
  for (const std::string &path : examples()) {
    std::string why;
    std::optional<Subject> subject = subject_of(path, why);
    if (!subject) {
      WARN(path << " is not run: " << why);
      continue;
    }
    for (Domain domain : {Domain::Field, Domain::Declared}) {
      llvm::Expected<RunReport> report = judged(*subject, subject->plan, domain);
      INFO(path << ", " << (domain == Domain::Field ? "field" : "real"));
      if (!report) {
        WARN(path << " is not run: " << llvm::toString(report.takeError()));
        continue;
      }
      INFO(first_finding(*subject, *report));
      CHECK_FALSE(report->refuted());
      for (const std::string &reason : report->undecided)
        WARN(path << ": " << reason);
    }
  }
}

TEST_CASE(
    "mutations: a collective or a local step that is left out, doubled or misplaced is refuted") {
  unsigned mutants = 0, survivors = 0;
  for (const std::string &path : examples()) {
    std::string why;
    std::optional<Subject> subject = subject_of(path, why);
    if (!subject)
      continue;
    for (uint32_t at = 0; at < subject->plan.steps.size(); ++at)
      for (Mutation mutation : {Mutation::Drop, Mutation::Twice, Mutation::OtherRanks}) {
        Plan mutant = subject->plan;
        if (!mutate(mutant, subject->world, at, mutation))
          continue;
        bool refuted = false, ran = false;
        for (Domain domain : {Domain::Field, Domain::Declared}) {
          if (refuted)
            break;
          llvm::Expected<RunReport> report = judged(*subject, mutant, domain);
          if (!report) {
            llvm::consumeError(report.takeError());
            continue;
          }
          ran = true;
          refuted = report->refuted();
        }
        if (!ran)
          continue;
        ++mutants;
        ir::InstId inst = subject->plan.steps[at].inst;
        std::string line = inst.valid() ? ir::print_inst(subject->program.program(), inst) : "?";
        std::string name = fmt::format("{}: {}", kWords[static_cast<unsigned>(mutation)], line);
        survivors += !refuted;
        INFO(path << ", step " << at << " " << name);
        CHECK((refuted || is_listed(path, name)));
      }
  }
  WARN(mutants << " mutants, " << survivors << " not refuted");
  CHECK(mutants > 20);
}
