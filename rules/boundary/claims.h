// Whether a value is what is claimed of it: kinds, shards, shapes.
#pragma once

#include "rules/application.h"

namespace spmd::rules {

// Where an operand of type `found` does not uphold `claim`, both on one mesh. Without a gradient R,
// Reduced and I agree; unknown agrees with everything, and so does an axis that is not claimed. V
// that is claimed without a dimension keeps the one that was found. Specs are compared as they
// stand: the caller forgets those of axes that are judged locally.
struct ClaimCheck {
  ir::AxisSet mismatched;
  ir::AxisSet unowned; // R that is claimed Reduced
  ir::Type type;       // what is known afterwards: unknown where the claim fails
};
// What becomes of V without a dimension that is claimed to have one.
enum class Spec : uint8_t {
  Compared, // it does not uphold the claim
  Joined,   // it is taken as the claim says: the claim states how the pieces join
};
// True if the value is cut along the axis as the claim says. Axes that share a dimension are
// compared in pairs: a claim may speak of some of them only.
bool same_shard(const ir::Type &found, const ir::Type &claim, ir::AxisId axis,
                Spec spec = Spec::Compared);
ClaimCheck check_claim(const ir::Type &found, const ir::Type &claim, bool gradient_free,
                       Spec spec = Spec::Compared);

// The axes that shard a dimension of the result, where the claim joins pieces there: its own in
// their order, inside those of which it does not speak.
void join_shards(ir::Type &type, const ir::Type &claim, unsigned dim);

// How the extents of a value differ from those of a claim, local ones first, and the axes that cut
// the dimensions in question.
struct ShapesDiffer {
  std::string found, claimed;
  ir::AxisSet axes;
};
// `judged`: the axes whose specs are known; else the extents of all ranks together are not
// compared.
std::optional<ShapesDiffer> claimed_shape_differs(ir::Program &program, const TensorInfo &arg,
                                                  const ir::Type &claim, ir::ShapeId local,
                                                  ir::ShapeId global, ir::AxisSet judged,
                                                  llvm::SmallVectorImpl<UndecidedExtents> &open);
// Kinds that are listed axis by axis, `S(0)@dp S(0)@tp`, say nothing of the order of shards: where
// that of the claim is just the mesh's, it is taken from the value.
void take_order(ir::Type &claim, const ir::Type &found);
// Two shapes of one thing, compared as far as both are known: a mismatch, or what symbols leave
// open.
std::optional<Violation> shape_differs(const ir::Program &program, std::string what,
                                       ir::ShapeId stated, ir::ShapeId found);
// The same of two values; where both are cut the same way, the sizes of their shards are compared
// too. They are named as the shards of `what`.
std::optional<Violation> value_shape_differs(ir::Program &program, const std::string &what,
                                             const TensorInfo &stated, const TensorInfo &found);

// Adds what one of these found.
void add_shape(Violation violation, Outcome &out);

// Gives the type the kinds that another one has on these axes, unknown ones as well. Neither cuts
// nor combiners are taken with them.
void take_kinds(ir::Type &type, const ir::Type &from, ir::AxisSet axes);

// The type on these axes alone, for a sentence.
ir::Type restricted(ir::Type type, ir::AxisSet axes);

} // namespace spmd::rules
