// How many files and connections this process may have open at once.
#pragma once

#include <string>

namespace spmd::runtime {

// As many as the system grants without being asked by root: rank 0 has a connection to each other
// rank.
void raise_file_limit();
// The system's word for `problem` (of errno), with the limit where that is what it is about.
std::string describe_open_error(int problem);

} // namespace spmd::runtime
