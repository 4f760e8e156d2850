// One input of a command: its bytes, its program, and the errors that kept it from being read.
#pragma once

#include "checker/cli/options.h"

#include "llvm/Support/MemoryBuffer.h"

#include <memory>
#include <string>

namespace spmd::checker {

struct Input {
  std::string name;
  std::unique_ptr<llvm::MemoryBuffer> buffer; // null if the file could not be read
  ir::ReadResult read;                        // errors: not to be checked

  llvm::StringRef bytes() const { return buffer ? buffer->getBuffer() : llvm::StringRef(); }
  bool readable() const { return buffer && read.errors.empty(); }
};

// Reads and verifies; what is wrong is in `read.errors`.
Input load(const std::string &path, const ir::ReadOptions &options);
// `FILE:LINE:COL: error[trace-key]: message (ops[17].out[0].spec)`, a line each; warnings alike.
std::string print_input_errors(const Input &input);

} // namespace spmd::checker
