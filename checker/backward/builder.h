// What every part of the backward is put together with: what is known of values, instructions that
// are put out, and gradients that are given to what they are of.
#pragma once

#include "checker/backward/backward.h"
#include "checker/check.h"
#include "checker/operand_list.h"
#include "checker/rewrite/inline.h"

#include "llvm/ADT/DenseSet.h"

namespace spmd::checker {

using ir::AttrValue;
using ir::AxisId;
using ir::AxisSet;
using ir::Inst;
using ir::InstId;
using ir::Kind;
using ir::Operand;
using ir::Type;
using ir::ValueId;
using ir::WrittenKind;

// The program and its backward, as far as it is derived.
struct BackwardState {
  BackwardState(ir::Program &program, const CheckResult &result)
      : program(program), rules(program), copier(program), types(result.types),
        shapes(result.shapes), sizes(result.sizes) {}

  ir::Program &program;
  rules::Rules rules;
  BodyCopier copier;
  std::vector<ir::TypeId> types; // by value, as the next two
  std::vector<ir::ShapeId> shapes;
  std::vector<ir::ShardSizesId> sizes;
  NewBody out;
  llvm::DenseSet<uint32_t> active; // values on the way from what is asked for to a root
  llvm::DenseMap<uint32_t, ir::ContextId> made_in;
  llvm::DenseSet<uint32_t> parameters; // of bodies that are put out
  std::optional<NoBackward> problem;
  std::string refused; // what the rules said of the last instruction that they refused
};

class BackwardBuilder {
protected:
  using Gradients = llvm::DenseMap<uint32_t, llvm::SmallVector<ValueId, 2>>;

  // Where instructions go, and what they are of.
  struct InsertionPoint {
    ir::ContextId context;
    ir::LocId loc;
    ValueId of; // a result of the forward instruction
  };

  explicit BackwardBuilder(BackwardState &state)
      : program_(state.program), rules_(state.rules), copier_(state.copier), types_(state.types),
        shapes_(state.shapes), sizes_(state.sizes), out_(state.out), active_(state.active),
        made_in_(state.made_in), parameters_(state.parameters), problem_(state.problem),
        refused_(state.refused) {}

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
  rules::TensorInfo arg(ValueId value) const {
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
  ir::OpNameId op(llvm::StringRef ours) { return spmd_op(program_, ours); }
  void learn(ValueId value, const rules::TensorInfo &arg) {
    size_t size = value.index + 1;
    if (types_.size() < size)
      types_.resize(size), shapes_.resize(size), sizes_.resize(size);
    types_[value.index] = arg.type;
    shapes_[value.index] = arg.shape;
    sizes_[value.index] = arg.sizes;
  }
  // Types an instruction that is not in the program yet. None, and the finding is kept, if it is
  // refused.
  std::optional<rules::TensorInfo> ask(const Inst &inst, AxisSet *summed);
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

  // What is known of the gradient of a value.
  rules::TensorInfo gradient_like(ValueId value) {
    return {program_.types.add(wanted(value)), shapes_[value.index], sizes_[value.index]};
  }

  ir::Program &program_;
  rules::Rules &rules_;
  BodyCopier &copier_;
  std::vector<ir::TypeId> &types_;
  std::vector<ir::ShapeId> &shapes_;
  std::vector<ir::ShardSizesId> &sizes_;
  NewBody &out_;
  llvm::DenseSet<uint32_t> &active_;
  llvm::DenseMap<uint32_t, ir::ContextId> &made_in_;
  llvm::DenseSet<uint32_t> &parameters_;
  std::optional<NoBackward> &problem_;
  std::string &refused_;
};

} // namespace spmd::checker
