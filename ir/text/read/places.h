// Places in the user's source: `at "model.py":41:13 in "layers.0"`.
#pragma once

#include "ir/text/read/cursor.h"

namespace spmd::ir {

class TextLocationReader : TextCursor {
public:
  explicit TextLocationReader(TextInput &input) : TextCursor(input) {}

  FileId file_named(llvm::StringRef path);
  bool read_where(LocId &loc);
  bool read_frames(FrameId &frame);

private:
  bool read_frame(Frame &frame);
  bool read_place(Frame &frame);
  bool read_number(uint32_t &out, std::string_view what);

  llvm::DenseMap<uint32_t, FileId> files_; // by path
};

} // namespace spmd::ir
