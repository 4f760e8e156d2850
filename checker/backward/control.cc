// Branches and loops. The backward of a branch is a branch on the same condition; that of a scan a scan
// in the other direction, over the carries that each round began with, which a scan forward collects.
#include "checker/backward/deriver.h"

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
bool Deriver::draws(ir::FunctionId id) {
  ir::Body body = program_.functions[id].body;
  for (uint32_t i = body.first.index; i < body.last.index; ++i) {
    const rules::OpDef *row = rules_.resolve(program_.insts[InstId{i}].op).row;
    if (row && row->equation.equation.has_generator)
      return true;
  }
  return false;
}

// The body of a function with values of its own, known as those of the function are.
Deriver::Copied Deriver::copy_body(ir::FunctionId id) {
  Copied made;
  auto copy = [&](ValueId value) {
    rules::Arg known = arg(value);
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
  for (const Operand &operand : program_.blocks[program_.functions[id].results])
    made.results.push_back(operand.is_value() ? copier_(operand.as_value()) : ValueId());
  return made;
}

// A parameter of a new function.
ValueId Deriver::parameter(const rules::Arg &like, std::string stem) {
  ir::Value value;
  value.name = copier_.fresh_name(std::move(stem));
  value.shape = like.shape;
  ValueId made = program_.values.add(value);
  parameters_.insert(made.index);
  learn(made, like);
  return made;
}

ir::FunctionId Deriver::add_function(std::string stem, llvm::ArrayRef<ValueId> params, NewBody body,
                                     llvm::ArrayRef<ValueId> results) {
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
  made.results = program_.blocks.add(block);
  made.body = insert_body(program_, std::move(body));
  return program_.functions.add(std::move(made));
}

llvm::SmallVector<ValueId, 4> Deriver::put_call(llvm::StringRef ours,
                                                llvm::ArrayRef<ValueId> operands, ir::AttrsId attrs,
                                                llvm::ArrayRef<rules::Arg> made,
                                                const InsertionPoint &around,
                                                const std::string &stem) {
  Inst inst;
  inst.op = op(ours);
  inst.attrs = attrs;
  llvm::SmallVector<Operand, 8> block;
  for (ValueId operand : operands)
    block.push_back(Operand::value(operand));
  inst.operands = program_.blocks.add(block);
  inst.loc = around.loc;
  inst.bwd_of = around.of;
  inst.context = around.context;
  inst.phase = ir::Phase::Backward;
  inst.result_count = static_cast<uint32_t>(made.size());
  llvm::SmallVector<ValueId, 4> results;
  for (const rules::Arg &result : made) {
    results.push_back(parameter(result, stem));
    parameters_.erase(results.back().index);
    program_.values[results.back()].shape = {};
  }
  inst.first_result = results.front();
  out_.add(inst, 0);
  return results;
}

bool Deriver::through_cond(const Inst &inst, llvm::ArrayRef<ValueId> results,
                           Gradients &gradients) {
  OperandList operands;
  operands.read(program_, inst.operands);
  std::optional<ir::FunctionId> sides[2] = {function_of(program_, inst, "then"),
                                            function_of(program_, inst, "else")};
  if (!sides[0] || !sides[1])
    return fail(inst, "has an opaque branch, which has no derivative");
  if (draws(*sides[0]) || draws(*sides[1]))
    return fail(inst, "draws random numbers in a branch, which its backward would draw again");
  llvm::ArrayRef<ValueId> args = llvm::makeArrayRef(operands.values).drop_front();
  llvm::SmallVector<ValueId, 8> given, wanted;
  for (ValueId result : results)
    if (result.valid())
      given.push_back(result);
  for (ValueId value : args)
    if (active_.count(value.index) && !llvm::is_contained(wanted, value))
      wanted.push_back(value);
  const InsertionPoint around{inst.context, inst.loc, inst.first_result},
      inside{inst.context, inst.loc, {}};
  AttrValue functions[2];
  for (int side = 0; side < 2; ++side) {
    Copied body = copy_body(*sides[side]);
    NewBody made;
    for (const Inst &each : body.insts)
      made.add(each, 0);
    std::swap(made, out_);
    auto outer_active = active_;
    Gradients inner;
    llvm::SmallVector<ValueId, 8> params, wanted_params;
    for (size_t r = 0; r < results.size(); ++r) {
      if (!results[r].valid())
        continue;
      params.push_back(parameter(arg(results[r]), "g"));
      if (r < body.results.size() && body.results[r].valid())
        give(inner, body.results[r], params.back(), inside);
    }
    for (size_t i = 0; i < args.size(); ++i)
      if (carries(body.params[i]) && active_.count(args[i].index))
        wanted_params.push_back(body.params[i]);
    bool fine = reverse(body.insts, wanted_params, inner);
    llvm::SmallVector<ValueId, 8> returned;
    for (ValueId value : wanted) {
      // One operand may be handed over twice.
      Gradients sum;
      for (size_t i = 0; fine && i < args.size(); ++i)
        if (args[i] == value)
          if (ValueId part = total(inner, body.params[i]); part.valid())
            give(sum, body.params[i], part, inside);
      ValueId all;
      for (size_t i = 0; fine && i < args.size(); ++i)
        if (ValueId part = args[i] == value ? total(sum, body.params[i]) : ValueId(); part.valid())
          all = all.valid()
                    ? put("add", {Operand::value(all), Operand::value(part)}, {}, inside, "sum")
                    : part;
      size_t first = static_cast<size_t>(llvm::find(args, value) - args.begin());
      if (!all.valid() && !sum.empty())
        lose(value);
      if (!all.valid())
        all = put("zeros_like", Operand::value(body.params[first]), {}, inside, "zero");
      returned.push_back(all);
    }
    active_ = outer_active;
    std::swap(made, out_);
    if (!fine || llvm::any_of(returned, [](ValueId value) { return !value.valid(); }))
      return fail(inst, "has a branch whose gradient cannot be typed");
    ir::StringId name = program_.functions[*sides[side]].name;
    std::string stem = program_.strings[name].str() + "_vjp";
    functions[side] = AttrValue::function(
        add_function(stem, joined(params, body.params), std::move(made), returned));
  }
  llvm::SmallVector<rules::Arg, 4> made;
  for (ValueId value : wanted)
    made.push_back(
        {program_.types.add(this->wanted(value)), shapes_[value.index], sizes_[value.index]});
  llvm::SmallVector<ValueId, 8> handed = {operands.values.front()};
  handed.append(given.begin(), given.end());
  handed.append(args.begin(), args.end());
  if (made.empty())
    return true;
  llvm::SmallVector<ValueId, 4> put_out =
      put_call("cond", handed,
               attrs({{"then", functions[0]}, {"else", functions[1]}}, inst.attrs,
                     {"in_types", "out_types"}),
               made, around, "grad");
  for (size_t i = 0; i < wanted.size(); ++i)
    give(gradients, wanted[i], put_out[i], around);
  return true;
}

bool Deriver::through_scan(const Inst &inst, llvm::ArrayRef<ValueId> results,
                           Gradients &gradients) {
  OperandList operands;
  operands.read(program_, inst.operands);
  std::optional<ir::FunctionId> forward = function_of(program_, inst, "body");
  if (!forward)
    return fail(inst, "has an opaque body, which has no derivative");
  if (draws(*forward))
    return fail(inst, "draws random numbers in its body, which its backward would draw again");
  const size_t consts = static_cast<size_t>(integer(program_, inst, "consts"));
  const size_t carries_count = static_cast<size_t>(integer(program_, inst, "carry"));
  llvm::ArrayRef<ValueId> args = operands.values;
  auto xs = args.drop_front(consts + carries_count);
  const InsertionPoint around{inst.context, inst.loc, inst.first_result},
      inside{inst.context, inst.loc, {}};
  std::string name = program_.strings[program_.functions[*forward].name].str();
  auto gradient_like = [&](ValueId value) -> rules::Arg {
    return {program_.types.add(wanted(value)), shapes_[value.index], sizes_[value.index]};
  };
  auto put_flipped = [&](ValueId value) {
    ir::AttrList dims;
    dims.items.push_back(AttrValue::integer(0));
    AttrValue zero = AttrValue::list(program_.lists.add(std::move(dims)));
    return put("flip", Operand::value(value), attrs({{"dims", zero}}), around,
               this->name(value).substr(1));
  };

  // The carries that each round began with, stacked.
  llvm::SmallVector<ValueId, 8> stacks;
  if (carries_count) {
    Copied body = copy_body(*forward);
    NewBody made;
    for (const Inst &each : body.insts)
      made.add(each, 0);
    llvm::SmallVector<ValueId, 8> returned(
        body.results.begin(), body.results.begin() + static_cast<ptrdiff_t>(carries_count));
    llvm::SmallVector<rules::Arg, 8> known;
    for (size_t i = 0; i < carries_count; ++i)
      known.push_back(arg(inst.result(static_cast<uint32_t>(i))));
    std::optional<ir::Extent> length;
    if (!xs.empty() && shapes_[xs[0].index].valid())
      length = program_.shapes[shapes_[xs[0].index]].dims[0];
    if (const AttrValue *stated = program_.find(inst.attrs, "length");
        stated && stated->form == ir::AttrForm::Integer)
      length = ir::Extent(stated->as_integer());
    for (size_t i = 0; i < carries_count; ++i) {
      ValueId param = body.params[consts + i];
      returned.push_back(param);
      if (!length || !shapes_[param.index].valid() || !body.results[i].valid())
        return fail(inst, "has a length or a carry of unknown shape");
      known.push_back(rules::stack_of(program_, arg(param), length));
    }
    ir::FunctionId saving = add_function(name + "_saving", body.params, std::move(made), returned);
    llvm::SmallVector<ValueId, 4> saved = put_call(
        "scan", args, attrs({{"body", AttrValue::function(saving)}}, inst.attrs, {"out_types"}),
        known, around, "saved");
    for (size_t i = 0; i < carries_count; ++i)
      stacks.push_back(put_flipped(saved[carries_count + i]));
  }

  Copied body = copy_body(*forward);
  NewBody made;
  for (const Inst &each : body.insts)
    made.add(each, 0);
  auto outer_active = active_;
  llvm::SmallVector<ValueId, 8> wanted_params, wanted_consts, flowing;
  llvm::SmallVector<size_t, 8> const_places, carry_places, x_places;
  for (size_t i = 0; i < args.size(); ++i) {
    bool carry = i >= consts && i < consts + carries_count;
    if (!carries(body.params[i]) || (!carry && !active_.count(args[i].index)))
      continue;
    wanted_params.push_back(body.params[i]);
    (i < consts ? const_places : carry ? carry_places : x_places).push_back(i);
  }
  llvm::SmallVector<ValueId, 8> initial, carried_params, stack_params(body.params), handed;
  // Operands: constants; gradients of the carries and sums for the constants; what is taken apart.
  handed.append(args.begin(), args.begin() + static_cast<ptrdiff_t>(consts));
  for (size_t i : carry_places) {
    ValueId result = inst.result(static_cast<uint32_t>(i - consts));
    ValueId gradient = i - consts < results.size() ? results[i - consts] : ValueId();
    if (!gradient.valid())
      gradient = put("zeros_like", Operand::value(result), {}, around, "zero");
    handed.push_back(gradient);
    carried_params.push_back(parameter(gradient_like(body.params[i]), "g"));
  }
  for (size_t i : const_places) {
    handed.push_back(put("zeros_like", Operand::value(args[i]), {}, around, "zero"));
    carried_params.push_back(parameter(gradient_like(body.params[i]), "s"));
  }
  for (ValueId stack : stacks)
    handed.push_back(stack);
  for (ValueId value : xs)
    handed.push_back(put_flipped(value));
  llvm::SmallVector<ValueId, 8> y_params;
  for (size_t r = carries_count; r < results.size(); ++r)
    if (results[r].valid() && body.results[r].valid()) {
      handed.push_back(put_flipped(results[r]));
      y_params.push_back(parameter(gradient_like(body.results[r]), "g"));
    }
  if (llvm::any_of(handed, [](ValueId value) { return !value.valid(); }))
    return fail(inst, "has operands whose gradient cannot be typed");

  std::swap(made, out_);
  Gradients inner;
  for (size_t k = 0; k < carry_places.size(); ++k)
    if (ValueId result = body.results[carry_places[k] - consts]; result.valid())
      give(inner, result, carried_params[k], inside);
  size_t next = 0;
  for (size_t r = carries_count; r < results.size(); ++r)
    if (results[r].valid() && body.results[r].valid())
      give(inner, body.results[r], y_params[next++], inside);
  bool fine = reverse(body.insts, wanted_params, inner);
  llvm::SmallVector<ValueId, 8> returned;
  auto leave = [&](ValueId value) {
    ValueId gradient = fine ? total(inner, value) : ValueId();
    if (fine && !gradient.valid())
      gradient = put("zeros_like", Operand::value(value), {}, inside, "zero");
    return gradient;
  };
  for (size_t i : carry_places)
    returned.push_back(leave(body.params[i]));
  for (size_t k = 0; k < const_places.size() && fine; ++k) {
    ValueId part = leave(body.params[const_places[k]]);
    ValueId before = carried_params[carry_places.size() + k];
    returned.push_back(
        part.valid() ? put("add", {Operand::value(before), Operand::value(part)}, {}, inside, "sum")
                     : part);
  }
  for (size_t i : x_places)
    returned.push_back(leave(body.params[i]));
  active_ = outer_active;
  std::swap(made, out_);
  if (!fine || llvm::any_of(returned, [](ValueId value) { return !value.valid(); }))
    return fail(inst, "has a body whose gradient cannot be typed");

  llvm::SmallVector<ValueId, 8> params(body.params.begin(),
                                       body.params.begin() + static_cast<ptrdiff_t>(consts));
  params = joined(params, carried_params);
  params.append(body.params.begin() + static_cast<ptrdiff_t>(consts), body.params.end());
  params = joined(params, y_params);
  ir::FunctionId backward = add_function(name + "_vjp", params, std::move(made), returned);
  llvm::SmallVector<rules::Arg, 8> known;
  auto expect = [&](ValueId value) { known.push_back(gradient_like(value)); };
  for (size_t i : carry_places)
    expect(args[i]);
  for (size_t i : const_places)
    expect(args[i]);
  for (size_t i : x_places)
    expect(args[i]);
  if (known.empty())
    return true;
  auto count = static_cast<int64_t>(carry_places.size() + const_places.size());
  llvm::SmallVector<ValueId, 4> put_out = put_call(
      "scan", handed,
      attrs({{"body", AttrValue::function(backward)}, {"carry", AttrValue::integer(count)}},
            inst.attrs, {"in_types", "out_types"}),
      known, around, "grad");
  size_t at = 0;
  for (size_t i : carry_places)
    if (ValueId gradient = put_out[at++]; active_.count(args[i].index))
      give(gradients, args[i], gradient, around);
  for (size_t i : const_places)
    give(gradients, args[i], put_out[at++], around);
  for (size_t i : x_places) {
    ValueId turned = put_flipped(put_out[at++]);
    if (!turned.valid())
      return fail(inst, "has a gradient of what it takes apart that cannot be typed");
    give(gradients, args[i], turned, around);
  }
  return true;
}

} // namespace spmd::checker
