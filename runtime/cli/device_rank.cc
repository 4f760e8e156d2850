// Rank 0 alone says what the host computes, and why nothing is recorded: once.
#include "runtime/cli/device_rank.h"

#include "runtime/device/backend.h"

#include "checker/cli/output.h"

#include "ir/support/error.h"

#include <fmt/format.h>

#include <cstring>
#include <utility>

namespace spmd::runtime {

namespace {

void report_host_ops(const HostOps &ops) {
  std::string list;
  for (const auto &[op, steps] : ops)
    list += fmt::format("{}{} `{}`", list.empty() ? "" : ", ", steps, op);
  checker::say("note: the host computes what devices have no commands for: " + list);
}

class OpenedDevice final : public DeviceRank {
public:
  explicit OpenedDevice(std::unique_ptr<DeviceLink> link) : link_(std::move(link)) {}

  llvm::Error connect(Team &team, const Options &options) override {
    team_ = &team;
    options_ = options;
    const SpmdDevicePlugin &plugin = link_->plugin();
    if (options.deterministic)
      if (llvm::Error error = link_->ask(plugin.fix_order))
        return error;
    SpmdId id{};
    if (team.leads())
      if (llvm::Error error = link_->ask(plugin.make_id, &id))
        return error;
    llvm::Expected<std::string> shared = team.share(std::string(id.bytes, sizeof id.bytes));
    if (!shared)
      return shared.takeError();
    if (shared->size() != sizeof id.bytes)
      return make_error("rank 0 gave no id by which devices meet");
    std::memcpy(id.bytes, shared->data(), sizeof id.bytes);
    return link_->ask(plugin.connect, static_cast<const SpmdId *>(&id));
  }

  std::string library() const override { return link_->facts().library; }
  std::string name() const override { return link_->facts().name; }
  llvm::Error finish() override { return link_->finish(); }

  std::unique_ptr<Backend> backend(uint64_t seed) override {
    DeviceOptions own{.seed = seed};
    if (team_->leads() && !std::exchange(host_ops_reported_, true))
      own.on_host = report_host_ops;
    // In a batch the library may divide what it adds up otherwise than alone.
    own.batches = !options_.deterministic;
    own.records = options_.records;
    own.on_all = [this](std::string &bits) { return keep_what_all_say(bits); };
    own.on_no_record = [this](const std::string &why) {
      if (team_->leads() && !std::exchange(no_recording_reported_, true))
        checker::say("note: steps are not recorded as graphs: " + why);
    };
    return std::make_unique<DeviceBackend>(*link_, own);
  }

private:
  llvm::Error keep_what_all_say(std::string &bits) {
    llvm::Expected<std::vector<std::string>> all = team_->gather(bits);
    if (!all)
      return all.takeError();
    for (const std::string &each : *all)
      for (size_t i = 0; i < bits.size(); ++i)
        bits[i] = bits[i] && i < each.size() && each[i];
    llvm::Expected<std::string> shared = team_->share(bits);
    if (!shared)
      return shared.takeError();
    bits = std::move(*shared);
    return llvm::Error::success();
  }

  std::unique_ptr<DeviceLink> link_;
  Team *team_ = nullptr;
  Options options_;
  bool host_ops_reported_ = false; // what the host computes
  bool no_recording_reported_ = false;
};

} // namespace

// Each rank finds its device before any waits for the others.
llvm::Expected<std::unique_ptr<DeviceRank>>
open_device_rank(const BackendRow &row, const SpmdRanks &ranks, DeviceRank::Patience patience) {
  llvm::Expected<const SpmdDevicePlugin *> plugin = open_device_plugin(row);
  if (!plugin)
    return plugin.takeError();
  llvm::Expected<std::unique_ptr<DeviceLink>> link =
      DeviceLink::open(**plugin, ranks, std::move(patience));
  if (!link)
    return link.takeError();
  return std::make_unique<OpenedDevice>(std::move(*link));
}

} // namespace spmd::runtime
