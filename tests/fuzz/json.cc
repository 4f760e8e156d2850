// Any bytes as JSON, a document or a stream, compressed or not.
#include "tests/fuzz/fuzz.h"

#include "ir/input/compression.h"

using namespace spmd;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  llvm::StringRef bytes = fuzz::bytes_of(data, size);
  bool packed = ir::compression_of(bytes) != ir::Compression::None;
  ir::ReadResult result = packed ? ir::read_program(bytes) : ir::read_json(bytes);
  if (!fuzz::is_sound(result))
    return 0;
  fuzz::round_trip(result, ir::print_json, ir::read_json, ir::print_text);
  fuzz::round_trip(result, ir::print_jsonl, ir::read_json, ir::print_json);
  // Text does not keep a context that no op has.
  fuzz::round_trip(result, ir::print_text, ir::read_text, ir::print_text);
  return 0;
}
