// Bytes between ranks by way of a plug-in; what it waits for, the team may end.
#include "runtime/backends/plugin_peers.h"

#include "runtime/backends/plugin_module.h"

#include "ir/support/error.h"

#include "llvm/ADT/STLExtras.h"

#include <fmt/format.h>

namespace spmd::runtime {

llvm::Expected<const SpmdPlugin *> open_plugin(const BackendRow &backend) {
  return open_module<SpmdPlugin>(backend, "spmd_plugin", kSpmdPluginAbi);
}

llvm::Expected<std::unique_ptr<PluginPeers>> PluginPeers::open(const SpmdPlugin &plugin,
                                                               SpmdRanks &ranks) {
  std::unique_ptr<PluginPeers> made(new PluginPeers(plugin));
  SpmdHost host{sizeof(SpmdHost), made.get(), &PluginPeers::stopped};
  SpmdStatus status = plugin.open(&host, &ranks, &made->peers_);
  if (status.code != kSpmdOk)
    return make_error(fmt::format("{}: {}", plugin.name, status.text));
  made->rank_ = ranks.rank;
  return made;
}

PluginPeers::~PluginPeers() {
  if (peers_)
    plugin_.close(peers_, 0);
}

llvm::Error PluginPeers::finish() {
  SpmdStatus status = plugin_.close(std::exchange(peers_, nullptr), 1);
  return status.code == kSpmdOk ? llvm::Error::success() : error_of(status);
}

int PluginPeers::stopped(void *self) {
  auto &peers = *static_cast<PluginPeers *>(self);
  if (peers.team_)
    return peers.team_->has_failed();
  return Clock::now() - peers.begin_ > peers.patience_;
}

void PluginPeers::begin() {
  if (team_)
    team_->begin_wait();
  else
    begin_ = Clock::now();
}

llvm::Error PluginPeers::error_of(const SpmdStatus &status) {
  if (status.code == kSpmdOk)
    return llvm::Error::success();
  if (status.code == kSpmdStopped)
    return make_error(team_ ? "the ranks cannot go on" : "the other ranks do not answer");
  return make_error(fmt::format("{}: {}", plugin_.name, status.text));
}

llvm::Error PluginPeers::share(void *data, uint64_t bytes) {
  begin();
  return error_of(plugin_.share(peers_, data, bytes));
}

llvm::Error PluginPeers::prepare(const Plan &plan, const World &world) {
  llvm::Expected<std::vector<uint32_t>> made =
      cache_.groups_of(plan, world, rank_, [&](uint32_t colour, uint32_t key, uint32_t *group) {
        begin();
        return error_of(plugin_.split(peers_, colour, key, group));
      });
  if (!made)
    return made.takeError();
  groups_ = std::move(*made);
  return llvm::Error::success();
}

llvm::Error PluginPeers::all_gather(CommunicatorId group, const void *own, void *all,
                                    llvm::ArrayRef<uint64_t> bytes) {
  begin();
  return error_of(plugin_.all_gather(peers_, group_of(group), own, all, bytes.data()));
}

llvm::Error PluginPeers::exchange(CommunicatorId group, llvm::ArrayRef<SpmdSend> sends,
                                  llvm::ArrayRef<SpmdReceive> receives) {
  begin();
  return error_of(plugin_.exchange(peers_, group_of(group), sends.data(),
                                   static_cast<uint32_t>(sends.size()), receives.data(),
                                   static_cast<uint32_t>(receives.size())));
}

} // namespace spmd::runtime
