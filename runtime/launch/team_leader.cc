// Rank 0 of a team: admits the others, collects what they say, and finds out who is missing.
#include "runtime/launch/admission.h"
#include "runtime/launch/team_member.h"
#include "runtime/launch/token_file.h"

#include "ir/support/error.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <poll.h>

namespace spmd::runtime {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kTick{50};
// That a rank whose process runs may take to say where it is.
constexpr milliseconds kAnswer{1500};
constexpr milliseconds kLastAnswer{300};
constexpr int kNothingRun = 2, kCannotFinish = 3;

std::string list_of(llvm::function_ref<bool(uint32_t)> holds, uint32_t size) {
  std::string text;
  for (uint32_t rank = 0; rank < size; ++rank)
    if (holds(rank))
      text += fmt::format("{}{}", text.empty() ? "" : ", ", rank);
  return text;
}

} // namespace

llvm::Error Team::admit() {
  Clock::time_point until = Clock::now() + options_.join;
  Socket listener(options_.listener);
  if (!listener.valid()) {
    llvm::Expected<Socket> made = Socket::listen(options_.host, options_.port);
    if (!made)
      return make_error(fmt::format("rank 0 {}: set SPMD_STORE_PORT to a port that is free, and "
                                    "SPMD_STORE_HOST to an address of this host",
                                    llvm::toString(made.takeError())));
    listener = std::move(*made);
  }
  members_.resize(size());
  const std::string token = options_.token.empty() ? random_token() : options_.token;
  AdmissionServer door(std::move(listener), token, size());
  std::optional<TokenFile> file; // gone before the port is free for another run
  if (options_.token.empty() && size() > 1) {
    llvm::Expected<TokenFile> made = TokenFile::write(door.port(), token);
    if (!made)
      return make_error(fmt::format("rank 0: {}", llvm::toString(made.takeError())));
    file.emplace(std::move(*made));
  }
  auto missing = [&] {
    return list_of([&](uint32_t rank) { return rank > 0 && !members_[rank]; }, size());
  };
  for (uint32_t there = 1; there < size(); ++there) {
    llvm::Expected<std::optional<AdmissionServer::Admitted>> came = door.next(until);
    if (!came || !*came)
      stop(kNothingRun);
    if (!came)
      return make_error(fmt::format("rank 0 cannot take in rank {}: {}", missing(),
                                    llvm::toString(came.takeError())));
    if (!*came)
      return make_error(fmt::format(
          "rank {} did not join within {} s: the ranks must be started together, each with the "
          "same SPMD_STORE_HOST, SPMD_STORE_PORT and SPMD_STORE_TOKEN; rank 0 listens on {}:{}",
          missing(), options_.join.count() / 1000.0, options_.host, door.port()));
    members_[(*came)->rank] = std::make_unique<Member>();
    members_[(*came)->rank]->socket = std::move((*came)->socket);
  }
  return llvm::Error::success();
}

void Team::take(uint32_t rank, Message message) {
  Member &member = *members_[rank];
  switch (message.form) {
  case MessageForm::Gather: {
    std::lock_guard lock(mutex_);
    member.gathered.push_back(std::move(message.text));
    changed_.notify_all();
    return;
  }
  case MessageForm::Here:
    if (message.text.size() == sizeof(RankStatus)) {
      member.where.emplace();
      std::memcpy(&*member.where, message.text.data(), sizeof(RankStatus));
    }
    return;
  case MessageForm::Late:
    late_ = true;
    return;
  case MessageForm::Ended:
    member.ended = true;
    return;
  case MessageForm::Stop: // this rank kept the others waiting, and they have reported it
    leave(kCannotFinish);
  case MessageForm::Fail: {
    TeamFailure failure{TeamFailure::Form::Error, {rank}, message.text, {}};
    if (!message.text.empty() && message.text[0] <= static_cast<char>(TeamFailure::Form::Error)) {
      failure.form = static_cast<TeamFailure::Form>(message.text[0]);
      failure.text.erase(0, 1);
    }
    reported_ = reported_ ? std::move(reported_) : std::move(failure);
    return;
  }
  default:
    return;
  }
}

