// The backends by name, and what each can: a row is all that a command line, a session and a run
// know of it. What carries out a plan is a class (backend.h); where ranks are processes it takes a
// plug-in.
#pragma once

#include "runtime/backends/backend.h"
#include "runtime/backends/sum_order.h"

#include <span>

namespace spmd::runtime {

struct BackendRow {
  std::string_view name;
  std::string_view help; // what becomes of the ranks
  // What a rank that is a process opens: nothing, what moves bytes between ranks (plugin.h), or a
  // device (device/interface.h). Its module is `spmd_NAME.so`.
  enum class Plugin : uint8_t { None, Peers, Device } plugin = Plugin::None;
  bool simulates = false;    // all ranks in one process
  bool holds_data = true;    // else there is nothing to check
  bool any_numbers = true;   // residues and f64 too, not only the element types that are declared
  bool records = false;      // steps may be recorded and replayed
  bool needs_mpirun = false; // `--nproc` does not start its ranks itself
  SumOrder order = SumOrder::Ranks; // of sums over ranks
  std::string_view get = {};        // how to come by the plug-in
  // Of this process alone. Null: each rank needs the plug-in.
  std::unique_ptr<Backend> (*make)(const CpuOptions &options) = nullptr;
};

inline constexpr BackendRow kBackends[] = {
    {.name = "cpu",
     .help = "all ranks in this process",
     .simulates = true,
     .make = make_cpu_backend},
    {.name = "mpi",
     .help = "a process for each",
     .plugin = BackendRow::Plugin::Peers,
     .needs_mpirun = true,
     .get = "as root `apt-get install libopenmpi-dev openmpi-bin`, then `./dev build`"},
    {.name = "nccl",
     .help = "a GPU for each",
     .plugin = BackendRow::Plugin::Device,
     .any_numbers = false,
     .records = true,
     .order = SumOrder::Any,
     .get = "install the CUDA toolkit (with nvcc and cuBLASLt) and NCCL 2.22 or newer, then `./dev "
            "build`"},
    {.name = "null",
     .help = "steps are not carried out",
     .holds_data = false,
     .make = [](const CpuOptions &) { return make_null_backend(); }},
};

// The first with that property; there is one.
constexpr const BackendRow &first_backend(bool BackendRow::*can) {
  for (const BackendRow &row : kBackends)
    if (row.*can)
      return row;
  return kBackends[0];
}
// What runs where nothing is said; and where ranks are to be processes.
inline constexpr const BackendRow &kStandardBackend = first_backend(&BackendRow::simulates);
inline constexpr const BackendRow &kProcessBackend = first_backend(&BackendRow::needs_mpirun);

// A table that cannot be meant: two of one name, ranks that nothing runs, or a plug-in that nobody
// knows how to get.
constexpr bool is_sound(std::span<const BackendRow> rows) {
  for (const BackendRow &row : rows) {
    for (const BackendRow &other : rows)
      if (&row != &other && row.name == other.name)
        return false;
    bool opens = row.plugin != BackendRow::Plugin::None;
    if (opens == (row.make != nullptr) || opens == row.get.empty() || (row.simulates && !row.make))
      return false;
  }
  return true;
}
static_assert(is_sound(kBackends));

} // namespace spmd::runtime
