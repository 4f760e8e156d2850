// All ranks make the same calls of the team in the same order.
#include "runtime/judge/value_exchange.h"

#include "runtime/reference/meaning.h"

#include "ir/support/error.h"

#include "llvm/ADT/STLExtras.h"

#include <fmt/format.h>

namespace spmd::runtime {

llvm::ArrayRef<RankId> ValueExchange::ranks_of(PlannedId id) const {
  return setup_.world.ranks(setup_.program.types[setup_.plan.values[id].known.type].mesh());
}

Fingerprint ValueExchange::of_own(PlannedId id) {
  const PlannedValue &value = setup_.plan.values[id];
  const RankId own = setup_.team.rank();
  Tensor tensor;
  if (llvm::Error none = setup_.backend.read_own(value.buffer, own, tensor)) {
    llvm::consumeError(std::move(none));
    return {};
  }
  llvm::Expected<Distribution> dist = Distribution::make(setup_.program, value.known);
  if (!dist) {
    llvm::consumeError(dist.takeError());
    return fingerprint_of(tensor, std::nullopt, key());
  }
  if (!setup_.sums || tensor.dims.size() != dist->whole().size())
    return fingerprint_of(tensor, std::nullopt, key());
  llvm::ArrayRef<RankId> ranks = ranks_of(id);
  const Dims first = dist->first_on(llvm::find(ranks, own) - ranks.begin());
  return fingerprint_of(tensor, llvm::ArrayRef<int64_t>(first), key());
}

llvm::Expected<std::vector<std::vector<Fingerprint>>>
ValueExchange::fingerprints(llvm::ArrayRef<PlannedId> ids) {
  Team &team = setup_.team;
  std::string own;
  for (PlannedId id : ids)
    if (llvm::is_contained(ranks_of(id), team.rank()))
      write(of_own(id), own);
  llvm::Expected<std::vector<std::string>> all = team.gather(std::move(own));
  if (!all)
    return all.takeError();
  std::vector<std::vector<Fingerprint>> found(ids.size());
  team.doing(team.leads() ? Activity::Judging : Activity::Preparing);
  if (!team.leads())
    return found;
  std::vector<llvm::StringRef> said(all->begin(), all->end());
  for (size_t i = 0; i < ids.size(); ++i)
    for (RankId rank : ranks_of(ids[i]))
      if (!read(said[rank], found[i].emplace_back()))
        return make_error(fmt::format("rank {} sent a fingerprint that cannot be read", rank));
  return found;
}

llvm::Error ValueExchange::ask_for(PlannedId id) {
  return setup_.team.share(std::to_string(id.index)).takeError();
}

llvm::Error ValueExchange::ask_for_nothing_more() { return setup_.team.share("").takeError(); }

llvm::Error ValueExchange::answer(llvm::function_ref<llvm::Error(PlannedId)> read) {
  for (;;) {
    llvm::Expected<std::string> asked = setup_.team.share("");
    if (!asked || asked->empty())
      return asked.takeError();
    PlannedId id{};
    if (llvm::StringRef(*asked).getAsInteger(10, id.index) || id.index >= setup_.plan.values.size())
      return make_error("rank 0 asks for a value that does not exist");
    if (llvm::Error failed = read(id))
      return failed;
  }
}

} // namespace spmd::runtime
