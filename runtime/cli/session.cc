// Under MPI the library tells each process where rank 0's store listens; elsewhere the environment
// does.
#include "runtime/cli/session.h"

#include "ir/support/error.h"
#include "ir/support/strings.h"
#include "runtime/backends/gathered.h"
#include "runtime/launch/admission.h"
#include "runtime/launch/rank_codes.h"
#include "runtime/launch/spawn.h"
#include "runtime/launch/watchdog.h"

#include "checker/cli/output.h"

#include <fmt/format.h>

#include <array>
#include <cstdlib>
#include <new>
#include <unistd.h>

namespace spmd::runtime {

using checker::ExitCode;

namespace {

constexpr std::chrono::seconds kLibraryEnds{10};

const char *environment(const char *name) { return std::getenv(name); }

bool is_loopback(llvm::StringRef host) {
  return ir::starts_with(host, "127.") || host == "localhost" || host == "::1";
}

// What MPI hands from rank 0 to all.
struct StoreAddress {
  char problem[512];
  char host[256];
  char token[128];
  uint16_t port;
};
template <size_t N> void put(char (&to)[N], const std::string &text) {
  std::snprintf(to, N, "%s", text.c_str());
}

std::string host_name() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "localhost";
}

// mpirun and its like may end without ending what they started; a shell that ends is none of our
// concern.
int parent_of_rank(const Identity &identity) {
  return identity.launcher == Launcher::Mpirun && identity.size > 1 ? ::getppid() : 0;
}

TeamOptions team_options(const RunOptions &options, const Identity &identity) {
  return {.rank = identity.rank,
          .size = identity.size,
          .host = identity.host,
          .port = identity.port,
          .listener = identity.listener,
          .token = identity.token,
          .join = std::chrono::seconds(options.join_timeout),
          .wait = std::chrono::seconds(options.timeout),
          .parent = parent_of_rank(identity)};
}

// --- memory that is not there

Team *team_of_process = nullptr;
// For last words; in pieces, so that they are of the heap, whatever its limit is by then.
std::vector<std::vector<char>> reserve;

void out_of_memory() {
  std::set_new_handler(nullptr);
  reserve.clear();
  if (team_of_process && !team_of_process->leads())
    team_of_process->fail(TeamFailure::Form::Memory, "");
  std::array<char, 256> text; // nothing more is asked for
  int size = std::snprintf(text.data(), text.size(),
                           "error[run-memory]: rank 0 ran out of memory in step %u of the plan\n",
                           team_of_process ? team_of_process->whereabouts().step : 0);
  (void)!::write(STDERR_FILENO, text.data(), static_cast<size_t>(size));
  if (team_of_process)
    team_of_process->stop(static_cast<int>(ExitCode::Input));
  end_process(static_cast<int>(ExitCode::Input));
}

} // namespace

llvm::Error Session::join_peers(const RunOptions &options, Identity identity) {
  llvm::Expected<const SpmdPlugin *> plugin = open_plugin(row_);
  absent_ = !plugin;
  if (!plugin)
    return plugin.takeError();
  SpmdRanks ranks{identity.rank, identity.launcher == Launcher::None ? 0 : identity.size,
                  identity.local_rank, identity.local_size};
  std::optional<Watchdog> watchdog;
  watchdog.emplace(std::chrono::seconds(options.join_timeout),
                   fmt::format("rank {}: MPI did not bring all ranks together within {} s\n",
                               identity.rank, options.join_timeout),
                   static_cast<int>(ExitCode::Call), parent_of_rank(identity));
  llvm::Expected<std::unique_ptr<PluginPeers>> peers = PluginPeers::open(**plugin, ranks);
  watchdog.reset();
  if (!peers)
    return peers.takeError();
  peers_ = std::move(*peers);
  local_size_ = ranks.local_size;
  identity.rank = ranks.rank;
  identity.size = ranks.size;
  StoreAddress address{};
  Socket listener;
  if (ranks.rank == 0 && ranks.size > 1) {
    std::string own = std::getenv("SPMD_STORE_HOST")   ? std::getenv("SPMD_STORE_HOST")
                      : ranks.local_size == ranks.size ? "127.0.0.1"
                                                       : host_name();
    const char *port = std::getenv("SPMD_STORE_PORT");
    llvm::Expected<Socket> made = Socket::listen(own, port ? identity.port : uint16_t(0));
    if (made)
      listener = std::move(*made);
    else
      put(address.problem, fmt::format("rank 0 {}: set SPMD_STORE_PORT to a port that is free, and "
                                       "SPMD_STORE_HOST to an address of its host",
                                       llvm::toString(made.takeError())));
    put(address.host, own);
    put(address.token, identity.token.empty() ? random_token() : identity.token);
    address.port = listener.valid() ? listener.port() : uint16_t(0);
  }
  peers_->set_patience(std::chrono::seconds(options.join_timeout));
  if (llvm::Error error = peers_->share(&address, sizeof address))
    return error;
  if (address.problem[0])
    return make_error(address.problem);
  identity.host = address.host;
  identity.port = address.port;
  identity.token = address.token;
  identity.listener = listener.release();
  return join(options, identity);
}

