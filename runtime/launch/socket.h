// TCP between the processes of a run: addresses, time-outs, messages.
#pragma once

#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Error.h"

#include <chrono>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>

namespace spmd::runtime {

using Clock = std::chrono::steady_clock;

class Socket {
public:
  Socket() = default;
  explicit Socket(int file) : file_(file) {}
  Socket(Socket &&other) noexcept : file_(std::exchange(other.file_, -1)) {}
  Socket &operator=(Socket &&other) noexcept {
    std::swap(file_, other.file_);
    return *this;
  }
  ~Socket();
  int file() const { return file_; }
  bool valid() const { return file_ >= 0; }
  int release() { return std::exchange(file_, -1); }

  // Errors carry the system's word for it.
  static llvm::Expected<Socket> listen(const std::string &host, uint16_t port);
  // Tries until then: who listens may start later.
  static llvm::Expected<Socket> connect(const std::string &host, uint16_t port,
                                        Clock::time_point until);
  uint16_t port() const;
  // One that is there by now; none, and errno says why.
  std::optional<Socket> accept_now();

  // False: the other side is gone, or was too slow.
  bool send(llvm::StringRef bytes, Clock::time_point until);
  bool receive(char *bytes, size_t count, Clock::time_point until);

private:
  int file_ = -1;
};

enum class MessageForm : char {
  Gather = 'G',  // to rank 0
  Share = 'S',   // from it
  Where = 'W',   // asks
  Here = 'H',    // answers
  Late = 'T',    // has waited too long
  Fail = 'F',    // cannot go on
  Ended = 'E',   // was told by a signal to end, and does
  Stop = 'X',    // leave with this code; to rank 0: it has been given up
  Dissolve = 'D' // from rank 0: all end
};

struct Message {
  MessageForm form = MessageForm::Gather;
  std::string text;
};
std::string pack(const Message &message);

// Takes what came apart.
class MessageReader {
public:
  // Reads what is there, without waiting. False: the other side is gone.
  bool read(int file);
  std::optional<Message> next();

private:
  std::string bytes_;
};

// For poll: milliseconds until then, rounded up; 0 once it has passed.
int wait_ms(Clock::time_point until);

} // namespace spmd::runtime
