// What derives a backward: shared by the files that implement it (deriver.cc: the body and its
// roots; _emit: instructions that are put out; _rows: ordinary ops; _transitions: transitions and
// boundary ops; _control: branches and loops).
#pragma once

#include "checker/backward/backward.h"
#include "checker/check.h"
#include "checker/operand_list.h"
#include "checker/rewrite/inline.h"

#include "rules/redistribute/call.h"
#include "rules/transitions/call.h"

#include "llvm/ADT/DenseSet.h"

namespace spmd::checker {

using ir::AttrValue;
using ir::AxisId;
using ir::AxisSet;
using ir::Inst;
using ir::InstId;
using ir::Kind;
using ir::KindWord;
using ir::Operand;
using ir::Type;
using ir::ValueId;

// One transition of a call, on axes with the same transition.
struct DualStep {
  const rules::Transition *row;
  KindWord src, dst;
  llvm::SmallVector<ir::AxisRef, 2> axes;
  AxisSet typed;
};

class Deriver {
public:
  Deriver(ir::Program &program, const CheckResult &result)
      : program_(program), rules_(program), copier_(program), types_(result.types),
        shapes_(result.shapes), sizes_(result.sizes) {}

  std::optional<NoBackward> run();

private:
  using Gradients = llvm::DenseMap<uint32_t, llvm::SmallVector<ValueId, 2>>;

  // Where instructions go, and what they are of.
  struct InsertionPoint {
    ir::ContextId context;
    ir::LocId loc;
    ValueId of; // a result of the forward instruction
  };

  bool fail(const Inst &inst, std::string why) {
    std::string op = program_.op_name(inst.op).str();
    if (!problem_)
      problem_ = NoBackward{
          {},
          "`" + op + "`" + (inst.result_count ? " of " + name(inst.first_result) : "") + " " + why};
    return false;
  }
  std::string name(ValueId value) const {
    return ir::print(program_.values[value].name, program_.strings);
  }

  // What is known of values.
  const Type type(ValueId value) const { return program_.types[types_[value.index]]; }
  rules::Arg arg(ValueId value) const {
    return {types_[value.index], shapes_[value.index], sizes_[value.index]};
  }
  ir::DType dtype(ValueId value) const {
    return shapes_[value.index].valid() ? program_.shapes[shapes_[value.index]].dtype
                                        : ir::DType::Unknown;
  }
  bool carries(ValueId value) const {
    return types_[value.index].valid() && !type(value).gradient_free() &&
           (dtype(value) == ir::DType::Unknown || ir::differentiable(dtype(value)));
  }
  ir::ContextId context_on(ir::MeshId mesh, ir::ContextId like) {
    ir::Context context = program_.contexts[like];
    if (context.mesh != mesh)
      context = {.mesh = mesh, .local = {}};
    return program_.contexts.add(context);
  }
  // The same where a value on these axes may be a list without a dimension.
  ir::ContextId local_on(AxisSet axes, ir::ContextId like) {
    ir::Context context = program_.contexts[like];
    context.local |= axes - program_.local_axes(context);
    return program_.contexts.add(context);
  }
  AxisSet local_in(ir::ContextId context) const {
    return program_.local_axes(program_.contexts[context]);
  }

  // Attributes.
  ir::AttrsId attrs(llvm::ArrayRef<std::pair<llvm::StringRef, AttrValue>> list,
                    ir::AttrsId base = {}, llvm::ArrayRef<llvm::StringRef> without = {});
  AttrValue axes_attr(llvm::ArrayRef<ir::AxisRef> axes) {
    ir::AxisRefs refs;
    refs.refs.append(axes.begin(), axes.end());
    return AttrValue::axes(program_.axis_refs.add(std::move(refs)));
  }
  llvm::SmallVector<ir::AxisRef, 2> refs_of(ir::MeshId mesh, AxisSet axes) const {
    llvm::SmallVector<ir::AxisRef, 2> refs;
    for (AxisId axis : axes)
      refs.push_back({{}, program_.meshes[mesh][axis].name});
    return refs;
  }

