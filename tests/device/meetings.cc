// What all brought is combined by each rank for itself.
#include "tests/device/meetings.h"

#include "runtime/commands/scalar.h"

#include <cstring>

namespace spmd::test {
namespace {

Bytes bytes_at(SpmdAddress data, uint64_t bytes) {
  const char *from = reinterpret_cast<const char *>(data);
  return {from, from + bytes};
}
SpmdAddress address_of(const Bytes &bytes) { return reinterpret_cast<SpmdAddress>(bytes.data()); }

// [first, first + count) of what all brought, combined in the order of the ranks.
void reduce(const SpmdCollective &call, const std::vector<Bytes> &all, uint64_t first) {
  for (uint64_t i = 0; i < call.count; ++i) {
    double value = device::neutral(call.combiner);
    for (const Bytes &each : all)
      value = device::combined(
          call.combiner, value,
          device::load(address_of(each), call.element, static_cast<int64_t>(first + i)));
    if (call.combiner == kSpmdAvg)
      value /= static_cast<double>(all.size());
    device::store(call.result, call.element, static_cast<int64_t>(i), value);
  }
}

} // namespace

bool attend(Place &place, const Seat &seat, uint64_t number, const SpmdCollective &call,
            const Place::Over &over) {
  const uint64_t bytes = call.count * device::bytes_of(call.element);
  const uint64_t brought = bytes * (call.form == kSpmdReduceScatter ? seat.size : 1);
  const bool brings = call.form != kSpmdBroadcast || seat.position == call.root;
  std::vector<Bytes> all;
  if (!place.meet(seat.group, number, seat.position, seat.size,
                  brings ? bytes_at(call.operand, brought) : Bytes(), all, over))
    return false;
  char *to = reinterpret_cast<char *>(call.result);
  switch (call.form) {
  case kSpmdAllReduce:
    reduce(call, all, 0);
    break;
  case kSpmdReduceScatter:
    reduce(call, all, seat.position * call.count);
    break;
  case kSpmdAllGather:
    for (const Bytes &each : all)
      std::memcpy(to, each.data(), bytes), to += bytes;
    break;
  default:
    std::memcpy(to, all[call.root].data(), bytes);
  }
  return true;
}

Trade trade(Place &place, const Seat &seat, const std::vector<SpmdTransfer> &sends,
            const std::vector<SpmdTransfer> &receives, const Place::Over &over) {
  for (const SpmdTransfer &send : sends)
    place.send(seat.group, seat.position, send.position, bytes_at(send.data, send.bytes));
  for (const SpmdTransfer &receive : receives) {
    Bytes bytes;
    if (!place.receive(seat.group, receive.position, seat.position, bytes, over))
      return Trade::Over;
    if (bytes.size() != receive.bytes)
      return Trade::OtherLength;
    std::memcpy(reinterpret_cast<void *>(receive.data), bytes.data(), bytes.size());
  }
  return Trade::Done;
}

std::string misplaced(const SpmdCollective &call, uint32_t position, uint32_t size) {
  const uint64_t part = call.count * device::bytes_of(call.element);
  const uint64_t operand_bytes = part * (call.form == kSpmdReduceScatter ? size : 1);
  const uint64_t result_bytes = part * (call.form == kSpmdAllGather ? size : 1);
  const bool apart = call.operand + operand_bytes <= call.result ||
                     call.result + result_bytes <= call.operand || part == 0;
  switch (call.form) {
  case kSpmdReduceScatter:
    return apart || call.result == call.operand + position * part
               ? ""
               : "a reduce_scatter in place gives its result at operand + position * count";
  case kSpmdAllGather:
    return apart || call.operand == call.result + position * part
               ? ""
               : "an all_gather in place has its operand at result + position * count";
  default:
    return apart || call.operand == call.result ? "" : "operand and result overlap in part";
  }
}

} // namespace spmd::test
