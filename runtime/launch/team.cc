// What a rank of a team does, whichever it is; the thread of those that are not rank 0.
#include "runtime/launch/admission.h"
#include "runtime/launch/rank_codes.h"
#include "runtime/launch/team_member.h"
#include "runtime/launch/token_file.h"

#include "ir/support/error.h"

#include <fmt/format.h>

#include <csignal>
#include <cstring>
#include <poll.h>
#include <pthread.h>
#include <unistd.h>

namespace spmd::runtime {
namespace {

using std::chrono::milliseconds;

// Until what the main thread has not reported is reported here.
constexpr milliseconds kUnreported{3000};
constexpr milliseconds kTick{50};
// That rank 0 may leave a cry unanswered.
constexpr milliseconds kUnanswered{5000};
constexpr int kCannotFinish = 3;
// Who looks at a process sees by it that its rank has joined.
constexpr const char *kTeamThread = "team";

llvm::Error team_failed() { return make_error("the ranks cannot go on"); }

int64_t now_ms() {
  return std::chrono::duration_cast<milliseconds>(Clock::now().time_since_epoch()).count();
}

// Launchers end all ranks when one is gone: there must be time left to say which.
std::atomic<int64_t> terminated_at{-1};
void on_terminate(int) { terminated_at.store(now_ms(), std::memory_order_relaxed); }
constexpr int64_t kLastWordsMs = 700;

} // namespace

bool asked_to_end() { return terminated_at.load(std::memory_order_relaxed) >= 0; }

RankStatus Team::whereabouts() const {
  return {progress_.load(std::memory_order_relaxed), step_.load(std::memory_order_relaxed),
          doing_.load(std::memory_order_relaxed)};
}

void Team::leave(int code) { end_process(code); }

bool Team::send(uint32_t rank, MessageForm form, const std::string &text) {
  Member &member = *members_[leads() ? rank : 0];
  // Allocates before it locks: what ends in there for want of memory is reported over the same
  // connection.
  std::string bytes = pack({form, text});
  std::lock_guard lock(member.sending);
  return !member.gone && member.socket.send(bytes, Clock::now() + options_.wait);
}

llvm::Expected<std::unique_ptr<Team>> Team::join(const TeamOptions &options) {
  std::unique_ptr<Team> team(new Team(options));
  if (llvm::Error error = options.rank == 0 ? team->admit() : team->enter())
    return llvm::Expected<std::unique_ptr<Team>>(std::move(error));
  struct sigaction action {};
  action.sa_handler = on_terminate;
  ::sigaction(SIGTERM, &action, nullptr);
  team->thread_ = std::thread([&team = *team] { team.run_thread(); });
  ::pthread_setname_np(team->thread_.native_handle(), kTeamThread);
  return team;
}

llvm::Error Team::enter() {
  Clock::time_point until = Clock::now() + options_.join;
  std::string place = fmt::format("{}:{}", options_.host, options_.port);
  for (;;) {
    llvm::Expected<Socket> socket = Socket::connect(options_.host, options_.port, until);
    if (!socket && Clock::now() + 2 * kTick < until) // no time would help
      return make_error(
          fmt::format("rank {} {}", options_.rank, llvm::toString(socket.takeError())));
    if (!socket)
      return make_error(fmt::format("rank {} {} within {} s: is rank 0 running there, and is the "
                                    "port open? SPMD_STORE_HOST and "
                                    "SPMD_STORE_PORT say where it listens",
                                    options_.rank, llvm::toString(socket.takeError()),
                                    options_.join.count() / 1000.0));
    const bool given = !options_.token.empty();
    llvm::Expected<std::string> token =
        given ? llvm::Expected<std::string>(options_.token) : read_token(options_.port);
    if (!token)
      return token.takeError();
    Admission admission = Admission::NoAnswer;
    if (!token->empty())
      admission = ask_admission(*socket, *token, options_.rank, options_.size, until);
    if (admission == Admission::Welcome) {
      members_.push_back(std::make_unique<Member>());
      members_[0]->socket = std::move(*socket);
      return llvm::Error::success();
    }
    const bool over = Clock::now() + 2 * kTick >= until;
    if (admission == Admission::Taken)
      return make_error(fmt::format("{} does not admit rank {} of {}: the rank is taken, or there "
                                    "are not so many",
                                    place, options_.rank, options_.size));
    // A token in a file may be that of a run before this one, until rank 0 has put its own there.
    if (admission == Admission::WrongToken && (given || over))
      return make_error(
          fmt::format("{} does not admit rank {}: SPMD_STORE_TOKEN is another one there", place,
                      options_.rank));
    if (over)
      return make_error(
          fmt::format("what listens on {} is no rank 0 of a run{}: set SPMD_STORE_PORT "
                      "to a port that is free",
                      place,
                      token->empty() ? ", or not one of this user (then set "
                                       "SPMD_STORE_TOKEN, the same on all ranks)"
                                     : ""));
    std::this_thread::sleep_for(kTick);
  }
}

Team::Team(const TeamOptions &options) : options_(options) {}

Team::~Team() {
  over_ = true;
  if (thread_.joinable())
    thread_.join();
}

void Team::run_thread() {
  // What ends a process is for the main thread.
  leads() ? serve() : follow();
}

// --- collective calls

void Team::begin_wait() {
  waits_.store(waits_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  doing(Activity::Exchanging);
}

// Of the thread: the main one may be in a call of a library that waits for ever.
void Team::check_wait() {
  const Activity now = doing_.load(std::memory_order_relaxed);
  const uint64_t wait = waits_.load(std::memory_order_relaxed);
  const bool waits = now == Activity::Exchanging || now == Activity::Waiting;
  if (!waits || wait != seen_wait_) {
    seen_wait_ = wait;
    seen_at_ = Clock::now();
  }
  if (failed_ || !waits || Clock::now() - seen_at_ < options_.wait)
    return;
  seen_at_ = Clock::now();
  if (leads()) {
    late_ = true;
    return;
  }
  int64_t none = -1;
  asked_at_.compare_exchange_strong(none, now_ms());
  send(0, MessageForm::Late);
}

bool Team::wait_until(llvm::function_ref<bool()> there) {
  begin_wait();
  doing(Activity::Waiting);
  std::unique_lock lock(mutex_);
  while (!there()) {
    changed_.wait_for(lock, kTick);
    if (failed_)
      return false;
  }
  return true;
}

llvm::Expected<std::vector<std::string>> Team::gather(std::string own) {
  std::vector<std::string> all;
  if (!leads()) {
    if (!send(0, MessageForm::Gather, own))
      wait_until([] { return false; });
    return failed_ ? llvm::Expected<std::vector<std::string>>(team_failed()) : std::move(all);
  }
  bool there = wait_until([&] {
    for (uint32_t rank = 1; rank < size(); ++rank)
      if (members_[rank]->gathered.empty())
        return false;
    return true;
  });
  if (!there)
    return team_failed();
  std::lock_guard lock(mutex_);
  all.push_back(std::move(own));
  for (uint32_t rank = 1; rank < size(); ++rank) {
    received_ += members_[rank]->gathered.front().size();
    all.push_back(std::move(members_[rank]->gathered.front()));
    members_[rank]->gathered.pop_front();
  }
  return all;
}

llvm::Expected<std::string> Team::share(std::string text) {
  if (leads()) {
    for (uint32_t rank = 1; rank < size(); ++rank)
      send(rank, MessageForm::Share, text); // one that is gone is noticed by the thread
    return failed_ ? llvm::Expected<std::string>(team_failed()) : std::move(text);
  }
  if (!wait_until([&] { return !shared_.empty(); }))
    return team_failed();
  std::lock_guard lock(mutex_);
  text = std::move(shared_.front());
  shared_.pop_front();
  return text;
}

llvm::Error Team::dissolve() {
  llvm::Expected<std::vector<std::string>> all = gather("");
  if (!all)
    return all.takeError();
  if (leads()) {
    over_ = true;
    for (uint32_t rank = 1; rank < size(); ++rank)
      send(rank, MessageForm::Dissolve);
  } else if (!wait_until([&] { return over_.load(); })) {
    return team_failed();
  }
  return llvm::Error::success();
}

// --- failures

llvm::Error Team::at(uint32_t step) {
  step_.store(step, std::memory_order_relaxed);
  progress_.store(progress_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  doing(Activity::Computing);
  return failed_.load(std::memory_order_relaxed) ? team_failed() : llvm::Error::success();
}

void Team::set_failure(TeamFailure failure) {
  std::lock_guard lock(mutex_);
  if (failure_)
    return;
  failure_ = std::move(failure);
  failed_at_ = Clock::now();
  failed_ = true;
  changed_.notify_all();
}

std::optional<TeamFailure> Team::failure() {
  // What keeps a call from going on may be known a little before its reason.
  for (int i = 0; i < 40; ++i) {
    {
      std::lock_guard lock(mutex_);
      if (failure_) {
        taken_ = true;
        return failure_;
      }
    }
    std::this_thread::sleep_for(kTick);
  }
  return std::nullopt;
}

void Team::fail(TeamFailure::Form form, const std::string &text) {
  if (leads())
    return set_failure({form, {0}, text, {}});
  send(0, MessageForm::Fail, std::string(1, static_cast<char>(form)) + text);
  std::this_thread::sleep_for(kUnanswered); // until we are told to leave
  leave(kCannotFinish);
}

void Team::stop(int code) {
  over_ = true;
  for (uint32_t rank = 1; leads() && rank < size(); ++rank)
    if (members_[rank]) // all but one may not have come yet
      send(rank, MessageForm::Stop, std::string(1, static_cast<char>(code)));
}

// What started this process ended without a word to it, so nobody will end it any more.
void Team::check_parent() {
  if (options_.parent && ::getppid() != options_.parent)
    ::_exit(kCannotFinish); // which says nothing of the run
}

// The main thread is in the midst of something long: one plain line then, and the end.
void Team::check_overdue() {
  int64_t terminated = terminated_at.load(std::memory_order_relaxed);
  bool ends = terminated >= 0 && now_ms() - terminated > kLastWordsMs;
  std::unique_lock lock(mutex_);
  bool unreported = failure_ && !taken_ && Clock::now() - failed_at_ > kUnreported;
  if (!unreported && !(ends && !failure_))
    return;
  if (unreported) {
    std::string ranks;
    for (uint32_t rank : failure_->ranks)
      ranks += fmt::format("{}{}", ranks.empty() ? "" : ", ", rank);
    constexpr std::string_view kNames[] = {"run-lost-rank", "run-timeout", "run-memory", "error"};
    std::string line =
        fmt::format("error[{}]: rank {}{}{}, seen while rank {} was in step {} of the plan\n",
                    kNames[static_cast<size_t>(failure_->form)], ranks,
                    failure_->text.empty() ? "" : ": ", failure_->text, rank(), step_.load());
    (void)!::write(STDERR_FILENO, line.data(), line.size());
  }
  lock.unlock();
  const int code = unreported ? kCannotFinish : 128 + SIGTERM;
  stop(code);
  if (!unreported && !leads())
    send(0, MessageForm::Ended);
  leave(code);
}

// --- the thread of a rank that is not rank 0

void Team::take(Message message) {
  asked_at_ = -1;
  switch (message.form) {
  case MessageForm::Share: {
    std::lock_guard lock(mutex_);
    shared_.push_back(std::move(message.text));
    changed_.notify_all();
    return;
  }
  case MessageForm::Where: {
    RankStatus here = whereabouts();
    send(0, MessageForm::Here, std::string(reinterpret_cast<const char *>(&here), sizeof here));
    return;
  }
  case MessageForm::Dissolve: {
    std::lock_guard lock(mutex_);
    over_ = true;
    changed_.notify_all();
    return;
  }
  case MessageForm::Stop:
    leave(message.text.empty() ? kCannotFinish : static_cast<uint8_t>(message.text[0]));
  default:
    return;
  }
}

// The lowest of the others tells, and these leave it the time for it.
void Team::lose_leader(TeamFailure::Form form) {
  if (failed_)
    return;
  // One that was only stopped finds this when it is woken to be ended, and leaves the telling to
  // others.
  if (form == TeamFailure::Form::Late)
    send(0, MessageForm::Stop);
  if (rank() != 1) {
    std::this_thread::sleep_for(milliseconds(500));
    leave(kCannotFinish);
  }
  TeamFailure failure{form, {0}, "", std::vector<std::optional<RankStatus>>(size())};
  failure.where[rank()] = whereabouts();
  set_failure(std::move(failure));
}

void Team::follow() {
  Member &leader = *members_[0];
  while (!over_) {
    pollfd wanted{leader.socket.file(), static_cast<short>(leader.gone ? 0 : POLLIN), 0};
    int found = ::poll(&wanted, leader.gone ? 0 : 1, static_cast<int>(kTick.count()));
    if (found > 0) {
      bool open = leader.reader.read(leader.socket.file());
      while (std::optional<Message> message = leader.reader.next())
        take(std::move(*message));
      if (!open) {
        std::lock_guard lock(leader.sending);
        leader.gone = true;
      }
      if (!open && !over_)
        lose_leader(TeamFailure::Form::Lost);
    }
    int64_t asked = asked_at_;
    if (asked >= 0 && now_ms() - asked > kUnanswered.count())
      lose_leader(TeamFailure::Form::Late);
    check_wait();
    check_parent();
    check_overdue();
  }
}

} // namespace spmd::runtime
