// Memory for a program that is large: fewer, larger pages.
#pragma once

#include <cstddef>

namespace spmd::checker {

// To be called before an input of so many bytes is read; does nothing for a small one, and where
// the allocator or the system has no such pages. Changes where later allocations lie, never what
// they hold.
void expect_large_input(size_t bytes);

} // namespace spmd::checker
