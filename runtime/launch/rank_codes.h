// How ranks that mpirun started end, reported past mpirun: its own exit code may be that of a rank,
// or its own.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace spmd::runtime {

// Names the file to which each rank appends a byte: its exit code.
inline constexpr const char *kRankCodes = "SPMD_RANK_CODES";

// Of a rank, as the last thing but to end: where it was started by something that wants to know.
void report_code(int code);
[[noreturn]] void end_process(int code); // reports, and ends at once

// Of what starts the ranks. The file has no name in any folder, so nothing of it is left behind.
class RankCodes {
public:
  RankCodes();
  ~RankCodes();
  RankCodes(const RankCodes &) = delete;
  RankCodes &operator=(const RankCodes &) = delete;
  // For kRankCodes; empty: the system gives no such file.
  std::string path() const;
  // By now, in no order.
  std::vector<uint8_t> read() const;

private:
  int file_;
};

} // namespace spmd::runtime
