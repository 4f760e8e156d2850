// Text as people may safely see it. A name, a path or a message may hold characters that act on a
// terminal, move other text or cannot be seen; whatever prints text of a program passes it here.
#pragma once

#include "llvm/ADT/StringRef.h"

#include <cstdint>
#include <string>

namespace spmd::ir {

// False for control characters, for marks that turn the direction of text, for code points without
// a picture of their own (zero-width, fillers, tags) and for those that never stand for a
// character.
bool is_visible(uint32_t code_point);

// The same text, each code point that is not visible as an escape of JSON: `\n`, `\u202e`, a pair
// beyond U+FFFF; a byte that is not UTF-8 as `\xff`. Escaping twice changes nothing more.
std::string printable(llvm::StringRef text);
// The same of several lines: line feeds stay.
std::string printable_lines(llvm::StringRef text);

// The inside of a string, as the readers of text and JSON read it back: quotes and backslashes are
// escaped too. `text` is UTF-8.
void append_string(std::string &out, llvm::StringRef text);

} // namespace spmd::ir
