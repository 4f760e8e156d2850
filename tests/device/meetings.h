// What goes between simulated devices, whichever plug-in asks for it: ranks meet at a place, sums
// are in their order.
#pragma once

#include "runtime/device/interface.h"
#include "tests/device/place.h"

#include <string>
#include <vector>

namespace spmd::test {

// Of one rank in a group.
struct Seat {
  std::string group; // the name of it, the same on all its ranks
  uint32_t position = 0, size = 1;
};

// The how manieth collective of the group; false: `over` said so.
bool attend(Place &place, const Seat &seat, uint64_t number, const SpmdCollective &call,
            const Place::Over &over);
// What is sent is kept by the place, so that ranks which send to each other do not wait for each
// other.
enum class Trade : uint8_t { Done, Over, OtherLength };
Trade trade(Place &place, const Seat &seat, const std::vector<SpmdTransfer> &sends,
            const std::vector<SpmdTransfer> &receives, const Place::Over &over);

// What a library asks of its buffers: they are apart, or the operation is in place, as it is laid
// down for its form. Empty, or why they are neither; `position`: of this rank.
std::string misplaced(const SpmdCollective &call, uint32_t position, uint32_t size);

} // namespace spmd::test
