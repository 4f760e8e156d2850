// The token is the key of an HMAC (RFC 2104, SHA-256) over what both sides drew.
#include "runtime/launch/admission.h"

#include "ir/support/error.h"
#include "ir/support/strings.h"
#include "runtime/launch/file_limit.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/SHA256.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <poll.h>
#include <random>
#include <sys/socket.h>

namespace spmd::runtime {
namespace {

constexpr size_t kNonce = 16, kProof = 32, kRequest = 2 * sizeof(uint32_t) + kNonce + kProof;
constexpr llvm::StringRef kMagic = "spmdrun1";
// How many strangers may wait besides the ranks, and how many are greeted before others are served.
constexpr size_t kMostStrangers = 1024, kAtOnce = 256;
// After which one has to go if there is no place for others. A rank takes milliseconds, and tries
// again.
constexpr std::chrono::seconds kPatience{1};

std::string sha256(llvm::StringRef bytes) {
  llvm::SHA256 hash;
  hash.update(bytes);
  const auto digest = hash.final(); // bytes, as a text or an array by the version of LLVM
  return {digest.begin(), digest.end()};
}

std::string hmac(llvm::StringRef key, llvm::StringRef text) {
  constexpr size_t kBlock = 64;
  std::string block = key.size() > kBlock ? sha256(key) : key.str();
  block.resize(kBlock, '\0');
  std::string inner = block, outer = block;
  for (size_t i = 0; i < kBlock; ++i) {
    inner[i] = static_cast<char>(inner[i] ^ 0x36);
    outer[i] = static_cast<char>(outer[i] ^ 0x5c);
  }
  return sha256(outer + sha256(inner + text.str()));
}

// In a time that does not tell where they differ.
bool same_proof(llvm::StringRef a, llvm::StringRef b) {
  unsigned different = a.size() != b.size();
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i)
    different |= static_cast<unsigned char>(a[i]) ^ static_cast<unsigned char>(b[i]);
  return different == 0;
}

std::string random_bytes(size_t count) {
  std::random_device device;
  std::string bytes;
  while (bytes.size() < count)
    bytes.push_back(static_cast<char>(device() & 0xff));
  return bytes;
}

std::string number_bytes(uint32_t a, uint32_t b) {
  std::string bytes(sizeof a + sizeof b, '\0');
  std::memcpy(bytes.data(), &a, sizeof a);
  std::memcpy(bytes.data() + sizeof a, &b, sizeof b);
  return bytes;
}

bool may_come_later(int problem) { return problem == EAGAIN || problem == EINTR; }

} // namespace

std::string random_token() { return llvm::toHex(random_bytes(16), /*LowerCase=*/true); }

Admission ask_admission(Socket &socket, llvm::StringRef token, uint32_t rank, uint32_t size,
                        Clock::time_point until) {
  std::string theirs(kMagic.size() + kNonce, '\0');
  if (!socket.receive(theirs.data(), theirs.size(), until) ||
      !ir::starts_with(llvm::StringRef(theirs), kMagic))
    return Admission::NoAnswer;
  std::string nonce = theirs.substr(kMagic.size());
  std::string about = number_bytes(rank, size) + random_bytes(kNonce);
  std::string answer(1 + kProof, '\0');
  if (!socket.send(about + hmac(token, "rank" + nonce + about), until) ||
      !socket.receive(answer.data(), answer.size(), until))
    return Admission::NoAnswer;
  if (!same_proof(hmac(token, "store" + about + nonce), llvm::StringRef(answer).drop_front()))
    return Admission::WrongToken;
  return answer[0] == '\1' ? Admission::Welcome : Admission::Taken;
}

AdmissionServer::AdmissionServer(Socket listener, std::string token, uint32_t size)
    : listener_(std::move(listener)), token_(std::move(token)), size_(size), there_(size, false) {
  // A connection that is gone by the time it is taken must not be waited for.
  ::fcntl(listener_.file(), F_SETFL, ::fcntl(listener_.file(), F_GETFL) | O_NONBLOCK);
}

void AdmissionServer::drop_overdue() {
  if (!full_)
    return;
  for (; !pending_.empty() && Clock::now() - pending_.front().since >= kPatience; full_ = false) {
    if (pending_.front().rank)
      there_[*pending_.front().rank] = false;
    pending_.pop_front();
  }
}

