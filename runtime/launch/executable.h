// Where this program lies: plug-ins are beside it, and the processes of a run are started from it.
#pragma once

#include <string>

namespace spmd::runtime {

// SPMD_EXECUTABLE, where a script starts the program through a loader of its own
// (runtime/bundle.sh); else the file that the system runs. Empty if that cannot be determined.
std::string executable_path();

} // namespace spmd::runtime
