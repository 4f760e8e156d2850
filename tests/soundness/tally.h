// What programs and mutants came to, counted.
#pragma once

#include "tests/soundness/bare.h"
#include "tests/soundness/judge.h"
#include "tests/soundness/judge_run.h"
#include "tests/soundness/refusal.h"

#include <array>
#include <map>
#include <set>

namespace spmd::soundness {

// What a slip came to: what the checker said, what the data say.
enum class Fate : uint8_t {
  Unreadable,
  AcceptedRight,
  RunRefuted, // accepted and wrong, and a run refutes it
  RunLeft,    // accepted and wrong, and a run says that it did not compare it
  Unsound,
  CaughtWrong,
  RefusedRight,
  NotJudged
};
inline constexpr size_t kFateCount = 8;

// Refused though the data are right, by the findings.
struct Refused {
  std::array<uint64_t, std::size(kReasons)> reasons{};
  std::string example, needless; // with their seeds
};

struct Tally {
  uint64_t programs = 0, upheld = 0, wrong = 0, statements = 0, values = 0, gradients = 0,
           differentiated = 0;
  uint64_t given_upheld = 0, given_wrong = 0, given_not_followed = 0; // with their backward
  uint64_t run_upheld = 0, run_wrong = 0, run_stricter = 0;           // by a run, where it is right
  std::map<std::string, uint64_t> not_followed, ops, no_backward, left_by_run, not_run;
  std::map<std::string_view, std::array<uint64_t, kFateCount>> slips;
  std::map<std::string_view, std::array<uint64_t, std::size(kReasons)>> reasons; // per slip
  BareTally bare;
  std::map<std::string, Refused> refused; // per findings

  void add(const Tally &more);
  void count_program(const Draft &draft, const Verdict &verdict);
  void count_given(const Verdict &verdict);
  void count_run(const RunAnswer &answer, bool local); // on what is right
  uint64_t without_backward() const;
  void count_refused(const std::string &findings, std::string_view slip, Reason reason,
                     std::string example);
  // False if something was unsound, or needless by findings that `explained` does not have.
  bool print(const std::set<std::string> &explained) const;

private:
  void print_slips() const;
};

} // namespace spmd::soundness
