// The words in which frameworks state what the type of a tensor states. Findings and files keep our
// own; a dialect is how types are printed for those who think in it.
#pragma once

#include "ir/dialect/words.h"
#include "ir/program.h"

#include "llvm/Support/Error.h"

#include <optional>
#include <string>

namespace spmd::ir {

std::optional<Dialect> find_dialect(llvm::StringRef word);
// That of the program; Spmd where it is none of the above.
Dialect dialect_of(const Program &program);

// All axes of the mesh, without extents: `S(0)@dp R@tp`, `{V:dp, R:tp}`, `[Shard(0), Reduced()]`,
// `variant={dp} reduced={tp}`. What the dialect cannot say is in our words, in brackets.
std::string print_kinds_in(const Program &program, const Type &type, Dialect dialect);
// The type of a value as a program in that dialect states it, extents of one rank: `f32[8@dp, 16]
// {R:tp}`,
// `f32[8, 16] [Shard(0), Reduced()]`, `f32[8, 16] variant={dp} reduced={tp}`. In our words where
// not all axes are claimed: their words have no form for that.
std::string print_type_in(const Program &program, const Type &type, ShapeId local, ShapeId global,
                          Dialect dialect);
// What of the type is lost if these words are read back: "Reduced on tp is R". Empty: nothing.
std::string describe_loss(const Program &program, const Type &type, Dialect dialect);

// The same read back, on a mesh without flattened axes in the words. JAX's R and V, and LTensor's,
// come back as R and V: what they do not tell apart is lost. Interns scales. An error says which
// word is none.
llvm::Expected<Type> read_words(Program &program, MeshId mesh, llvm::StringRef text,
                                Dialect dialect);

// The text form, with a comment behind each statement: the types of its values in these words.
std::string print_text(const Program &program, Dialect words);
// The text form, types of values in the words of the program's own dialect: `read_text` reads them.
std::string print_text_in_dialect(const Program &program);

// What a declaration of a parameter says of the axes that it leaves out: nothing in our words and
// in DTensor's, invariant in those of JAX and LTensor.
void state_default_kinds(Program &program);

} // namespace spmd::ir
