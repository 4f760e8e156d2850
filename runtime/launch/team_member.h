// A connection of a team: on rank 0 that of another rank, elsewhere that of rank 0.
#pragma once

#include "runtime/launch/team.h"

namespace spmd::runtime {

struct Team::Member {
  Socket socket;
  std::mutex sending;
  MessageReader reader;
  std::deque<std::string> gathered;
  std::optional<RankStatus> where; // since it was asked
  bool heard = false;              // since it was asked
  bool ended = false;              // was told to end
  bool gone = false;
};

// A signal told this process to end.
bool asked_to_end();

} // namespace spmd::runtime
