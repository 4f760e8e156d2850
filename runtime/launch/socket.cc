// Plain sockets, IPv4 and IPv6.
#include "runtime/launch/socket.h"

#include "runtime/launch/file_limit.h"

#include "ir/support/error.h"

#include "llvm/ADT/SmallVector.h"

#include <fmt/format.h>

#include <arpa/inet.h>
#include <cerrno>
#include <cstring>
#include <memory>
#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>

namespace spmd::runtime {
namespace {

using Addresses = std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)>;

llvm::Expected<Addresses> look_up(const std::string &host, uint16_t port) {
  addrinfo hints{}, *found = nullptr;
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV;
  if (int problem = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found))
    return make_error(
        fmt::format("`{}` is no host that is known here: {}", host,
                    problem == EAI_SYSTEM ? describe_open_error(errno) : ::gai_strerror(problem)));
  return Addresses(found, &::freeaddrinfo);
}

bool ready(int file, short events, Clock::time_point until) {
  pollfd wanted{file, events, 0};
  int found = 0;
  do
    found = ::poll(&wanted, 1, wait_ms(until));
  while (found < 0 && errno == EINTR);
  return found > 0;
}

// Small words are sent at once, and a host that is gone is noticed.
void prepare(int file) {
  int on = 1, idle = 5, interval = 5, count = 3;
  unsigned unanswered_ms = 30'000;
  ::setsockopt(file, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  ::setsockopt(file, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
  ::setsockopt(file, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
  ::setsockopt(file, IPPROTO_TCP, TCP_KEEPINTVL, &interval, sizeof interval);
  ::setsockopt(file, IPPROTO_TCP, TCP_KEEPCNT, &count, sizeof count);
  ::setsockopt(file, IPPROTO_TCP, TCP_USER_TIMEOUT, &unanswered_ms, sizeof unanswered_ms);
}

// 0, or why not.
int try_connect(const addrinfo &to, Clock::time_point until, Socket &made) {
  Socket socket(::socket(to.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket.valid())
    return errno;
  if (::connect(socket.file(), to.ai_addr, to.ai_addrlen) != 0) {
    if (errno != EINPROGRESS)
      return errno;
    if (!ready(socket.file(), POLLOUT, until))
      return ETIMEDOUT;
    int problem = 0;
    socklen_t size = sizeof problem;
    ::getsockopt(socket.file(), SOL_SOCKET, SO_ERROR, &problem, &size);
    if (problem)
      return problem;
  }
  prepare(socket.file());
  made = std::move(socket);
  return 0;
}

} // namespace

int wait_ms(Clock::time_point until) {
  auto left = std::chrono::duration_cast<std::chrono::milliseconds>(until - Clock::now()).count();
  return static_cast<int>(std::max<int64_t>(0, std::min<int64_t>(left + 1, 1 << 30)));
}

Socket::~Socket() {
  if (file_ >= 0)
    ::close(file_);
}

llvm::Expected<Socket> Socket::listen(const std::string &host, uint16_t port) {
  llvm::Expected<Addresses> addresses = look_up(host, port);
  if (!addresses)
    return addresses.takeError();
  int problem = 0;
  for (const addrinfo *to = addresses->get(); to; to = to->ai_next) {
    Socket socket(::socket(to->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (!socket.valid())
      return make_error(fmt::format("cannot make a socket: {}", describe_open_error(errno)));
    int on = 1;
    ::setsockopt(socket.file(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (::bind(socket.file(), to->ai_addr, to->ai_addrlen) == 0 &&
        ::listen(socket.file(), SOMAXCONN) == 0)
      return socket;
    problem = errno;
  }
  return make_error(fmt::format("cannot listen on {}:{}: {}", host, port, std::strerror(problem)));
}

llvm::Expected<Socket> Socket::connect(const std::string &host, uint16_t port,
                                       Clock::time_point until) {
  llvm::Expected<Addresses> addresses = look_up(host, port);
  if (!addresses)
    return addresses.takeError();
  for (;;) {
    int problem = 0;
    for (const addrinfo *to = addresses->get(); to; to = to->ai_next) {
      Socket socket;
      problem = try_connect(*to, until, socket);
      if (!problem)
        return socket;
      if (problem == EMFILE || problem == ENFILE)
        return make_error(fmt::format("cannot make a socket: {}", describe_open_error(problem)));
    }
    if (Clock::now() + std::chrono::milliseconds(50) >= until)
      return make_error(fmt::format("cannot reach {}:{}: {}", host, port, std::strerror(problem)));
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

uint16_t Socket::port() const {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  if (::getsockname(file_, reinterpret_cast<sockaddr *>(&address), &size) != 0)
    return 0;
  return ntohs(address.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6 *>(&address)->sin6_port
                                             : reinterpret_cast<sockaddr_in *>(&address)->sin_port);
}

std::optional<Socket> Socket::accept_now() {
  Socket came(::accept4(file_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!came.valid())
    return std::nullopt;
  prepare(came.file());
  return came;
}

bool Socket::send(llvm::StringRef bytes, Clock::time_point until) {
  while (!bytes.empty()) {
    ssize_t sent = ::send(file_, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent > 0)
      bytes = bytes.drop_front(static_cast<size_t>(sent));
    else if (sent < 0 && errno != EAGAIN && errno != EINTR)
      return false;
    else if (!ready(file_, POLLOUT, until))
      return false;
  }
  return true;
}

bool Socket::receive(char *bytes, size_t count, Clock::time_point until) {
  while (count > 0) {
    if (!ready(file_, POLLIN, until))
      return false;
    ssize_t got = ::recv(file_, bytes, count, MSG_DONTWAIT);
    if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR))
      return false;
    if (got > 0) {
      bytes += got;
      count -= static_cast<size_t>(got);
    }
  }
  return true;
}

// --- messages

std::string pack(const Message &message) {
  uint64_t size = message.text.size();
  std::string bytes(1 + sizeof size, static_cast<char>(message.form));
  std::memcpy(bytes.data() + 1, &size, sizeof size);
  return bytes + message.text;
}

bool MessageReader::read(int file) {
  constexpr size_t kAtOnce = 1 << 16;
  for (;;) {
    size_t had = bytes_.size();
    bytes_.resize(had + kAtOnce);
    ssize_t got = ::recv(file, bytes_.data() + had, kAtOnce, MSG_DONTWAIT);
    bytes_.resize(had + static_cast<size_t>(std::max<ssize_t>(got, 0)));
    if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR))
      return false;
    if (got < static_cast<ssize_t>(kAtOnce))
      return true;
  }
}

std::optional<Message> MessageReader::next() {
  uint64_t size = 0;
  if (bytes_.size() < 1 + sizeof size)
    return std::nullopt;
  std::memcpy(&size, bytes_.data() + 1, sizeof size);
  if (bytes_.size() - 1 - sizeof size < size)
    return std::nullopt;
  Message message{static_cast<MessageForm>(bytes_[0]), bytes_.substr(1 + sizeof size, size)};
  bytes_.erase(0, 1 + sizeof size + size);
  return message;
}

} // namespace spmd::runtime
