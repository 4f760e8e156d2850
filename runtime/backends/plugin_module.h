// The module of a plug-in: found, opened, held against the version of the interface.
#pragma once

#include "runtime/backends/table.h"

namespace spmd::runtime {

// What is common to the tables of all interfaces.
struct PluginTable {
  uint32_t abi, bytes;
  const char *name;
};
// The file `spmd_NAME.so` in SPMD_PLUGIN_DIR, else beside the executable or where it was installed.
// An error says where it was looked for, and what to do.
llvm::Expected<std::string> find_module(const BackendRow &backend);
// The table that function `symbol` of that module gives. It stays open. An error says what
// it lacks, and what to do.
llvm::Expected<const void *> open_module(const BackendRow &backend, const char *symbol,
                                         uint32_t abi, size_t bytes);
template <class Table>
llvm::Expected<const Table *> open_module(const BackendRow &backend, const char *symbol,
                                          uint32_t abi) {
  llvm::Expected<const void *> table = open_module(backend, symbol, abi, sizeof(Table));
  if (!table)
    return table.takeError();
  return static_cast<const Table *>(*table);
}

} // namespace spmd::runtime
