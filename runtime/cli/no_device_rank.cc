// Of a build without devices (-Ddevice=disabled).
#include "runtime/cli/device_rank.h"

#include "runtime/backends/plugin_module.h"

#include "ir/support/error.h"

#include <fmt/format.h>

namespace spmd::runtime {

// Where the plug-in is missing too, that is said as ever: with what both need.
llvm::Expected<std::unique_ptr<DeviceRank>> open_device_rank(const BackendRow &row,
                                                             const SpmdRanks & /*ranks*/,
                                                             DeviceRank::Patience /*patience*/) {
  const std::string get = fmt::format("configure with -Ddevice=enabled, {}", row.get);
  BackendRow wanted = row;
  wanted.get = get;
  if (llvm::Error missing = find_module(wanted).takeError())
    return llvm::Expected<std::unique_ptr<DeviceRank>>(std::move(missing));
  return make_error(fmt::format("this spmdrun was built without devices, which backend {} needs. "
                                "Next: {}",
                                row.name, get));
}

} // namespace spmd::runtime
