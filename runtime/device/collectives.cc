// Collectives of a plan as calls of the library. What it adds in no element of ours, it adds in a
// wider one.
#include "ir/support/arrays.h"
#include "ir/support/error.h"
#include "runtime/device/lowered_plan.h"
#include "runtime/kernels/integral.h"

#include <fmt/format.h>

namespace spmd::runtime {

using ir::Combiner;
using ir::DType;
using rules::Collective;

namespace {

// The element in which a library adds what is `wanted`.
DType added_in(DType wanted, Combiner combiner) {
  switch (wanted) {
  case DType::Bool:
  case DType::I16:
  case DType::U16:
    return combiner == Combiner::Avg ? DType::I64 : DType::I32;
  case DType::F8E4M3:
  case DType::F8E5M2:
    return DType::F32;
  default:
    return combiner == Combiner::Avg && is_integral(wanted) ? DType::I64 : wanted;
  }
}

llvm::Expected<SpmdCombiner> combiner_of(const Communicate &collective) {
  const bool truth = collective.dtype == DType::Bool;
  switch (collective.combiner) {
  case Combiner::Sum:
    return kSpmdSum;
  case Combiner::Avg: // of whole numbers: their sum, divided afterwards
    return is_integral(added_in(collective.dtype, collective.combiner)) ? kSpmdSum : kSpmdAvg;
  case Combiner::Max:
    return kSpmdMax;
  case Combiner::Min:
    return kSpmdMin;
  case Combiner::Prod:
    return kSpmdProd;
  case Combiner::And:
    if (truth)
      return kSpmdMin;
    break;
  case Combiner::Or:
    if (truth)
      return kSpmdMax;
    break;
  case Combiner::Xor:
    break;
  }
  return make_error(fmt::format("devices have no collective that combines {} by {}",
                                ir::info(collective.dtype).word, ir::word(collective.combiner)));
}

// How a library adds up what ranks hold.
struct Addition {
  DType held;    // of what it is given
  DType element; // in which it adds; each of `held` has so many of it
  int64_t parts = 1;
  SpmdCombiner combiner = kSpmdSum;
  bool divides = false; // by the number of ranks, afterwards
};
llvm::Expected<Addition> addition_of(const Communicate &made, DType operand) {
  if (is_complex(operand)) {
    if (made.combiner != Combiner::Sum || made.dtype != operand)
      return make_error(
          "devices add complex numbers of one element type, and combine them no other way");
    return Addition{operand, operand == DType::C64 ? DType::F32 : DType::F64, 2, kSpmdSum, false};
  }
  llvm::Expected<SpmdCombiner> combiner = combiner_of(made);
  if (!combiner)
    return combiner.takeError();
  const DType element = added_in(made.dtype, made.combiner);
  return Addition{element, element, 1, *combiner,
                  made.combiner == Combiner::Avg && *combiner == kSpmdSum};
}

bool combines(Collective collective) {
  return collective == Collective::AllReduce || collective == Collective::ReduceScatter;
}

} // namespace

// Before the run: what of it devices cannot do, and how much scratch memory it takes.
llvm::Error LoweredPlan::check_collective(const Step &step) {
  const Communicate &made = plan_.communicates[step.index];
  const DType own = plan_.buffers[made.operand].dtype, result = plan_.buffers[made.result].dtype;
  if (!combines(made.collective))
    return own == result ? llvm::Error::success()
                         : make_error("a collective that moves elements into another element type");
  llvm::Expected<Addition> addition = addition_of(made, own);
  if (!addition)
    return addition.takeError();
  if (is_direct(made))
    return llvm::Error::success();
  // Rounded to the element that it was to be added in, then to that of the result.
  if (made.dtype != addition->held && made.dtype != result)
    return make_error(fmt::format("devices do not round sums of {} to {} before {}",
                                  ir::info(addition->held).word, ir::info(made.dtype).word,
                                  ir::info(result).word));
  // For the operand in the element in which it is added: at most as wide as its own, or 8 bytes.
  const auto elements = static_cast<uint64_t>(count(plan_.buffers[made.operand].on(own_)));
  const uint64_t width = std::max<uint64_t>(ir::info(own).bytes, 8);
  scratch_bytes_ = std::max(scratch_bytes_, elements * width + 512);
  return llvm::Error::success();
}

bool LoweredPlan::is_direct(const Communicate &made) const {
  const Groups &groups = groups_[made.group.index];
  if (groups[0].size() == 1)
    return false;
  if (!combines(made.collective))
    return true;
  const Buffer &operand = plan_.buffers[made.operand], &result = plan_.buffers[made.result];
  llvm::Expected<Addition> addition = addition_of(made, operand.dtype);
  if (!addition) {
    llvm::consumeError(addition.takeError());
    return false;
  }
  return addition->held == operand.dtype && addition->held == result.dtype && !addition->divides &&
         (made.collective == Collective::AllReduce || is_even(result, groups));
}

// Whether all ranks of each group hold as much.
bool LoweredPlan::is_even(const Buffer &buffer, const Groups &groups) {
  for (uint32_t g = 0; buffer.dims.size() > 1 && g < groups.count(); ++g)
    for (RankId rank : groups[g])
      if (count(buffer.on(rank)) != count(buffer.on(groups[g].front())))
        return false;
  return true;
}

// Complex numbers as they are, others over the divisor.
static void add_conversion(const DeviceArray &from, const DeviceArray &to, double divisor,
                           std::vector<Command> &commands) {
  if (to.is_complex()) {
    add_box(from, to, {{to.size()}, {1}, {1}, 0, 0}, false, commands);
    return;
  }
  add_scaled(from, to, 1, divisor, commands);
}

void LoweredPlan::lower_combination(const Communicate &made, llvm::ArrayRef<RankId> members,
                                    CollectiveCall &call) const {
  const DeviceArray operand = array_of(made.operand), result = array_of(made.result);
  llvm::Expected<Addition> found = addition_of(made, operand.dtype);
  SPMD_CHECK(bool(found), "a collective that was prepared");
  const Addition addition = *found;
  call.direct = is_direct(made);
  // Parts of unequal lengths: all of it to all, of which each takes its own.
  const bool whole = made.collective == Collective::AllReduce ||
                     !is_even(plan_.buffers[made.result], groups_[made.group.index]);
  const Dims dims = *operand.dims;
  DeviceArray room{scratch_, addition.held, &dims, nullptr};
  // The own part of the sum: where the operand had it, as libraries ask for what is given in its
  // own place.
  DeviceArray part = room;
  int64_t first = 0;
  for (uint32_t i = 0;
       made.collective == Collective::ReduceScatter && i < groups_[made.group.index].position(own_);
       ++i)
    first += count(plan_.buffers[made.result].on(members[i]));
  part.data = after(room.data, room.dtype, first);
  SpmdCollective collective{};
  collective.form = whole ? kSpmdAllReduce : kSpmdReduceScatter;
  collective.group = device_groups_[made.group.index];
  collective.combiner = addition.combiner;
  collective.element = element_of(addition.element);
  collective.operand = call.direct ? operand.data : room.data;
  collective.result = call.direct ? result.data : whole ? room.data : part.data;
  collective.count =
      static_cast<uint64_t>((whole ? operand.size() : result.size()) * addition.parts);
  if (members.size() > 1)
    call.collective = collective;
  if (call.direct)
    return;
  add_conversion(operand, room, 1, call.before);
  add_conversion(part, result, addition.divides ? static_cast<double>(members.size()) : 1,
                 call.after);
}

// Gathers, exchanges, permutations, broadcasts: bytes that reach their positions as they are.
class LoweredPlan::Exchange {
public:
  Exchange(const LoweredPlan &plan, const Communicate &made, llvm::ArrayRef<RankId> members,
           CollectiveCall &call)
      : plan_(plan.plan_), made_(made), members_(members), call_(call),
        operand_(plan.array_of(made.operand)), result_(plan.array_of(made.result)),
        own_(plan.groups_[made.group.index].position(plan.own_)),
        cell_(ir::info(operand_.dtype).bytes), group_(plan.device_groups_[made.group.index]) {}

