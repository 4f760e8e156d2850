// A thread that looks now and then.
#include "runtime/launch/watchdog.h"

#include "runtime/launch/rank_codes.h"

#include <unistd.h>

namespace spmd::runtime {

Watchdog::Watchdog(std::chrono::milliseconds patience, std::string line, int code, int parent)
    : thread_([this, patience, line = std::move(line), code, parent] {
        constexpr std::chrono::milliseconds kTick{50};
        const auto end = std::chrono::steady_clock::now() + patience;
        std::unique_lock lock(mutex_);
        while (!changed_.wait_for(lock, kTick, [this] { return over_; })) {
          if (parent && ::getppid() != parent)
            ::_exit(code); // which says nothing of the run
          if (std::chrono::steady_clock::now() < end)
            continue;
          (void)!::write(STDERR_FILENO, line.data(), line.size());
          end_process(code);
        }
      }) {}

Watchdog::~Watchdog() {
  {
    std::lock_guard lock(mutex_);
    over_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

} // namespace spmd::runtime
