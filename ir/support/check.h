// SPMD_CHECK: the channel for our own bugs. Message, place, abort with exit code 70; never for user
// input.
#pragma once

namespace spmd {

[[noreturn]] void report_bug(const char *file, int line, const char *message);

} // namespace spmd

#define SPMD_CHECK(condition, message)                                                             \
  do {                                                                                             \
    if (!(condition)) [[unlikely]]                                                                 \
      ::spmd::report_bug(__FILE__, __LINE__, message);                                             \
  } while (false)
