// Joins the tables: rows by name, spellings of frameworks, transitions and boundary ops.
#pragma once

#include "rules/apply.h"

#include "llvm/ADT/StringRef.h"

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

// Resolution order of ir/README.md: exact alias; without overload; without a
// trailing `_`; the same name in ours; spellings that follow by rule (rules/README.md).
ResolvedOp resolve_spelling(llvm::StringRef spelling, llvm::StringRef dialect);
// The same of an op of a program, in its dialect. Looked up anew each time, and without rules of
// the trace: where many are asked, Rules remembers.
ResolvedOp resolve_op(const ir::Program &program, ir::OpNameId op);
// The operands of a row that `Alias::order` names, per position.
llvm::SmallVector<uint8_t, 6> read_order(std::string_view order, const Equation &equation);
// Every spelling in the alias table that means this row or transition.
llvm::SmallVector<llvm::StringRef, 8> spellings_of(llvm::StringRef op);
// The most similar name among `candidates`, or empty if none is near.
llvm::StringRef nearest_name(llvm::StringRef name, llvm::ArrayRef<llvm::StringRef> candidates);

} // namespace spmd::rules
