// Where ranks that simulate devices meet: in the memory of one process, or, for ranks that are
// processes, in a folder.
#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace spmd::test {

using Bytes = std::vector<char>;

class Place {
public:
  virtual ~Place() = default;
  // What waits asks `over` now and then, and gives up: false.
  using Over = std::function<bool()>;
  // All `size` ranks of a group, at the how manieth of their meetings: what each brings, by
  // position.
  virtual bool meet(const std::string &group, uint64_t number, uint32_t position, uint32_t size,
                    const Bytes &own, std::vector<Bytes> &all, const Over &over) = 0;
  // Taken in the order in which they were sent.
  virtual void send(const std::string &group, uint32_t from, uint32_t to, const Bytes &bytes) = 0;
  virtual bool receive(const std::string &group, uint32_t from, uint32_t to, Bytes &bytes,
                       const Over &over) = 0;
};

class MemoryPlace final : public Place {
public:
  bool meet(const std::string &group, uint64_t number, uint32_t position, uint32_t size,
            const Bytes &own, std::vector<Bytes> &all, const Over &over) override;
  void send(const std::string &group, uint32_t from, uint32_t to, const Bytes &bytes) override;
  bool receive(const std::string &group, uint32_t from, uint32_t to, Bytes &bytes,
               const Over &over) override;

private:
  struct Meeting {
    std::map<uint32_t, Bytes> brought;
    uint32_t left = 0;
  };
  bool wait(std::unique_lock<std::mutex> &lock, const Over &over, const Over &there);

  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::pair<std::string, uint64_t>, Meeting> meetings_;
  std::map<std::pair<std::string, std::array<uint32_t, 2>>, std::deque<Bytes>> parcels_;
};

// Files that are moved to their names when they are whole.
class FolderPlace final : public Place {
public:
  explicit FolderPlace(std::string folder) : folder_(std::move(folder)) {}
  bool meet(const std::string &group, uint64_t number, uint32_t position, uint32_t size,
            const Bytes &own, std::vector<Bytes> &all, const Over &over) override;
  void send(const std::string &group, uint32_t from, uint32_t to, const Bytes &bytes) override;
  bool receive(const std::string &group, uint32_t from, uint32_t to, Bytes &bytes,
               const Over &over) override;

private:
  void write(const std::string &name, const Bytes &bytes);
  bool read(const std::string &name, Bytes &bytes, const Over &over);

  std::string folder_;
  std::map<std::string, uint64_t> sent_, received_; // by way
};

} // namespace spmd::test
