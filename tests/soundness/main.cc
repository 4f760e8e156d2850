// Random programs and their mutants: executed, judged, counted. A failure is printed with its seed
// and shrunk to a program that still fails.
#include "ir/support/strings.h"
#include "tests/soundness/generator.h"
#include "tests/soundness/given.h"
#include "tests/soundness/judge_run.h"
#include "tests/soundness/shrink.h"
#include "tests/soundness/tally.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/Support/MemoryBuffer.h"

#include <fmt/format.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <mutex>
#include <set>
#include <thread>

namespace spmd::soundness {
namespace {

struct Options {
  uint64_t programs = 1000, seed = 1, show = 0;
  bool list = false; // every needless refusal, in full
  unsigned threads = 2, mutants = 1, statements = 9;
  uint64_t seconds = 0; // no program is begun after them; 0: no limit
  unsigned given = 35;  // of a hundred programs with a loss so many are tried with their backward
  unsigned bare = 0;    // slips of each program without its annotations; 0: it is not tried
  bool shrinks = true;
  bool backwards = false; // stated backwards are altered too: some slips there are not found yet
  std::string file;       // judged instead of what is drawn
  std::string needless;   // the findings that may be needless
};

std::mutex out;

std::string findings_of(const Checked &checked) {
  std::set<std::string> names;
  for (const checker::Finding &finding : checked.result.findings)
    if (finding.info().severity == rules::Severity::Error)
      names.insert(std::string(finding.info().name));
  std::string text;
  for (const std::string &name : names)
    text += (text.empty() ? "" : " ") + name;
  return text;
}

Verdict judged(const Draft &draft, uint64_t seed) {
  std::unique_ptr<Checked> checked = check(draft);
  if (!checked->clean())
    return {Verdict::Form::NotFollowed, "does not check"};
  return judge(checked->program, checked->result, seed);
}

// `judges`: what is asked of a draft.
void report_wrong(const Draft &draft, uint64_t seed, std::string_view what, const std::string &slip,
                  const Options &options, llvm::function_ref<Verdict(const Draft &)> judges) {
  Draft small =
      options.shrinks
          ? shrink(draft, [&](const Draft &less) { return judges(less).is(Verdict::Form::Wrong); })
          : draft;
  std::lock_guard lock(out);
  fmt::print("UNSOUND: accepted and wrong, seed {}{}: {}\n// {}: {}\n{}\n", seed, slip, what,
             options.shrinks ? "shrunk" : "in full", judges(small).what, small.print());
  std::fflush(stdout);
}

// The program with its backward as instructions, against the tape of the program itself.
Verdict judged_with_backward(const Draft &draft, uint64_t seed) {
  Verdict none{Verdict::Form::NotFollowed, "no backward"};
  std::unique_ptr<Checked> checked = check(draft);
  if (!checked->clean())
    return none;
  std::string why;
  std::optional<Given> given = give_backward(draft, why);
  return given ? judge_given(draft, given->draft, seed) : none;
}

// Of a program with a stated backward, the one without, and the statement that the backward begins
// with: it alone is altered, and nothing of it is held against one device when refused. `tells`: a
// run can be made, and upholds what is right.
struct Stated {
  const Draft *without = nullptr;
  size_t from = 0;
  bool tells = false;
};

// A program whose stated backward was altered, which types accept: right if its gradients are those
// of the original; else a run must refute it, or say what it did not compare.
void judge_stated_mutant(const Mutant &mutant, const Stated &stated, uint64_t seed,
                         const Options &options, Tally &tally) {
  auto count = [&](Fate fate) { ++tally.slips[mutant.slip][static_cast<size_t>(fate)]; };
  llvm::SmallVector<unsigned, 8> wrong;
  Verdict verdict = judge_given(*stated.without, mutant.draft, seed, &wrong);
  if (verdict.is(Verdict::Form::NotFollowed))
    return count(Fate::NotJudged);
  if (verdict.is(Verdict::Form::Upheld))
    return count(Fate::AcceptedRight);
  if (!stated.tells)
    return count(Fate::NotJudged);
  RunAnswer answer = judge_run(mutant.draft, wrong, seed);
  if (answer.says == RunSays::Refuted)
    return count(Fate::RunRefuted);
  if (answer.says == RunSays::Upheld) {
    count(Fate::Unsound);
    return report_wrong(mutant.draft, seed, verdict.what,
                        fmt::format(", {} ({}), not refuted by a run", mutant.slip, mutant.what),
                        options, [&](const Draft &) { return verdict; });
  }
  count(Fate::RunLeft);
  ++tally.left_by_run[answer.why];
  if (options.show == seed)
    fmt::print("{}, {}: {}\n", verdict.what, answer.why, mutant.what);
}

void try_mutant(const Draft &draft, const Checked &original, uint64_t seed, Random &random,
                const Options &options, Tally &tally, const Stated &stated = {}) {
  std::optional<Mutant> mutant = mutate(draft, original, random, stated.from);
  if (!mutant)
    return;
  if (options.show == seed) {
    std::lock_guard lock(out);
    fmt::print("{}: {}\n{}\n", mutant->slip, mutant->what, mutant->draft.print());
  }
  auto &fates = tally.slips[mutant->slip];
  auto count = [&](Fate fate) { ++fates[static_cast<size_t>(fate)]; };
  std::unique_ptr<Checked> checked = check(mutant->draft);
  if (!checked->read)
    return count(Fate::Unreadable);
  if (stated.from > 0 && !options.backwards && !mutant->means_nothing)
    return;
  if (mutant->means_nothing) {
    count(checked->clean() ? Fate::Unsound : Fate::CaughtWrong);
    std::lock_guard lock(out);
    if (checked->clean())
      fmt::print("UNSOUND: accepted and means nothing, seed {}, {}: {}\n", seed, mutant->slip,
                 mutant->what);
    return;
  }
  if (checked->clean() && stated.without)
    return judge_stated_mutant(*mutant, stated, seed, options, tally);
  if (checked->clean()) {
    Verdict verdict = judge(checked->program, checked->result, seed);
    if (verdict.is(Verdict::Form::NotFollowed))
      return count(Fate::NotJudged);
    count(verdict.is(Verdict::Form::Upheld) ? Fate::AcceptedRight : Fate::Unsound);
    if (verdict.is(Verdict::Form::Wrong))
      report_wrong(mutant->draft, seed, verdict.what,
                   fmt::format(", {} ({})", mutant->slip, mutant->what), options,
                   [&](const Draft &less) { return judged(less, seed); });
    return;
  }
  if (stated.without)
    return count(Fate::NotJudged);
  // One device has no counterpart of a list: what a program of lists means depends on its kinds, so
  // there is nothing to hold a refused one against.
  bool local = llvm::StringRef(draft.head).contains("mode = local");
  std::optional<Draft> run = local ? std::nullopt : forced(*mutant, original);
  std::unique_ptr<Checked> unchecked = run ? check(*run) : nullptr;
  if (!unchecked || !unchecked->read)
    return count(Fate::NotJudged);
  Verdict verdict = judge(unchecked->program, unchecked->result, seed, Claims::Edges);
  if (verdict.is(Verdict::Form::NotFollowed))
    return count(Fate::NotJudged);
  if (verdict.is(Verdict::Form::Wrong))
    return count(Fate::CaughtWrong);
  std::string why, findings = findings_of(*checked);
  Reason reason = why_refused(*mutant, *checked, draft, seed, why);
  tally.count_refused(findings, mutant->slip, reason,
                      fmt::format("seed {}, {}: {}", seed, mutant->slip, mutant->what));
  if (options.show != seed && !(options.list && reason == Reason::Needless))
    return;
  std::lock_guard lock(out);
  fmt::print("{}: {}, {}: {}; {}\n{}\n", findings, kReasons[static_cast<size_t>(reason)],
             mutant->slip, mutant->what, why, mutant->draft.print());
}

// What spmdrun says of a program with a backward that is right.
bool upheld_by_a_run(const Draft &draft, const Draft &given, uint64_t seed, Tally &tally) {
  RunAnswer answer = judge_run(given, {}, seed);
  // On axes that are local an average is as good as a sum to types: what it should be, only a run
  // asks.
  bool local = llvm::StringRef(draft.head).contains("local");
  tally.count_run(answer, local);
  if (answer.says == RunSays::Refuted && !local) {
    std::lock_guard lock(out);
    fmt::print("UNSOUND: right and refuted by a run, seed {}: {}\n", seed, answer.why);
  }
  return answer.says == RunSays::Upheld;
}

void try_given(const Draft &draft, uint64_t seed, Random &random, const Options &options,
               Tally &tally) {
  if (llvm::count_if(draft.statements,
                     [](const Statement &each) { return each.op == "backward"; }) != 1)
    return;
  std::string why;
  std::optional<Given> given = give_backward(draft, why);
  if (!given) {
    ++tally.no_backward[why.substr(0, why.find(" of %"))];
    if (options.show == seed)
      fmt::print("no backward: {}\n", why);
    return;
  }
  if (options.show == seed)
    fmt::print("{}\n", given->draft.print());
  Verdict verdict = judge_given(draft, given->draft, seed);
  tally.count_given(verdict);
  if (verdict.is(Verdict::Form::Wrong))
    report_wrong(draft, seed, verdict.what, ", its derived backward", options,
                 [&](const Draft &less) { return judged_with_backward(less, seed); });
  if (!verdict.is(Verdict::Form::Upheld))
    return;
  std::unique_ptr<Checked> checked = check(given->draft);
  if (options.bare)
    try_bare(given->draft, *checked, seed, options.bare, options.show == seed, tally.bare);
  bool tells = false; // whether a run refutes what was altered
  if (options.backwards)
    tells = upheld_by_a_run(draft, given->draft, seed, tally);
  for (unsigned i = 0; i < options.mutants; ++i)
    try_mutant(given->draft, *checked, seed, random, options, tally, {&draft, given->first, tells});
}

void try_program(uint64_t seed, const Options &options, Tally &tally) {
  Random random(seed ^ 0x5EEDull << 32);
  Size size{2 + random.below(3), 3 + random.below(2 * options.statements)};
  Draft draft = Generator(seed, size).run();
  std::unique_ptr<Checked> checked = check(draft);
  if (options.show == seed) {
    std::lock_guard lock(out);
    fmt::print("{}\n", draft.print());
  }
  Verdict verdict = judge(checked->program, checked->result, seed);
  tally.count_program(draft, verdict);
  if (verdict.is(Verdict::Form::Wrong))
    report_wrong(draft, seed, verdict.what, "", options,
                 [&](const Draft &less) { return judged(less, seed); });
  if (verdict.is(Verdict::Form::Upheld) && options.bare)
    try_bare(draft, *checked, seed, options.bare, options.show == seed, tally.bare);
  for (unsigned i = 0; verdict.is(Verdict::Form::Upheld) && i < options.mutants; ++i)
    try_mutant(draft, *checked, seed, random, options, tally);
  if (verdict.is(Verdict::Form::Upheld) && random.chance(options.given))
    try_given(draft, seed, random, options, tally);
}

// The names of findings in a file, one set to a line; what follows a colon is the reason.
std::set<std::string> explained(const std::string &path) {
  std::set<std::string> known;
  auto buffer = llvm::MemoryBuffer::getFile(path);
  if (!buffer)
    return known;
  llvm::SmallVector<llvm::StringRef, 32> lines;
  (*buffer)->getBuffer().split(lines, '\n', -1, false);
  for (llvm::StringRef line : lines)
    if (!ir::starts_with(line, "#"))
      known.insert(line.split(':').first.trim().str());
  return known;
}

bool print_summary(const Tally &all, const Options &options, double seconds) {
  fmt::print(
      "{} programs from seed {}: {} upheld, {} accepted and wrong; {} statements of {} "
      "spellings, {} values and {} gradients compared, {} programs differentiated; {:.0f} s\n"
      "with their derived backward: {} upheld, {} wrong, {} not followed, {} without one; a run "
      "upholds {}, refutes {}, and {} of local programs whose average it takes for a sum\n",
      all.programs, options.seed, all.upheld, all.wrong, all.statements, all.ops.size(), all.values,
      all.gradients, all.differentiated, seconds, all.given_upheld, all.given_wrong,
      all.given_not_followed, all.without_backward(), all.run_upheld, all.run_wrong,
      all.run_stricter);
  return all.print(explained(options.needless));
}

// A program that was found, once more.
int judge_file(const Options &options) {
  auto buffer = llvm::MemoryBuffer::getFile(options.file);
  std::optional<Draft> draft =
      buffer ? read_draft({(*buffer)->getBufferStart(), (*buffer)->getBufferSize()}) : std::nullopt;
  if (!draft)
    return fmt::print(stderr, "spmd_soundness: {} is no such program\n", options.file), 2;
  static constexpr const char *kForms[] = {"upheld", "WRONG", "not followed"};
  auto tell = [](const char *what, const Verdict &verdict) {
    fmt::print("{}: {} {}, {} values, {} gradients\n", what,
               kForms[static_cast<size_t>(verdict.form)], verdict.what, verdict.values,
               verdict.gradients);
    return verdict.is(Verdict::Form::Wrong);
  };
  std::unique_ptr<Checked> checked = check(*draft);
  if (!checked->clean())
    return fmt::print("{}: {}\n", checked->read ? "refused" : "unreadable",
                      checked->read ? findings_of(*checked) : ""),
           0;
  bool wrong = tell("as it is", judged(*draft, options.seed));
  std::string why;
  std::optional<Given> given = give_backward(*draft, why);
  if (!given)
    return fmt::print("no backward: {}\n", why), wrong;
  fmt::print("{}", given->draft.print());
  return wrong | tell("with its backward", judge_given(*draft, given->draft, options.seed));
}

int run(int argc, char **argv) {
  Options options;
  for (int i = 1; i + 1 < argc; i += 2) {
    llvm::StringRef key = argv[i], value = argv[i + 1];
    uint64_t number = 0;
    bool is_number = !value.getAsInteger(10, number);
    if (key == "--file")
      options.file = value.str();
    else if (key == "--needless")
      options.needless = value.str();
    else if (!is_number)
      return fmt::print(stderr, "spmd_soundness: `{}` takes a number\n", argv[i]), 2;
    else if (key == "--programs")
      options.programs = number;
    else if (key == "--seed")
      options.seed = number;
    else if (key == "--show")
      options.show = number;
    else if (key == "--list")
      options.list = number != 0;
    else if (key == "--threads")
      options.threads = static_cast<unsigned>(number);
    else if (key == "--mutants")
      options.mutants = static_cast<unsigned>(number);
    else if (key == "--seconds")
      options.seconds = number;
    else if (key == "--shrink")
      options.shrinks = number != 0;
    else if (key == "--backwards")
      options.backwards = number != 0;
    else if (key == "--given")
      options.given = static_cast<unsigned>(number);
    else if (key == "--bare")
      options.bare = static_cast<unsigned>(number);
    else if (key == "--statements")
      options.statements = static_cast<unsigned>(number);
    else
      return fmt::print(stderr, "spmd_soundness: unknown option `{}`\n", argv[i]), 2;
  }
  if (!options.file.empty())
    return judge_file(options);
  auto start = std::chrono::steady_clock::now();
  std::atomic<uint64_t> next{0};
  Tally all;
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < std::max(1u, options.threads); ++t)
    threads.emplace_back([&] {
      Tally tally;
      auto late = [&] {
        return options.seconds &&
               std::chrono::steady_clock::now() - start > std::chrono::seconds(options.seconds);
      };
      while (!late()) {
        uint64_t i = next++;
        if (i >= options.programs)
          break;
        try_program(options.seed + i, options, tally);
        if (i % 10000 == 9999) {
          std::lock_guard lock(out);
          fmt::print("{} programs\n", i + 1);
          std::fflush(stdout);
        }
      }
      std::lock_guard lock(out);
      all.add(tally);
    });
  for (std::thread &thread : threads)
    thread.join();
  std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  bool fine = print_summary(all, options, took.count());
  uint64_t after = options.seed + std::min<uint64_t>(next, options.programs);
  fmt::print("seeds {} to {}, {} programs; go on with --seed {}\n", options.seed, after - 1,
             all.programs, after);
  return fine ? 0 : 1;
}

} // namespace
} // namespace spmd::soundness

int main(int argc, char **argv) { return spmd::soundness::run(argc, argv); }
