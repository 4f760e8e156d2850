// Programs as a recorder writes them: inputs have types, results state none. What is counted as
// proved of such a program has to be true of its data.
#pragma once

#include "tests/soundness/draft.h"
#include "tests/soundness/mutate.h"

#include <array>
#include <map>

namespace spmd::soundness {

// A program whose parameters take what it computes: each value that can be the new one of a
// parameter is added up over what is pending of it, and subtracted from one.
struct Asked {
  Draft draft;
  struct State {
    unsigned param = 0, value = 0; // the new one
  };
  std::vector<State> states;
};
// The same program, without what only its annotations need: types of results, words of collectives,
// axes of pending sums, contracts, and statements that no parameter takes anything from. No states:
// all of it says what no recording does.
Asked asked(const Draft &draft, const Checked &checked, Random &random);
// `trains_all`: no input is a batch.
Asked bare(const Asked &asked, bool trains_all);

// What a bare program came to.
enum class BareFate : uint8_t {
  Unreadable,
  Found,
  Unproved,  // nothing is found, and no parameter is counted as proved
  NotJudged, // one device cannot run it, or another program than the one that was altered
  Right,     // what is counted as proved is right
  Unsound,
};
inline constexpr std::array<std::string_view, 6> kBareFates = {
    "unreadable", "found", "unproved", "not judged", "proved, right", "PROVED, WRONG"};

struct BareTally {
  using Fates = std::array<uint64_t, kBareFates.size()>;
  std::map<std::string_view, Fates> slips; // `as it is`, or what was altered
  std::map<std::string, uint64_t> alarms;  // what is found in programs that are right
  uint64_t proved = 0, states = 0;         // of silent programs
  bool sound() const;
  void add(const BareTally &more);
  void print() const;
};

// The program as it is, and with slips, so many.
void try_bare(const Draft &draft, const Checked &checked, uint64_t seed, unsigned mutants,
              bool shows, BareTally &tally);

} // namespace spmd::soundness
