// The op table, one file per family. Each row is one op of ours: its equation and what the equation
// cannot say. The functions that columns name are declared here by what they do, not by op.
#pragma once

#include "rules/ops/op.h"

#include "llvm/ADT/ArrayRef.h"

namespace spmd::rules {

llvm::ArrayRef<OpDef> pointwise_ops();
llvm::ArrayRef<OpDef> contraction_ops();
llvm::ArrayRef<OpDef> reduction_ops();
llvm::ArrayRef<OpDef> layout_ops();
llvm::ArrayRef<OpDef> indexing_ops();
llvm::ArrayRef<OpDef> normalisation_ops();
llvm::ArrayRef<OpDef> loss_ops();
llvm::ArrayRef<OpDef> attention_ops();
llvm::ArrayRef<OpDef> creation_ops();
llvm::ArrayRef<OpDef> optimizer_ops();

} // namespace spmd::rules
