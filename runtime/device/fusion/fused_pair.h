// Two commands as one: what the first one makes is made where the second one reads it, to the same
// bits.
#pragma once

#include "runtime/device/memory_access.h"

namespace spmd::runtime {

// `reader` with the work of `producer` in the place of what it reads within `made`, the bytes of a
// tensor that `producer` writes. None: it reads something else of them, or in another order than
// loops can say; a device has no room for so long a loop nest; or numbers would be added in another
// order.
std::optional<Command> fused(const Command &producer, const Command &reader, Bytes made);

} // namespace spmd::runtime
