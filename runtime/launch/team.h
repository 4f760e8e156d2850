// The processes of one run, a rank each, and a connection from each of them to rank 0 besides the
// one over which tensors go: how they meet, what is the same for all, who is gone, who is late.
#pragma once

#include "runtime/launch/socket.h"

#include "llvm/ADT/STLFunctionalExtras.h"
#include "llvm/Support/Error.h"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace spmd::runtime {

// What a rank does. Ranks wait for one that judges without an end.
enum class Activity : uint8_t { Preparing, Computing, Exchanging, Judging, Waiting };

struct RankStatus {
  uint64_t progress = 0; // steps that were begun, of all runs
  uint32_t step = 0;     // of the plan; of no use before the first
  Activity doing = Activity::Preparing;
};

// Why a team cannot go on.
struct TeamFailure {
  enum class Form : uint8_t { Lost, Late, Memory, Error } form = Form::Lost;
  std::vector<uint32_t> ranks;
  std::string text;                             // of Error and Memory: what that rank said
  std::vector<std::optional<RankStatus>> where; // by rank; none: it did not say
};

struct TeamOptions {
  uint32_t rank = 0, size = 1;
  std::string host;  // of rank 0, to listen on and to connect to
  uint16_t port = 0; // 0 on rank 0: any
  int listener = -1; // on rank 0: a socket that listens already
  // Who does not know it is not admitted. Empty: rank 0 draws one for those of the same user on
  // this host.
  std::string token;
  std::chrono::milliseconds join{30'000}; // until all are there
  std::chrono::milliseconds wait{60'000}; // that a rank may wait for others
  int parent = 0;                         // the process without which this one ends; 0: none
};

class Team {
public:
  // All ranks. An error says what to do: an address that is taken, a rank 0 that cannot be reached,
  // ranks that did not come, a token that is another.
  static llvm::Expected<std::unique_ptr<Team>> join(const TeamOptions &options);
  // Leaves. If the team has not been dissolved, it fails for the others.
  ~Team();

  uint32_t rank() const { return options_.rank; }
  uint32_t size() const { return options_.size; }
  bool leads() const { return options_.rank == 0; }

  // Collective, in the same order on all ranks. An error: the team has failed.
  // On rank 0: what each rank gave, by rank; elsewhere nothing.
  llvm::Expected<std::vector<std::string>> gather(std::string own);
  // What rank 0 gave.
  llvm::Expected<std::string> share(std::string text);
  // On rank 0: the bytes that other ranks gave to gathers so far.
  uint64_t received() const { return received_; }
  // All end: from here on nobody is missed.
  llvm::Error dissolve();

  // Where this rank is. Errors: the team has failed.
  llvm::Error at(uint32_t step);
  RankStatus whereabouts() const;
  void doing(Activity what) { doing_.store(what, std::memory_order_relaxed); }
  // Begins a wait for others, which ends with the next step or doing(). That it lasts too long is
  // noticed even if the call that waits never returns.
  void begin_wait();
  // To be asked again and again by whatever waits.
  bool has_failed() const { return failed_.load(std::memory_order_relaxed); }

  // On rank 0; elsewhere if rank 0 is lost.
  std::optional<TeamFailure> failure();
  // Rank 0 knows, and all end. Of rank 0: nothing happens before stop().
  void fail(TeamFailure::Form form, const std::string &text);
  // All other ranks leave with this exit code, at once.
  void stop(int code);

private:
  struct Member;
  explicit Team(const TeamOptions &options);
  llvm::Error admit();
  llvm::Error enter();
  void run_thread();
  bool send(uint32_t rank, MessageForm form, const std::string &text = "");
  void set_failure(TeamFailure failure);
  void check_wait();
  void check_parent();
  void check_overdue();
  bool wait_until(llvm::function_ref<bool()> there);
  [[noreturn]] void leave(int code);
  // Of rank 0's thread.
  void serve();
  void read_members(std::chrono::milliseconds patience);
  void take(uint32_t rank, Message message);
  void ask_where(std::chrono::milliseconds patience);
  std::vector<std::optional<RankStatus>> last_words();
  void investigate();
  // Of the thread of the others.
  void follow();
  void take(Message message);
  void lose_leader(TeamFailure::Form form);

  TeamOptions options_;
  std::vector<std::unique_ptr<Member>>
      members_; // rank 0: by rank, null for itself; else: rank 0 alone
  std::thread thread_;
  std::atomic<bool> failed_{false}, over_{false}, late_{false};
  // Of rank 0's thread.
  std::optional<uint32_t> lost_;
  std::optional<TeamFailure> reported_; // by the rank that failed
  uint64_t received_ = 0;
  std::atomic<uint64_t> progress_{0};
  std::atomic<uint32_t> step_{0};
  std::atomic<Activity> doing_{Activity::Preparing};
  std::atomic<uint64_t> waits_{0}; // begun so far
  // Of the thread: the wait that it saw last, and since when. The one that waits reads no clock.
  uint64_t seen_wait_ = 0;
  std::chrono::steady_clock::time_point seen_at_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<TeamFailure> failure_;
  std::chrono::steady_clock::time_point failed_at_;
  bool taken_ = false;                // the failure, by who tells of it
  std::deque<std::string> shared_;    // that came from rank 0
  std::atomic<int64_t> asked_at_{-1}; // when rank 0 heard of a wait; since then it said nothing
};

} // namespace spmd::runtime
