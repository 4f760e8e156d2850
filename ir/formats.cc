// The table of input formats, and how the format of some bytes is recognised.
// Relies on one reader and one printer per format, each in a file of its own.
#include "ir/input.h"

namespace spmd::ir {

namespace {

bool starts_with_brace(llvm::StringRef bytes) { return bytes.ltrim(" \t\r\n").startswith("{"); }

bool is_text(llvm::StringRef bytes) { return !starts_with_brace(bytes); }

constexpr Format kFormats[] = {
    {"text", ".spmd", is_text, read_text, print_text},
    {"json", ".spmd.json", starts_with_brace, read_json, print_json},
};

bool starts_code_point(char byte) { return (static_cast<unsigned char>(byte) & 0xC0) != 0x80; }

} // namespace

llvm::ArrayRef<Format> formats() { return kFormats; }

const Format &format_of(llvm::StringRef bytes) {
  for (const Format &format : kFormats)
    if (format.recognises(bytes))
      return format;
  return kFormats[0];
}

ReadResult read_program(llvm::StringRef bytes, const ReadOptions &options) {
  return format_of(bytes).read(bytes, options);
}

std::pair<uint32_t, uint32_t> line_and_column(llvm::StringRef bytes, uint64_t offset) {
  llvm::StringRef before = bytes.take_front(offset);
  size_t line_start = before.rfind('\n') + 1; // npos + 1 is 0
  uint32_t line = static_cast<uint32_t>(before.count('\n')) + 1;
  uint32_t column = 1;
  for (char byte : before.drop_front(line_start))
    column += starts_code_point(byte);
  return {line, column};
}

} // namespace spmd::ir
