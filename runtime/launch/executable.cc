// Asks the environment, then the system.
#include "runtime/launch/executable.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <unistd.h>

namespace spmd::runtime {

std::string executable_path() {
  if (const char *given = std::getenv("SPMD_EXECUTABLE"); given && *given)
    return given;
  std::array<char, 4096> path{};
  const ssize_t size = ::readlink("/proc/self/exe", path.data(), path.size());
  return std::string(path.data(), static_cast<size_t>(std::max<ssize_t>(size, 0)));
}

} // namespace spmd::runtime
