// Pages of the manual: each is derived from the table that it describes.
#pragma once

#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringRef.h"

#include <string>

namespace spmd::checker {

using Names = llvm::SmallVector<llvm::StringRef, 64>;

// One form of name: its page (empty if no such name), and all names.
struct ManualSection {
  std::string_view title;
  std::string (*page)(llvm::StringRef name);
  Names (*names)();
};

std::string op_page(llvm::StringRef name);
Names op_names();
std::string transition_page(llvm::StringRef name);
Names transition_names();

std::string kind_page(llvm::StringRef name);
Names kind_names();
std::string statement_page(llvm::StringRef name);
Names statement_names();
std::string input_error_page(llvm::StringRef name);
Names input_error_names();

} // namespace spmd::checker
