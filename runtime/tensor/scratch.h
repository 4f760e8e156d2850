// Room for the length of a call, taken from what the thread gave back before: steps that are run
// often allocate nothing.
#pragma once

#include <utility>
#include <vector>

namespace spmd::runtime {

template <class T> class Scratch {
public:
  Scratch() {
    if (std::vector<std::vector<T>> &free = pool(); !free.empty()) {
      cells = std::move(free.back());
      free.pop_back();
    }
  }
  Scratch(const Scratch &) = delete;
  Scratch &operator=(const Scratch &) = delete;
  Scratch(Scratch &&) noexcept = default;
  ~Scratch() {
    if (cells.capacity())
      pool().push_back(std::move(cells));
  }

  std::vector<T> cells; // of any size and content at first

private:
  static std::vector<std::vector<T>> &pool() {
    static thread_local std::vector<std::vector<T>> free;
    return free;
  }
};

} // namespace spmd::runtime
