// The words in which frameworks state what the type of a tensor states. Findings and files keep our own; a
// dialect is how types are printed for those who think in it.
#pragma once

#include "ir/program.h"

#include "llvm/Support/Error.h"

#include <array>
#include <optional>
#include <string>

namespace spmd::ir {

enum class Dialect : uint8_t { Spmd, Jax, DTensor, LTensor };
inline constexpr std::array<std::string_view, 4> kDialectWords = {"spmd", "jax", "dtensor",
                                                                  "ltensor"};
std::optional<Dialect> find_dialect(llvm::StringRef word);
// That of the program; Spmd where it is none of the above.
Dialect dialect_of(const Program &program);

// All axes of the mesh, without extents: `S(0)@dp R@tp`, `{V:dp, R:tp}`, `[Shard(0), Reduced()]`,
// `variant={dp} reduced={tp}`. What the dialect cannot say is in our words, in brackets.
std::string print_words(const Program &program, const Type &type, Dialect dialect);

// The same read back, on a mesh without flattened axes in the words. JAX's R and V, and LTensor's, come
// back as R and V: what they do not tell apart is lost. An error says which word is none.
llvm::Expected<Type> read_words(const Program &program, MeshId mesh, llvm::StringRef text,
                                Dialect dialect);

// The text form, with a comment behind each statement: the types of its values in these words.
std::string print_text(const Program &program, Dialect words);

// What a declaration of a parameter says of the axes that it leaves out: nothing in our words and in
// DTensor's, invariant in those of JAX and LTensor.
void fill_declarations(Program &program);

} // namespace spmd::ir