llvm::Error Session::join(const RunOptions &options, const Identity &identity) {
  llvm::Expected<std::unique_ptr<Team>> team = Team::join(team_options(options, identity));
  if (!team)
    return team.takeError();
  team_ = std::move(*team);
  if (peers_)
    peers_->set_team(team_.get());
  return llvm::Error::success();
}

llvm::Error Session::join_store(const RunOptions &options, Identity identity) {
  local_size_ = identity.local_size;
  const bool alone = identity.launcher == Launcher::None;
  if (identity.host.empty())
    identity.host = "127.0.0.1";
  if (alone && identity.port == 0) {
    llvm::Expected<Socket> made = Socket::listen(identity.host, 0);
    if (!made)
      return made.takeError();
    identity.port = made->port();
    identity.listener = made->release();
  }
  if (identity.port == 0)
    return make_error(
        "the store of rank 0 has no port: set SPMD_STORE_PORT to one that is free, the "
        "same on all ranks");
  if (identity.token.empty() && !is_loopback(identity.host))
    return make_error(fmt::format("the store of rank 0 listens on {}: set SPMD_STORE_TOKEN to a "
                                  "secret, the same on all ranks",
                                  identity.host));
  return join(options, identity);
}

bool Session::keeps_waiting(uint32_t step, bool first) {
  if (first || step != reached_) {
    reached_ = step;
    if (llvm::Error error = team_->at(step)) {
      llvm::consumeError(std::move(error));
      return false;
    }
    team_->begin_wait();
  }
  return !team_->has_failed();
}

llvm::Error Session::join_devices(const RunOptions &options, Identity identity) {
  const SpmdRanks ranks{identity.rank, identity.size, identity.local_rank, identity.local_size};
  llvm::Expected<std::unique_ptr<DeviceRank>> device =
      open_device_rank(row_, ranks, [this](uint32_t step, bool first) {
        return !team_ || keeps_waiting(step, first);
      });
  absent_ = !device;
  if (!device)
    return device.takeError();
  if (llvm::Error error = join_store(options, std::move(identity)))
    return error;
  device_ = std::move(*device);
  return device_->connect(
      *team_, {.records = records_steps(options), .deterministic = options.deterministic});
}

llvm::Error Session::meet(const RunOptions &options, Identity identity) {
  switch (row_.plugin) {
  case BackendRow::Plugin::Peers:
    return join_peers(options, std::move(identity));
  case BackendRow::Plugin::Device:
    return join_devices(options, std::move(identity));
  case BackendRow::Plugin::None:
    break;
  }
  return join_store(options, std::move(identity));
}

std::unique_ptr<Session> Session::open(const RunOptions &options, ExitCode &code) {
  code = ExitCode::Call;
  llvm::Expected<Identity> identity = identity_of(environment);
  if (!identity) {
    checker::say(llvm::toString(identity.takeError()));
    return nullptr;
  }
  if (identity->launcher == Launcher::Mpirun && !environment(kTerminal))
    checker::assume_no_terminal();
  bool alone = identity->size == 1;
  const BackendRow &row = *options.backend;
  if (row.simulates && !alone && identity->launcher == Launcher::Mpirun) {
    if (identity->rank == 0)
      checker::say(fmt::format("mpirun started {} processes, and the {} backend simulates all "
                               "ranks in each of them: add --backend={}",
                               identity->size, row.name, kProcessBackend.name));
    return nullptr;
  }
  if (row.simulates || (row.make && alone)) {
    code = ExitCode::Clean;
    return nullptr;
  }
  std::unique_ptr<Session> session(new Session(row));
  if (llvm::Error problem = session->meet(options, std::move(*identity))) {
    checker::say(llvm::toString(std::move(problem)));
    code = session->absent_ && options.skip_unavailable ? ExitCode::Skipped : ExitCode::Call;
    if (session->peers_ || session->device_)
      end_process(static_cast<int>(code)); // the library would wait for the others
    return nullptr;
  }
  team_of_process = session->team_.get();
  reserve.assign(64, std::vector<char>(1 << 14));
  std::set_new_handler(out_of_memory);
  if (!session->leads())
    checker::capture_output(&session->messages_);
  code = ExitCode::Clean;
  return session;
}

