// R stands where a move makes an axis the same on all ranks: a fix is read, not solved.
#include "checker/fix/redistribute.h"

#include "checker/operand_list.h"

#include "rules/redistribute/ends.h"
#include "rules/shards/sizes.h"

#include "ir/claims.h"
#include "ir/dialect/print_type.h"

#include <fmt/format.h>

#include <algorithm>

namespace spmd::checker {

namespace rd = rules::redistribute;
using ir::AxisId;
using ir::AxisSet;
using ir::ValueId;

namespace {

ir::TypeId decided(ir::Program &program, ir::TypeId had, ir::TypeId wanted) {
  ir::Type type = program.types[wanted];
  type.set_kind(type.either() - program.types[had].either(), ir::Kind::Replicate);
  return program.types.add(type);
}

void say(ir::Program &program, bool one_step, Move &move) {
  const ir::Type from = program.types[move.from.type], to = program.types[move.to.type];
  ir::Type whole = to;
  whole.set_gradient_free(false);
  ir::Claim claim{program.types.add(whole), move.to.shape, {}};
  ir::AttrDict dict;
  dict.attrs.push_back(
      {program.strings.add("type"), ir::AttrValue::claim(program.claims.add(claim))});
  move.redistribute_attrs = program.attrs.add(std::move(dict));
  AxisSet changed = rd::changed_axes(program, from, to);
  if (one_step && changed.size() == 1) {
    AxisId axis = changed.first();
    std::string name = ir::print_axes(program, from.mesh(), changed);
    std::string src = ir::print(rd::word_at(from, to, axis)),
                dst = ir::print(rd::word_at(to, from, axis));
    move.words = fmt::format("{}, src={}, dst={}", name, src, dst);
    move.attributes = fmt::format("axis = {}, src = {}, dst = {}", name, src, dst);
    return;
  }
  ir::Type said = to;
  said.set_gradient_free(false);
  std::string type = ir::print_type(program, said, move.to.shape);
  move.words = "to=" + type;
  move.attributes = "to = " + type;
}

} // namespace

void RedistributionFinder::begin() { effort_ = {std::min(kPerFinding, together_), false}; }

std::optional<Move> RedistributionFinder::find(ir::InstId id) {
  // The findings of one op on its axes have one answer.
  std::vector<uint32_t> key{id.index};
  OperandList operands;
  operands.read(program_, program_.insts[id].operands);
  for (ValueId value : operands.values)
    key.insert(key.end(), {value.index, result_.types[value.index].index,
                           result_.shapes[value.index].index, result_.sizes[value.index].index});
  auto [at, fresh] = found_.try_emplace(std::move(key));
  if (!fresh) {
    effort_.cut = at->second.second;
    return at->second.first;
  }
  begin();
  const uint64_t before = effort_.left;
  at->second.first = search(id);
  at->second.second = effort_.cut;
  together_ -= before - effort_.left;
  return at->second.first;
}

std::optional<Move> RedistributionFinder::search(ir::InstId id) {
  const ir::Inst inst = program_.insts[id];
  OperandList operands;
  operands.read(program_, inst.operands);
  llvm::SmallVector<rules::TensorInfo, 8> args;
  for (ValueId value : operands.values)
    args.push_back(
        {result_.types[value.index], result_.shapes[value.index], result_.sizes[value.index]});
  llvm::SmallVector<rules::ResultClaim, 4> claims;
  for (uint32_t i = 0; i < inst.result_count; ++i) {
    const ir::Value &value = program_.values[inst.result(i)];
    claims.push_back({value.shape, value.declared, value.global_shape});
  }
  rules::Application app{program_,     rules_.resolve(inst.op), inst.attrs,
                         inst.context, operands.slots,          args,
                         claims,       options_.infer_partial};
  for (const rules::TensorInfo &arg : args)
    if (program_.types[arg.type].mesh() != app.op_context().mesh)
      return std::nullopt;
  const rules::Outcome &outcome = rules_.apply(app);
  rd::Placer placer(program_, rules_, planner_);
  if (!placer.refuses(app, outcome))
    return std::nullopt;
  std::optional<rd::Placement> placement =
      placer.place(app, outcome, operands.values, operands.written);
  if (!placement)
    return std::nullopt;
  std::optional<Move> move;
  for (uint32_t i = 0; i < args.size(); ++i) {
    if (placement->types[i] == args[i].type)
      continue;
    ir::TypeId wanted = decided(program_, args[i].type, placement->types[i]);
    if (move && (move->value != operands.values[i] || move->to.type != wanted))
      return std::nullopt; // two would have to move
    if (!move)
      move = Move{operands.values[i],
                  {},
                  args[i],
                  rd::moved_to(program_, args[i], wanted),
                  placement->attrs,
                  0,
                  0,
                  {},
                  {},
                  {}};
    move->operands.push_back(i);
  }
  if (!move)
    return std::nullopt;
  price(*move);
  return move;
}

void RedistributionFinder::price(Move &move) {
  rd::Request request{move.from.type, move.to.type,
                      rules::global_shape(program_, program_.types[move.from.type], move.from)};
  const rd::Plan &plan = planner_.plan(request);
  move.forward_bytes = plan.bytes;
  move.backward_bytes = program_.types[move.from.type].gradient_free() ? 0 : plan.backward_bytes;
  say(program_, plan.steps.size() == 1, move);
}

std::optional<Move> RedistributionFinder::innermost(ir::InstId id, uint32_t operand, AxisSet axes) {
  begin();
  OperandList operands;
  operands.read(program_, program_.insts[id].operands);
  if (operand >= operands.values.size())
    return std::nullopt;
  ValueId value = operands.values[operand];
  rules::TensorInfo from{result_.types[value.index], result_.shapes[value.index],
                         result_.sizes[value.index]};
  std::optional<unsigned> dim = program_.types[from.type].dim(axes.first());
  if (!dim || from.sizes.valid() || !from.shape.valid())
    return std::nullopt; // uneven blocks keep their order
  ir::Type type = program_.types[from.type];
  llvm::SmallVector<AxisId, 2> order = ir::shards_of(type, *dim);
  std::stable_partition(order.begin(), order.end(),
                        [&](AxisId axis) { return !axes.contains(axis); });
  for (unsigned place = 0; place < order.size(); ++place)
    type.set_shard(order[place], *dim, place);
  ir::TypeId wanted = program_.types.add(type);
  Move move{value, {operand}, from, rd::moved_to(program_, from, wanted), {}, 0, 0, {}, {}, {}};
  price(move);
  return move;
}

} // namespace spmd::checker
