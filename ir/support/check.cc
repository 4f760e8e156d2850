// Reports a bug of ours and leaves with the exit code that the tools reserve for it.
#include "ir/support/check.h"

#include <cstdio>
#include <cstdlib>

namespace spmd {

void report_bug(const char *file, int line, const char *message) {
  std::fprintf(stderr, "internal error: %s:%d: %s\n", file, line, message);
  std::fflush(nullptr);
#ifdef SPMD_ABORT_ON_BUG
  std::abort(); // the fuzzer keeps the input
#else
  std::_Exit(70);
#endif
}

} // namespace spmd