  void gather() {
    bool even = true;
    for (RankId member : members_)
      even &= length(member) == operand_.size();
    if (even && members_.size() > 1)
      return collective(kSpmdAllGather, 0, operand_.size());
    int64_t at = 0;
    for (size_t i = 0; i < members_.size(); ++i) {
      if (i == own_)
        keep(0, at, length(members_[i]));
      else
        send(i, 0, operand_.size()), receive(i, at, length(members_[i]));
      at += length(members_[i]);
    }
  }

  void all_to_all() {
    auto piece = [&](size_t from, size_t to) {
      return made_.counts.valid() ? plan_.cuts[made_.counts].on(members_[from])[to]
                                  : length(members_[from]) / static_cast<int64_t>(members_.size());
    };
    int64_t out = 0, in = 0;
    for (size_t i = 0; i < members_.size(); ++i) {
      if (i == own_)
        keep(out, in, piece(own_, own_));
      else
        send(i, out, piece(own_, i)), receive(i, in, piece(i, own_));
      out += piece(own_, i), in += piece(i, own_);
    }
  }

  void broadcast() {
    if (members_.size() == 1)
      keep(0, 0, result_.size());
    else
      collective(kSpmdBroadcast, made_.root, result_.size());
  }

  void permute() {
    llvm::ArrayRef<int64_t> perm =
        ir::as_array(plan_.numbers).slice(made_.perm.first, made_.perm.count);
    bool gets = false;
    for (size_t i = 0; i + 1 < perm.size(); i += 2) {
      auto from = static_cast<size_t>(perm[i]), to = static_cast<size_t>(perm[i + 1]);
      gets |= to == own_;
      if (from == own_ && to == own_)
        keep(0, 0, result_.size());
      else if (from == own_)
        send(to, 0, operand_.size());
      else if (to == own_)
        receive(from, 0, result_.size());
    }
    if (!gets)
      add_fill(result_, 0, call_.before);
  }

private:
  int64_t length(RankId rank) const { return count(plan_.buffers[made_.operand].on(rank)); }
  void collective(SpmdCollectiveForm form, uint32_t root, int64_t size) {
    call_.collective =
        SpmdCollective{form,    group_,        kSpmdSum,     root,
                       kSpmdU8, operand_.data, result_.data, static_cast<uint64_t>(size * cell_)};
  }
  void keep(int64_t from, int64_t to, int64_t size) {
    add_box(operand_, result_, {{size}, {1}, {1}, from, to}, false, call_.before);
  }
  void send(size_t position, int64_t first, int64_t size) {
    if (size)
      call_.sends.push_back({static_cast<uint32_t>(position),
                             after(operand_.data, operand_.dtype, first),
                             static_cast<uint64_t>(size * cell_)});
  }
  void receive(size_t position, int64_t first, int64_t size) {
    if (size)
      call_.receives.push_back({static_cast<uint32_t>(position),
                                after(result_.data, result_.dtype, first),
                                static_cast<uint64_t>(size * cell_)});
  }

