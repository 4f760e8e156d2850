// The tables behind rules::aliases(), one file per framework.
#pragma once

#include "rules/op.h"

#include "llvm/ADT/ArrayRef.h"

namespace spmd::rules {

// Spellings that differ from an op in nothing but the word.
struct Synonyms {
  std::string_view op;
  std::string_view spellings; // separated by blanks
};

llvm::ArrayRef<Alias> jax_aliases();
llvm::ArrayRef<Synonyms> jax_synonyms();

} // namespace spmd::rules
