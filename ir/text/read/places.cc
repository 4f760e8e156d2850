// A place is a frame and, inside of the model, a scope; equal ones are one.
#include "ir/text/read/places.h"

#include <fmt/core.h>

namespace spmd::ir {

FileId TextLocationReader::file_named(llvm::StringRef path) {
  auto [at, inserted] = files_.try_emplace(builder_.string(path).index);
  if (inserted)
    at->second = program_.files.add({builder_.string(path), {}});
  return at->second;
}

bool TextLocationReader::read_where(LocId &loc) {
  FrameId frame;
  StringId scope;
  if (take_word("at") && !read_frames(frame))
    return false;
  if (take_word("in")) {
    std::optional<std::string> text = string("a scope in quotes");
    if (!text)
      return false;
    scope = builder_.string(*text);
  }
  loc = builder_.location(frame, scope);
  return true;
}

// Innermost first, each `from` one step out.
bool TextLocationReader::read_frames(FrameId &innermost) {
  llvm::SmallVector<Frame, 4> frames;
  do {
    frames.emplace_back();
    if (!read_frame(frames.back()))
      return false;
  } while (take_word("from"));
  for (Frame &frame : llvm::reverse(frames)) {
    frame.caller = innermost;
    innermost = program_.frames.add(frame);
  }
  return true;
}

// `"model.py":41:13-41:20 fn "Block.forward"`.
bool TextLocationReader::read_frame(Frame &frame) {
  std::optional<std::string> path = string("a path in quotes");
  if (!path || !expect(':') || !read_place(frame))
    return false;
  frame.file = file_named(*path);
  if (!take_word("fn"))
    return true;
  std::optional<std::string> name = string("a function in quotes");
  if (name)
    frame.function = builder_.string(*name);
  return name.has_value();
}

bool TextLocationReader::read_place(Frame &frame) {
  if (!read_number(frame.line, "a line"))
    return false;
  if (take_if(':') && !read_number(frame.col, "a column"))
    return false;
  if (!take_if('-'))
    return true;
  return read_number(frame.end_line, "a line") && expect(':') &&
         read_number(frame.end_col, "a column");
}

bool TextLocationReader::read_number(uint32_t &out, std::string_view what) {
  Token token = peek();
  std::optional<int64_t> number = integer(what, 1, "trace-key");
  if (!number)
    return false;
  if (*number > INT32_MAX)
    return error(token, "trace-limit", fmt::format("{} is beyond 2^31", what));
  out = static_cast<uint32_t>(*number);
  return true;
}

} // namespace spmd::ir