  // Putting out.
  ir::OpNameId op(llvm::StringRef ours) { return own_op(program_, ours); }
  void learn(ValueId value, const rules::Arg &arg) {
    size_t size = value.index + 1;
    if (types_.size() < size)
      types_.resize(size), shapes_.resize(size), sizes_.resize(size);
    types_[value.index] = arg.type;
    shapes_[value.index] = arg.shape;
    sizes_[value.index] = arg.sizes;
  }
  // Types an instruction that is not in the program yet. None, and the finding is kept, if it is
  // refused.
  std::optional<rules::Arg> ask(const Inst &inst, AxisSet *summed);
  // None if it is refused. `summed`: axes over which a sum goes that is not stated.
  // `claimed`: what the result is stated to be.
  ValueId put(ir::OpNameId op, llvm::ArrayRef<Operand> operands, ir::AttrsId attrs,
              const InsertionPoint &around, std::string stem, AxisSet *summed = nullptr,
              const std::optional<Type> &claimed = std::nullopt);
  ValueId put(llvm::StringRef ours, llvm::ArrayRef<Operand> operands, ir::AttrsId attrs,
              const InsertionPoint &around, std::string stem) {
    return put(op(ours), operands, attrs, around, std::move(stem));
  }

  // Gradients.
  Type wanted(ValueId value) const { return type(value).dual(); }
  ValueId fit(ValueId gradient, ValueId of, const InsertionPoint &around);
  ValueId reinterpret(ValueId gradient, AxisSet axes, Kind src, Kind dst,
                      const InsertionPoint &around);
  void state(ValueId gradient, ValueId of);
  void give(Gradients &gradients, ValueId of, ValueId gradient, const InsertionPoint &around);
  ValueId total(Gradients &gradients, ValueId of);
  void lose(ValueId of);
  std::string stem(ValueId value) const { return "grad_" + name(value).substr(1); }

  // One instruction.
  bool differentiate(const Inst &inst, Gradients &gradients);
  bool through_op(const Inst &inst, const rules::ResolvedOp &op, llvm::ArrayRef<ValueId> results,
                  Gradients &gradients);
  bool through_row(const Inst &inst, const rules::Application &app, const rules::RowUse &use,
                   unsigned at, llvm::ArrayRef<ValueId> values, llvm::ArrayRef<ValueId> results,
                   Gradients &gradients);
  bool through_operand(const Inst &inst, const rules::OpDef &row, std::string_view operand,
                       std::optional<int64_t> member, llvm::ArrayRef<ValueId> results,
                       ValueId value, Gradients &gradients);
  std::optional<Operand> gradient_operand(const Inst &inst, const rules::OpDef &row,
                                          llvm::ArrayRef<ValueId> results);
  ValueId derived(const Inst &inst, std::string_view operand, std::optional<int64_t> member,
                  Operand gradients, ValueId of);
  bool through_transition(const Inst &inst, const rules::ResolvedOp &op,
                          llvm::ArrayRef<ValueId> results, Gradients &gradients);
  std::optional<llvm::SmallVector<DualStep, 2>>
  steps(const rules::Application &app, const rules::TransitionCall &call, uint32_t operand);
  ValueId dual(const Inst &inst, const DualStep &step, const rules::TransitionCall &call,
               ValueId gradient, ValueId of, const InsertionPoint &outside);
  ValueId joint_dual(const rules::Application &app, const rules::TransitionCall &call,
                     uint32_t operand, ValueId result, ValueId gradient, ValueId of,
                     const InsertionPoint &around);
  ValueId by_stated(const rules::redistribute::BackwardRedistribution &way, ValueId gradient,
                    ValueId of, const InsertionPoint &around);
  std::optional<ir::AttrsId> dual_attrs(const Inst &inst, const DualStep &step,
                                        const rules::Transition &row, ValueId of);
  std::optional<AttrValue> lengths_of(ValueId of, const DualStep &step);
  ValueId pass_on(ValueId gradient, ValueId of, const InsertionPoint &around);
  bool through_boundary(const Inst &inst, const rules::ResolvedOp &op,
                        llvm::ArrayRef<ValueId> results, Gradients &gradients);

