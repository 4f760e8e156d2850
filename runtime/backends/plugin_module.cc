// Modules are opened with their symbols kept apart from ours.
#include "runtime/backends/plugin_module.h"

#include "runtime/launch/executable.h"

#include "ir/support/error.h"

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

// What the module gives, of a version that we speak.
llvm::Expected<const void *> checked(void *module, const std::string &path,
                                     const BackendRow &backend, const char *symbol, uint32_t abi,
                                     size_t bytes) {
  auto entry = reinterpret_cast<const void *(*)()>(::dlsym(module, symbol));
  if (!entry)
    return make_error(fmt::format("{} is no plug-in: it has no symbol `{}`", path, symbol));
  const void *table = entry();
  const auto &plugin = *static_cast<const PluginTable *>(table);
  if (plugin.abi != abi || plugin.bytes < bytes)
    return make_error(fmt::format("{} speaks version {} of the interface ({} bytes), this spmdrun "
                                  "version {} ({}): build both from one source",
                                  path, plugin.abi, plugin.bytes, abi, bytes));
  if (backend.name != plugin.name)
    return make_error(
        fmt::format("{} is the plug-in `{}`, not `{}`", path, plugin.name, backend.name));
  return table;
}

} // namespace

llvm::Expected<std::string> find_module(const BackendRow &backend) {
  std::string searched;
  for (const std::string &folder : folders()) {
    std::string path = fmt::format("{}/spmd_{}.so", folder, backend.name);
    if (::access(path.c_str(), F_OK) == 0)
      return path;
    searched += fmt::format("{}{}", searched.empty() ? "" : ", ", folder);
  }
  return make_error(fmt::format("there is no spmd_{}.so in {}. Next: {}, or set SPMD_PLUGIN_DIR to "
                                "where it is",
                                backend.name, searched, backend.get));
}

llvm::Expected<const void *> open_module(const BackendRow &backend, const char *symbol,
                                         uint32_t abi, size_t bytes) {
  llvm::Expected<std::string> path = find_module(backend);
  if (!path)
    return path.takeError();
  if (void *module = ::dlopen(path->c_str(), RTLD_NOW | RTLD_LOCAL))
    return checked(module, *path, backend, symbol, abi, bytes);
  return make_error(
      fmt::format("{} cannot be opened: {}. Next: {}", *path, ::dlerror(), backend.get));
}

} // namespace spmd::runtime
