// The tables behind rules::aliases(), one file per framework.
#pragma once

#include "rules/ops/op.h"

#include "llvm/ADT/ArrayRef.h"

namespace spmd::rules {

// Spellings that differ from an op in nothing but the word, or the variant.
struct Synonyms {
  std::string_view op;
  std::string_view spellings; // separated by blanks
  Variant variant = Variant::Plain;
  uint8_t spatial_dims = 0;
};

llvm::ArrayRef<Alias> jax_aliases();
llvm::ArrayRef<Synonyms> jax_synonyms();

// The words that frameworks have for our ops, where an op is to be written in them; attributes stay
// what they are. Empty: our name is theirs (torch), or they have none (JAX: no primitive).
std::string_view torch_word(std::string_view op);
std::string_view jax_word(std::string_view op);

} // namespace spmd::rules
