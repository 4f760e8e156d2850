// Branches and loops. The backward of a branch is a branch on the same condition; that of a scan a
// scan in the other direction, over the carries that each round began with, which a scan forward
// collects.
#include "checker/backward/control.h"
#include "ir/support/arrays.h"

#include "rules/shards/stacked.h"

#include "llvm/ADT/STLExtras.h"

namespace spmd::checker {

namespace {

std::optional<ir::FunctionId> function_of(const ir::Program &program, const Inst &inst,
                                          llvm::StringRef role) {
  const AttrValue *attr = program.find(inst.attrs, role);
  if (!attr || attr->form != ir::AttrForm::Function)
    return std::nullopt;
  ir::FunctionId id = attr->as<ir::FunctionId>();
  return program.functions[id].opaque ? std::nullopt : std::optional(id);
}

int64_t integer(const ir::Program &program, const Inst &inst, llvm::StringRef key) {
  const AttrValue *attr = program.find(inst.attrs, key);
  return attr && attr->form == ir::AttrForm::Integer ? attr->as_integer() : 0;
}

template <class A, class B> llvm::SmallVector<ValueId, 8> joined(const A &first, const B &second) {
  llvm::SmallVector<ValueId, 8> all(first.begin(), first.end());
  all.append(second.begin(), second.end());
  return all;
}

} // namespace

// A body that is run a second time would draw other random numbers.
bool ControlBackward::draws(ir::FunctionId id) {
  ir::Body body = program_.functions[id].body;
  for (uint32_t i = body.first.index; i < body.last.index; ++i) {
    const rules::OpDef *row = rules_.resolve(program_.insts[InstId{i}].op).row;
    if (row && row->equation.equation.has_generator)
      return true;
  }
  return false;
}

// The body of a function with values of its own, known as those of the function are.
ControlBackward::BodyCopy ControlBackward::copy_body(ir::FunctionId id) {
  BodyCopy made;
  auto copy = [&](ValueId value) {
    rules::TensorInfo known = arg(value);
    ValueId fresh = copier_.copy(value);
    learn(fresh, known);
    return fresh;
  };
  for (size_t i = 0; i < program_.functions[id].params.size(); ++i)
    made.params.push_back(copy(program_.functions[id].params[i].value));
  ir::Body body = program_.functions[id].body;
  for (uint32_t i = body.first.index; i < body.last.index; ++i) {
    Inst inst = program_.insts[InstId{i}];
    ValueId before = inst.first_result;
    inst = copier_.copy(inst, {});
    for (uint32_t r = 0; r < inst.result_count; ++r)
      learn(inst.result(r), arg(ValueId{before.index + r}));
    made.insts.push_back(inst);
  }
  for (const Operand &operand : program_.operand_lists[program_.functions[id].results])
    made.results.push_back(operand.is_value() ? copier_(operand.as_value()) : ValueId());
  return made;
}

// A parameter of a new function.
ValueId ControlBackward::parameter(const rules::TensorInfo &like, std::string stem) {
  ir::Value value;
  value.name = copier_.fresh_name(std::move(stem));
  value.shape = like.shape;
  ValueId made = program_.values.add(value);
  parameters_.insert(made.index);
  learn(made, like);
  return made;
}

ir::FunctionId ControlBackward::add_function(std::string stem, llvm::ArrayRef<ValueId> params,
                                             NewBody body, llvm::ArrayRef<ValueId> results) {
  ir::Function made;
  std::string name = stem;
  for (unsigned number = 1;
       llvm::any_of(program_.functions.all(),
                    [&](const ir::Function &f) { return program_.strings[f.name] == name; });
       ++number)
    name = stem + "_" + std::to_string(number);
  made.name = program_.strings.add(name);
  for (ValueId param : params)
    made.params.push_back({param, {}});
  llvm::SmallVector<Operand, 8> block;
  for (ValueId result : results)
    block.push_back(Operand::value(result));
  made.results = program_.operand_lists.add(block);
  made.body = insert_body(program_, std::move(body));
  return program_.functions.add(std::move(made));
}

llvm::SmallVector<ValueId, 4>
ControlBackward::put_call(rules::Boundary call, llvm::ArrayRef<ValueId> operands, ir::AttrsId attrs,
                          llvm::ArrayRef<rules::TensorInfo> made, const InsertionPoint &around,
                          const std::string &stem) {
  Inst inst;
  inst.op = op(rules::boundary_name(call));
  inst.attrs = attrs;
  llvm::SmallVector<Operand, 8> block;
  for (ValueId operand : operands)
    block.push_back(Operand::value(operand));
  inst.operands = program_.operand_lists.add(block);
  inst.loc = around.loc;
  inst.bwd_of = around.of;
  inst.context = around.context;
  inst.phase = ir::Phase::Backward;
  inst.result_count = static_cast<uint32_t>(made.size());
  llvm::SmallVector<ValueId, 4> results;
  for (const rules::TensorInfo &result : made) {
    results.push_back(parameter(result, stem));
    parameters_.erase(results.back().index);
    program_.values[results.back()].shape = {};
  }
  inst.first_result = results.front();
  out_.add(inst, 0);
  return results;
}

// One operand may be handed over twice: the sum of what both are given, as the branch returns it.
ValueId ControlBackward::branch_gradient(const CondParts &cond, const BodyCopy &body,
                                         Gradients &inner, ValueId value) {
  Gradients sum;
  for (size_t i = 0; i < cond.args.size(); ++i)
    if (cond.args[i] == value)
      if (ValueId part = total(inner, body.params[i]); part.valid())
        give(sum, body.params[i], part, cond.inside);
  ValueId all;
  for (size_t i = 0; i < cond.args.size(); ++i)
    if (ValueId part = cond.args[i] == value ? total(sum, body.params[i]) : ValueId(); part.valid())
      all = all.valid()
                ? put("add", {Operand::value(all), Operand::value(part)}, {}, cond.inside, "sum")
                : part;
  const auto first = static_cast<size_t>(llvm::find(cond.args, value) - cond.args.begin());
  if (!all.valid() && !sum.empty())
    lose(value);
  if (!all.valid())
    all = put("zeros_like", Operand::value(body.params[first]), {}, cond.inside, "zero");
  return all;
}

// The backward of one branch as a function; none if it cannot be typed.
std::optional<AttrValue> ControlBackward::reverse_branch(const CondParts &cond,
                                                         ir::FunctionId side) {
  BodyCopy body = copy_body(side);
  NewBody made;
  for (const Inst &each : body.insts)
    made.add(each, 0);
  std::swap(made, out_);
  auto outer_active = active_;
  Gradients inner;
  llvm::SmallVector<ValueId, 8> params, wanted_params, returned;
  for (size_t r = 0; r < cond.results.size(); ++r) {
    if (!cond.results[r].valid())
      continue;
    params.push_back(parameter(arg(cond.results[r]), "g"));
    if (r < body.results.size() && body.results[r].valid())
      give(inner, body.results[r], params.back(), cond.inside);
  }
  for (size_t i = 0; i < cond.args.size(); ++i)
    if (carries(body.params[i]) && active_.count(cond.args[i].index))
      wanted_params.push_back(body.params[i]);
  const bool fine = body_.reverse(body.insts, wanted_params, inner);
  for (ValueId value : cond.wanted)
    if (fine)
      returned.push_back(branch_gradient(cond, body, inner, value));
  active_ = outer_active;
  std::swap(made, out_);
  if (!fine || llvm::any_of(returned, [](ValueId value) { return !value.valid(); }))
    return std::nullopt;
  ir::StringId name = program_.functions[side].name;
  std::string stem = program_.strings[name].str() + "_vjp";
  return AttrValue::function(
      add_function(stem, joined(params, body.params), std::move(made), returned));
}

bool ControlBackward::through_cond(const Inst &inst, llvm::ArrayRef<ValueId> results,
                                   Gradients &gradients) {
  OperandList operands;
  operands.read(program_, inst.operands);
  std::optional<ir::FunctionId> sides[2] = {function_of(program_, inst, "then"),
                                            function_of(program_, inst, "else")};
  if (!sides[0] || !sides[1])
    return fail(inst, "has an opaque branch, which has no derivative");
  if (draws(*sides[0]) || draws(*sides[1]))
    return fail(inst, "draws random numbers in a branch, which its backward would draw again");
  CondParts cond{.args = ir::as_array(operands.values).drop_front(),
                 .results = results,
                 .inside = {inst.context, inst.loc, {}}};
  for (ValueId value : cond.args)
    if (active_.count(value.index) && !llvm::is_contained(cond.wanted, value))
      cond.wanted.push_back(value);
  AttrValue functions[2];
  for (int side = 0; side < 2; ++side) {
    std::optional<AttrValue> made = reverse_branch(cond, *sides[side]);
    if (!made)
      return fail(inst, "has a branch whose gradient cannot be typed");
    functions[side] = *made;
  }
  if (cond.wanted.empty())
    return true;
  llvm::SmallVector<rules::TensorInfo, 4> made;
  for (ValueId value : cond.wanted)
    made.push_back(gradient_like(value));
  llvm::SmallVector<ValueId, 8> handed = {operands.values.front()};
  llvm::copy_if(results, std::back_inserter(handed), [](ValueId value) { return value.valid(); });
  handed.append(cond.args.begin(), cond.args.end());
  const InsertionPoint around{inst.context, inst.loc, inst.first_result};
  llvm::SmallVector<ValueId, 4> put_out =
      put_call(rules::Boundary::Cond, handed,
               attrs({{"then", functions[0]}, {"else", functions[1]}}, inst.attrs,
                     {"in_types", "out_types"}),
               made, around, "grad");
  for (size_t i = 0; i < cond.wanted.size(); ++i)
    give(gradients, cond.wanted[i], put_out[i], around);
  return true;
}

// What is stacked along dimension 0, the last round first.
ValueId ControlBackward::put_flipped(ValueId value, const InsertionPoint &around) {
  ir::AttrList dims;
  dims.items.push_back(AttrValue::integer(0));
  AttrValue zero = AttrValue::list(program_.lists.add(std::move(dims)));
  return put("flip", Operand::value(value), attrs({{"dims", zero}}), around, name(value).substr(1));
}

// How many rounds a scan has; none if nothing tells.
std::optional<ir::Extent> ControlBackward::trip_count(const ScanParts &scan) const {
  std::optional<ir::Extent> length;
  llvm::ArrayRef<ValueId> xs = scan.xs();
  if (!xs.empty() && shapes_[xs[0].index].valid())
    length = program_.shapes[shapes_[xs[0].index]].dims[0];
  if (const AttrValue *stated = program_.find(scan.inst.attrs, "length");
      stated && stated->form == ir::AttrForm::Integer)
    length = ir::Extent(stated->as_integer());
  return length;
}

// A scan forward that also returns the carries that each round began with.
bool ControlBackward::save_carries(ScanParts &scan) {
  BodyCopy body = copy_body(scan.forward);
  NewBody made;
  for (const Inst &each : body.insts)
    made.add(each, 0);
  llvm::SmallVector<ValueId, 8> returned(
      body.results.begin(), body.results.begin() + static_cast<ptrdiff_t>(scan.carries));
  llvm::SmallVector<rules::TensorInfo, 8> known;
  for (size_t i = 0; i < scan.carries; ++i)
    known.push_back(arg(scan.inst.result(static_cast<uint32_t>(i))));
  std::optional<ir::Extent> length = trip_count(scan);
  for (size_t i = 0; i < scan.carries; ++i) {
    ValueId param = body.params[scan.consts + i];
    returned.push_back(param);
    if (!length || !shapes_[param.index].valid() || !body.results[i].valid())
      return fail(scan.inst, "has a length or a carry of unknown shape");
    known.push_back(rules::stack_of(program_, arg(param), length));
  }
  ir::FunctionId saving =
      add_function(scan.name + "_saving", body.params, std::move(made), returned);
  llvm::SmallVector<ValueId, 4> saved =
      put_call(rules::Boundary::Scan, scan.args,
               attrs({{"body", AttrValue::function(saving)}}, scan.inst.attrs, {"out_types"}),
               known, scan.around, "saved");
  for (size_t i = 0; i < scan.carries; ++i)
    scan.stacks.push_back(put_flipped(saved[scan.carries + i], scan.around));
  return true;
}

// Which operands have a gradient.
void ControlBackward::find_positions(ScanParts &scan) {
  for (size_t i = 0; i < scan.args.size(); ++i) {
    const bool carry = i >= scan.consts && i < scan.consts + scan.carries;
    if (!carries(scan.body.params[i]) || (!carry && !active_.count(scan.args[i].index)))
      continue;
    scan.wanted_params.push_back(scan.body.params[i]);
    (i < scan.consts ? scan.const_positions
     : carry         ? scan.carry_positions
                     : scan.x_positions)
        .push_back(i);
  }
}

// The operands of the scan back: constants; gradients of the carries and sums for the constants;
// what is taken apart.
bool ControlBackward::collect_scan_operands(ScanParts &scan) {
  const auto consts = static_cast<ptrdiff_t>(scan.consts);
  scan.handed.append(scan.args.begin(), scan.args.begin() + consts);
  for (size_t i : scan.carry_positions) {
    const size_t carry = i - scan.consts;
    ValueId result = scan.inst.result(static_cast<uint32_t>(carry));
    ValueId gradient = carry < scan.results.size() ? scan.results[carry] : ValueId();
    if (!gradient.valid())
      gradient = put("zeros_like", Operand::value(result), {}, scan.around, "zero");
    scan.handed.push_back(gradient);
    scan.carried_params.push_back(parameter(gradient_like(scan.body.params[i]), "g"));
  }
  for (size_t i : scan.const_positions) {
    scan.handed.push_back(put("zeros_like", Operand::value(scan.args[i]), {}, scan.around, "zero"));
    scan.carried_params.push_back(parameter(gradient_like(scan.body.params[i]), "s"));
  }
  scan.handed.append(scan.stacks.begin(), scan.stacks.end());
  for (ValueId value : scan.xs())
    scan.handed.push_back(put_flipped(value, scan.around));
  for (size_t r = scan.carries; r < scan.results.size(); ++r)
    if (scan.results[r].valid() && scan.body.results[r].valid()) {
      scan.handed.push_back(put_flipped(scan.results[r], scan.around));
      scan.y_params.push_back(parameter(gradient_like(scan.body.results[r]), "g"));
    }
  return llvm::all_of(scan.handed, [](ValueId value) { return value.valid(); });
}

// What a round back returns: gradients of the carries, the sums for the constants with its own
// part, and gradients of what it took apart.
llvm::SmallVector<ValueId, 8> ControlBackward::round_back(const ScanParts &scan, Gradients &inner) {
  auto leave = [&](ValueId value) {
    ValueId gradient = total(inner, value);
    if (!gradient.valid())
      gradient = put("zeros_like", Operand::value(value), {}, scan.inside, "zero");
    return gradient;
  };
  llvm::SmallVector<ValueId, 8> returned;
  for (size_t i : scan.carry_positions)
    returned.push_back(leave(scan.body.params[i]));
  for (size_t k = 0; k < scan.const_positions.size(); ++k) {
    ValueId part = leave(scan.body.params[scan.const_positions[k]]);
    ValueId before = scan.carried_params[scan.carry_positions.size() + k];
    returned.push_back(part.valid() ? put("add", {Operand::value(before), Operand::value(part)}, {},
                                          scan.inside, "sum")
                                    : part);
  }
  for (size_t i : scan.x_positions)
    returned.push_back(leave(scan.body.params[i]));
  return returned;
}

// The backward of one round as a function; none if it cannot be typed.
std::optional<ir::FunctionId> ControlBackward::reverse_iteration(const ScanParts &scan) {
  const BodyCopy &body = scan.body;
  NewBody made;
  for (const Inst &each : body.insts)
    made.add(each, 0);
  auto outer_active = active_;
  std::swap(made, out_);
  Gradients inner;
  for (size_t k = 0; k < scan.carry_positions.size(); ++k)
    if (ValueId result = body.results[scan.carry_positions[k] - scan.consts]; result.valid())
      give(inner, result, scan.carried_params[k], scan.inside);
  size_t next = 0;
  for (size_t r = scan.carries; r < scan.results.size(); ++r)
    if (scan.results[r].valid() && body.results[r].valid())
      give(inner, body.results[r], scan.y_params[next++], scan.inside);
  const bool fine = body_.reverse(body.insts, scan.wanted_params, inner);
  llvm::SmallVector<ValueId, 8> returned;
  if (fine)
    returned = round_back(scan, inner);
  active_ = outer_active;
  std::swap(made, out_);
  if (!fine || llvm::any_of(returned, [](ValueId value) { return !value.valid(); }))
    return std::nullopt;
  const auto consts = static_cast<ptrdiff_t>(scan.consts);
  llvm::SmallVector<ValueId, 8> params(body.params.begin(), body.params.begin() + consts);
  params = joined(params, scan.carried_params);
  params.append(body.params.begin() + consts, body.params.end());
  params = joined(params, scan.y_params);
  return add_function(scan.name + "_vjp", params, std::move(made), returned);
}

// The scan back, and what it gives to the operands.
bool ControlBackward::emit_backward_scan(const ScanParts &scan, ir::FunctionId backward,
                                         Gradients &gradients) {
  llvm::SmallVector<rules::TensorInfo, 8> known;
  for (const auto *positions : {&scan.carry_positions, &scan.const_positions, &scan.x_positions})
    for (size_t i : *positions)
      known.push_back(gradient_like(scan.args[i]));
  if (known.empty())
    return true;
  auto count = static_cast<int64_t>(scan.carry_positions.size() + scan.const_positions.size());
  llvm::SmallVector<ValueId, 4> put_out = put_call(
      rules::Boundary::Scan, scan.handed,
      attrs({{"body", AttrValue::function(backward)}, {"carry", AttrValue::integer(count)}},
            scan.inst.attrs, {"in_types", "out_types"}),
      known, scan.around, "grad");
  size_t at = 0;
  for (size_t i : scan.carry_positions)
    if (ValueId gradient = put_out[at++]; active_.count(scan.args[i].index))
      give(gradients, scan.args[i], gradient, scan.around);
  for (size_t i : scan.const_positions)
    give(gradients, scan.args[i], put_out[at++], scan.around);
  for (size_t i : scan.x_positions) {
    ValueId turned = put_flipped(put_out[at++], scan.around);
    if (!turned.valid())
      return fail(scan.inst, "has a gradient of what it takes apart that cannot be typed");
    give(gradients, scan.args[i], turned, scan.around);
  }
  return true;
}

bool ControlBackward::through_scan(const Inst &inst, llvm::ArrayRef<ValueId> results,
                                   Gradients &gradients) {
  OperandList operands;
  operands.read(program_, inst.operands);
  std::optional<ir::FunctionId> forward = function_of(program_, inst, "body");
  if (!forward)
    return fail(inst, "has an opaque body, which has no derivative");
  if (draws(*forward))
    return fail(inst, "draws random numbers in its body, which its backward would draw again");
  ScanParts scan{.inst = inst,
                 .args = operands.values,
                 .results = results,
                 .forward = *forward,
                 .name = program_.strings[program_.functions[*forward].name].str(),
                 .consts = static_cast<size_t>(integer(program_, inst, "consts")),
                 .carries = static_cast<size_t>(integer(program_, inst, "carry")),
                 .around = {inst.context, inst.loc, inst.first_result},
                 .inside = {inst.context, inst.loc, {}}};
  if (scan.carries && !save_carries(scan))
    return false;
  scan.body = copy_body(*forward);
  find_positions(scan);
  if (!collect_scan_operands(scan))
    return fail(inst, "has operands whose gradient cannot be typed");
  std::optional<ir::FunctionId> backward = reverse_iteration(scan);
  if (!backward)
    return fail(inst, "has a body whose gradient cannot be typed");
  return emit_backward_scan(scan, *backward, gradients);
}

} // namespace spmd::checker
