// Steps of a rank whose peers are other processes. Bytes go round, and what is added is added here,
// in the order of the ranks and by the same code as where all ranks are in one process: results
// have the same bits.
#include "ir/support/arrays.h"
#include "ir/support/error.h"
#include "runtime/backends/cpu/backend.h"

#include "runtime/backends/cpu/steps.h"
#include "runtime/backends/peers.h"
#include "runtime/tensor/packed.h"

#include "llvm/ADT/STLExtras.h"

#include <fmt/format.h>

namespace spmd::runtime {
namespace {

using rules::Collective;

char *cells_of(Tensor &tensor) {
  return tensor.visit([](auto &cells) { return reinterpret_cast<char *>(cells.data()); });
}
uint64_t cell_size(const Tensor &tensor) {
  return tensor.visit([](const auto &cells) { return uint64_t(sizeof(cells[0])); });
}
llvm::Error no_such_number(ir::DType dtype) {
  return make_error(
      fmt::format("what is to be sent holds a number that {} does not have", ir::info(dtype).word));
}

using Content = BufferTensors::Content;

// One collective, as one of its ranks sees it. Elements travel packed, or else as their cells.
class PeerCollective {
public:
  PeerCollective(const Communicate &collective, const Plan &plan, llvm::ArrayRef<RankId> members,
                 RankId own, Domain domain, Peers &peers, BufferTensors &tensors,
                 SharedTensor operand)
      : collective_(collective), plan_(plan), members_(members), domain_(domain), peers_(peers),
        tensors_(tensors), operand_(std::move(operand)),
        packed_(packed_size(operand_->dtype, domain) > 0),
        element_(packed_ ? packed_size(operand_->dtype, domain) : cell_size(*operand_)),
        size_(members.size()),
        own_(static_cast<size_t>(llvm::find(members, own) - members.begin())) {}
  ~PeerCollective() {
    for (SharedTensor &tensor : segments_)
      tensors_.give_back(tensor);
  }

  llvm::Expected<SharedTensor> run();

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
  SharedTensor fresh(const Dims &dims, Content content) {
    return packed_ ? tensors_.fresh_packed(operand_->dtype, dims, content)
                   : tensors_.fresh(operand_->dtype, dims, content);
  }
  void make_result(Content content) {
    result_ = fresh(plan_.buffers[collective_.result].on(members_[own_]), content);
  }
  char *data(BufferTensor &tensor) const {
    return packed_ ? tensor.packed.data() : cells_of(tensor);
  }
  BufferTensor &segment(uint64_t cells) {
    segments_.push_back(fresh({static_cast<int64_t>(cells)}, Content::Anything));
    return *segments_.back();
  }
  // By position: the operands, or parts of them, which this rank adds.
  using Parts = llvm::SmallVector<const char *, 8>;
  using Lengths = llvm::SmallVector<uint64_t, 8>;
  llvm::Error receive_all(Parts &parts);
  llvm::Error swap(const Lengths &begins, const Lengths &lengths, Parts &parts);
  llvm::Error gather(const char *own, llvm::ArrayRef<uint64_t> lengths);
  llvm::Error all_reduce();
  llvm::Error reduce_scatter();
  llvm::Error all_gather();
  llvm::Error all_to_all();
  llvm::Error broadcast();
  llvm::Error permute();

