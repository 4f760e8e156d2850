// A connection of a team: on rank 0 that of another rank, elsewhere that of rank 0.
#pragma once

#include "runtime/launch/team.h"

namespace spmd::runtime {

struct Team::Member {
  Socket socket;
  std::mutex sending;
  MessageReader reader;
  std::deque<std::string> gathered;
  std::optional<Whereabouts> where; // since it was asked
  bool heard = false;               // since it was asked
  bool gone = false;
};

} // namespace spmd::runtime
