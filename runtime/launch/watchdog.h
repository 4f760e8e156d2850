// An end for calls that may never return, where no team is there yet, or any more, to notice it.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

namespace spmd::runtime {

// While it lives. When its time is over the process says the line and leaves with the code; without
// a word when its parent is gone (0: no matter).
class Watchdog {
public:
  Watchdog(std::chrono::milliseconds patience, std::string line, int code, int parent = 0);
  ~Watchdog();

private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool over_ = false;
  std::thread thread_;
};

} // namespace spmd::runtime
