// Plug-ins: found, opened, held against the version of the interface, and used as Peers.
#pragma once

#include "runtime/backends/group_cache.h"
#include "runtime/backends/peers.h"
#include "runtime/backends/plugin.h"
#include "runtime/backends/table.h"
#include "runtime/launch/team.h"

namespace spmd::runtime {

// It stays open. An error says where it was looked for, or what it lacks, and what to do.
llvm::Expected<const SpmdPlugin *> open_plugin(const BackendRow &backend);

class PluginPeers final : public Peers {
public:
  // `ranks`: what the launcher said, then what the library knows. An error is the plug-in's.
  static llvm::Expected<std::unique_ptr<PluginPeers>> open(const SpmdPlugin &plugin,
                                                           SpmdRanks &ranks);
  ~PluginPeers() override;
  // Before a team is there, an answer is waited for at most so long.
  void set_patience(std::chrono::milliseconds patience) { patience_ = patience; }
  llvm::Error share(void *data, uint64_t bytes);
  // From then on it says when to give up.
  void set_team(Team *team) { team_ = team; }
  // All ranks: leaves the library in order.
  llvm::Error finish();

  RankId rank() const override { return rank_; }
  llvm::Error prepare(const Plan &plan, const World &world) override;
  llvm::Error at(uint32_t step) override { return team_->at(step); }
  llvm::Error all_gather(CommunicatorId group, const void *own, void *all,
                         llvm::ArrayRef<uint64_t> bytes) override;
  llvm::Error exchange(CommunicatorId group, llvm::ArrayRef<SpmdSend> sends,
                       llvm::ArrayRef<SpmdReceive> receives) override;

private:
  PluginPeers(const SpmdPlugin &plugin) : plugin_(plugin) {}
  static int stopped(void *self);
  void begin();
  llvm::Error error_of(const SpmdStatus &status);
  uint32_t group_of(CommunicatorId id) const {
    return id.valid() ? groups_[id.index] : kSpmdAllRanks;
  }

  const SpmdPlugin &plugin_;
  SpmdPeers *peers_ = nullptr;
  Team *team_ = nullptr;
  RankId rank_ = 0;
  std::chrono::milliseconds patience_{30'000};
  Clock::time_point begin_;
  std::vector<uint32_t> groups_; // by communicator of the plan
  GroupCache cache_;
};

} // namespace spmd::runtime
