// Forks, or has mpirun do it. The socket of the store is made here and handed on, so that its port
// cannot be taken in between.
#include "runtime/launch/spawn.h"

#include "runtime/launch/admission.h"
#include "runtime/launch/executable.h"
#include "runtime/launch/rank_codes.h"

#include "checker/cli/exit_code.h"
#include "checker/cli/output.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/Program.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <dirent.h>
#include <fcntl.h>
#include <fstream>
#include <memory>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

namespace spmd::runtime {
namespace {

using Words = std::vector<std::string>;

constexpr int kNothingRun = 2, kCannotFinish = 3, kLauncherFailed = 5;

int give_up(const std::string &text) {
  checker::say(text);
  return kNothingRun;
}

// The child ends with its parent, and does not see what is not for it.
[[noreturn]] void become(const Words &words, pid_t parent, const sigset_t &signals) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent)
    ::_exit(kCannotFinish);
  ::sigprocmask(SIG_SETMASK, &signals, nullptr);
  std::vector<char *> arguments;
  for (const std::string &word : words)
    arguments.push_back(const_cast<char *>(word.c_str()));
  arguments.push_back(nullptr);
  ::execvp(arguments[0], arguments.data());
  std::string text = fmt::format("spmdrun: cannot start {}: {}\n", words[0], std::strerror(errno));
  (void)!::write(STDERR_FILENO, text.data(), text.size());
  ::_exit(kNothingRun);
}

// Of a process that ended: an exit code that a rank of ours can give.
int code_of(int status) {
  constexpr int kOurs[] = {0, 1, 2, 3, 4, 70, 77};
  int code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return std::find(std::begin(kOurs), std::end(kOurs), code) != std::end(kOurs) ? code
                                                                                : kCannotFinish;
}

// Whether some process that runs is a child of this one.
bool has_children(pid_t parent) {
  DIR *folder = ::opendir("/proc");
  if (!folder)
    return true; // it is not known
  std::unique_ptr<DIR, int (*)(DIR *)> all(folder, &::closedir);
  while (const dirent *entry = ::readdir(folder)) {
    std::ifstream file(fmt::format("/proc/{}/stat", entry->d_name));
    std::string line;
    std::getline(file, line);
    char state = 'Z'; // of one that has ended and was not waited for
    pid_t its = 0;
    size_t name_end = line.rfind(')');
    if (name_end != std::string::npos &&
        std::sscanf(line.c_str() + name_end + 1, " %c %d", &state, &its) == 2 && its == parent &&
        state != 'Z')
      return true;
  }
  return false;
}

// Of mpirun that ended: what its ranks say of themselves, if they do; its own code says something
// only where it tells of a rank that crashed or was killed. Nothing is known where mpirun failed,
// or was told to stop.
int code_of_mpirun(int status, const RankCodes &ranks, uint32_t count) {
  using checker::ExitCode;
  ExitCode worst = ExitCode::Clean;
  uint32_t done = 0;
  for (uint8_t code : ranks.read()) {
    if (code >= 128) // told to end
      continue;
    worst = checker::worse(worst, static_cast<ExitCode>(code));
    ++done;
  }
  if (worst != ExitCode::Clean)
    return static_cast<int>(worst);
  const int code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  if (code == 0 && done == count)
    return 0;
  for (int signal : {SIGKILL, SIGSEGV, SIGABRT, SIGBUS, SIGFPE})
    if (WIFEXITED(status) && code == 128 + signal) {
      checker::say(fmt::format("a rank crashed or was killed, and no other one could say which: "
                               "mpirun ended with code {}",
                               code));
      return kCannotFinish;
    }
  checker::say(fmt::format(
      "mpirun ended with code {} before {} of {} ranks were done: it failed, or was told to stop",
      code, count - done, count));
  return kLauncherFailed;
}

// Waits for all children. When one has ended badly, the others have `kGrace` to say what they know
// of it.
class Children {
public:
  using CodeOf = llvm::function_ref<int(int status)>;
  // `code_of`: the exit code that the end of a child stands for. `starting`: they start the ranks,
  // for so many seconds at most, and have nothing to do when these have ended; 0: they are the
  // ranks.
  Children(std::vector<pid_t> pids, unsigned starting, CodeOf code_of)
      : pids_(std::move(pids)), starting_(starting), code_of_(code_of) {}

  int wait(const sigset_t &awaited) {
    while (!pids_.empty()) {
      timespec tick{0, 100'000'000};
      int came = ::sigtimedwait(&awaited, nullptr, &tick);
      if (came == SIGINT || came == SIGTERM || came == SIGHUP)
        interrupt(came);
      collect();
      if (starting_ && ++ticks_ % 10 == 0)
        look_for_ranks();
      if (ending_ && Clock::now() > kill_at_)
        for (pid_t pid : pids_)
          ::kill(pid, SIGKILL);
    }
    return interrupted_ ? 128 + interrupted_ : code_;
  }

private:
  static constexpr std::chrono::seconds kGrace{8};

