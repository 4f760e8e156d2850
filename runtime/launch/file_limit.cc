// The soft limit is for programs of old that hold descriptors in a set of 1024; nothing here does.
#include "runtime/launch/file_limit.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <sys/resource.h>

namespace spmd::runtime {

void raise_file_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == limit.rlim_max)
    return;
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

std::string describe_open_error(int problem) {
  rlimit limit{};
  if (problem != EMFILE || ::getrlimit(RLIMIT_NOFILE, &limit) != 0)
    return std::strerror(problem);
  return fmt::format("{}: a process may have {} here (`ulimit -Hn`)", std::strerror(problem),
                     limit.rlim_cur);
}

} // namespace spmd::runtime
