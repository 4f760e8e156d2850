// Steps of a rank whose peers are other processes. Bytes go round, and what is added is added here,
// in the order of the ranks and by the same code as where all ranks are in one process: results
// have the same bits.
#include "ir/support/arrays.h"
#include "runtime/backends/cpu_backend.h"

#include "runtime/backends/cpu_steps.h"
#include "runtime/backends/peers.h"

#include "llvm/ADT/STLExtras.h"

namespace spmd::runtime {
namespace {

using rules::Collective;

struct Bytes {
  char *data;
  uint64_t count;
};
Bytes bytes_of(Tensor &tensor) {
  return tensor.visit([](auto &cells) {
    return Bytes{reinterpret_cast<char *>(cells.data()), cells.size() * sizeof(cells[0])};
  });
}
Bytes bytes_of(const SharedTensor &tensor) { return bytes_of(*tensor); }
uint64_t cell_size(const Tensor &tensor) {
  return tensor.visit([](const auto &cells) { return uint64_t(sizeof(cells[0])); });
}

// One collective, as one of its ranks sees it.
class PeerCollective {
public:
  PeerCollective(const Communicate &collective, const Plan &plan, llvm::ArrayRef<RankId> members,
                 RankId own, Domain domain, Peers &peers, HeldTensors &held, SharedTensor operand)
      : collective_(collective), plan_(plan), members_(members), domain_(domain), peers_(peers),
        held_(held), operand_(std::move(operand)), cell_(cell_size(*operand_)),
        size_(members.size()),
        own_(static_cast<size_t>(llvm::find(members, own) - members.begin())) {}
  ~PeerCollective() {
    for (SharedTensor &tensor : segments_)
      held_.give_back(tensor);
  }

  // `result`: of its extents, and zeros where a collective need not fill it; what is given back may
  // be another tensor.
  llvm::Expected<SharedTensor> run(SharedTensor result);

private:
  // What sums of few bytes cost is the way there and back: then all ranks add all. Of two ranks
  // each sends as much either way.
  static constexpr uint64_t kFewBytes = 8192;

  uint64_t elements(BufferId buffer, size_t position) const {
    return static_cast<uint64_t>(count(plan_.buffers[buffer].on(members_[position])));
  }
  // Elements of the piece that one position has for, from or at another.
  uint64_t length(size_t of, size_t at) const {
    return collective_.counts.valid()
               ? static_cast<uint64_t>(plan_.cuts[collective_.counts].on(members_[of])[at])
               : elements(collective_.operand, of) / size_;
  }
  Tensor &segment(uint64_t cells) {
    segments_.push_back(held_.fresh(operand_->dtype, {static_cast<int64_t>(cells)},
                                    HeldTensors::Content::Anything));
    return *segments_.back();
  }
  // By position: the operands, or parts of them, which this rank adds.
  using Parts = llvm::SmallVector<const Tensor *, 8>;
  using Lengths = llvm::SmallVector<uint64_t, 8>;
  llvm::Error receive_all(Parts &parts);
  llvm::Error swap(const Lengths &begins, const Lengths &lengths, Parts &parts);
  llvm::Error gather(const void *own, llvm::ArrayRef<uint64_t> cells, Tensor &into);
  llvm::Error all_reduce(SharedTensor &result);
  llvm::Error reduce_scatter(SharedTensor &result);
  llvm::Error all_gather(SharedTensor &result);
  llvm::Error all_to_all(SharedTensor &result);
  llvm::Error broadcast(SharedTensor &result);
  llvm::Error permute(SharedTensor &result);

