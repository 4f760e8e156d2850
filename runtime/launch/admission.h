// How rank 0 lets the other ranks of a run in and keeps strangers out: both sides show that they
// know a token, which is not sent. All who connect are served side by side, so nobody is kept
// waiting by one who is slow.
#pragma once

#include "runtime/launch/socket.h"

#include <deque>
#include <vector>

namespace spmd::runtime {

// 32 hexadecimal digits that nobody can guess.
std::string random_token();

// Of a rank that asks. Taken: the token is right, and there are not so many ranks, or this one is
// there.
enum class Admission : uint8_t { Welcome, Taken, WrongToken, NoAnswer };
Admission ask_admission(Socket &socket, llvm::StringRef token, uint32_t rank, uint32_t size,
                        Clock::time_point until);

// Of rank 0.
class AdmissionServer {
public:
  // `listener` listens; ranks 1 to `size` - 1 are let in, each once.
  AdmissionServer(Socket listener, std::string token, uint32_t size);
  struct Admitted {
    uint32_t rank = 0;
    Socket socket;
  };
  // The next rank; none came until then. An error: the system gives no more connections, and why.
  llvm::Expected<std::optional<Admitted>> next(Clock::time_point until);
  uint16_t port() const { return listener_.port(); }

private:
  // A connection whose handshake is not done.
  struct PendingConnection {
    Socket socket;
    std::string nonce, in, out;   // `out`: what is still to be sent
    std::optional<uint32_t> rank; // admitted, once `out` is sent
    bool leaves = false;          // refused, once `out` is sent
    Clock::time_point since;
  };

  llvm::Error greet_all();
  void drop_overdue();
  bool serve(PendingConnection &guest);
  void judge(PendingConnection &guest);

  Socket listener_;
  std::string token_;
  uint32_t size_;
  bool full_ = false;                     // no more pending ones until one of them is gone
  std::vector<bool> there_;               // by rank
  std::deque<PendingConnection> pending_; // the oldest first
  std::deque<Admitted> done_;             // not handed out yet
};

} // namespace spmd::runtime