  const Communicate &collective_;
  const Plan &plan_;
  llvm::ArrayRef<RankId> members_;
  Domain domain_;
  Peers &peers_;
  BufferTensors &tensors_;
  SharedTensor operand_, result_;
  const char *from_ = nullptr;                   // the elements of the operand
  llvm::SmallVector<SharedTensor, 16> segments_; // of this call alone
  bool packed_;
  uint64_t element_; // bytes
  size_t size_, own_;
};

// To each position its part of the own operand, [begins[i], begins[i] + lengths[i]); from each as
// many elements as the own part has.
llvm::Error PeerCollective::swap(const Lengths &begins, const Lengths &lengths, Parts &parts) {
  llvm::SmallVector<SpmdSend, 16> sends;
  llvm::SmallVector<SpmdReceive, 16> receives;
  for (size_t i = 0; i < size_; ++i) {
    const char *own = from_ + begins[i] * element_;
    if (i == own_) {
      parts.push_back(own);
      continue;
    }
    char *part = data(segment(lengths[own_]));
    parts.push_back(part);
    auto position = static_cast<uint32_t>(i);
    sends.push_back({position, own, lengths[i] * element_});
    receives.push_back({position, part, lengths[own_] * element_});
  }
  return peers_.exchange(collective_.group, sends, receives);
}

// The operands of all positions.
llvm::Error PeerCollective::receive_all(Parts &parts) {
  const uint64_t all = elements(collective_.operand, own_);
  return swap(Lengths(size_, 0), Lengths(size_, all), parts);
}

llvm::Error PeerCollective::gather(const char *own, llvm::ArrayRef<uint64_t> lengths) {
  llvm::SmallVector<uint64_t, 16> bytes;
  for (uint64_t each : lengths)
    bytes.push_back(each * element_);
  return peers_.all_gather(collective_.group, own, data(*result_), bytes);
}

// Each rank adds the part that falls to it, and all parts go to all.
llvm::Error PeerCollective::all_reduce() {
  make_result(Content::Anything);
  const uint64_t all = elements(collective_.operand, own_);
  Parts parts;
  if (all * element_ <= kFewBytes || size_ == 2) {
    if (llvm::Error error = receive_all(parts))
      return error;
    reduce_in_order(collective_, parts, packed_, domain_, *result_);
    return llvm::Error::success();
  }
  Lengths begins, lengths;
  for (size_t i = 0; i < size_; ++i) {
    begins.push_back(all * i / size_);
    lengths.push_back(all * (i + 1) / size_ - begins[i]);
  }
  if (llvm::Error error = swap(begins, lengths, parts))
    return error;
  BufferTensor &own = segment(lengths[own_]);
  reduce_in_order(collective_, parts, packed_, domain_, own);
  return gather(data(own), lengths);
}

llvm::Error PeerCollective::reduce_scatter() {
  make_result(Content::Anything);
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
  reduce_in_order(collective_, parts, packed_, domain_, *result_);
  return llvm::Error::success();
}

llvm::Error PeerCollective::all_gather() {
  make_result(Content::Anything);
  Lengths lengths;
  for (size_t i = 0; i < size_; ++i)
    lengths.push_back(elements(collective_.operand, i));
  return gather(from_, lengths);
}

llvm::Error PeerCollective::all_to_all() {
  uint64_t all = 0;
  for (size_t i = 0; i < size_; ++i)
    all += length(i, own_);
  make_result(all == elements(collective_.result, own_) ? Content::Anything : Content::Zeros);
  llvm::SmallVector<SpmdSend, 16> sends;
  llvm::SmallVector<SpmdReceive, 16> receives;
  const char *from = from_;
  char *to = data(*result_);
  for (size_t i = 0; i < size_; ++i) {
    uint64_t out = length(own_, i) * element_, in = length(i, own_) * element_;
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
llvm::Error PeerCollective::broadcast() {
  make_result(Content::Anything);
  Lengths lengths(size_, 0);
  lengths[collective_.root] = elements(collective_.operand, collective_.root);
  return gather(from_, lengths);
}

// A position that nothing is sent to gets zeros.
llvm::Error PeerCollective::permute() {
  llvm::SmallVector<SpmdSend, 2> sends;
  llvm::SmallVector<SpmdReceive, 1> receives;
  llvm::ArrayRef<int64_t> perm =
      ir::as_array(plan_.numbers).slice(collective_.perm.first, collective_.perm.count);
  for (size_t i = 0; i + 1 < perm.size(); i += 2) {
    auto from = static_cast<uint32_t>(perm[i]), to = static_cast<uint32_t>(perm[i + 1]);
    if (from == own_ && to == own_) {
      result_ = operand_;
    } else if (from == own_) {
      sends.push_back({to, from_, elements(collective_.operand, own_) * element_});
    } else if (to == own_) {
      make_result(Content::Anything);
      receives.push_back({from, data(*result_), elements(collective_.result, own_) * element_});
    }
  }
  if (!result_)
    make_result(Content::Zeros);
  return peers_.exchange(collective_.group, sends, receives);
}

llvm::Expected<SharedTensor> PeerCollective::run() {
  from_ = packed_ ? tensors_.packed(*operand_) : cells_of(*operand_);
  if (packed_ && !from_)
    return no_such_number(operand_->dtype);
  auto moved = [&] {
    switch (collective_.collective) {
    case Collective::AllReduce:
      return all_reduce();
    case Collective::ReduceScatter:
      return reduce_scatter();
    case Collective::AllGather:
      return all_gather();
    case Collective::AllToAll:
      return all_to_all();
    case Collective::Broadcast:
      return broadcast();
    case Collective::Permute:
      return permute();
    case Collective::None:
      break;
    }
    return make_error("a collective that moves nothing");
  };
  if (llvm::Error error = moved())
    return error;
  return result_;
}

} // namespace

llvm::Error CpuBackend::communicate_with_peers(const Step &step) {
  const Communicate &collective = plan_->communicates[step.index];
  const Groups &groups = groups_[collective.group.index];
  const RankId own = all_.front();
  Ranks members = groups[groups.group_of(own)];
  SharedTensor result;
  if (members.size() == 1) {
    communicate_group(collective, members, result);
  } else {
    PeerCollective call(collective, *plan_, members, own, options_.domain, *options_.peers,
                        tensors_, tensors_.stored(collective.operand, own));
    llvm::Expected<SharedTensor> made = call.run();
    if (!made)
      return made.takeError();
    result = std::move(*made);
  }
  tensors_.put(collective.result, own, std::move(result));
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
  const Buffer &sent = plan_->buffers[use.buffer];
  const uint64_t packed = packed_size(sent.dtype, options_.domain);
  auto message = [&](BufferTensor &tensor) {
    const auto size = static_cast<uint64_t>(tensor.size());
    return std::pair(packed ? tensor.packed.data() : cells_of(tensor),
                     size * (packed ? packed : cell_size(tensor)));
  };
  for (RankId rank : world_->ranks(step.mesh)) {
    RankId source = source_of(made, use, step, rank);
    if (source == rank)
      continue;
    if (source == own) {
      const SharedTensor &tensor = tensors_.stored(use.buffer, own);
      if (packed && !tensors_.packed(*tensor))
        return no_such_number(sent.dtype);
      auto [data, bytes] = message(*tensor);
      sends.push_back({rank, data, bytes});
    } else if (rank == own) {
      const Dims &dims = sent.on(source);
      got = packed ? tensors_.fresh_packed(sent.dtype, dims, Content::Anything)
                   : tensors_.fresh(sent.dtype, dims, Content::Anything);
      auto [data, bytes] = message(*got);
      receives.push_back({source, data, bytes});
    }
  }
  if (llvm::Error error = options_.peers->exchange({}, sends, receives))
    return error;
  if (!world_->on(step.mesh, own))
    return llvm::Error::success();
  if (!got)
    got = tensors_.tensor(use.buffer, own);
  SharedTensor result = got;
  const Buffer &buffer = plan_->buffers[made.result];
  if (got->dtype != buffer.dtype || got->dims != buffer.on(own)) {
    BufferTensors::make_cells(*got);
    result = tensors_.fresh(made.result, own, Content::Zeros);
    run_local_step(made, {}, {got.get()}, *result, options_.domain);
  }
  tensors_.put(made.result, own, std::move(result));
  return llvm::Error::success();
}

} // namespace spmd::runtime
