// The table of input formats, and how the format of some bytes is recognised.
// Relies on one reader and one printer per format, each in a file of its own.
#include "ir/input/compression.h"
#include "ir/input/json_cursor.h"
#include "ir/support/strings.h"

#include "llvm/ADT/STLExtras.h"

namespace spmd::ir {

namespace {

bool starts_with_brace(llvm::StringRef bytes) {
  return ir::starts_with(bytes.ltrim(" \t\r\n"), "{");
}

bool begins_as_text(llvm::StringRef bytes) { return !starts_with_brace(bytes); }

// True if the first line is a whole object without `ops`, and something follows.
bool is_stream(llvm::StringRef bytes) {
  auto [line, rest] = bytes.ltrim(" \t\r\n").split('\n');
  if (rest.ltrim(" \t\r\n").empty())
    return false;
  JsonCursor json(line);
  bool ops = false;
  if (!json.failed())
    json.object([&](llvm::StringRef key) {
      ops |= key == "ops";
      json.skip();
    });
  return !json.failed() && json.at_end() && !ops;
}
bool is_document(llvm::StringRef bytes) { return !is_stream(bytes); }

constexpr Format kFormats[] = {
    {"text", ".spmd", begins_as_text, nullptr, read_text, print_text, /*by_hand=*/true},
    {"json", ".spmd.json", starts_with_brace, is_document, read_json, print_json},
    {"jsonl", ".spmd.jsonl", starts_with_brace, is_stream, read_json, print_jsonl},
};

bool starts_code_point(char byte) { return (static_cast<unsigned char>(byte) & 0xC0) != 0x80; }

} // namespace

llvm::ArrayRef<Format> formats() { return kFormats; }

const Format &format_of(llvm::StringRef bytes) {
  for (const Format &format : kFormats)
    if (format.begins(bytes) && (!format.is || format.is(bytes)))
      return format;
  return kFormats[0];
}

ReadResult read_program(llvm::StringRef bytes, const ReadOptions &options) {
  if (compression_of(bytes) != Compression::None)
    return read_unpacked(unpack(bytes), options);
  // To tell a document from a stream would be to read a line of it twice, which may be all of it.
  const Format *first =
      llvm::find_if(kFormats, [&](const Format &format) { return format.begins(bytes); });
  return (first == std::end(kFormats) ? kFormats[0] : *first).read(bytes, options);
}

ReadResult read_unpacked(const Unpacked &unpacked, const ReadOptions &options) {
  ReadResult result;
  if (!unpacked.errors.empty()) {
    result.errors = unpacked.errors;
    return result;
  }
  if (compression_of(unpacked.bytes) != Compression::None) { // there are files that hold themselves
    result.errors.push_back({.name = "trace-encoding",
                             .message = "the bytes are compressed more than once",
                             .path = {}});
    return result;
  }
  result = read_program(unpacked.bytes, options);
  if (!unpacked.truncated)
    return result;
  // What a stream held up to there is a program; whatever else is wrong follows from the cut.
  bool usable = result.errors.empty() || result.truncated();
  result.errors = {{.name = usable ? "trace-truncated" : "trace-encoding",
                    .message = "the compressed data ends early",
                    .offset = unpacked.bytes.size(),
                    .path = {}}};
  return result;
}

bool ReadResult::truncated() const {
  return !errors.empty() && llvm::all_of(errors, [](const InputError &error) {
    return error.name == "trace-truncated";
  });
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
