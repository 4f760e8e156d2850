// Where operations come from: source frames as an interned tree, joined with the module scope.
#pragma once

#include "ir/ids.h"
#include "ir/support/store.h"

namespace spmd::ir {

struct SourceFile {
  StringId path;
  StringId sha256; // 64 hex digits; none if not stated
};

// One frame; columns count code points from 1, 0 where not stated; `end` is exclusive.
struct Frame {
  FileId file;
  uint32_t line = 0;
  uint32_t col = 0;
  uint32_t end_line = 0;
  uint32_t end_col = 0;
  StringId function; // none if not stated
  FrameId caller;    // none for the outermost frame
  friend bool operator==(const Frame &, const Frame &) = default;
};
inline uint64_t hash_of(const Frame &frame) { return hash_bytes(&frame, sizeof frame); }

// What one instruction is tagged with: the frame, and the module path such as
// `layers.7.attention.wq`.
struct Location {
  FrameId frame;  // none if not stated
  StringId scope; // none if not stated
  friend bool operator==(const Location &, const Location &) = default;
};

} // namespace spmd::ir
