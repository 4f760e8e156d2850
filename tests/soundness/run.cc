// The walk over a program, its values and gradients, and what is drawn for its inputs.
#include "tests/soundness/run.h"

#include "checker/check.h"
#include "checker/operand_list.h"

#include "ir/mesh/axis_scale.h"

#include "llvm/ADT/STLExtras.h"

#include <map>

namespace spmd::soundness {

using ir::AxisSet;
using ir::Kind;
using ir::ValueId;

Setting::Setting(ir::Program &program, const checker::CheckResult &checked)
    : program(program), checked(checked), world(program), rules(program) {}

Typed Setting::typed(ValueId value, uint32_t typing) const {
  const checker::BodyInstance &body = checked.body_instances[typing];
  if (value.index >= body.first && value.index - body.first < body.values.size()) {
    const rules::TensorInfo &arg = body.values[value.index - body.first];
    return {arg.type, arg.shape, arg.sizes};
  }
  return {checked.types[value.index], checked.shapes[value.index], checked.sizes[value.index]};
}

const FieldOp *Setting::field_op(const ir::Inst &inst, uint32_t index, uint32_t typing,
                                 std::string &why) {
  std::unique_ptr<FieldOp> &found = ops_[{index, typing}];
  if (found)
    return found.get();
  checker::OperandList operands;
  operands.read(program, inst.operands);
  llvm::SmallVector<rules::TensorInfo, 6> args;
  for (ValueId value : operands.values) {
    Typed known = typed(value, typing);
    args.push_back({known.type, known.shape, known.sizes});
  }
  llvm::SmallVector<rules::ResultClaim, 2> claims(inst.result_count);
  for (uint32_t r = 0; r < inst.result_count; ++r)
    claims[r].shape = typed(inst.result(r), typing).shape;
  rules::Application app{
      program, rules.resolve(inst.op), inst.attrs, inst.context, operands.slots, args, claims};
  std::optional<FieldOp> made = FieldOp::make(app, why);
  if (made && program.op_name(inst.op) == "ones_like")
    made->hold_ones();
  if (made)
    found = std::make_unique<FieldOp>(std::move(*made));
  return found.get();
}

Run::Run(Setting &setting, Side side, uint64_t seed)
    : setting_(setting), program_(setting.program), world_(setting.world), side_(side),
      seed_(seed) {}

bool Run::run() {
  for (const ir::Mesh &mesh : program_.meshes)
    if (mesh.within || mesh.offset != 0 || mesh.rank_count() != world_.size())
      return fail("ranks that are not on every mesh");
  take_misfit();
  bool done = inputs() && body(program_.main);
  if (const char *misfit = take_misfit()) {
    wrong = true;
    return fail(misfit);
  }
  return done;
}

void Run::define(const ir::Inst &inst, uint32_t result, NodeId id) {
  Typed known = typed(inst.result(result));
  AxisSet stated =
      program_.local_axes(program_.contexts[inst.context]) & program_.types[known.type].sharded();
  if (side_ == Side::Whole && stated)
    id = relisted(id, known, stated, known, {});
  // What leaves a region may be stated to have another scale along its axes.
  if (side_ == Side::Whole && program_.contexts[inst.context].local &&
      program_.op_name(inst.op) == "identity") {
    const ir::Operand &operand = program_.operand_lists[inst.operands].front();
    ir::ScaleId from = program_.types[typed(operand.as_value()).type].scale;
    ir::ScaleId factor = ir::quotient(program_, from, program_.types[known.type].scale);
    if (factor.valid() && factor != program_.one())
      id = multiplied(id, scale_number(program_, factor));
  }
  define(inst.result(result), id);
}

const Held *Run::value(ValueId value) const {
  auto at = frame_.find(value.index);
  return at == frame_.end() ? nullptr : &nodes_[at->second]->value;
}

const Held *Run::gradient(ValueId value) {
  if (!before_root_ || !frame_.count(value.index))
    return nullptr;
  NodeId id = node(value);
  gradient_of(id);
  shown_ = {nodes_[id]->value.rep, nodes_[id]->gradient};
  return &shown_;
}

Run::NodeId Run::add(Held held) {
  nodes_.push_back(std::make_unique<Node>());
  nodes_.back()->value = std::move(held);
  return static_cast<NodeId>(nodes_.size() - 1);
}

Run::NodeId Run::node(ValueId value) { return frame_.find(value.index)->second; }

Arrays &Run::gradient_of(NodeId id) {
  Node &node = *nodes_[id];
  if (node.gradient.empty()) {
    node.gradient.resize(world_.size());
    for (unsigned r = 0; r < world_.size(); ++r)
      if (node.value.rep[r] == r)
        node.gradient[r] = Array::zeros(node.value.at[r].dims);
  }
  return node.gradient;
}

bool Run::carries_gradient(ValueId value) const {
  return !program_.types[typed(value).type].gradient_free();
}

RankList Run::classes(llvm::ArrayRef<NodeId> nodes) const {
  RankList rep;
  std::map<std::vector<uint8_t>, uint8_t> first;
  for (unsigned r = 0; r < world_.size(); ++r) {
    std::vector<uint8_t> key;
    for (NodeId id : nodes)
      key.push_back(nodes_[id]->value.rep[r]);
    if (side_ == Side::Ranks)
      key = {static_cast<uint8_t>(r)};
    rep.push_back(first.try_emplace(key, static_cast<uint8_t>(r)).first->second);
  }
  return rep;
}

// Inputs: what they mean is drawn from positions in the whole, so that both sides draw the same.

namespace {

Array drawn(uint64_t seed, const Dims &dims, ir::DType dtype) {
  Array made = Array::zeros(dims);
  for (size_t i = 0; i < made.data.size(); ++i) {
    uint64_t bits = mix(seed, i);
    ir::DTypeClass form = ir::info(dtype).form;
    made.data[i] = form == ir::DTypeClass::Integer   ? Residue(static_cast<int64_t>(bits % 6))
                   : form == ir::DTypeClass::Boolean ? Residue(static_cast<int64_t>(bits % 2))
                                                     : Residue::from_bits(bits);
  }
  return made;
}

} // namespace

Held Run::draw(const Typed &known, const ir::Type &type, uint64_t from, Residue factor) const {
  AxisSet listed = type.of(Kind::Varying) - type.sharded();
  AxisSet pending = type.of(Kind::Partial) - type.either();
  Placement place(program_, world_, known);
  ir::DType dtype = program_.shapes[known.shape].dtype;
  Held held;
  held.at.resize(world_.size());
  for (unsigned r = 0; r < world_.size(); ++r) {
    unsigned member = world_.moved(type.mesh(), listed, 0, r); // names the list's member
    uint64_t seed = mix(from, member);
    Array whole = drawn(seed, place.whole(r), dtype);
    if (side_ == Side::Whole) {
      held.rep.push_back(static_cast<uint8_t>(member));
      held.at[member] = std::move(whole);
      continue;
    }
    held.rep.push_back(static_cast<uint8_t>(r));
    whole = times(std::move(whole), factor);
    // Addends: drawn but for the first rank's, which makes up the rest.
    unsigned addend = world_.moved(type.mesh(), pending, 0, r);
    if (addend != 0)
      whole = drawn(mix(seed, addend), whole.dims, ir::DType::F64);
    else
      for (unsigned other = 1; other < world_.size(); ++other)
        if (world_.moved(type.mesh(), pending, 0, other) == other)
          add_to(whole, times(drawn(mix(seed, other), whole.dims, ir::DType::F64), Residue(-1)));
    held.at[r] = take(whole, place.block(r));
  }
  return held;
}

bool Run::inputs() {
  for (const ir::Param &param : program_.params) {
    Typed known = typed(param.value);
    if (!known.shape.valid() || !program_.shapes[known.shape].ranked)
      return fail("an input without a shape");
    if (program_.types[known.type].combining())
      return fail("a value whose parts are not summed");
    if (!Placement(program_, world_, known).known())
      return fail("extents that are no numbers");
    const ir::Type &type = program_.types[known.type];
    // By its name, which it keeps where the program is written anew.
    ir::ValueName name = program_.values[param.value].name;
    uint64_t own = name.is_number() ? name.bits & ~ir::ValueName::kNumber : param.value.index;
    define(param.value,
           add(draw(known, type, mix(seed_, own), scale_number(program_, type.scale))));
  }
  return true;
}

bool Run::body(ir::Body body) {
  for (uint32_t i = body.first.index; i < body.last.index; ++i)
    if (!inst(i))
      return false;
  return true;
}

bool Run::inst(uint32_t index) {
  const ir::Inst inst = program_.insts[ir::InstId{index}];
  const rules::ResolvedOp &op = setting_.rules.resolve(inst.op);
  for (uint32_t r = 0; r < inst.result_count; ++r)
    if (ir::ShapeId shape = typed(inst.result(r)).shape;
        !shape.valid() || !program_.shapes[shape].ranked)
      return fail("a result without a shape");
  switch (op.form) {
  case rules::OpForm::Equation:
    return equation(inst, index);
  case rules::OpForm::Transition:
    return transition(inst, rules::name_of(op.transition));
  case rules::OpForm::Boundary:
    return boundary(inst, op.boundary);
  case rules::OpForm::Call:
    return call(inst, index, op.boundary);
  case rules::OpForm::Unknown:
    break;
  }
  return fail("an op without a rule");
}

// From the root, if there is one, and from what is drawn for those values that are known by now.
void Run::pull_back(llvm::ArrayRef<ValueId> values) {
  for (std::unique_ptr<Node> &node : nodes_)
    node->gradient.clear();
  Residue of_root = 1;
  if (root_.valid()) {
    of_root = scale_number(program_, program_.types[typed(root_).type].scale);
    for (Array &each : gradient_of(node(root_)))
      for (Residue &element : each.data)
        element = 1;
  }
  for (ValueId value : values) {
    if (!frame_.count(value.index))
      continue;
    Typed known = typed(value);
    const ir::Type &type = program_.types[known.type];
    Held drawn = draw(known, type.dual(), mix(~seed_, value.index),
                      of_root * scale_number(program_, type.scale).inverse());
    for (unsigned r = 0; r < world_.size(); ++r)
      if (drawn.rep[r] == r)
        add_to(gradient_of(node(value))[r], drawn.at[r]);
  }
  for (std::function<void()> &step : llvm::reverse(tape_))
    step();
}

void Run::differentiate(ValueId root) {
  root_ = root;
  pull_back(observed_);
}

void Run::differentiate_with(llvm::ArrayRef<ValueId> values) {
  pull_back(values);
  before_root_ = ~0u;
}

} // namespace spmd::soundness
