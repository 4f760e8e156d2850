// What a tool sets up before anything else, so that it ends with words and a documented code
// whatever it is given.
#pragma once

namespace spmd::checker {

// A reader that goes away shows as an error of write(); memory that runs out ends the process with
// a sentence and ExitCode::Input; a mapped file that becomes shorter reads as zeros (read_file.h).
void prepare_process();

// While one lives, the first SIGINT is only noted; the second one ends the process. A process that
// is started with SIGINT ignored goes on ignoring it.
class InterruptNote {
public:
  InterruptNote();
  ~InterruptNote();
  InterruptNote(const InterruptNote &) = delete;
  InterruptNote &operator=(const InterruptNote &) = delete;
  bool came() const;
};

} // namespace spmd::checker
