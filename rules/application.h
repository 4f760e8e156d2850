// One op with typed operands, as rules see it: types, shapes, attributes and the context of an
// instruction, never a place in a program.
#pragma once

#include "rules/boundary/op.h"
#include "rules/ops/op.h"
#include "rules/transitions/op.h"
#include "rules/violation.h"
#include "rules/violations/symbols.h"

#include "ir/program.h"

#include "llvm/ADT/SmallVector.h"

#include <memory>
#include <string>

namespace spmd::rules {

struct Transition;

// One tensor operand: what is claimed of it, what one rank holds.
struct TensorInfo {
  ir::TypeId type;
  ir::ShapeId shape;      // none if not known
  ir::ShardSizesId sizes; // none: every sharded dimension is cut evenly
  friend bool operator==(const TensorInfo &, const TensorInfo &) = default;
};

// One operand position: a tensor, a list of tensors, a plain number or word, or nothing (`null`).
struct Slot {
  enum class Form : uint8_t { Missing, Tensor, List, Literal };
  Form form = Form::Missing;
  uint32_t first = 0, count = 0; // into Application::args
  ir::AttrValue literal; // Literal; of a List an integer whose bit i says that member i is a tensor
  ir::StringId name;     // named operands
};

// What the program states of a result.
struct ResultClaim {
  ir::ShapeId shape;   // none if not stated
  ir::TypeId declared; // none if not stated
  ir::ShapeId global;  // extents of all ranks together; none if not stated
};

struct ResolvedOp;
struct RowUse;

struct Application {
  ir::Program &program; // for its interners and tables of names; instructions are not looked at
  const ResolvedOp &op;
  ir::AttrsId attrs;
  ir::ContextId context;
  llvm::ArrayRef<Slot> slots;
  llvm::ArrayRef<TensorInfo> args;
  llvm::ArrayRef<ResultClaim> results;
  bool infer_partial = false; // sums over sharded dimensions need not be stated

  const ir::Context &op_context() const { return program.contexts[context]; }
  const ir::Mesh &mesh() const { return program.meshes[op_context().mesh]; }
  // The axes whose partition specs are judged here, and those of which only kinds are.
  ir::AxisSet global_axes() const { return mesh().typed_axes() - program.local_axes(op_context()); }
  ir::AxisSet local_axes() const { return program.local_axes(op_context()) & mesh().typed_axes(); }
  const ir::Type &type(const TensorInfo &arg) const { return program.types[arg.type]; }
  // Null if not known.
  const ir::Shape *shape(const TensorInfo &arg) const {
    return arg.shape.valid() ? &program.shapes[arg.shape] : nullptr;
  }
  // The same as one of its rows sees it: with the operands that the row takes. `use` stays the
  // caller's.
  Application bound_to(const RowUse &use) const;
  // The slot of a named operand (`kw`), else null.
  const Slot *named(llvm::StringRef name) const;
  // The value of an attribute, else null.
  const ir::AttrValue *attr(llvm::StringRef key) const { return program.find(attrs, key); }
};

// A word of a collective with unstated words that was read off its operand or left to its uses.
struct InferredKinds {
  ir::AxisSet axes;
  ir::WrittenKind src, dst; // dst R|I: undecided, the uses decide
};

struct Outcome {
  llvm::SmallVector<ir::TypeId, 1> types;
  llvm::SmallVector<ir::ShapeId, 1> shapes;     // local; none where it cannot be determined
  llvm::SmallVector<ir::ShardSizesId, 1> sizes; // none: cut evenly; may be shorter than shapes
  llvm::SmallVector<Violation, 0> violations;
  llvm::SmallVector<InferredKinds, 0> inferred;
  llvm::SmallVector<UndecidedExtents, 0> undecided; // comparisons that symbols leave open
};

enum class OpForm : uint8_t { Unknown, Equation, Transition, Boundary, Call };

// What a spelling means; made once per spelling and program.
struct ResolvedOp {
  ir::OpNameId spelling;
  OpForm form = OpForm::Unknown;
  const OpDef *row = nullptr;                       // Equation
  const Alias *alias = nullptr;                     // null if the spelling is the row's own name
  TransitionOp transition = TransitionOp::None;     // Transition
  rules::Boundary boundary = rules::Boundary::None; // Boundary, Call
  llvm::SmallVector<uint8_t, 6>
      order; // operand of the row per position, or one of the two below. Empty: as the row
  static constexpr uint8_t kIgnored = 0xFF, kState = kGenerator;
  bool lists_rest = false; // tensors from the last position of `order` on are one list
  bool in_place = false;   // a trailing `_`
  bool each = false;
  bool assumed = false; // from `rules` of the trace or the configuration
  // `vjp.OP.OPERAND`: what the name of the op means, and the operand of its row.
  std::shared_ptr<const ResolvedOp> forward = nullptr;
  std::string differentiated;
  std::string nearest; // Unknown: the most similar name

  bool computes(Computes what) const { return row && row->computes == what; }
  // Of the spelling, or of the row under its own name.
  Variant variant() const { return alias ? alias->variant : row ? row->variant : Variant::Plain; }
};

// True if a call is stated to have no derivative (`vjp = none`).
inline bool lacks_vjp(const ir::Program &program, ir::AttrsId attrs) {
  const ir::AttrValue *vjp = program.find(attrs, "vjp");
  return vjp && vjp->form == ir::AttrForm::String &&
         program.strings[vjp->as<ir::StringId>()] == "none";
}

// A row of the table with the operands that it takes. An application has several where its lists
// are zipped: one per member.
struct RowUse {
  ResolvedOp op; // with which the slots are bound
  const OpDef *row;
  llvm::SmallVector<Slot, 6> slots;
  llvm::SmallVector<unsigned, 2> results; // positions among the declared ones
};
// For ops of form Equation. None if `vjp.OP.OPERAND` names no operand with a gradient here.
llvm::SmallVector<RowUse, 1> row_uses(const Application &app);

} // namespace spmd::rules
