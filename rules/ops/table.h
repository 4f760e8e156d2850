// The table of ops: rows by name, and spellings of frameworks. Its rows stand in one file per
// family.
#pragma once

#include "rules/ops/op.h"

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringRef.h"

#include <string>

namespace spmd::rules {

// All rows, family by family, in the order of the files.
llvm::ArrayRef<llvm::ArrayRef<OpDef>> op_families();
llvm::ArrayRef<Alias> aliases();
// Empty, or why these tables cannot be meant: a name that stands twice, a spelling of nothing. Our
// own are held against it when they are first used.
std::string table_problem(llvm::ArrayRef<llvm::ArrayRef<OpDef>> families,
                          llvm::ArrayRef<Alias> spellings);
// Null if we have no row of that name.
const OpDef *find_op(llvm::StringRef name);
// Null if the alias table has no such spelling.
const Alias *find_alias(llvm::StringRef spelling);
// Every spelling in the alias table that means this row or transition.
llvm::SmallVector<llvm::StringRef, 8> spellings_of(llvm::StringRef op);

} // namespace spmd::rules