// Takes connections that are there; the rest after what is there was served.
llvm::Error AdmissionServer::greet_all() {
  for (size_t i = 0; i < kAtOnce; ++i) {
    full_ = pending_.size() >= kMostStrangers + size_;
    if (full_)
      break;
    std::optional<Socket> came = listener_.accept_now();
    if (!came && (errno == EINTR || errno == ECONNABORTED || errno == EPROTO))
      continue;
    if (!came && (errno == EAGAIN || errno == EWOULDBLOCK))
      break;
    full_ = !came;
    if (full_ && pending_.empty())
      return make_error(describe_open_error(errno));
    if (full_)
      break;
    PendingConnection guest;
    guest.socket = std::move(*came);
    guest.nonce = random_bytes(kNonce);
    guest.out = kMagic.str() + guest.nonce;
    guest.since = Clock::now();
    pending_.push_back(std::move(guest));
  }
  return llvm::Error::success();
}

// Of a request that is whole.
void AdmissionServer::judge(PendingConnection &guest) {
  llvm::StringRef about = llvm::StringRef(guest.in).drop_back(kProof);
  llvm::StringRef proof = llvm::StringRef(guest.in).take_back(kProof);
  if (!same_proof(hmac(token_, "rank" + guest.nonce + about.str()), proof)) {
    guest.out.assign(1 + kProof, '\0');
    guest.leaves = true;
    return;
  }
  uint32_t rank = 0, of = 0;
  std::memcpy(&rank, about.data(), sizeof rank);
  std::memcpy(&of, about.data() + sizeof rank, sizeof of);
  const bool fits = of == size_ && rank > 0 && rank < size_ && !there_[rank];
  guest.out = (fits ? "\1" : "\2") + hmac(token_, "store" + about.str() + guest.nonce);
  guest.leaves = !fits;
  if (fits) {
    guest.rank = rank;
    there_[rank] = true;
  }
}

// What can be done now. False: the guest is gone, refused or admitted.
bool AdmissionServer::serve(PendingConnection &guest) {
  for (;;) {
    while (!guest.out.empty()) {
      const ssize_t sent = ::send(guest.socket.file(), guest.out.data(), guest.out.size(),
                                  MSG_NOSIGNAL | MSG_DONTWAIT);
      if (sent < 0 && may_come_later(errno))
        return true;
      if (sent <= 0) {
        if (guest.rank)
          there_[*guest.rank] = false; // it may try again
        return false;
      }
      guest.out.erase(0, static_cast<size_t>(sent));
    }
    if (guest.rank)
      done_.push_back({*guest.rank, std::move(guest.socket)});
    if (guest.rank || guest.leaves)
      return false;
    char bytes[kRequest];
    const ssize_t got =
        ::recv(guest.socket.file(), bytes, kRequest - guest.in.size(), MSG_DONTWAIT);
    if (got < 0 && may_come_later(errno))
      return true;
    if (got <= 0)
      return false;
    guest.in.append(bytes, static_cast<size_t>(got));
    if (guest.in.size() == kRequest)
      judge(guest);
  }
}

llvm::Expected<std::optional<AdmissionServer::Admitted>>
AdmissionServer::next(Clock::time_point until) {
  for (;;) {
    if (!done_.empty()) {
      std::optional<Admitted> first = std::move(done_.front());
      done_.pop_front();
      return first;
    }
    if (Clock::now() >= until)
      return std::optional<Admitted>();
    drop_overdue();
    std::vector<pollfd> wanted = {{listener_.file(), static_cast<short>(full_ ? 0 : POLLIN), 0}};
    for (const PendingConnection &guest : pending_)
      wanted.push_back(
          {guest.socket.file(), static_cast<short>(guest.out.empty() ? POLLIN : POLLOUT), 0});
    const Clock::time_point next =
        full_ && !pending_.empty() ? pending_.front().since + kPatience : until;
    const int found = ::poll(wanted.data(), wanted.size(), wait_ms(std::min(next, until)));
    if (found < 0 && errno != EINTR)
      return make_error(describe_open_error(errno));
    if (found <= 0)
      continue;
    for (size_t i = pending_.size(); i-- > 0;)
      if (wanted[i + 1].revents && !serve(pending_[i])) {
        pending_.erase(pending_.begin() + static_cast<std::ptrdiff_t>(i));
        full_ = false;
      }
    if (wanted[0].revents)
      if (llvm::Error error = greet_all())
        return llvm::Expected<std::optional<Admitted>>(std::move(error));
  }
}

} // namespace spmd::runtime
