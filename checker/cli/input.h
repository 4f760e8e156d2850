// One input of a command: its bytes, its program, and the errors that kept it from being read.
#pragma once

#include "checker/cli/options.h"

#include "ir/input/compression.h"

#include "llvm/Support/MemoryBuffer.h"

#include <memory>
#include <string>

namespace spmd::checker {

struct Input {
  std::string name;
  std::unique_ptr<llvm::MemoryBuffer> buffer; // null if the file could not be read
  ir::Compression compression = ir::Compression::None;
  std::string unpacked; // where it is compressed
  ir::ReadResult read;  // errors: not to be checked

  llvm::StringRef bytes() const {
    if (compression != ir::Compression::None)
      return unpacked;
    return buffer ? buffer->getBuffer() : llvm::StringRef();
  }
  // The program stands as far as it goes, even if that is not its end.
  bool checkable() const { return buffer && (read.errors.empty() || read.truncated()); }
  bool readable() const { return buffer && read.errors.empty(); }
};

// Reads and verifies; what is wrong is in `read.errors`. With `--allow-truncated` an early end is a
// warning.
Input load(const std::string &path, const Options &options);
// The same of a text that is not in a file.
Input load_text(std::string name, llvm::StringRef text, const Options &options);
// `FILE:LINE:COL: error[trace-key]: message (ops[17].out[0].spec)`, a line each; warnings too.
std::string print_input_errors(const Input &input);

// True if the program is a step of a script as a recorder writes it, of which nobody declares what
// it holds.
bool is_recorded_step(const ir::Program &program);

} // namespace spmd::checker
