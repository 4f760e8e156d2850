// The device of this process as one rank of a run. A build without devices (-Ddevice=disabled) has
// the call that opens one, which says so, and nothing else of them.
#pragma once

#include "runtime/backends/plugin.h"
#include "runtime/backends/table.h"
#include "runtime/launch/team.h"

#include <functional>

namespace spmd::runtime {

class DeviceRank {
public:
  // Asked now and then while the device is waited for: which step of the plan it has come to, and
  // whether this is the first question of a wait. False: to give up.
  using Patience = std::function<bool(uint32_t step, bool first)>;

  virtual ~DeviceRank() = default;
  struct Options {
    bool records = false;       // steps that are run again are recorded, and replayed
    bool deterministic = false; // sums are added up in one order
  };
  // All ranks: their devices meet.
  virtual llvm::Error connect(Team &team, const Options &options) = 0;
  // What goes between devices, with its version; the device.
  virtual std::string library() const = 0;
  virtual std::string name() const = 0;
  // Of this rank, with random numbers of that seed.
  virtual std::unique_ptr<Backend> backend(uint64_t seed) = 0;
  // All ranks: leaves in order.
  virtual llvm::Error finish() = 0;
};

// An error: there is no plug-in, or no device.
llvm::Expected<std::unique_ptr<DeviceRank>>
open_device_rank(const BackendRow &row, const SpmdRanks &ranks, DeviceRank::Patience patience);

} // namespace spmd::runtime