  const Plan &plan_;
  const Communicate &made_;
  llvm::ArrayRef<RankId> members_;
  CollectiveCall &call_;
  const DeviceArray operand_, result_;
  const size_t own_;   // position in the group
  const int64_t cell_; // bytes
  const uint32_t group_;
};

void LoweredPlan::lower_exchange(const Communicate &made, llvm::ArrayRef<RankId> members,
                                 CollectiveCall &call) const {
  call.direct = true;
  call.group = device_groups_[made.group.index];
  Exchange exchange(*this, made, members, call);
  switch (made.collective) {
  case Collective::AllGather:
    return exchange.gather();
  case Collective::AllToAll:
    return exchange.all_to_all();
  case Collective::Broadcast:
    return exchange.broadcast();
  case Collective::Permute:
    return exchange.permute();
  default:
    SPMD_CHECK(false, "a collective that moves nothing");
  }
}

void LoweredPlan::lower_collective(const Step &step, CollectiveCall &call) const {
  const Communicate &made = plan_.communicates[step.index];
  const Groups &groups = groups_[made.group.index];
  llvm::ArrayRef<RankId> members = groups[groups.group_of(own_)];
  if (combines(made.collective))
    lower_combination(made, members, call);
  else
    lower_exchange(made, members, call);
}

} // namespace spmd::runtime
