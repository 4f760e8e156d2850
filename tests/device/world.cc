// The world of simulated devices that a thread is in: one of a test, or, for ranks that are
// processes, that of the folder SPMD_FAKE_DEVICES.
#include "tests/device/fake_device.h"

#include <cinttypes>
#include <cstdio>
#include <cstdlib>

namespace spmd::test {
namespace {

thread_local std::shared_ptr<FakeWorld::State> entered;

std::shared_ptr<FakeWorld::State> world_of_processes(const char *folder) {
  auto world = std::make_shared<FakeWorld::State>();
  world->place = std::make_unique<FolderPlace>(folder);
  FakeMemory memory;
  world->options.records = !std::getenv("SPMD_FAKE_RECORDS_NOT");
  if (const char *setting = std::getenv("SPMD_FAKE_MEMORY"); // RANK:BYTES
      setting && std::sscanf(setting, "%u:%" SCNu64, &memory.rank, &memory.bytes) == 2)
    world->options.memory = memory;
  return world;
}

} // namespace

std::shared_ptr<FakeWorld::State> world_of_thread() {
  const char *folder = std::getenv("SPMD_FAKE_DEVICES");
  if (!entered && folder)
    entered = world_of_processes(folder);
  return entered;
}

FakeWorld::FakeWorld(const FakeOptions &options) : state_(std::make_shared<State>()) {
  state_->place = std::make_unique<MemoryPlace>();
  state_->options = options;
}
FakeWorld::~FakeWorld() = default;
FakeCounts FakeWorld::counts() const {
  return {state_->counts.launches, state_->counts.replays, state_->counts.hangs};
}
void FakeWorld::enter() { entered = state_; }

} // namespace spmd::test
