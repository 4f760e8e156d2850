// What a tool sets up before anything else, so that it ends with words and a documented code
// whatever it is given.
#pragma once

namespace spmd::checker {

// A reader that goes away shows as an error of write(); memory that runs out ends the process with
// a sentence and ExitCode::Input; a mapped file that becomes shorter reads as zeros (read_file.h).
void prepare_process();

} // namespace spmd::checker
