// Hashes first: where ranks hold copies one of them is sent, or none if rank 0 has it. Which ranks
// hold the same is seen from the data, never taken from a type.
#include "runtime/backends/gathered.h"

#include "runtime/tensor/bits_hash.h"
#include "runtime/tensor/packed.h"

#include "ir/support/error.h"

#include <fmt/format.h>

#include <cstring>

namespace spmd::runtime {
namespace {

llvm::StringRef cells_of(const Tensor &tensor) {
  return tensor.visit([](const auto &cells) {
    return llvm::StringRef(reinterpret_cast<const char *>(cells.data()),
                           cells.size() * sizeof(cells[0]));
  });
}

// Elements in their declared type or, where one is no number of it, as their cells, which take more
// bytes.
std::string message_of(const Tensor &tensor, Domain domain) {
  std::string packed(static_cast<size_t>(tensor.size()) * packed_size(tensor.dtype, domain), 0);
  return !packed.empty() && pack(tensor, packed.data()) ? packed : cells_of(tensor).str();
}
// False: it is as long as neither.
bool take(llvm::StringRef message, Domain domain, Tensor &to) {
  const size_t packed = static_cast<size_t>(to.size()) * packed_size(to.dtype, domain);
  llvm::StringRef cells = cells_of(to);
  if (message.size() == packed && packed)
    unpack(message.data(), to);
  else if (message.size() == cells.size())
    std::memcpy(const_cast<char *>(cells.data()), message.data(), message.size());
  else
    return false;
  return true;
}

} // namespace

llvm::Error GatheredBackend::prepare(ir::Program &program, const Plan &plan, const World &world) {
  plan_ = &plan;
  world_ = &world;
  llvm::Error error = own_->prepare(program, plan, world);
  turn_to_data();
  return error;
}

llvm::Error GatheredBackend::write(BufferId to, RankId rank, const Tensor &host) {
  fetched_ = {};
  return owns(rank) ? own_->write(to, rank, host) : llvm::Error::success();
}

llvm::Error GatheredBackend::run(StepRange steps, Deadline deadline) {
  fetched_ = {};
  llvm::Error error = own_->run(steps, deadline);
  turn_to_data();
  return error;
}

// All ranks come to know who has the same as whom.
llvm::Error GatheredBackend::compare(const Tensor &own, bool there) {
  Copy mine{there ? bits_hash(own) : 0, there, 0};
  llvm::Expected<std::vector<std::string>> all =
      team_.gather(std::string(reinterpret_cast<const char *>(&mine), sizeof mine));
  if (!all)
    return all.takeError();
  copies_.assign(team_.size(), {});
  for (RankId rank = 0; rank < all->size(); ++rank) {
    if ((*all)[rank].size() != sizeof(Copy))
      return make_error(fmt::format("rank {} says something else than what it holds", rank));
    std::memcpy(&copies_[rank], (*all)[rank].data(), sizeof(Copy));
    Copy &copy = copies_[rank];
    for (copy.same_as = 0; copy.same_as < rank; ++copy.same_as)
      if (copies_[copy.same_as].there && copies_[copy.same_as].hash == copy.hash)
        break;
  }
  size_t bytes = copies_.size() * sizeof(Copy);
  llvm::Expected<std::string> table =
      team_.share(std::string(reinterpret_cast<const char *>(copies_.data()), bytes));
  if (!table)
    return table.takeError();
  std::memcpy(copies_.data(), table->data(), std::min(bytes, table->size()));
  return llvm::Error::success();
}

llvm::Error GatheredBackend::fetch(BufferId from) {
  const Buffer &buffer = plan_->buffers[from];
  const RankId rank = team_.rank();
  Tensor own;
  bool there = true;
  if (llvm::Error none = own_->read(from, rank, own)) {
    llvm::consumeError(std::move(none));
    there = false;
  }
  if (llvm::Error error = compare(own, there))
    return error;
  auto sends = [&](RankId of) { return of > 0 && copies_[of].there && copies_[of].same_as == of; };
  bool any = false;
  for (RankId of = 1; of < team_.size(); ++of)
    any |= sends(of);
  tensors_.assign(team_.leads() ? team_.size() : 0, {});
  if (any) {
    llvm::Expected<std::vector<std::string>> all =
        team_.gather(sends(rank) ? message_of(own, domain_) : std::string());
    if (!all)
      return all.takeError();
    for (RankId of = 1; of < all->size(); ++of) {
      if (!sends(of))
        continue;
      tensors_[of] = Tensor::make(buffer.dtype, buffer.on(of), domain_);
      if (!take((*all)[of], domain_, tensors_[of]))
        return make_error(
            fmt::format("rank {} holds {} bytes of buffer {}: they do not fit its extents", of,
                        (*all)[of].size(), from.index));
      (*all)[of] = {};
    }
  }
  if (team_.leads())
    tensors_[0] = std::move(own);
  fetched_ = from;
  return llvm::Error::success();
}

llvm::Error GatheredBackend::read(BufferId from, RankId rank, Tensor &host) {
  if (fetched_ != from) {
    llvm::Error error = fetch(from);
    turn_to_data();
    if (error)
      return error;
  }
  if (!copies_[rank].there)
    return make_error(
        fmt::format("buffer {} holds nothing on rank {}", from.index, world_->number(rank)));
  if (team_.leads())
    host = tensors_[copies_[rank].same_as];
  return llvm::Error::success();
}

} // namespace spmd::runtime
