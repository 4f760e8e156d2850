// The device of this process, as a plug-in gives it: opened, held against the version of the
// interface, its answers errors of ours.
#pragma once

#include "runtime/backends/group_cache.h"
#include "runtime/backends/table.h"
#include "runtime/device/interface.h"

#include "llvm/ADT/STLFunctionalExtras.h"
#include "llvm/Support/Error.h"

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <type_traits>
#include <vector>

namespace spmd::runtime {

// As open_plugin, of a device.
llvm::Expected<const SpmdDevicePlugin *> open_device_plugin(const BackendRow &backend);

class DeviceLink {
public:
  // Asked now and then while the device is waited for: which step of the plan it has come to, and
  // whether this is the first question of a wait. False: to give up.
  using Patience = std::function<bool(uint32_t step, bool first)>;

  // An error is the plug-in's: no device, say.
  static llvm::Expected<std::unique_ptr<DeviceLink>>
  open(const SpmdDevicePlugin &plugin, const SpmdRanks &ranks, Patience patience);
  ~DeviceLink();
  DeviceLink(const DeviceLink &) = delete;
  DeviceLink &operator=(const DeviceLink &) = delete;

  const SpmdDevicePlugin &plugin() const { return plugin_; }
  const SpmdDeviceFacts &facts() const { return facts_; }
  uint32_t rank() const { return rank_; }
  // `call` of the plug-in with its device before the arguments.
  template <class... Types, class... Args>
  llvm::Error ask(SpmdStatus (*call)(SpmdDevice *, Types...), Args... args) {
    first_ = true;
    if (kept_ && !begins_step(call))
      kept_->push_back([call, args...](SpmdDevice *device) { return call(device, args...); });
    return error_of(call(device_, args...));
  }
  // What was asked, to be asked again: what arguments point to must be there still.
  using Calls = std::vector<std::function<SpmdStatus(SpmdDevice *)>>;
  // Keeps what is asked from now on, but for `begin`; null: no longer.
  void keep_calls(Calls *calls) { kept_ = calls; }
  llvm::Error repeat(const Calls &calls);
  GroupCache &groups() { return groups_; }
  // Memory, as SpmdDevicePlugin::allocate. An error of NoDeviceMemory: there is not so much.
  llvm::Expected<SpmdAddress> allocate(uint64_t bytes);
  // All ranks: leaves in order.
  llvm::Error finish();

private:
  DeviceLink(const SpmdDevicePlugin &plugin, uint32_t rank, Patience patience)
      : plugin_(plugin), rank_(rank), patience_(std::move(patience)) {}
  static int stopped(void *self);
  template <class Call> bool begins_step(Call call) const {
    if constexpr (std::is_same_v<Call, decltype(plugin_.begin)>)
      return call == plugin_.begin;
    return false;
  }
  llvm::Error error_of(const SpmdStatus &status) const;

  const SpmdDevicePlugin &plugin_;
  uint32_t rank_;
  Patience patience_;
  SpmdHost host_{};
  bool first_ = true; // question of the call at hand
  SpmdDevice *device_ = nullptr;
  SpmdDeviceFacts facts_{};
  GroupCache groups_;
  Calls *kept_ = nullptr;
};

} // namespace spmd::runtime
