// Where a program looks for plug-ins is part of the program: not of the library of all else here.
#include "runtime/device/link.h"

#include "runtime/backends/plugin_module.h"

namespace spmd::runtime {

llvm::Expected<const SpmdDevicePlugin *> open_device_plugin(const BackendRow &backend) {
  return open_module<SpmdDevicePlugin>(backend, "spmd_device_plugin", kSpmdDeviceAbi);
}

} // namespace spmd::runtime
