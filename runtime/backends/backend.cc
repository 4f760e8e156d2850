// What is said of memory that is not there.
#include "runtime/backends/backend.h"

namespace spmd::runtime {

char NoDeviceMemory::ID = 0;

void NoDeviceMemory::log(llvm::raw_ostream &out) const {
  out << "the plan takes " << needed << " bytes on a device that ";
  if (free)
    out << "has " << *free << " free";
  else
    out << "does not give them";
}

} // namespace spmd::runtime
