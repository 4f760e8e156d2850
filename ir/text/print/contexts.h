// The contexts of instructions, and the words for a change from one to another.
#pragma once

#include "ir/text/print/words.h"

namespace spmd::ir {

// With a mesh: the first one, where none is stated.
Context context_of(const Program &program, ContextId id);
// What holds where no block says otherwise.
Context top_context(const Program &program);

// The line that opens a block of `to` inside of one of `from`.
std::string open_context(const Program &program, const Context &from, const Context &to);
// `{ mesh = m }`: what changes.
std::string context_attrs(const Program &program, const Context &from, const Context &to);

} // namespace spmd::ir