  void end() {
    if (!ending_)
      kill_at_ = Clock::now() + kGrace;
    ending_ = true;
  }
  void interrupt(int signal) {
    interrupted_ = signal;
    for (pid_t pid : pids_) {
      ::kill(pid, SIGTERM);
      ::kill(pid, SIGCONT);
    }
    end();
  }
  // Open MPI 4 may wait for ever for ranks that it could not start, or that ended while they were
  // started.
  void look_for_ranks() {
    bool some = std::any_of(pids_.begin(), pids_.end(), has_children);
    had_ranks_ |= some;
    without_ranks_ = some ? 0 : without_ranks_ + 1;
    const int64_t most = had_ranks_ ? kGrace.count() : int64_t(starting_);
    if (without_ranks_ <= most || ending_)
      return;
    checker::say(had_ranks_ ? "mpirun does not end, though all ranks have ended"
                            : fmt::format("mpirun started no rank within {} s", starting_));
    kill_at_ = Clock::now();
    ending_ = true;
  }
  void collect() {
    int status = 0;
    for (pid_t pid; (pid = ::waitpid(-1, &status, WNOHANG)) > 0;) {
      pids_.erase(std::remove(pids_.begin(), pids_.end(), pid), pids_.end());
      int code = interrupted_ ? kCannotFinish : code_of_(status);
      if (code != 0)
        end();
      // All end with one code, but for those that were ended: 3.
      if (code != 0 && (code_ == 0 || code_ == kCannotFinish))
        code_ = code;
    }
  }

  std::vector<pid_t> pids_;
  unsigned starting_;
  CodeOf code_of_;
  unsigned ticks_ = 0;
  bool had_ranks_ = false;
  int64_t without_ranks_ = 0; // seconds
  int code_ = 0, interrupted_ = 0;
  bool ending_ = false;
  Clock::time_point kill_at_;
};

void set(const char *name, const std::string &value) { ::setenv(name, value.c_str(), 1); }

Words mpirun(uint32_t count) {
  // Ranks may be more than cores, and root may be all that a container has.
  ::setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 0);
  ::setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 0);
  ::setenv("OMPI_MCA_rmaps_base_oversubscribe", "1", 0);
  ::setenv("OMPI_MCA_hwloc_base_binding_policy", "none", 0);
  ::setenv("OMPI_MCA_btl_vader_single_copy_mechanism", "none", 0);
  if (checker::stdout_is_terminal())
    ::setenv(kTerminal, "1", 1);
  return {"mpirun", "--quiet", "-n", std::to_string(count)};
}

} // namespace

int spawn_ranks(const SpawnOptions &options) {
  Words command = options.by_mpirun ? mpirun(options.count) : Words();
  command.push_back(executable_path());
  command.insert(command.end(), options.words.begin(), options.words.end());

  sigset_t awaited, before;
  sigemptyset(&awaited);
  for (int signal : {SIGCHLD, SIGINT, SIGTERM, SIGHUP})
    sigaddset(&awaited, signal);
  ::sigprocmask(SIG_BLOCK, &awaited, &before);
  const pid_t parent = ::getpid();
  std::vector<pid_t> pids;
  auto start = [&](llvm::function_ref<void()> prepare) {
    pid_t pid = ::fork();
    if (pid == 0) {
      prepare();
      become(command, parent, before);
    }
    if (pid > 0)
      pids.push_back(pid);
    return pid > 0;
  };
  if (options.by_mpirun) {
    RankCodes codes;
    auto ended = [&](int status) { return code_of_mpirun(status, codes, options.count); };
    if (!llvm::sys::findProgramByName("mpirun")) {
      int code = give_up("cannot start mpirun: there is none on PATH (openmpi-bin)");
      return options.skip_unavailable ? static_cast<int>(checker::ExitCode::Skipped) : code;
    }
    const std::string path = codes.path(); // of this process
    if (!start([&] { set(kRankCodes, path); }))
      return give_up(fmt::format("cannot start mpirun: {}", std::strerror(errno)));
    return Children(std::move(pids), std::max(1u, options.join_timeout), ended).wait(awaited);
  }
  llvm::Expected<Socket> listener = Socket::listen("127.0.0.1", 0);
  if (!listener)
    return give_up(llvm::toString(listener.takeError()));
  set("WORLD_SIZE", std::to_string(options.count));
  set("LOCAL_WORLD_SIZE", std::to_string(options.count));
  set("SPMD_STORE_HOST", "127.0.0.1");
  set("SPMD_STORE_PORT", std::to_string(listener->port()));
  set("SPMD_STORE_TOKEN", random_token());
  for (uint32_t rank = 0; rank < options.count; ++rank) {
    bool started = start([&] {
      set("RANK", std::to_string(rank));
      set("LOCAL_RANK", std::to_string(rank));
      if (rank == 0) {
        set("SPMD_STORE_FD", std::to_string(listener->file()));
        ::fcntl(listener->file(), F_SETFD, 0);
      }
    });
    if (started)
      continue;
    for (pid_t pid : pids)
      ::kill(pid, SIGKILL);
    return give_up(fmt::format("cannot start rank {}: {}", rank, std::strerror(errno)));
  }
  return Children(std::move(pids), 0, code_of).wait(awaited);
}

} // namespace spmd::runtime
