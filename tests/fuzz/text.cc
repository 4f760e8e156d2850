// Any bytes as text.
#include "tests/fuzz/fuzz.h"

using namespace spmd;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  ir::ReadResult result = ir::read_text(fuzz::bytes_of(data, size));
  if (!fuzz::is_sound(result))
    return 0;
  fuzz::round_trip(result, ir::print_text, ir::read_text, ir::print_json);
  fuzz::round_trip(result, ir::print_json, ir::read_json, ir::print_text);
  return 0;
}