void Team::read_members(milliseconds patience) {
  std::vector<pollfd> wanted;
  std::vector<uint32_t> ranks;
  for (uint32_t rank = 1; rank < size(); ++rank)
    if (!members_[rank]->gone) {
      wanted.push_back({members_[rank]->socket.file(), POLLIN, 0});
      ranks.push_back(rank);
    }
  if (::poll(wanted.data(), wanted.size(), static_cast<int>(patience.count())) <= 0)
    return;
  for (size_t i = 0; i < wanted.size(); ++i) {
    if (!wanted[i].revents)
      continue;
    Member &member = *members_[ranks[i]];
    member.heard = true;
    bool open = member.reader.read(member.socket.file());
    while (std::optional<Message> message = member.reader.next())
      take(ranks[i], std::move(*message));
    if (open)
      continue;
    {
      std::lock_guard lock(member.sending);
      member.gone = true;
    }
    // Where all were told to end, none is lost.
    if (!lost_ && !(member.ended && asked_to_end()))
      lost_ = ranks[i];
  }
}

void Team::ask_where(milliseconds patience) {
  for (uint32_t rank = 1; rank < size(); ++rank) {
    members_[rank]->heard = false;
    members_[rank]->where.reset();
    send(rank, MessageForm::Where);
  }
  Clock::time_point until = Clock::now() + patience;
  auto all_said = [&] {
    return std::all_of(members_.begin() + 1, members_.end(),
                       [](const auto &member) { return member->gone || member->where; });
  };
  while (!all_said() && Clock::now() < until)
    read_members(std::min(kTick, patience));
}

// Where all ranks are, as far as they say so.
std::vector<std::optional<RankStatus>> Team::last_words() {
  ask_where(kLastAnswer);
  std::vector<std::optional<RankStatus>> where = {whereabouts()};
  for (uint32_t rank = 1; rank < size(); ++rank)
    where.push_back(members_[rank]->where);
  return where;
}

// Somebody has waited too long. Who does not answer at all is to blame, then who is behind. A rank
// that judges data is not: the others wait for its verdict.
void Team::investigate() {
  ask_where(kAnswer);
  if (lost_ || doing_ == Activity::Judging)
    return;
  TeamFailure failure{TeamFailure::Form::Late, {}, "", {}};
  failure.where.push_back(whereabouts());
  for (uint32_t rank = 1; rank < size(); ++rank) {
    failure.where.push_back(members_[rank]->where);
    if (!members_[rank]->heard)
      failure.ranks.push_back(rank);
  }
  if (failure.ranks.empty()) {
    auto computes = [](const std::optional<RankStatus> &where) {
      return where && (where->doing == Activity::Computing || where->doing == Activity::Preparing);
    };
    bool one_computes = std::any_of(failure.where.begin(), failure.where.end(), computes);
    uint64_t least = ~uint64_t(0), most = 0;
    for (const auto &where : failure.where) {
      if (where && (computes(where) || !one_computes))
        least = std::min(least, where->progress);
      if (where)
        most = std::max(most, where->progress);
    }
    for (uint32_t rank = 0; rank < size(); ++rank)
      if (const auto &where = failure.where[rank];
          where && where->progress == least && (computes(where) || !one_computes))
        failure.ranks.push_back(rank);
    // They may have caught up by now.
    std::this_thread::sleep_for(kLastAnswer);
    ask_where(kLastAnswer);
    for (uint32_t rank : failure.ranks)
      if (std::optional<RankStatus> now = rank ? members_[rank]->where : whereabouts();
          now && now->progress > std::max(least, most == least ? least : most - 1))
        return;
  }
  set_failure(std::move(failure));
}

void Team::serve() {
  while (!over_) {
    read_members(kTick);
    if (reported_ && !failed_) {
      reported_->where = last_words();
      set_failure(std::move(*reported_));
    }
    if (lost_ && !over_ && !failed_) {
      TeamFailure failure{TeamFailure::Form::Lost, {*lost_}, "", last_words()};
      failure.where[*lost_].reset();
      set_failure(std::move(failure));
    }
    check_wait();
    check_parent();
    if (late_.exchange(false) && !failed_)
      investigate();
    check_overdue();
  }
}

} // namespace spmd::runtime