Session::~Session() {
  std::set_new_handler(nullptr);
  team_of_process = nullptr;
}

llvm::Expected<ExitCode> Session::agree(ExitCode own) {
  llvm::Expected<std::vector<std::string>> all =
      team_->gather(std::string(1, static_cast<char>(own)) + messages_);
  if (!all)
    return all.takeError();
  messages_.clear();
  ExitCode worst = own;
  for (uint32_t rank = 1; rank < all->size(); ++rank) {
    auto theirs = static_cast<ExitCode>((*all)[rank][0]);
    bool reported = worst != ExitCode::Clean;
    worst = checker::worse(worst, theirs);
    if (theirs != ExitCode::Clean && !reported) {
      checker::say(fmt::format("rank {} cannot go on:", rank));
      checker::print_stderr(llvm::StringRef((*all)[rank]).drop_front());
    }
  }
  llvm::Expected<uint8_t> decided = decide(static_cast<uint8_t>(worst));
  if (!decided)
    return decided.takeError();
  return static_cast<ExitCode>(*decided);
}

llvm::Expected<std::optional<Session::Difference>> Session::compare(const About &own) {
  std::string text;
  for (const auto &[name, value] : own)
    text += fmt::format("{}\n{}\n", name, value);
  llvm::Expected<std::vector<std::string>> all = team_->gather(text);
  if (!all)
    return all.takeError();
  std::string found;
  for (uint32_t rank = 1; rank < all->size() && found.empty(); ++rank) {
    llvm::SmallVector<llvm::StringRef, 16> lines;
    llvm::StringRef((*all)[rank]).split(lines, '\n');
    for (size_t i = 0; i < own.size() && found.empty(); ++i) {
      llvm::StringRef theirs = 2 * i + 1 < lines.size() ? lines[2 * i + 1] : "nothing";
      if (theirs != own[i].second)
        found = fmt::format("{} {} is {}, and {} on rank 0", rank, own[i].first, theirs.str(),
                            own[i].second);
    }
  }
  llvm::Expected<std::string> shared = team_->share(found);
  if (!shared)
    return shared.takeError();
  if (shared->empty())
    return std::optional<Difference>();
  Difference difference;
  llvm::StringRef rest = *shared;
  rest.consumeInteger(10, difference.rank);
  difference.text = rest.ltrim().str();
  return std::optional<Difference>(std::move(difference));
}

llvm::Expected<uint8_t> Session::decide(uint8_t own) {
  llvm::Expected<std::string> said = team_->share(std::string(1, static_cast<char>(own)));
  if (!said)
    return said.takeError();
  return static_cast<uint8_t>(said->empty() ? 0 : (*said)[0]);
}

llvm::Error Session::finish(ExitCode code) {
  if (llvm::Error error = team_->dissolve())
    return error;
  if (!peers_ && !device_)
    return llvm::Error::success();
  // All is said; a rank that ends now may still keep the library from ending.
  Watchdog watchdog(kLibraryEnds, "", static_cast<int>(code));
  return device_ ? device_->finish() : peers_->finish();
}

std::unique_ptr<Backend> Session::backend(const CpuOptions &options) {
  if (device_)
    return std::make_unique<GatheredBackend>(device_->backend(options.seed), *team_,
                                             options.domain);
  if (!peers_)
    return row_.make(options);
  CpuOptions own = options;
  own.peers = peers_.get();
  return std::make_unique<GatheredBackend>(make_cpu_backend(own), *team_, options.domain);
}

void Session::abandon(ExitCode code) {
  team_->stop(static_cast<int>(code));
  end_process(static_cast<int>(code));
}

} // namespace spmd::runtime
