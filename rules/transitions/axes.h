// The axes that a call runs over, from the names or the group that it states, by rank layout
// (rules/README.md).
#pragma once

#include "rules/application.h"

#include <optional>

namespace spmd::rules {

// One axis as written: a flattened or foreign axis stands for several typed ones, one of size 1 for
// none.
struct WrittenAxis {
  llvm::SmallVector<ir::AxisId, 2> axes; // outermost first
  int64_t size = 1;
};

// What `axis` or `group` names, outermost first: one call over the flattened axis.
struct CallAxes {
  llvm::SmallVector<WrittenAxis, 2> written;

  ir::AxisSet all() const;
  int64_t size() const; // ranks that take part; saturated
};

// None where the program does not say or names what the current mesh does not have; the violation
// is then in `out`. `expected` is what the call takes its first operand to be, for the sentence.
std::optional<CallAxes> resolve_axes(const Application &app, ir::WrittenKind expected,
                                     Outcome &out);
// All of them, where nothing is to be reported; none where resolve_axes() gives none.
ir::AxisSet named_axes(const Application &app);

// Every result unknown on every axis, of unknown shape.
void forget_results(const Application &app, Outcome &out);

// The groups of a layout among the ranks of a mesh: `{0,1,2,3} {4,5,6,7}`; of many the first ones.
std::string draw_groups(const ir::Mesh &mesh, llvm::ArrayRef<ir::Atom> layout);

// `4:1 = {0,1,2,3} {4,5,6,7}`
std::string print_layout(const ir::Mesh &mesh, llvm::ArrayRef<ir::Atom> layout);

// The layout of axes taken in mesh order.
ir::Layout layout_of_set(const ir::Mesh &mesh, ir::AxisSet axes);

// `dp, tp`: names in the given order.
std::string print_order(const Application &app, llvm::ArrayRef<ir::AxisId> axes);

// Product of the sizes of the axes, saturated.
int64_t size_of(const ir::Mesh &mesh, ir::AxisSet axes);

} // namespace spmd::rules
