// The streams, events and graphs behind the simulated runtime of CUDA, for the simulated NCCL
// beside it.
#pragma once

#include "tests/device/fake_stream.h"

#include <cuda_runtime_api.h>

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <vector>

namespace spmd::test {

// What was captured, in the order in which it was given: one that all streams of it could have
// followed.
struct Captured {
  std::vector<std::function<void()>> tasks;
  std::set<cudaStream_t> streams; // that take part
  std::set<cudaStream_t> apart;   // that were given something which the first one does not wait for
};

struct Flag {
  void set() {
    {
      std::lock_guard lock(mutex);
      up = true;
    }
    changed.notify_all();
  }
  void wait() {
    std::unique_lock lock(mutex);
    changed.wait(lock, [this] { return up; });
  }
  bool is_up() {
    std::lock_guard lock(mutex);
    return up;
  }
  std::mutex mutex;
  std::condition_variable changed;
  bool up = false;
};

} // namespace spmd::test

struct CUstream_st {
  spmd::test::Stream queue;
  std::shared_ptr<spmd::test::Captured> capture; // the one that goes on
  bool begins = false;                           // the capture began here

  // Carried out in its turn, or captured.
  void add(std::function<void()> task) {
    if (!capture)
      return queue.add(std::move(task));
    capture->tasks.push_back(std::move(task));
    if (!begins)
      capture->apart.insert(this);
  }
};
struct CUevent_st {
  std::shared_ptr<spmd::test::Flag> last;       // of the last record; null: there was none
  std::shared_ptr<spmd::test::Captured> within; // it was recorded there
  cudaStream_t recorded = nullptr;
};
struct CUgraph_st {
  std::shared_ptr<spmd::test::Captured> captured;
};
struct CUgraphExec_st {
  std::shared_ptr<spmd::test::Captured> captured;
};
