// Ranks bring what they have, and wait for what the others bring.
#include "tests/device/place.h"

#include <chrono>
#include <cstdio>
#include <thread>

#include <unistd.h>

namespace spmd::test {

namespace {
constexpr std::chrono::microseconds kLook{100};
}

// Looks again from time to time: what gives up does not tell those who wait.
bool MemoryPlace::wait(std::unique_lock<std::mutex> &lock, const Over &over, const Over &there) {
  while (!there()) {
    if (over())
      return false;
    changed_.wait_for(lock, std::chrono::milliseconds(1));
  }
  return true;
}

bool MemoryPlace::meet(const std::string &group, uint64_t number, uint32_t position, uint32_t size,
                       const Bytes &own, std::vector<Bytes> &all, const Over &over) {
  std::unique_lock lock(mutex_);
  const std::pair at(group, number);
  Meeting &meeting = meetings_[at];
  meeting.brought[position] = own;
  changed_.notify_all();
  if (!wait(lock, over, [&] { return meeting.brought.size() == size; }))
    return false;
  for (const auto &[each, bytes] : meeting.brought)
    all.push_back(bytes);
  if (++meeting.left == size)
    meetings_.erase(at);
  return true;
}

void MemoryPlace::send(const std::string &group, uint32_t from, uint32_t to, const Bytes &bytes) {
  std::lock_guard lock(mutex_);
  parcels_[{group, {from, to}}].push_back(bytes);
  changed_.notify_all();
}

bool MemoryPlace::receive(const std::string &group, uint32_t from, uint32_t to, Bytes &bytes,
                          const Over &over) {
  std::unique_lock lock(mutex_);
  std::deque<Bytes> &parcels = parcels_[{group, {from, to}}];
  if (!wait(lock, over, [&] { return !parcels.empty(); }))
    return false;
  bytes = std::move(parcels.front());
  parcels.pop_front();
  return true;
}

void FolderPlace::write(const std::string &name, const Bytes &bytes) {
  const std::string path = folder_ + "/" + name, draft = path + "." + std::to_string(::getpid());
  if (std::FILE *file = std::fopen(draft.c_str(), "wb")) {
    std::fwrite(bytes.data(), 1, bytes.size(), file);
    std::fclose(file);
    std::rename(draft.c_str(), path.c_str());
  }
}

bool FolderPlace::read(const std::string &name, Bytes &bytes, const Over &over) {
  const std::string path = folder_ + "/" + name;
  while (true) {
    if (std::FILE *file = std::fopen(path.c_str(), "rb")) {
      std::fseek(file, 0, SEEK_END);
      bytes.resize(static_cast<size_t>(std::ftell(file)));
      std::rewind(file);
      const bool whole = std::fread(bytes.data(), 1, bytes.size(), file) == bytes.size();
      std::fclose(file);
      return whole;
    }
    if (over())
      return false;
    std::this_thread::sleep_for(kLook);
  }
}

bool FolderPlace::meet(const std::string &group, uint64_t number, uint32_t position, uint32_t size,
                       const Bytes &own, std::vector<Bytes> &all, const Over &over) {
  const std::string name = "meet." + group + "." + std::to_string(number) + ".";
  write(name + std::to_string(position), own);
  for (uint32_t i = 0; i < size; ++i)
    if (!read(name + std::to_string(i), all.emplace_back(), over))
      return false;
  // All are here, so nobody is still reading what the last meeting was about.
  if (number > 0)
    std::remove((folder_ + "/meet." + group + "." + std::to_string(number - 1) + "." +
                 std::to_string(position))
                    .c_str());
  return true;
}

static std::string way(const std::string &group, uint32_t from, uint32_t to) {
  return "send." + group + "." + std::to_string(from) + "." + std::to_string(to) + ".";
}

void FolderPlace::send(const std::string &group, uint32_t from, uint32_t to, const Bytes &bytes) {
  const std::string name = way(group, from, to);
  write(name + std::to_string(sent_[name]++), bytes);
}

bool FolderPlace::receive(const std::string &group, uint32_t from, uint32_t to, Bytes &bytes,
                          const Over &over) {
  const std::string name = way(group, from, to);
  const std::string parcel = name + std::to_string(received_[name]++);
  const bool there = read(parcel, bytes, over);
  std::remove((folder_ + "/" + parcel).c_str());
  return there;
}

} // namespace spmd::test
