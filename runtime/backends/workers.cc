// Threads wait for a step, take its ranks one by one, and wait for the last of them.
#include "runtime/backends/workers.h"

namespace spmd::runtime {

Workers::Workers(unsigned threads) {
  for (unsigned i = 1; i < threads; ++i)
    threads_.emplace_back([this] { work(); });
}

Workers::~Workers() {
  {
    std::lock_guard lock(mutex_);
    over_ = true;
  }
  begin_.notify_all();
  for (std::thread &thread : threads_)
    thread.join();
}

void Workers::take() {
  for (size_t i = next_++; i < size_; i = next_++)
    (*task_)(i);
}

void Workers::work() {
  uint64_t seen = 0;
  std::unique_lock lock(mutex_);
  while (true) {
    begin_.wait(lock, [&] { return over_ || round_ != seen; });
    if (over_)
      return;
    seen = round_;
    lock.unlock();
    take();
    lock.lock();
    if (--busy_ == 0)
      end_.notify_one();
  }
}

void Workers::run(size_t n, llvm::function_ref<void(size_t)> f) {
  if (threads_.empty() || n < 2) {
    for (size_t i = 0; i < n; ++i)
      f(i);
    return;
  }
  {
    std::lock_guard lock(mutex_);
    task_ = &f;
    size_ = n;
    next_ = 0;
    busy_ = static_cast<unsigned>(threads_.size());
    ++round_;
  }
  begin_.notify_all();
  take();
  std::unique_lock lock(mutex_);
  end_.wait(lock, [&] { return busy_ == 0; });
}

} // namespace spmd::runtime
