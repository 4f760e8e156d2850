// Modules are opened with their symbols kept apart from ours.
#include "runtime/backends/plugin_peers.h"

#include "runtime/backends/executable.h"

#include "ir/support/error.h"

#include "llvm/ADT/STLExtras.h"

#include <fmt/format.h>

#include <cstdlib>
#include <dlfcn.h>
#include <unistd.h>

namespace spmd::runtime {
namespace {

std::vector<std::string> folders() {
  if (const char *given = std::getenv("SPMD_PLUGIN_DIR"); given && *given)
    return {given};
  const std::string program = executable_path();
  return {program.substr(0, program.rfind('/')), SPMD_INSTALLED_PLUGINS};
}

// The table that a module gives, of a version that we speak.
template <class Table>
llvm::Expected<const Table *> checked(void *module, const std::string &path, std::string_view name,
                                      const char *symbol, uint32_t abi) {
  auto entry = reinterpret_cast<const Table *(*)()>(::dlsym(module, symbol));
  if (!entry)
    return make_error(fmt::format("{} is no plug-in: it has no symbol `{}`", path, symbol));
  const Table *plugin = entry();
  if (plugin->abi != abi || plugin->bytes < sizeof(Table))
    return make_error(fmt::format("{} speaks version {} of the interface ({} bytes), this spmdrun "
                                  "version {} ({}): build both from one source",
                                  path, plugin->abi, plugin->bytes, abi, sizeof(Table)));
  if (name != plugin->name)
    return make_error(fmt::format("{} is the plug-in `{}`, not `{}`", path, plugin->name, name));
  return plugin;
}

template <class Table>
llvm::Expected<const Table *> open_table(const BackendRow &backend, const char *symbol,
                                         uint32_t abi) {
  std::string searched;
  for (const std::string &folder : folders()) {
    std::string path = fmt::format("{}/spmd_{}.so", folder, backend.name);
    if (::access(path.c_str(), F_OK) != 0) {
      searched += fmt::format("{}{}", searched.empty() ? "" : ", ", folder);
      continue;
    }
    if (void *module = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL))
      return checked<Table>(module, path, backend.name, symbol, abi);
    return make_error(
        fmt::format("{} cannot be opened: {}. Next: {}", path, ::dlerror(), backend.get));
  }
  return make_error(fmt::format("there is no spmd_{}.so in {}. Next: {}, or set SPMD_PLUGIN_DIR to "
                                "where it is",
                                backend.name, searched, backend.get));
}

} // namespace

llvm::Expected<const SpmdPlugin *> open_plugin(const BackendRow &backend) {
  return open_table<SpmdPlugin>(backend, "spmd_plugin", kSpmdPluginAbi);
}
llvm::Expected<const SpmdDevicePlugin *> open_device_plugin(const BackendRow &backend) {
  return open_table<SpmdDevicePlugin>(backend, "spmd_device_plugin", kSpmdDeviceAbi);
}

llvm::Expected<std::unique_ptr<PluginPeers>> PluginPeers::open(const SpmdPlugin &plugin,
                                                               SpmdRanks &ranks) {
  std::unique_ptr<PluginPeers> made(new PluginPeers(plugin));
  SpmdHost host{sizeof(SpmdHost), made.get(), &PluginPeers::stopped};
  SpmdStatus status = plugin.open(&host, &ranks, &made->peers_);
  if (status.code != kSpmdFine)
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
  return status.code == kSpmdFine ? llvm::Error::success() : error_of(status);
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
  if (status.code == kSpmdFine)
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
