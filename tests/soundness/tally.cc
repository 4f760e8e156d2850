// Two tables: what became of each slip, and by what findings right programs are refused.
#include "tests/soundness/tally.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringRef.h"

#include <fmt/format.h>

namespace spmd::soundness {

namespace {

constexpr std::array<std::string_view, kFateCount> kFates = {"unreadable",
                                                             "accepted, right",
                                                             "refuted by a run",
                                                             "left by a run",
                                                             "ACCEPTED, WRONG",
                                                             "refused, wrong",
                                                             "",
                                                             "not judged"};

template <class Map, class Counts> void add_counts(Map &to, const Counts &from) {
  for (const auto &each : from)
    for (size_t i = 0; i < each.second.size(); ++i)
      to[each.first][i] += each.second[i];
}

} // namespace

void Tally::add(const Tally &more) {
  programs += more.programs;
  upheld += more.upheld;
  wrong += more.wrong;
  statements += more.statements;
  values += more.values;
  gradients += more.gradients;
  differentiated += more.differentiated;
  bare.add(more.bare);
  for (const auto &each : more.not_followed)
    not_followed[each.first] += each.second;
  given_upheld += more.given_upheld;
  given_wrong += more.given_wrong;
  given_not_followed += more.given_not_followed;
  for (const auto &each : more.no_backward)
    no_backward[each.first] += each.second;
  run_upheld += more.run_upheld;
  run_wrong += more.run_wrong;
  run_stricter += more.run_stricter;
  for (const auto &each : more.not_run)
    not_run[each.first] += each.second;
  for (const auto &each : more.left_by_run)
    left_by_run[each.first] += each.second;
  for (const auto &each : more.ops)
    ops[each.first] += each.second;
  add_counts(slips, more.slips);
  add_counts(reasons, more.reasons);
  for (const auto &each : more.refused) {
    Refused &to = refused[each.first];
    for (size_t i = 0; i < to.reasons.size(); ++i)
      to.reasons[i] += each.second.reasons[i];
    to.example = to.example.empty() ? each.second.example : to.example;
    to.needless = to.needless.empty() ? each.second.needless : to.needless;
  }
}

void Tally::count_program(const Draft &draft, const Verdict &verdict) {
  ++programs;
  values += verdict.values;
  gradients += verdict.gradients;
  for (const Statement &statement : draft.statements)
    if (!statement.declares()) {
      ++statements;
      ++ops[statement.op];
      differentiated += statement.op == "backward";
    }
  if (verdict.is(Verdict::Form::NotFollowed))
    ++not_followed[verdict.what];
  wrong += verdict.is(Verdict::Form::Wrong);
  upheld += verdict.is(Verdict::Form::Upheld);
}

void Tally::count_given(const Verdict &verdict) {
  values += verdict.values;
  gradients += verdict.gradients;
  given_upheld += verdict.is(Verdict::Form::Upheld);
  given_wrong += verdict.is(Verdict::Form::Wrong);
  given_not_followed += verdict.is(Verdict::Form::NotFollowed);
  if (verdict.is(Verdict::Form::NotFollowed))
    ++not_followed["(with its backward) " + verdict.what];
}

void Tally::count_run(const RunAnswer &answer, bool local) {
  (local ? run_stricter : run_wrong) += answer.says == RunSays::Refuted;
  run_upheld += answer.says == RunSays::Upheld;
  if (answer.says == RunSays::NotRun)
    ++not_run[answer.why.substr(answer.why.rfind("`:") + 1)];
}

uint64_t Tally::without_backward() const {
  uint64_t all = 0;
  for (const auto &each : no_backward)
    all += each.second;
  return all;
}

void Tally::count_refused(const std::string &findings, std::string_view slip, Reason reason,
                          std::string example) {
  ++slips[slip][static_cast<size_t>(Fate::RefusedRight)];
  ++reasons[slip][static_cast<size_t>(reason)];
  Refused &entry = refused[findings];
  ++entry.reasons[static_cast<size_t>(reason)];
  std::string &to = reason == Reason::Needless ? entry.needless : entry.example;
  to = to.empty() ? std::move(example) : to;
}

void Tally::print_slips() const {
  std::array<uint64_t, kFateCount> fates{};
  std::array<uint64_t, std::size(kReasons)> whys{};
  auto row = [](std::string_view name, const auto &counts, const auto &why) {
    fmt::print("{:20}", name);
    for (size_t i = 0; i < kFates.size(); ++i)
      if (static_cast<Fate>(i) != Fate::RefusedRight)
        fmt::print("{:>{}}", counts[i], kFates[i].size() + 2);
      else
        for (size_t k = 0; k < std::size(why); ++k)
          fmt::print("{:>{}}", why[k], kReasons[k].size() + 2);
    fmt::print("\n");
  };
  row("slip", kFates, kReasons);
  for (const auto &each : slips) {
    std::array<uint64_t, std::size(kReasons)> why{};
    if (auto at = reasons.find(each.first); at != reasons.end())
      why = at->second;
    row(each.first, each.second, why);
    for (size_t i = 0; i < fates.size(); ++i)
      fates[i] += each.second[i];
    for (size_t i = 0; i < whys.size(); ++i)
      whys[i] += why[i];
  }
  row("all", fates, whys);
  uint64_t needless = whys[static_cast<size_t>(Reason::Needless)];
  uint64_t right = fates[static_cast<size_t>(Fate::AcceptedRight)] + needless;
  fmt::print("\n{} of {} right mutants refused needlessly ({:.2f} %)\n", needless, right,
             right ? 100.0 * static_cast<double>(needless) / static_cast<double>(right) : 0);
}

bool Tally::print(const std::set<std::string> &explained) const {
  for (const auto &each : not_followed)
    fmt::print("  not followed: {} {}\n", each.second, each.first);
  for (const auto &each : no_backward)
    fmt::print("  no backward: {} {}\n", each.second, each.first);
  for (const auto &each : not_run)
    fmt::print("  with its backward, not run: {} {}\n", each.second, each.first);
  for (const auto &each : left_by_run)
    fmt::print("  accepted, wrong, and left by a run: {} {}\n", each.second, each.first);
  fmt::print("\n");
  print_slips();
  fmt::print("\nrefused though the data are right, by what was found:\n");
  for (std::string_view reason : kReasons)
    fmt::print("{:>{}}", reason, reason.size() + 2);
  fmt::print("\n");
  bool fine = wrong == 0 && given_wrong == 0 && run_wrong == 0;
  for (const auto &each : slips)
    fine &= each.second[static_cast<size_t>(Fate::Unsound)] == 0;
  for (const auto &each : refused) {
    for (size_t k = 0; k < std::size(kReasons); ++k)
      fmt::print("{:>{}}", each.second.reasons[k], kReasons[k].size() + 2);
    llvm::SmallVector<llvm::StringRef, 4> names;
    llvm::StringRef(each.first).split(names, ' ');
    bool is_explained =
        explained.empty() || each.second.needless.empty() ||
        llvm::any_of(names, [&](llvm::StringRef name) { return explained.count(name.str()); });
    fine &= is_explained;
    fmt::print("  {}{}\n", each.first, is_explained ? "" : " (NOT EXPLAINED)");
    if (!each.second.needless.empty())
      fmt::print("      {}\n", each.second.needless);
  }
  if (!bare.slips.empty()) {
    bare.print();
    fine &= bare.sound();
  }
  fmt::print("{}\n", fine ? "sound as far as seen" : "NOT SOUND, or not explained");
  return fine;
}

} // namespace spmd::soundness
