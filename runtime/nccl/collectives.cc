// Communicators of NCCL, and what goes over them. They do not block: a call may answer that it is
// in progress, and has taken nothing up until the communicator says that it is no longer.
#include "runtime/commands/scalar.h"
#include "runtime/nccl/device.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <utility>

namespace spmd::nccl {
namespace {

std::optional<ncclDataType_t> type_of(uint32_t element) {
  switch (element) {
  case kSpmdI8:
    return ncclInt8;
  case kSpmdU8:
    return ncclUint8;
  case kSpmdI32:
    return ncclInt32;
  case kSpmdU32:
    return ncclUint32;
  case kSpmdI64:
    return ncclInt64;
  case kSpmdU64:
    return ncclUint64;
  case kSpmdF16:
    return ncclFloat16;
  case kSpmdBF16:
    return ncclBfloat16;
  case kSpmdF32:
    return ncclFloat32;
  case kSpmdF64:
    return ncclFloat64;
  default:
    return std::nullopt;
  }
}

std::optional<ncclRedOp_t> operation_of(uint32_t combiner) {
  switch (combiner) {
  case kSpmdSum:
    return ncclSum;
  case kSpmdAvg:
    return ncclAvg;
  case kSpmdMax:
    return ncclMax;
  case kSpmdMin:
    return ncclMin;
  case kSpmdProd:
    return ncclProd;
  default:
    return std::nullopt;
  }
}

} // namespace

SpmdStatus Device::communicators_live() const {
  for (ncclComm_t communicator : groups_) {
    if (!communicator)
      continue;
    ncclResult_t state = ncclSuccess;
    if (SpmdStatus status = checked(ncclCommGetAsyncError(communicator, &state),
                                    "ncclCommGetAsyncError", communicator);
        status.code != kSpmdOk)
      return status;
    if (state != ncclSuccess && state != ncclInProgress)
      return checked(state, "between the devices", communicator);
  }
  return status_of(kSpmdOk);
}

SpmdStatus Device::wait_until_done(ncclResult_t result, const char *call, ncclComm_t communicator) {
  if (result != ncclInProgress)
    return checked(result, call, communicator);
  return poll([call, communicator](SpmdStatus &status) {
    ncclResult_t state = ncclSuccess;
    const ncclResult_t asked = ncclCommGetAsyncError(communicator, &state);
    if (asked == ncclSuccess && state == ncclInProgress)
      return false;
    status = checked(asked == ncclSuccess ? state : asked, call, communicator);
    return true;
  });
}

SpmdStatus Device::given(ncclResult_t result, const char *call, ncclComm_t communicator) {
  if (!batch_) {
    SpmdStatus status = wait_until_done(result, call, communicator);
    return status.code == kSpmdOk && recording_ ? note_within(streams_[kSpmdCollectives], kNothing)
                                                : status;
  }
  if (result != ncclSuccess && result != ncclInProgress)
    return checked(result, call, communicator);
  if (std::find(in_batch_.begin(), in_batch_.end(), communicator) == in_batch_.end())
    in_batch_.push_back(communicator);
  return status_of(kSpmdOk);
}

SpmdStatus Device::begin_batch() {
  if (SpmdStatus status = enter(); status.code != kSpmdOk)
    return status;
  in_batch_.clear();
  SpmdStatus status = checked(ncclGroupStart(), "ncclGroupStart", nullptr);
  batch_ = status.code == kSpmdOk;
  return status;
}

// Communicators are launched in the order in which the batch came to them, so in one order on all
// ranks.
SpmdStatus Device::end_batch() {
  batch_ = false;
  const ncclResult_t end = ncclGroupEnd();
  if (end != ncclSuccess && end != ncclInProgress)
    return checked(end, "ncclGroupEnd", in_batch_.empty() ? nullptr : in_batch_.front());
  for (ncclComm_t communicator : in_batch_)
    if (SpmdStatus status = wait_until_done(ncclInProgress, "ncclGroupEnd", communicator);
        status.code != kSpmdOk)
      return status;
  return recording_ ? note_within(streams_[kSpmdCollectives], kNothing) : status_of(kSpmdOk);
}

// Read when communicators are made. One way to add up, along one ring, whatever there is to add;
// neither switches nor the cards of the network add for us.
SpmdStatus Device::fix_order() {
  for (const auto &[name, value] :
       {std::pair("NCCL_ALGO", "Ring"), std::pair("NCCL_PROTO", "Simple"),
        std::pair("NCCL_NVLS_ENABLE", "0"), std::pair("NCCL_COLLNET_ENABLE", "0")})
    if (setenv(name, value, 1) != 0)
      return status_of(kSpmdRefused, std::string(name) + " cannot be set");
  return status_of(kSpmdOk);
}

SpmdStatus Device::connect(const SpmdId &id) {
  if (SpmdStatus status = enter(); status.code != kSpmdOk)
    return status;
  ncclUniqueId unique{};
  static_assert(sizeof unique.internal == sizeof id.bytes);
  std::memcpy(unique.internal, id.bytes, sizeof unique.internal);
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  ncclComm_t &all = groups_.emplace_back(nullptr);
  const ncclResult_t result = ncclCommInitRankConfig(&all, static_cast<int>(ranks_.size), unique,
                                                     static_cast<int>(ranks_.rank), &config);
  SpmdStatus status = all ? wait_until_done(result, "ncclCommInitRankConfig", all)
                          : checked(result, "ncclCommInitRankConfig", nullptr);
  if (status.code == kSpmdFailed)
    status.code = kSpmdRefused; // two ranks on one device, or no way between two of them
  return status;
}

// All ranks of the parent take part, and it must have nothing else to do meanwhile. NCCL 2.22 to
// 2.30 answer that all is well while the new communicator is still made: the parent is in progress
// until `making_` is written.
SpmdStatus Device::split(uint32_t colour, uint32_t key, uint32_t &group) {
  if (SpmdStatus status = wait(); status.code != kSpmdOk)
    return status;
  ncclComm_t all = communicator(kSpmdAllRanks);
  if (!all)
    return status_of(kSpmdRefused, "a group is asked for before the ranks are connected");
  const bool none = colour == kSpmdNoColour;
  making_ = nullptr;
  const ncclResult_t result =
      ncclCommSplit(all, none ? NCCL_SPLIT_NOCOLOR : static_cast<int>(colour),
                    static_cast<int>(key), &making_, nullptr);
  SpmdStatus status =
      wait_until_done(result == ncclSuccess ? ncclInProgress : result, "ncclCommSplit", all);
  ncclComm_t made = __atomic_load_n(&making_, __ATOMIC_ACQUIRE);
  if (status.code == kSpmdOk && !none)
    status = made ? wait_until_done(ncclInProgress, "ncclCommSplit", made)
                  : status_of(kSpmdFailed, "ncclCommSplit: no communicator was made");
  if (status.code != kSpmdOk)
    return status;
  making_ = nullptr;
  group = static_cast<uint32_t>(groups_.size());
  groups_.push_back(made);
  return status;
}

SpmdStatus Device::collective(const SpmdCollective &collective) {
  ncclComm_t group = communicator(collective.group);
  const bool combines = collective.form == kSpmdAllReduce || collective.form == kSpmdReduceScatter;
  const auto type = type_of(collective.element);
  const auto operation = operation_of(collective.combiner);
  if (!group || (combines && (!type || !operation)))
    return status_of(kSpmdRefused, "NCCL has no group, element or combiner as asked for (group " +
                                       std::to_string(collective.group) + ", element " +
                                       std::to_string(collective.element) + ", combiner " +
                                       std::to_string(collective.combiner) + ")");
  if (collective.count == 0)
    return status_of(kSpmdOk);
  if (SpmdStatus status = ready(kSpmdCollectives); status.code != kSpmdOk)
    return status;
  cudaStream_t stream = streams_[kSpmdCollectives].stream;
  const void *operand = reinterpret_cast<const void *>(collective.operand);
  void *result = reinterpret_cast<void *>(collective.result);
  const uint64_t bytes =
      collective.count * device::bytes_of(collective.element); // what is but moved is bytes
  switch (collective.form) {
  case kSpmdAllReduce:
    return given(ncclAllReduce(operand, result, collective.count, *type, *operation, group, stream),
                 "ncclAllReduce", group);
  case kSpmdAllGather: // the count of what is sent
    return given(ncclAllGather(operand, result, bytes, ncclUint8, group, stream), "ncclAllGather",
                 group);
  case kSpmdReduceScatter: // the count of what is received
    return given(
        ncclReduceScatter(operand, result, collective.count, *type, *operation, group, stream),
        "ncclReduceScatter", group);
  case kSpmdBroadcast:
    return given(ncclBroadcast(operand, result, bytes, ncclUint8, static_cast<int>(collective.root),
                               group, stream),
                 "ncclBroadcast", group);
  default:
    return status_of(kSpmdRefused, "no such collective: " + std::to_string(collective.form));
  }
}

SpmdStatus Device::exchange(uint32_t number, const SpmdTransfer *sends, uint32_t send_count,
                            const SpmdTransfer *receives, uint32_t receive_count) {
  ncclComm_t group = communicator(number);
  if (!group)
    return status_of(kSpmdRefused, "this rank is in no group " + std::to_string(number));
  if (SpmdStatus status = ready(kSpmdCollectives); status.code != kSpmdOk)
    return status;
  cudaStream_t stream = streams_[kSpmdCollectives].stream;
  ncclResult_t error = ncclGroupStart();
  if (error != ncclSuccess)
    return checked(error, "ncclGroupStart", group);
  auto going = [&error] { return error == ncclSuccess || error == ncclInProgress; };
  for (uint32_t i = 0; i < send_count && going(); ++i)
    if (sends[i].bytes > 0)
      error = ncclSend(reinterpret_cast<const void *>(sends[i].data), sends[i].bytes, ncclUint8,
                       static_cast<int>(sends[i].position), group, stream);
  for (uint32_t i = 0; i < receive_count && going(); ++i)
    if (receives[i].bytes > 0)
      error = ncclRecv(reinterpret_cast<void *>(receives[i].data), receives[i].bytes, ncclUint8,
                       static_cast<int>(receives[i].position), group, stream);
  const bool all_queued = going();
  const ncclResult_t end = ncclGroupEnd(); // closes the group in any case
  if (!all_queued)
    return checked(error, "ncclSend or ncclRecv", group);
  return given(end, "ncclGroupEnd", group);
}

// Those that were split off first, and the one they are of last.
SpmdStatus Device::finish_groups() {
  for (; !groups_.empty(); groups_.pop_back()) {
    ncclComm_t communicator = groups_.back();
    if (!communicator)
      continue;
    if (SpmdStatus status =
            wait_until_done(ncclCommFinalize(communicator), "ncclCommFinalize", communicator);
        status.code != kSpmdOk)
      return status;
    groups_.back() = nullptr; // nothing is asked of it any more
    const ncclResult_t destroyed = ncclCommDestroy(communicator);
    if (destroyed != ncclSuccess && destroyed != ncclInProgress)
      return checked(destroyed, "ncclCommDestroy", nullptr);
  }
  return status_of(kSpmdOk);
}

// Leaves all communicators without waiting for other ranks. A kernel of one may be queued behind
// that of another one, which nobody else ends: so all are told to give up before the end of any is
// waited for, as one group is. By then no graph may have anything of them. Those that others were
// split off from come first.
void Device::abort_groups() {
  if (std::exchange(batch_, false))
    ncclGroupEnd(); // with what it has: nothing is aborted in the midst of one
  ncclGroupStart();
  for (ncclComm_t communicator : groups_)
    if (communicator)
      ncclCommAbort(communicator);
  if (ncclComm_t made = __atomic_load_n(&making_, __ATOMIC_ACQUIRE)) // of a split that did not end
    ncclCommAbort(made);
  drop_recordings();
  ncclGroupEnd();
  groups_.clear();
}

} // namespace spmd::nccl
