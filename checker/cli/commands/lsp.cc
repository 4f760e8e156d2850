// `spmdlint lsp`: answers an editor on stdin and stdout until it leaves.
#include "checker/cli/lsp/session.h"
#include "checker/cli/lsp/wire.h"
#include "checker/cli/output.h"
#include "ir/input/read_file.h"

#include <array>
#include <cerrno>
#include <poll.h>
#include <unistd.h>

namespace spmd::checker {
namespace {

constexpr size_t kMostWaiting = 64; // messages that are taken in before one of them is answered

bool has_input() {
  pollfd input{.fd = STDIN_FILENO, .events = POLLIN, .revents = 0};
  return ::poll(&input, 1, 0) > 0;
}

// One piece of stdin; empty at its end.
std::string read_some(std::string &problem) {
  std::array<char, 1 << 16> piece;
  while (true) {
    ssize_t size = ::read(STDIN_FILENO, piece.data(), piece.size());
    if (size < 0 && errno == EINTR)
      continue;
    if (size < 0)
      problem = "stdin: " + ir::describe_system_error({errno, std::generic_category()});
    return {piece.data(), size < 0 ? 0 : static_cast<size_t>(size)};
  }
}

} // namespace

// What has arrived is taken in before the next answer is worked out: it may cancel what was asked,
// or change the text that it was asked about.
ExitCode run_lsp(const Options &options) {
  std::string problem;
  lsp::Session session(options, [&](const std::string &message) {
    if (problem.empty())
      problem = write_stdout(lsp::framed(message));
  });
  lsp::MessageReader reader(options.max_input);
  while (!session.ended() && problem.empty()) {
    if (session.idle() || (session.waiting() < kMostWaiting && has_input())) {
      std::string bytes = read_some(problem);
      if (bytes.empty() && problem.empty() && !reader.between_messages()) {
        say("the input ends within a message");
        return ExitCode::Input;
      }
      if (bytes.empty())
        break;
      reader.feed(bytes);
      while (std::optional<std::string> message = reader.next())
        session.take(*message);
      if (!reader.problem().empty()) {
        say(reader.problem());
        return ExitCode::Input;
      }
    } else {
      session.work();
    }
  }
  if (!problem.empty())
    return wrong_call(problem);
  while (!session.ended() && !session.idle())
    session.work();
  return session.ended_well() ? ExitCode::Clean : ExitCode::Findings;
}

} // namespace spmd::checker