  const Communicate &collective_;
  const Plan &plan_;
  llvm::ArrayRef<RankId> members_;
  Domain domain_;
  Peers &peers_;
  HeldTensors &held_;
  SharedTensor operand_;
  llvm::SmallVector<SharedTensor, 16> segments_; // of this call alone
  uint64_t cell_;
  size_t size_, own_;
};

// To each position its part of the own operand, [begins[i], begins[i] + lengths[i]); from each as
// many elements as the own part has.
llvm::Error PeerCollective::swap(const Lengths &begins, const Lengths &lengths, Parts &parts) {
  llvm::SmallVector<SpmdSend, 16> sends;
  llvm::SmallVector<SpmdReceive, 16> receives;
  const char *data = bytes_of(operand_).data;
  for (size_t i = 0; i < size_; ++i) {
    Tensor &part = segment(lengths[own_]);
    parts.push_back(&part);
    auto position = static_cast<uint32_t>(i);
    if (i == own_) {
      std::copy_n(data + begins[i] * cell_, lengths[i] * cell_, bytes_of(part).data);
      continue;
    }
    sends.push_back({position, data + begins[i] * cell_, lengths[i] * cell_});
    receives.push_back({position, bytes_of(part).data, lengths[own_] * cell_});
  }
  return peers_.exchange(collective_.group, sends, receives);
}

// The operands of all positions.
llvm::Error PeerCollective::receive_all(Parts &parts) {
  llvm::SmallVector<SpmdSend, 16> sends;
  llvm::SmallVector<SpmdReceive, 16> receives;
  const Bytes own = bytes_of(operand_);
  for (uint32_t i = 0; i < size_; ++i) {
    if (i == own_) {
      parts.push_back(operand_.get());
      continue;
    }
    Tensor &part = segment(own.count / cell_);
    parts.push_back(&part);
    sends.push_back({i, own.data, own.count});
    receives.push_back({i, bytes_of(part).data, own.count});
  }
  return peers_.exchange(collective_.group, sends, receives);
}

llvm::Error PeerCollective::gather(const void *own, llvm::ArrayRef<uint64_t> cells, Tensor &into) {
  llvm::SmallVector<uint64_t, 16> bytes;
  for (uint64_t each : cells)
    bytes.push_back(each * cell_);
  return peers_.all_gather(collective_.group, own, bytes_of(into).data, bytes);
}

// Each rank adds the part that falls to it, and all parts go to all.
llvm::Error PeerCollective::all_reduce(SharedTensor &result) {
  const uint64_t all = elements(collective_.operand, own_);
  if (all * cell_ <= kFewBytes || size_ == 2) {
    Parts parts;
    if (llvm::Error error = receive_all(parts))
      return error;
    reduce_in_order(collective_, parts, domain_, *result);
    return llvm::Error::success();
  }
  Lengths begins, lengths;
  for (size_t i = 0; i < size_; ++i) {
    begins.push_back(all * i / size_);
    lengths.push_back(all * (i + 1) / size_ - begins[i]);
  }
  Parts parts;
  if (llvm::Error error = swap(begins, lengths, parts))
    return error;
  Tensor &own = segment(lengths[own_]);
  own.dtype = result->dtype;
  reduce_in_order(collective_, parts, domain_, own);
  return gather(bytes_of(own).data, lengths, *result);
}

llvm::Error PeerCollective::reduce_scatter(SharedTensor &result) {
  Lengths begins, lengths;
  uint64_t at = 0;
  for (size_t i = 0; i < size_; ++i) {
    begins.push_back(at);
    lengths.push_back(elements(collective_.result, i));
    at += lengths[i];
  }
  Parts parts;
  if (llvm::Error error = swap(begins, lengths, parts))
    return error;
  reduce_in_order(collective_, parts, domain_, *result);
  return llvm::Error::success();
}

llvm::Error PeerCollective::all_gather(SharedTensor &result) {
  std::vector<uint64_t> cells;
  for (size_t i = 0; i < size_; ++i)
    cells.push_back(elements(collective_.operand, i));
  return gather(bytes_of(operand_).data, cells, *result);
}

llvm::Error PeerCollective::all_to_all(SharedTensor &result) {
  llvm::SmallVector<SpmdSend, 16> sends;
  llvm::SmallVector<SpmdReceive, 16> receives;
  const char *from = bytes_of(operand_).data;
  char *to = bytes_of(result).data;
  for (size_t i = 0; i < size_; ++i) {
    uint64_t out = length(own_, i) * cell_, in = length(i, own_) * cell_;
    if (i == own_) {
      std::copy_n(from, out, to);
    } else {
      sends.push_back({static_cast<uint32_t>(i), from, out});
      receives.push_back({static_cast<uint32_t>(i), to, in});
    }
    from += out;
    to += in;
  }
  return peers_.exchange(collective_.group, sends, receives);
}

// As a gather to which the others give nothing: the library has trees for it.
llvm::Error PeerCollective::broadcast(SharedTensor &result) {
  std::vector<uint64_t> cells(size_, 0);
  cells[collective_.root] = elements(collective_.operand, collective_.root);
  return gather(bytes_of(operand_).data, cells, *result);
}

llvm::Error PeerCollective::permute(SharedTensor &result) {
  llvm::SmallVector<SpmdSend, 2> sends;
  llvm::SmallVector<SpmdReceive, 1> receives;
  llvm::ArrayRef<int64_t> perm =
      ir::as_array(plan_.numbers).slice(collective_.perm.first, collective_.perm.count);
  for (size_t i = 0; i + 1 < perm.size(); i += 2) {
    auto from = static_cast<size_t>(perm[i]), to = static_cast<size_t>(perm[i + 1]);
    if (from == own_ && to == own_)
      result = operand_;
    else if (from == own_)
      sends.push_back(
          {static_cast<uint32_t>(to), bytes_of(operand_).data, bytes_of(operand_).count});
    else if (to == own_)
      receives.push_back(
          {static_cast<uint32_t>(from), bytes_of(result).data, bytes_of(result).count});
  }
  return peers_.exchange(collective_.group, sends, receives);
}

llvm::Expected<SharedTensor> PeerCollective::run(SharedTensor result) {
  auto moved = [&] {
    switch (collective_.collective) {
    case Collective::AllReduce:
      return all_reduce(result);
    case Collective::ReduceScatter:
      return reduce_scatter(result);
    case Collective::AllGather:
      return all_gather(result);
    case Collective::AllToAll:
      return all_to_all(result);
    case Collective::Broadcast:
      return broadcast(result);
    case Collective::Permute:
      return permute(result);
    case Collective::None:
      break;
    }
    return run_error("a collective that moves nothing");
  };
  if (llvm::Error error = moved())
    return error;
  return result;
}

} // namespace

llvm::Error CpuBackend::communicate_with_peers(const Step &step) {
  const Communicate &collective = plan_->communicates[step.index];
  const Groups &groups = groups_[collective.group.index];
  const RankId own = all_.front();
  Ranks members = groups[groups.group_of(own)];
  const bool fills =
      collective.collective != Collective::Permute && collective.collective != Collective::AllToAll;
  using Content = HeldTensors::Content;
  SharedTensor result =
      held_.fresh(collective.result, own, fills ? Content::Anything : Content::Zeros);
  if (members.size() == 1) {
    communicate_group(collective, members, result);
  } else {
    PeerCollective call(collective, *plan_, members, own, options_.domain, *options_.peers, held_,
                        held_.held(collective.operand, own));
    llvm::Expected<SharedTensor> made = call.run(std::move(result));
    if (!made)
      return made.takeError();
    result = std::move(*made);
  }
  held_.put(collective.result, own, std::move(result));
  return llvm::Error::success();
}

// The ranks of two meshes take part: those that send need not be on the mesh of the step.
llvm::Error CpuBackend::receive_from_peers(const Step &step) {
  const LocalStep &made = plan_->local_steps[step.index];
  const Use use = plan_->used(made.operands).front();
  const RankId own = all_.front();
  llvm::SmallVector<SpmdSend, 2> sends;
  llvm::SmallVector<SpmdReceive, 1> receives;
  SharedTensor got;
  for (RankId rank : world_->ranks(step.mesh)) {
    RankId source = source_of(made, use, step, rank);
    if (source == rank)
      continue;
    if (source == own) {
      Bytes bytes = bytes_of(held_.held(use.buffer, own));
      sends.push_back({rank, bytes.data, bytes.count});
    } else if (rank == own) {
      const Buffer &buffer = plan_->buffers[use.buffer];
      got = std::make_shared<HeldTensor>(
          Tensor::make(buffer.dtype, buffer.on(source), options_.domain));
      receives.push_back({source, bytes_of(got).data, bytes_of(got).count});
    }
  }
  if (llvm::Error error = options_.peers->exchange({}, sends, receives))
    return error;
  if (!world_->on(step.mesh, own))
    return llvm::Error::success();
  if (!got)
    got = held_.held(use.buffer, own);
  SharedTensor result = got;
  const Buffer &buffer = plan_->buffers[made.result];
  if (got->dtype != buffer.dtype || got->dims != buffer.on(own)) {
    result = held_.fresh(made.result, own, HeldTensors::Content::Zeros);
    run_local_step(made, {}, {got.get()}, *result, options_.domain);
  }
  held_.put(made.result, own, std::move(result));
  return llvm::Error::success();
}

} // namespace spmd::runtime
