// Tasks in order, on a thread of their own: a stream of a simulated device.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

namespace spmd::test {

class Stream {
public:
  Stream() : thread_([this] { serve(); }) {}
  ~Stream() { join(); }
  // Does what was given, and ends.
  void join() {
    if (!thread_.joinable())
      return;
    {
      std::lock_guard lock(mutex_);
      over_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }
  void add(std::function<void()> task) {
    {
      std::lock_guard lock(mutex_);
      if (!halted_)
        tasks_.push_back(std::move(task));
      ++given_;
    }
    changed_.notify_all();
  }
  uint64_t given() {
    std::lock_guard lock(mutex_);
    return given_;
  }
  bool has_done(uint64_t count) {
    std::lock_guard lock(mutex_);
    return done_ >= count || dropped_;
  }
  // What waits is given up, and so is all that comes; who waits for it goes on waiting.
  void halt() {
    std::lock_guard lock(mutex_);
    tasks_.clear();
    halted_ = true;
  }
  // After `halt`: nobody waits for it any more.
  void drop() {
    {
      std::lock_guard lock(mutex_);
      dropped_ = true;
    }
    changed_.notify_all();
  }
  void wait_for(uint64_t count) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return done_ >= count || dropped_; });
  }

private:
  void serve() {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [&] { return over_ || !tasks_.empty(); });
      if (tasks_.empty())
        return;
      std::function<void()> task = std::move(tasks_.front());
      tasks_.pop_front();
      lock.unlock();
      task();
      lock.lock();
      ++done_;
      changed_.notify_all();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> tasks_;
  uint64_t given_ = 0, done_ = 0;
  bool over_ = false, halted_ = false, dropped_ = false;
  std::thread thread_;
};

} // namespace spmd::test