  // Branches and loops (control.cc).
  struct Copied {
    std::vector<Inst> insts;
    llvm::SmallVector<ValueId, 8> params, results; // results: none where a number is given back
  };
  // A branch whose backward is put together.
  struct CondParts {
    llvm::ArrayRef<ValueId> args;              // of both branches
    llvm::ArrayRef<ValueId> results;           // their gradients
    llvm::SmallVector<ValueId, 8> wanted = {}; // operands that have a gradient
    InsertionPoint inside;
  };
  bool through_cond(const Inst &inst, llvm::ArrayRef<ValueId> results, Gradients &gradients);
  std::optional<AttrValue> reverse_branch(const CondParts &cond, ir::FunctionId side);
  ValueId branch_gradient(const CondParts &cond, const Copied &body, Gradients &inner,
                          ValueId value);
  // A scan whose backward is put together.
  struct ScanParts {
    const Inst &inst;
    llvm::ArrayRef<ValueId> args;    // constants, carries, what is taken apart
    llvm::ArrayRef<ValueId> results; // gradients of the results
    ir::FunctionId forward;
    std::string name; // of its body
    size_t consts, carries;
    InsertionPoint around, inside;
    llvm::SmallVector<ValueId, 8> stacks = {}; // the carries that rounds began with, the last first
    Copied body = {};                          // for the backward
    // Positions of the operands that have a gradient.
    llvm::SmallVector<size_t, 8> const_positions = {}, carry_positions = {}, x_positions = {};
    llvm::SmallVector<ValueId, 8> wanted_params = {};                 // their parameters
    llvm::SmallVector<ValueId, 8> carried_params = {}, y_params = {}; // of the body back
    llvm::SmallVector<ValueId, 8> handed = {};                        // operands of the scan back

    llvm::ArrayRef<ValueId> xs() const { return args.drop_front(consts + carries); }
  };
  bool through_scan(const Inst &inst, llvm::ArrayRef<ValueId> results, Gradients &gradients);
  bool save_carries(ScanParts &scan);
  void find_positions(ScanParts &scan);
  bool hand_over(ScanParts &scan);
  std::optional<ir::FunctionId> reverse_round(const ScanParts &scan);
  llvm::SmallVector<ValueId, 8> round_back(const ScanParts &scan, Gradients &inner);
  bool put_scan_back(const ScanParts &scan, ir::FunctionId backward, Gradients &gradients);
  std::optional<ir::Extent> rounds_of(const ScanParts &scan) const;
  ValueId put_flipped(ValueId value, const InsertionPoint &around);
  // What is known of the gradient of a value.
  rules::Arg gradient_like(ValueId value) {
    return {program_.types.add(wanted(value)), shapes_[value.index], sizes_[value.index]};
  }
  bool draws(ir::FunctionId id);
  Copied copy_body(ir::FunctionId id);
  ValueId parameter(const rules::Arg &like, std::string stem);
  ir::FunctionId add_function(std::string stem, llvm::ArrayRef<ValueId> params, NewBody body,
                              llvm::ArrayRef<ValueId> results);
  llvm::SmallVector<ValueId, 4> put_call(rules::Boundary call, llvm::ArrayRef<ValueId> operands,
                                         ir::AttrsId attrs, llvm::ArrayRef<rules::Arg> made,
                                         const InsertionPoint &around, const std::string &stem);

  // The body.
  llvm::DenseSet<uint32_t> active(llvm::ArrayRef<Inst> insts, llvm::ArrayRef<ValueId> wanted);
  bool reverse(llvm::ArrayRef<Inst> insts, llvm::ArrayRef<ValueId> wanted, Gradients &gradients);
  bool root(ValueId loss, const InsertionPoint &around);
  void ask_gradient(const Inst &inst);
  ValueId gradient_of(ValueId value, const InsertionPoint &around);
  bool is_asked(const ir::Param &param) const;
  std::vector<ValueId> asked() const;
  void add_outputs();

  ir::Program &program_;
  rules::Rules rules_;
  BodyCopier copier_;
  std::vector<ir::TypeId> types_;
  std::vector<ir::ShapeId> shapes_;
  std::vector<ir::ShardSizesId> sizes_;
  NewBody out_;
  std::vector<Inst> forward_; // of the program itself, so far
  llvm::DenseSet<uint32_t> active_;
  llvm::DenseMap<uint32_t, ir::ContextId> made_in_;
  llvm::DenseSet<uint32_t> parameters_; // of bodies that are put out
  Gradients gradients_;                 // of the latest root
  ir::ScaleId root_scale_;
  std::optional<NoBackward> problem_;
  std::string refused_; // what the rules said of the last instruction that they refused
};

} // namespace spmd::checker
