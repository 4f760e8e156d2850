// The plug-in `spmd_mpi`: bytes between processes by MPI. Sums are not left to it: the order in
// which an MPI library adds is its own, and results would not be those of the cpu backend. Calls do
// not block, so that a rank that is gone cannot hold up the others.
#include "runtime/backends/plugin.h"

#include <mpi.h>
#include <sched.h>

#include <algorithm>
#include <climits>
#include <cstdio>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

struct SpmdPeers {
  SpmdHost host;
  std::vector<MPI_Comm> groups;
  std::vector<int> sizes;
  std::vector<MPI_Request> requests;
  bool crowded = false; // more ranks on this host than it has cores
};

namespace {

// Counts are ints; what is longer goes in parts.
constexpr uint64_t kPart = uint64_t(1) << 30;
constexpr int kTag = 1;

SpmdStatus status_of(int32_t code, const std::string &text = "") {
  SpmdStatus status{code, {}};
  std::snprintf(status.text, sizeof status.text, "%s", text.c_str());
  return status;
}

// The text is left as it is: no small message waits for 250 bytes of nothing.
SpmdStatus fine() {
  SpmdStatus status;
  status.code = kSpmdOk;
  status.text[0] = '\0';
  return status;
}

SpmdStatus checked(int error, const char *call) {
  if (error == MPI_SUCCESS)
    return fine();
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  MPI_Error_string(error, text, &length);
  return status_of(kSpmdFailed, std::string(call) + ": " + text);
}

// Other ranks may need the core that waits: at once where there are fewer cores than ranks, else
// after as long as a message of some size takes.
SpmdStatus wait_all(SpmdPeers *peers) {
  constexpr uint64_t kSpins = 64, kPatience = 64 * kSpins;
  for (uint64_t spins = 1;; ++spins) {
    int done = 0;
    int error = MPI_Testall(static_cast<int>(peers->requests.size()), peers->requests.data(), &done,
                            MPI_STATUSES_IGNORE);
    if (error != MPI_SUCCESS || done) {
      peers->requests.clear();
      return checked(error, "MPI_Testall");
    }
    if (spins % kSpins == 0) {
      if (peers->host.stopped(peers->host.self))
        return status_of(kSpmdStopped);
      if (peers->crowded || spins > kPatience)
        sched_yield();
    }
  }
}

SpmdStatus add_group(SpmdPeers *peers, MPI_Comm comm) {
  int size = 0;
  if (int error = MPI_Comm_size(comm, &size); error != MPI_SUCCESS)
    return checked(error, "MPI_Comm_size");
  MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
  peers->groups.push_back(comm);
  peers->sizes.push_back(size);
  return fine();
}

SpmdStatus find_ranks(SpmdRanks *ranks) {
  int rank = 0, size = 0, local_rank = 0, local_size = 0;
  MPI_Comm host = MPI_COMM_NULL;
  int error = MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  error = error ? error : MPI_Comm_size(MPI_COMM_WORLD, &size);
  error =
      error ? error
            : MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL, &host);
  error = error ? error : MPI_Comm_rank(host, &local_rank);
  error = error ? error : MPI_Comm_size(host, &local_size);
  error = error ? error : MPI_Comm_free(&host);
  if (error != MPI_SUCCESS)
    return checked(error, "MPI_Comm_split_type");
  if (ranks->size > 1 && static_cast<int>(ranks->size) != size)
    return status_of(kSpmdRefused,
                     "MPI sees " + std::to_string(size) + " rank(s), the launcher started " +
                         std::to_string(ranks->size) +
                         ": start them with mpirun, srun --mpi=pmix, or spmdrun --nproc=" +
                         std::to_string(ranks->size));
  *ranks = {static_cast<uint32_t>(rank), static_cast<uint32_t>(size),
            static_cast<uint32_t>(local_rank), static_cast<uint32_t>(local_size)};
  return fine();
}

SpmdStatus open(const SpmdHost *host, SpmdRanks *ranks, SpmdPeers **made) {
  int provided = 0;
  if (int error = MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &provided);
      error != MPI_SUCCESS)
    return checked(error, "MPI_Init_thread");
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  if (provided < MPI_THREAD_FUNNELED)
    return status_of(kSpmdRefused, "this MPI library allows no other threads in its processes");
  if (SpmdStatus status = find_ranks(ranks); status.code != kSpmdOk)
    return status;
  auto *peers = new SpmdPeers{.host = *host};
  peers->crowded = ranks->local_size > std::thread::hardware_concurrency();
  MPI_Comm all = MPI_COMM_NULL;
  if (int error = MPI_Comm_dup(MPI_COMM_WORLD, &all); error != MPI_SUCCESS)
    return checked(error, "MPI_Comm_dup");
  *made = peers;
  return add_group(peers, all);
}

SpmdStatus share(SpmdPeers *peers, void *data, uint64_t bytes) {
  MPI_Request &request = peers->requests.emplace_back();
  int error = MPI_Ibcast(data, static_cast<int>(bytes), MPI_BYTE, 0, peers->groups[0], &request);
  return error == MPI_SUCCESS ? wait_all(peers) : checked(error, "MPI_Ibcast");
}

