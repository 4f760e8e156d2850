// Threads that share the ranks of one step. What a thread computes does not depend on how many
// there are.
#pragma once

#include "llvm/ADT/STLFunctionalExtras.h"

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

namespace spmd::runtime {

class Workers {
public:
  explicit Workers(unsigned threads); // this one included
  ~Workers();
  unsigned count() const { return static_cast<unsigned>(threads_.size()) + 1; }
  // Calls f(0) .. f(n - 1), each once, on any thread; returns when all are done.
  void run(size_t n, llvm::function_ref<void(size_t)> f);

private:
  void work();
  void take();

  std::vector<std::thread> threads_;
  std::mutex mutex_;
  std::condition_variable begin_, end_;
  const llvm::function_ref<void(size_t)> *task_ = nullptr;
  size_t size_ = 0;
  std::atomic<size_t> next_{0};
  uint64_t round_ = 0;
  unsigned busy_ = 0;
  bool over_ = false;
};

} // namespace spmd::runtime
