// A file in memory, reached by the process that has it open.
#include "runtime/launch/rank_codes.h"

#include <fmt/format.h>

#include <cstdlib>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

namespace spmd::runtime {

void report_code(int code) {
  const char *path = std::getenv(kRankCodes);
  const int file = path ? ::open(path, O_WRONLY | O_APPEND | O_CLOEXEC) : -1;
  if (file < 0)
    return;
  const auto byte = static_cast<uint8_t>(code);
  (void)!::write(file, &byte, 1);
  ::close(file);
}

void end_process(int code) {
  report_code(code);
  ::_exit(code);
}

RankCodes::RankCodes() : file_(::memfd_create("rank-codes", MFD_CLOEXEC)) {}

RankCodes::~RankCodes() {
  if (file_ >= 0)
    ::close(file_);
}

std::string RankCodes::path() const {
  return file_ < 0 ? "" : fmt::format("/proc/{}/fd/{}", ::getpid(), file_);
}

std::vector<uint8_t> RankCodes::read() const {
  std::vector<uint8_t> codes;
  uint8_t byte = 0;
  while (::pread(file_, &byte, 1, static_cast<off_t>(codes.size())) == 1)
    codes.push_back(byte);
  return codes;
}

} // namespace spmd::runtime
