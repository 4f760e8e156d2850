// The plug-in `spmd_nccl`: one NVIDIA device per process, by cudart, cuBLASLt and NCCL. The driver
// is not linked: the module loads without one, and `open` says what is missing.
#include "runtime/nccl/device.h"

#include <cstring>

namespace {

using spmd::nccl::Device;

Device &of(SpmdDevice *device) { return *reinterpret_cast<Device *>(device); }

SpmdStatus open(const SpmdHost *host, const SpmdRanks *ranks, SpmdDevice **made,
                SpmdDeviceFacts *facts) {
  // Never freed before the process ends where opening fails: the driver may still hear of its
  // memory.
  auto *device = new Device(*host, *ranks);
  SpmdStatus status = device->open(*facts);
  *made = status.code == kSpmdOk ? reinterpret_cast<SpmdDevice *>(device) : nullptr;
  return status;
}

SpmdStatus make_id(SpmdDevice *, SpmdId *id) {
  ncclUniqueId unique{};
  SpmdStatus status = spmd::nccl::checked(ncclGetUniqueId(&unique), "ncclGetUniqueId", nullptr);
  std::memcpy(id->bytes, unique.internal, sizeof id->bytes);
  if (status.code == kSpmdFailed)
    status.code = kSpmdRefused;
  return status;
}

SpmdStatus connect(SpmdDevice *device, const SpmdId *id) { return of(device).connect(*id); }
SpmdStatus split(SpmdDevice *device, uint32_t colour, uint32_t key, uint32_t *group) {
  return of(device).split(colour, key, *group);
}
SpmdStatus allocate(SpmdDevice *device, uint64_t bytes, SpmdAddress *address) {
  return of(device).allocate(bytes, *address);
}
SpmdStatus release(SpmdDevice *device, SpmdAddress address) { return of(device).release(address); }
SpmdStatus move(SpmdDevice *device, const SpmdMove *move) { return of(device).move(*move); }
SpmdStatus nest(SpmdDevice *device, const SpmdLoopNest *nest) { return of(device).nest(*nest); }
SpmdStatus matrices(SpmdDevice *device, const SpmdMatrices *matrices) {
  return of(device).matrices(*matrices);
}
SpmdStatus sort(SpmdDevice *device, const SpmdSort *sort) { return of(device).sort(*sort); }
SpmdStatus scatter(SpmdDevice *device, const SpmdScatter *scatter) {
  return of(device).scatter(*scatter);
}
SpmdStatus collective(SpmdDevice *device, const SpmdCollective *collective) {
  return of(device).collective(*collective);
}
SpmdStatus exchange(SpmdDevice *device, uint32_t group, const SpmdTransfer *sends,
                    uint32_t send_count, const SpmdTransfer *receives, uint32_t receive_count) {
  return of(device).exchange(group, sends, send_count, receives, receive_count);
}
SpmdStatus follow(SpmdDevice *device, uint32_t stream, uint32_t other) {
  return of(device).follow(stream, other);
}
SpmdStatus begin(SpmdDevice *device, uint32_t step) { return of(device).begin(step); }
SpmdStatus put(SpmdDevice *device, SpmdAddress to, const void *data, uint64_t bytes) {
  return of(device).put(to, static_cast<const char *>(data), bytes);
}
SpmdStatus get(SpmdDevice *device, void *data, SpmdAddress from, uint64_t bytes) {
  return of(device).get(static_cast<char *>(data), from, bytes);
}
SpmdStatus wait(SpmdDevice *device) { return of(device).wait(); }
uint32_t reached(SpmdDevice *device) { return of(device).reached(); }

SpmdStatus close(SpmdDevice *device, int32_t finish) {
  SpmdStatus status = of(device).close(finish != 0);
  // What `reached` may still be asked of on another thread ends with the process where nothing was
  // waited for.
  if (finish && status.code == kSpmdOk)
    delete &of(device);
  return status;
}

SpmdStatus free_bytes(SpmdDevice *device, uint64_t *bytes) { return of(device).free_bytes(*bytes); }

SpmdStatus begin_batch(SpmdDevice *device) { return of(device).begin_batch(); }
SpmdStatus end_batch(SpmdDevice *device) { return of(device).end_batch(); }
SpmdStatus begin_record(SpmdDevice *device) { return of(device).begin_record(); }
SpmdStatus end_record(SpmdDevice *device, uint32_t *recording) {
  return of(device).end_record(*recording);
}
SpmdStatus replay(SpmdDevice *device, uint32_t recording) { return of(device).replay(recording); }
SpmdStatus forget(SpmdDevice *device, uint32_t recording) { return of(device).forget(recording); }
SpmdStatus fix_order(SpmdDevice *) { return Device::fix_order(); }
SpmdStatus watch(SpmdDevice *device, uint32_t on) { return of(device).watch(on != 0); }

} // namespace

extern "C" __attribute__((visibility("default"))) const SpmdDevicePlugin *spmd_device_plugin(void) {
  static constexpr SpmdDevicePlugin kPlugin = {kSpmdDeviceAbi,
                                               sizeof(SpmdDevicePlugin),
                                               "nccl",
                                               open,
                                               make_id,
                                               connect,
                                               split,
                                               allocate,
                                               release,
                                               move,
                                               nest,
                                               matrices,
                                               collective,
                                               exchange,
                                               follow,
                                               begin,
                                               put,
                                               get,
                                               wait,
                                               reached,
                                               close,
                                               sort,
                                               scatter,
                                               free_bytes,
                                               begin_batch,
                                               end_batch,
                                               begin_record,
                                               end_record,
                                               replay,
                                               forget,
                                               fix_order,
                                               watch};
  return &kPlugin;
}
