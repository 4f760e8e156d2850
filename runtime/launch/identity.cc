// Variables of launchers, by table: what each calls the rank, the size, and the same on this host.
#include "runtime/launch/identity.h"

#include "ir/support/error.h"

#include "llvm/ADT/StringRef.h"

#include <fmt/format.h>

namespace spmd::runtime {
namespace {

using llvm::StringRef;

struct LauncherRow {
  Launcher launcher;
  const char *rank, *size, *local_rank, *local_size;
};
// The first whose rank and size are there. Slurm's are set in the shell of a job as well, where
// there is no step: SLURM_STEP_ID tells them apart.
constexpr LauncherRow kLaunchers[] = {
    {Launcher::Torchrun, "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"},
    {Launcher::Slurm, "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", nullptr},
    {Launcher::Mpirun, "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
     "OMPI_COMM_WORLD_LOCAL_SIZE"},
    {Launcher::Mpirun, "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"},
};

StringRef text_of(Environment environment, const char *name) {
  const char *value = name ? environment(name) : nullptr;
  return value ? StringRef(value) : StringRef();
}

// `none` where the variable is not set.
llvm::Expected<uint32_t> number_of(Environment environment, const char *name, uint32_t none) {
  StringRef text = text_of(environment, name);
  uint32_t number = none;
  if (!text.empty() && text.getAsInteger(10, number))
    return make_error(fmt::format("{}={} is no number", name, text.str()));
  return number;
}

llvm::Error take_ranks(Environment environment, const LauncherRow &row, Identity &identity) {
  struct {
    const char *name;
    uint32_t *into;
  } const wanted[] = {{row.rank, &identity.rank},
                      {row.size, &identity.size},
                      {row.local_rank, &identity.local_rank},
                      {row.local_size, &identity.local_size}};
  for (auto [name, into] : wanted) {
    llvm::Expected<uint32_t> number = number_of(environment, name, *into);
    if (!number)
      return number.takeError();
    *into = *number;
  }
  if (identity.size == 0 || identity.rank >= identity.size)
    return make_error(
        fmt::format("{}={} is no rank of {}={}", row.rank, identity.rank, row.size, identity.size));
  return llvm::Error::success();
}

// MASTER_PORT itself is taken: torchrun talks to its own there.
llvm::Error take_store(Environment environment, Identity &identity) {
  identity.host = text_of(environment, "SPMD_STORE_HOST").str();
  if (identity.host.empty())
    identity.host = text_of(environment, "MASTER_ADDR").str();
  if (identity.host.empty() && identity.launcher == Launcher::Slurm)
    identity.host = first_host(text_of(environment, "SLURM_STEP_NODELIST"));
  identity.token = text_of(environment, "SPMD_STORE_TOKEN").str();
  llvm::Expected<uint32_t> own = number_of(environment, "SPMD_STORE_PORT", 0);
  llvm::Expected<uint32_t> master = number_of(environment, "MASTER_PORT", 0);
  llvm::Expected<uint32_t> listener = number_of(environment, "SPMD_STORE_FD", ~0u);
  llvm::Expected<uint32_t> job = number_of(environment, "SLURM_JOB_ID", 0);
  for (llvm::Expected<uint32_t> *each : {&own, &master, &listener, &job})
    if (!*each) {
      for (llvm::Expected<uint32_t> *other : {&own, &master, &listener, &job})
        if (other != each && !*other)
          llvm::consumeError(other->takeError());
      return each->takeError();
    }
  uint32_t port = *own ? *own : *master ? *master + 1 : 0;
  if (port == 0 && identity.launcher == Launcher::Slurm)
    port = 20000 + *job % 20000;
  if (port > 65535)
    return make_error(fmt::format("{} is no port", port));
  identity.port = static_cast<uint16_t>(port);
  identity.listener = *listener == ~0u ? -1 : static_cast<int>(*listener);
  return llvm::Error::success();
}

} // namespace

std::string first_host(StringRef list) {
  size_t end = list.find_first_of(",[");
  if (end == StringRef::npos || list[end] == ',')
    return list.take_front(end).str();
  StringRef numbers = list.drop_front(end + 1);
  return (list.take_front(end) + numbers.take_front(numbers.find_first_of("-,]"))).str();
}

llvm::Expected<Identity> identity_of(Environment environment) {
  Identity identity;
  for (const LauncherRow &row : kLaunchers) {
    if (text_of(environment, row.rank).empty() || text_of(environment, row.size).empty())
      continue;
    if (row.launcher == Launcher::Slurm && text_of(environment, "SLURM_STEP_ID").empty())
      continue;
    identity.launcher = row.launcher;
    if (llvm::Error error = take_ranks(environment, row, identity))
      return llvm::Expected<Identity>(std::move(error));
    break;
  }
  if (llvm::Error error = take_store(environment, identity))
    return llvm::Expected<Identity>(std::move(error));
  return identity;
}

} // namespace spmd::runtime
