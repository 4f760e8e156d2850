// This process as one rank of a run: joins the others, agrees with them, and ends with them. Rank 0
// alone speaks; what the others would have said it says for them.
#pragma once

#include "runtime/backends/backend.h"
#include "runtime/backends/plugin_peers.h"
#include "runtime/cli/device_rank.h"
#include "runtime/cli/options.h"
#include "runtime/launch/identity.h"

#include "checker/cli/exit_code.h"

namespace spmd::runtime {

class Session {
public:
  // Null, with the exit code Clean: the run is this process alone. Null and another code: it has
  // been said why the ranks cannot meet.
  static std::unique_ptr<Session> open(const RunOptions &options, checker::ExitCode &code);
  ~Session();

  bool leads() const { return team_->leads(); }
  uint32_t rank() const { return team_->rank(); }
  uint32_t size() const { return team_->size(); }
  uint32_t local_size() const { return local_size_; }
  Team &team() { return *team_; }

  // --- of all ranks together; errors: the team has failed

  // The worst of their exit codes.
  llvm::Expected<checker::ExitCode> agree(checker::ExitCode own);
  // What a run is about, item by item; the first one in which a rank differs from rank 0.
  using About = std::vector<std::pair<std::string, std::string>>;
  struct Difference {
    uint32_t rank = 0;
    std::string text; // with both values
  };
  llvm::Expected<std::optional<Difference>> compare(const About &own);
  // What rank 0 says.
  llvm::Expected<uint8_t> decide(uint8_t own);
  // All have finished, and leave with this code. Not after a failure.
  llvm::Error finish(checker::ExitCode code);

  // What goes between devices, with its version; empty: no devices.
  std::string library() const { return device_ ? device_->library() : ""; }
  // Of this rank.
  std::string device() const { return device_ ? device_->name() : ""; }
  // With its one rank.
  std::unique_ptr<Backend> backend(const CpuOptions &options);
  // Ends this process and all others, at once.
  [[noreturn]] void abandon(checker::ExitCode code);

private:
  explicit Session(const BackendRow &row) : row_(row) {}
  llvm::Error meet(const RunOptions &options, Identity identity);
  llvm::Error join(const RunOptions &options, const Identity &identity);
  llvm::Error join_peers(const RunOptions &options, Identity identity);
  llvm::Error join_store(const RunOptions &options, Identity identity);
  llvm::Error join_devices(const RunOptions &options, Identity identity);
  bool keeps_waiting(uint32_t step, bool first);

  const BackendRow &row_;
  std::unique_ptr<PluginPeers> peers_; // of MPI
  std::unique_ptr<Team> team_;
  std::unique_ptr<DeviceRank> device_;
  uint32_t reached_ = 0; // step of the plan, by the device
  bool absent_ = false;  // the backend is not there
  uint32_t local_size_ = 1;
  std::string messages_; // of a rank that does not lead
};

} // namespace spmd::runtime
