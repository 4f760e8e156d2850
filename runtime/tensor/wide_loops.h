// Loops that are compiled for several vector widths, of which the widest that the machine has is
// taken. Operations are those that are written, in their order: results do not depend on the width.
#pragma once

// Clang 14 looks up the machine anew at each call. A thread sanitizer is not up when the width is
// chosen.
#if defined(__x86_64__) && defined(__gnu_linux__) && defined(__GNUC__) && !defined(__clang__) &&   \
    !defined(__SANITIZE_THREAD__)
#define SPMD_WIDE_LOOP __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define SPMD_WIDE_LOOP
#endif