SpmdStatus split(SpmdPeers *peers, uint32_t colour, uint32_t key, uint32_t *group) {
  MPI_Comm made = MPI_COMM_NULL;
  int mpi_colour = colour == kSpmdNoColour ? MPI_UNDEFINED : static_cast<int>(colour);
  if (int error = MPI_Comm_split(peers->groups[0], mpi_colour, static_cast<int>(key), &made);
      error != MPI_SUCCESS)
    return checked(error, "MPI_Comm_split");
  *group = static_cast<uint32_t>(peers->groups.size());
  if (made != MPI_COMM_NULL)
    return add_group(peers, made);
  peers->groups.push_back(made);
  peers->sizes.push_back(0);
  return fine();
}

// By ring or tree, as the library thinks best.
SpmdStatus gather_at_once(SpmdPeers *peers, uint32_t group, const void *own, void *all,
                          const uint64_t *bytes) {
  auto size = static_cast<size_t>(peers->sizes[group]);
  std::vector<int> counts(size), begins(size);
  int at = 0, position = 0;
  MPI_Comm_rank(peers->groups[group], &position);
  for (size_t i = 0; i < size; ++i) {
    counts[i] = static_cast<int>(bytes[i]);
    begins[i] = at;
    at += counts[i];
  }
  int error = MPI_Iallgatherv(own, counts[static_cast<size_t>(position)], MPI_BYTE, all,
                              counts.data(), begins.data(), MPI_BYTE, peers->groups[group],
                              &peers->requests.emplace_back());
  return error == MPI_SUCCESS ? wait_all(peers) : checked(error, "MPI_Iallgatherv");
}

SpmdStatus exchange(SpmdPeers *peers, uint32_t group, const SpmdSend *sends, uint32_t send_count,
                    const SpmdReceive *receives, uint32_t receive_count) {
  MPI_Comm comm = peers->groups[group];
  int error = MPI_SUCCESS;
  // Those that receive are ready before anybody sends to them.
  for (uint32_t i = 0; i < receive_count; ++i)
    for (uint64_t at = 0; at < receives[i].bytes && error == MPI_SUCCESS; at += kPart)
      error = MPI_Irecv(static_cast<char *>(receives[i].data) + at,
                        static_cast<int>(std::min(kPart, receives[i].bytes - at)), MPI_BYTE,
                        static_cast<int>(receives[i].position), kTag, comm,
                        &peers->requests.emplace_back());
  for (uint32_t i = 0; i < send_count; ++i)
    for (uint64_t at = 0; at < sends[i].bytes && error == MPI_SUCCESS; at += kPart)
      error = MPI_Isend(static_cast<const char *>(sends[i].data) + at,
                        static_cast<int>(std::min(kPart, sends[i].bytes - at)), MPI_BYTE,
                        static_cast<int>(sends[i].position), kTag, comm,
                        &peers->requests.emplace_back());
  return error == MPI_SUCCESS ? wait_all(peers) : checked(error, "MPI_Isend or MPI_Irecv");
}

// Each sends its own to all others.
SpmdStatus gather_in_parts(SpmdPeers *peers, uint32_t group, const void *own, char *all,
                           const uint64_t *bytes) {
  int position = 0;
  MPI_Comm_rank(peers->groups[group], &position);
  std::vector<SpmdSend> sends;
  std::vector<SpmdReceive> receives;
  uint64_t at = 0;
  for (int i = 0; i < peers->sizes[group]; ++i) {
    if (i == position) {
      std::memcpy(all + at, own, bytes[i]);
    } else {
      sends.push_back({static_cast<uint32_t>(i), own, bytes[position]});
      receives.push_back({static_cast<uint32_t>(i), all + at, bytes[i]});
    }
    at += bytes[i];
  }
  return exchange(peers, group, sends.data(), static_cast<uint32_t>(sends.size()), receives.data(),
                  static_cast<uint32_t>(receives.size()));
}

SpmdStatus all_gather(SpmdPeers *peers, uint32_t group, const void *own, void *all,
                      const uint64_t *bytes) {
  uint64_t total = 0;
  for (int i = 0; i < peers->sizes[group]; ++i)
    total += bytes[i];
  // Of two ranks each has one message for the other, whatever the library thinks.
  return total <= INT_MAX && peers->sizes[group] > 2
             ? gather_at_once(peers, group, own, all, bytes)
             : gather_in_parts(peers, group, own, static_cast<char *>(all), bytes);
}

SpmdStatus close(SpmdPeers *peers, int32_t finish) {
  int error = MPI_SUCCESS;
  if (finish) {
    for (MPI_Comm &comm : peers->groups)
      if (comm != MPI_COMM_NULL)
        MPI_Comm_free(&comm);
    error = MPI_Finalize();
  }
  delete peers;
  return checked(error, "MPI_Finalize");
}

} // namespace

extern "C" __attribute__((visibility("default"))) const SpmdPlugin *spmd_plugin(void) {
  static constexpr SpmdPlugin kPlugin = {kSpmdPluginAbi, sizeof(SpmdPlugin), "mpi",    open, share,
                                         split,          all_gather,         exchange, close};
  return &kPlugin;
}
