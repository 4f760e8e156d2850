// Handlers of the process. What runs in them allocates nothing.
#include "checker/cli/process.h"

#include "checker/cli/exit_code.h"
#include "checker/cli/output.h"

#include "ir/input/read_file.h"

#include "llvm/Support/ErrorHandling.h"

#include <array>
#include <csignal>
#include <cstdio>
#include <new>
#include <unistd.h>

namespace spmd::checker {
namespace {

[[noreturn]] void out_of_memory() {
  std::array<char, 256> text;
  std::string_view name = tool();
  int size = std::snprintf(text.data(), text.size(),
                           "%.*s: no memory is left: the input is too large for what this process "
                           "may take\n",
                           static_cast<int>(name.size()), name.data());
  (void)!::write(STDERR_FILENO, text.data(), static_cast<size_t>(size));
  ::_exit(static_cast<int>(ExitCode::Input));
}

void out_of_memory_in_llvm(void *, const char *, bool) { out_of_memory(); }

volatile std::sig_atomic_t interrupted = 0;

void note_interrupt(int) { interrupted = 1; }

void set_interrupt(void (*handler)(int), int flags) {
  struct sigaction now = {}, before = {};
  if (::sigaction(SIGINT, nullptr, &before) != 0 || before.sa_handler == SIG_IGN)
    return;
  now.sa_handler = handler;
  now.sa_flags = flags;
  ::sigaction(SIGINT, &now, nullptr);
}

} // namespace

InterruptNote::InterruptNote() {
  set_interrupt(note_interrupt, static_cast<int>(SA_RESETHAND) | SA_RESTART);
}
InterruptNote::~InterruptNote() { set_interrupt(SIG_DFL, 0); }
bool InterruptNote::came() const { return interrupted != 0; }

void prepare_process() {
  std::signal(SIGPIPE, SIG_IGN);
  std::set_new_handler(out_of_memory);
  llvm::install_bad_alloc_error_handler(out_of_memory_in_llvm);
  ir::guard_mapped_files();
}

} // namespace spmd::checker
