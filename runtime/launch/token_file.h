// The token of a run whose ranks are on one host and were given none: rank 0 draws one and leaves
// it in a file that only processes of the same user can read, until all ranks are there.
#pragma once

#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Error.h"

#include <cstdint>
#include <string>
#include <utility>

namespace spmd::runtime {

class TokenFile {
public:
  // Of rank 0, which listens on this port: so nobody else does.
  static llvm::Expected<TokenFile> write(uint16_t port, llvm::StringRef token);
  TokenFile(TokenFile &&other) noexcept : path_(std::exchange(other.path_, {})) {}
  TokenFile &operator=(TokenFile &&) = delete;
  ~TokenFile(); // removes it

private:
  explicit TokenFile(std::string path) : path_(std::move(path)) {}
  std::string path_;
};

// Empty: there is none yet. An error: the folder is not this user's alone, so nothing in it is
// believed.
llvm::Expected<std::string> read_token(uint16_t port);

} // namespace spmd::runtime
