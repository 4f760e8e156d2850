// What the plug-in says, as errors.
#include "runtime/device/link.h"

#include "ir/support/error.h"

#include <fmt/format.h>

#include <utility>

namespace spmd::runtime {

llvm::Expected<std::unique_ptr<DeviceLink>>
DeviceLink::open(const SpmdDevicePlugin &plugin, const SpmdRanks &ranks, Patience patience) {
  std::unique_ptr<DeviceLink> made(new DeviceLink(plugin, ranks.rank, std::move(patience)));
  made->host_ = {sizeof(SpmdHost), made.get(), &DeviceLink::stopped};
  SpmdStatus status = plugin.open(&made->host_, &ranks, &made->device_, &made->facts_);
  if (status.code != kSpmdOk) {
    made->device_ = nullptr;
    return make_error(fmt::format("{}: {}", plugin.name, status.text));
  }
  return made;
}

DeviceLink::~DeviceLink() {
  if (device_)
    plugin_.close(device_, 0);
}

llvm::Error DeviceLink::finish() {
  first_ = true;
  return error_of(plugin_.close(std::exchange(device_, nullptr), 1));
}

llvm::Expected<SpmdAddress> DeviceLink::allocate(uint64_t bytes) {
  uint64_t free = 0;
  if (llvm::Error error = ask(plugin_.free_bytes, &free))
    return error;
  if (bytes > free)
    return llvm::make_error<NoDeviceMemory>(bytes, free);
  SpmdAddress address = 0;
  first_ = true;
  const SpmdStatus status = plugin_.allocate(device_, bytes, &address);
  if (status.code == kSpmdRefused)
    return llvm::make_error<NoDeviceMemory>(bytes, std::nullopt);
  if (llvm::Error error = error_of(status))
    return error;
  return address;
}

llvm::Error DeviceLink::repeat(const Calls &calls) {
  for (const auto &call : calls)
    if (const SpmdStatus status = call(device_); status.code != kSpmdOk)
      return error_of(status);
  return llvm::Error::success();
}

int DeviceLink::stopped(void *self) {
  auto &link = *static_cast<DeviceLink *>(self);
  const uint32_t step = link.device_ ? link.plugin_.reached(link.device_) : 0;
  return !link.patience_(step, std::exchange(link.first_, false));
}

llvm::Error DeviceLink::error_of(const SpmdStatus &status) const {
  if (status.code == kSpmdOk)
    return llvm::Error::success();
  if (status.code == kSpmdStopped)
    return make_error("the ranks cannot go on");
  return make_error(fmt::format("{}: {}", plugin_.name, status.text));
}

} // namespace spmd::runtime
