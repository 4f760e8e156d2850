// Walks bodies in order; every crossing of a boundary is a linear map on what the value means.
#include "runtime/reference/run.h"

#include "runtime/plan/placement.h"
#include "runtime/reference/storage.h"

#include "rules/shapes/attrs.h"

#include "ir/support/check.h"
#include "ir/support/error.h"
#include "ir/text/text.h"

#include "llvm/ADT/STLExtras.h"

#include <fmt/format.h>

namespace spmd::runtime {

using ir::AxisSet;
using ir::InstId;
using ir::ValueId;

namespace {

int64_t integer(const ir::Program &program, ir::AttrsId attrs, llvm::StringRef key) {
  const ir::AttrValue *attr = program.find(attrs, key);
  return attr && attr->form == ir::AttrForm::Integer ? attr->as_integer() : 0;
}

bool holds(const Tensor &condition) {
  return condition.visit([](const auto &cells) {
    using T = typename std::decay_t<decltype(cells)>::value_type;
    return !cells.empty() && !(cells.front() == T(0));
  });
}

} // namespace

NodeId ReferenceRun::add(Meaning meaning, rules::TensorInfo known) {
  trace_.nodes.push_back(std::move(meaning));
  trace_.known.push_back(known);
  return static_cast<NodeId>(trace_.nodes.size() - 1);
}

// The same, as a list along more axes.
static Meaning widened(const ir::Mesh &mesh, Meaning meaning, AxisSet per_rank) {
  if (meaning.per_rank == per_rank)
    return meaning;
  Grid wide(mesh, per_rank), narrow(mesh, meaning.per_rank);
  Meaning made{per_rank, {}};
  for (int64_t c = 0; c < wide.size(); ++c)
    made.pieces.push_back(
        meaning.pieces[static_cast<size_t>(narrow.position(wide.coordinates(c)))]);
  return made;
}

llvm::Expected<NodeId> ReferenceRun::mapped(std::vector<NodeId> inputs, std::vector<LinearMap> maps,
                                            rules::TensorInfo known, Rational factor) {
  Meaning sum;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (trace_.nodes[inputs[i]].pieces.empty())
      return add({}, known);
    llvm::Expected<Meaning> part = maps[i](trace_.nodes[inputs[i]]);
    if (!part)
      return part.takeError();
    if (i == 0) {
      sum = std::move(*part);
      continue;
    }
    const ir::Mesh &mesh = program_.meshes[program_.types[known.type].mesh()];
    const AxisSet per_rank = sum.per_rank | part->per_rank;
    sum = widened(mesh, std::move(sum), per_rank);
    const Meaning more = widened(mesh, std::move(*part), per_rank);
    for (size_t p = 0; p < sum.pieces.size(); ++p)
      combine_into(sum.pieces[p], more.pieces[p], ir::Combiner::Sum);
  }
  for (Tensor &piece : sum.pieces)
    if (factor != Rational{1, 1})
      multiply(piece, factor.first, factor.second);
  NodeId made = add(std::move(sum), known);
  trace_.entries.push_back({{}, {}, std::move(inputs), {made}, std::move(maps), factor});
  return made;
}

llvm::Expected<NodeId> ReferenceRun::seen_as(NodeId node, rules::TensorInfo known) {
  if (trace_.nodes[node].pieces.empty() || trace_.known[node] == known)
    return node;
  auto from = distribution_of(program_, trace_.known[node]), to = distribution_of(program_, known);
  if (!from || !to)
    return llvm::joinErrors(from.takeError(), to.takeError());
  if (!*from || !*to)
    return add({}, known);
  auto map = [this, from = **from, to = **to](const Meaning &meaning) -> llvm::Expected<Meaning> {
    return reframed(program_, meaning, from, to);
  };
  const ir::Type &was = (*from)->type(), &is = (*to)->type();
  if (was.scale == is.scale)
    return mapped({node}, {map}, known);
  std::optional<Rational> had = number_of(program_, was.scale, was.mesh());
  std::optional<Rational> has = number_of(program_, is.scale, is.mesh());
  if (!had || !has)
    return add({}, known);
  return mapped({node}, {map}, known, {had->first * has->second, had->second * has->first});
}

llvm::Expected<NodeId> ReferenceRun::number(const ir::AttrValue &literal, rules::TensorInfo known) {
  auto to = distribution_of(program_, known);
  if (!to)
    return to.takeError();
  bool whole = literal.form == ir::AttrForm::Integer || literal.form == ir::AttrForm::Bool;
  if (!*to || (!whole && literal.form != ir::AttrForm::Float))
    return add({}, known);
  if ((*to)->open())
    return make_error("a plain number stands for a tensor whose extents only data tell");
  Tensor made = Tensor::make((*to)->dtype(), (*to)->whole(), reference_.domain());
  made.visit([&](auto &cells) {
    using T = typename std::decay_t<decltype(cells)>::value_type;
    for (T &cell : cells) {
      if constexpr (std::is_same_v<T, Residue>)
        cell = Residue(whole ? literal.as_integer() : static_cast<int64_t>(literal.as_number()));
      else
        cell = whole ? static_cast<double>(literal.as_integer()) : literal.as_number();
    }
  });
  Meaning meaning{(*to)->per_rank_axes(), {}};
  meaning.pieces.assign(static_cast<size_t>((*to)->per_rank_grid().size()), made);
  return add(std::move(meaning), known);
}

llvm::Error ReferenceRun::run(Meanings params) {
  SPMD_CHECK(params.size() == program_.params.size(), "a meaning for each parameter");
  for (size_t i = 0; i < params.size(); ++i) {
    ValueId value = program_.params[i].value;
    main_.nodes[value.index] = add(std::move(params[i]), checked_.known(value));
  }
  return body(program_.main, main_);
}

const Meaning *ReferenceRun::find(ValueId value) const {
  NodeId node = main_.find(value);
  return node == kNoNode || trace_.nodes[node].pieces.empty() ? nullptr : &trace_.nodes[node];
}

llvm::Error ReferenceRun::body(const ir::Body &body, Frame &frame) {
  for (uint32_t i = body.first.index; i < body.last.index; ++i)
    if (llvm::Error problem = instruction(InstId{i}, frame))
      return problem;
  return llvm::Error::success();
}

llvm::Error ReferenceRun::instruction(InstId id, Frame &frame) {
  const ir::Inst inst = program_.insts[id];
  checker::OperandList operands;
  operands.read(program_, inst.operands);
  std::vector<NodeId> nodes;
  for (ValueId value : operands.values) {
    nodes.push_back(frame.find(value));
    SPMD_CHECK(nodes.back() != kNoNode, "a value before its use");
  }
  const rules::ResolvedOp &op = reference_.resolve(inst.op);
  if (op.boundary == rules::Boundary::Alias)
    return alias(id, frame);
  if (op.boundary == rules::Boundary::Recv && &frame == &main_ && inst.result_count == 1)
    if (ValueId sent = reference_.value_received_by(id); sent.valid())
      return receive(sent, inst.first_result, frame);
  if (op.form != rules::OpForm::Call)
    return leaf(id, frame, nodes);
  llvm::Expected<std::vector<NodeId>> results = control(id, frame.site, nodes);
  if (!results)
    return results.takeError();
  for (uint32_t r = 0; r < inst.result_count; ++r) {
    ValueId result = inst.result(r);
    const rules::TensorInfo known = checked_.known(result, frame.site.typing);
    llvm::Expected<NodeId> seen = seen_as((*results)[r], known);
    // A name of its own, of which the gradient is: a body may give one value twice, or one that it
    // was given.
    auto same = [](const Meaning &meaning) -> llvm::Expected<Meaning> { return meaning; };
    if (seen && *seen == (*results)[r])
      seen = mapped({*seen}, {same}, known);
    if (!seen)
      return seen.takeError();
    frame.nodes[result.index] = *seen;
  }
  return llvm::Error::success();
}

llvm::Error ReferenceRun::receive(ValueId sent, ValueId result, Frame &frame) {
  rules::TensorInfo from = checked_.known(sent), to = checked_.known(result);
  auto map = [this, from, to](const Meaning &meaning) {
    return reference_.received(from, to, meaning);
  };
  llvm::Expected<NodeId> made = mapped({frame.find(sent)}, {map}, to);
  if (!made)
    return made.takeError();
  frame.nodes[result.index] = *made;
  return llvm::Error::success();
}

llvm::Error ReferenceRun::leaf(InstId id, Frame &frame, llvm::ArrayRef<NodeId> operands) {
  const ir::Inst inst = program_.insts[id];
  if (replaced_ && &frame == &main_ && inst.result_count == 1)
    if (auto at = replaced_->find(inst.first_result.index); at != replaced_->end()) {
      frame.nodes[inst.first_result.index] =
          add(at->second, checked_.known(inst.first_result, frame.site.typing));
      return llvm::Error::success();
    }
  std::vector<const Meaning *> meanings;
  for (NodeId node : operands)
    meanings.push_back(&trace_.nodes[node]);
  const bool unknown = reference_.resolve(inst.op).form == rules::OpForm::Equation &&
                       llvm::any_of(meanings, [](const Meaning *m) { return m->pieces.empty(); });
  llvm::Expected<Meanings> made =
      unknown ? Meanings(inst.result_count) : reference_.apply(id, frame.site, meanings);
  if (!made)
    return make_error(fmt::format("`{}` at {}: {}", program_.op_name(inst.op).str(),
                                  inst.result_count ? ir::print_value(program_, inst.first_result)
                                                    : std::string("an op without a result"),
                                  llvm::toString(made.takeError())));
  std::vector<NodeId> results;
  for (uint32_t r = 0; r < inst.result_count; ++r) {
    ValueId result = inst.result(r);
    results.push_back(add(std::move((*made)[r]), checked_.known(result, frame.site.typing)));
    frame.nodes[result.index] = results.back();
  }
  trace_.entries.push_back({id, frame.site, operands, std::move(results), {}});
  return llvm::Error::success();
}

// The new content of storage, seen along the views by which an older name was derived.
llvm::Expected<NodeId> ReferenceRun::derived(InstId id, BodySite site,
                                             llvm::function_ref<const Meaning *(ValueId)> meaning,
                                             llvm::function_ref<NodeId(ValueId)> node) {
  llvm::Expected<Storage::View> view = Storage(reference_, site).derive(id, meaning);
  if (!view)
    return view.takeError();
  const rules::TensorInfo known = checked_.known(program_.insts[id].first_result, site.typing);
  const AxisSet sums = program_.types[known.type].of(ir::Kind::Partial);
  std::vector<NodeId> inputs;
  for (ValueId value : view->of) {
    // Addends beside what is none mean nothing together.
    const ir::Type &own = program_.types[checked_.known(value, site.typing).type];
    if (own.of(ir::Kind::Partial) - own.zero() - sums)
      return add({}, known);
    inputs.push_back(node(value));
  }
  return mapped(std::move(inputs), std::move(view->maps), known);
}

llvm::Error ReferenceRun::alias(InstId id, Frame &frame) {
  auto meaning = [&](ValueId value) -> const Meaning * {
    NodeId node = frame.find(value);
    return node == kNoNode || trace_.nodes[node].pieces.empty() ? nullptr : &trace_.nodes[node];
  };
  llvm::Expected<NodeId> made =
      derived(id, frame.site, meaning, [&](ValueId value) { return frame.find(value); });
  if (!made)
    return made.takeError();
  frame.nodes[program_.insts[id].first_result.index] = *made;
  return llvm::Error::success();
}

llvm::Expected<Meaning>
ReferenceRun::run_alias(InstId id, BodySite site,
                        llvm::function_ref<const Meaning *(ValueId)> meaning) {
  llvm::Expected<NodeId> made = derived(id, site, meaning, [&](ValueId value) {
    const Meaning *own = meaning(value);
    return add(own ? *own : Meaning(), checked_.known(value, site.typing));
  });
  if (!made)
    return made.takeError();
  return std::move(trace_.nodes[*made]);
}

ir::FunctionId ReferenceRun::region(InstId id, llvm::StringRef role) const {
  const ir::AttrValue *attr = program_.find(program_.insts[id].attrs, role);
  SPMD_CHECK(attr && attr->form == ir::AttrForm::Function, "a region that was checked");
  return attr->as<ir::FunctionId>();
}

llvm::Expected<std::vector<NodeId>> ReferenceRun::function(ir::FunctionId id, BodySite site,
                                                           llvm::ArrayRef<NodeId> args) {
  const ir::Function &callee = program_.functions[id];
  if (callee.opaque)
    return make_error(fmt::format("{} has no body", program_.strings[callee.name].str()));
  ir::Body code = callee.body;
  ir::OperandsId results = callee.results;
  Frame frame;
  frame.site = site;
  for (size_t i = 0; i < args.size(); ++i) {
    ValueId param = program_.functions[id].params[i].value;
    llvm::Expected<NodeId> seen = seen_as(args[i], checked_.known(param, site.typing));
    if (!seen)
      return seen.takeError();
    frame.nodes[param.index] = *seen;
  }
  if (llvm::Error problem = body(code, frame))
    return llvm::Expected<std::vector<NodeId>>(std::move(problem));
  std::vector<NodeId> made;
  for (const ir::Operand &operand : program_.operand_lists[results])
    made.push_back(operand.is_value() ? frame.find(operand.as_value()) : kNoNode);
  return made;
}

llvm::Expected<std::vector<NodeId>> ReferenceRun::control(InstId id, BodySite site,
                                                          llvm::ArrayRef<NodeId> operands) {
  switch (reference_.resolve(program_.insts[id].op).boundary) {
  case rules::Boundary::Scan:
    return scan(id, site, operands);
  case rules::Boundary::Cond:
    return cond(id, site, operands);
  case rules::Boundary::While:
    return loop(id, site, operands);
  default:
    return call(id, site, operands);
  }
}

namespace {

// The typing of the n-th body that the site runs.
uint32_t typing_of(checker::CheckedProgram &checked, InstId id, BodySite site, size_t n) {
  llvm::ArrayRef<uint32_t> bodies = checked.bodies(id, site.typing);
  return n < bodies.size() ? bodies[n] : checker::CheckedProgram::kMain;
}

} // namespace

ReferenceRun::Nodes ReferenceRun::call(InstId id, BodySite site, llvm::ArrayRef<NodeId> operands) {
  BodySite inside{typing_of(checked_, id, site, 0), body_path(site.path, id, 0)};
  ir::FunctionId callee = region(id, "body");
  Nodes made = function(callee, inside, operands);
  if (!made)
    return made;
  llvm::ArrayRef<ir::Operand> results = program_.operand_lists[program_.functions[callee].results];
  for (size_t r = 0; r < made->size(); ++r)
    if ((*made)[r] == kNoNode) {
      ValueId value = program_.insts[id].result(static_cast<uint32_t>(r));
      llvm::Expected<NodeId> literal =
          number(program_.literals[results[r].index], checked_.known(value, site.typing));
      if (!literal)
        return literal.takeError();
      (*made)[r] = *literal;
    }
  return made;
}

ReferenceRun::Nodes ReferenceRun::scan(InstId id, BodySite site, llvm::ArrayRef<NodeId> operands) {
  const ir::Inst inst = program_.insts[id];
  auto consts = static_cast<size_t>(integer(program_, inst.attrs, "consts"));
  auto carry = static_cast<size_t>(integer(program_, inst.attrs, "carry"));
  uint32_t typing = typing_of(checked_, id, site, 0);
  ir::FunctionId callee = region(id, "body");
  int64_t rounds = integer(program_, inst.attrs, "length");
  if (consts + carry < operands.size()) {
    const Meaning &first = trace_.nodes[operands[consts + carry]];
    if (first.pieces.empty())
      return make_error("a scanned operand has no data");
    rounds = first.pieces.front().dims.front();
  }
  const ir::AttrValue *reverse = program_.find(inst.attrs, "reverse");
  bool backwards = reverse && reverse->form == ir::AttrForm::Bool && reverse->as_bool();
  std::vector<NodeId> args(operands.begin(), operands.end());
  std::vector<std::vector<NodeId>> outs(inst.result_count - carry);
  for (int64_t i = 0; i < rounds; ++i) {
    int64_t at = backwards ? rounds - 1 - i : i;
    for (size_t o = consts + carry; o < operands.size(); ++o) {
      ValueId param = program_.functions[callee].params[o].value;
      auto row = [at](const Meaning &whole) -> llvm::Expected<Meaning> {
        Meaning made{whole.per_rank, {}};
        for (const Tensor &piece : whole.pieces)
          made.pieces.push_back(taken(piece, 0, at));
        return made;
      };
      llvm::Expected<NodeId> made = mapped({operands[o]}, {row}, checked_.known(param, typing));
      if (!made)
        return made.takeError();
      args[o] = *made;
    }
    Nodes results =
        function(callee, {typing, body_path(site.path, id, static_cast<uint64_t>(i))}, args);
    if (!results)
      return results;
    if (llvm::is_contained(*results, kNoNode))
      return make_error("a body of `scan` gives a plain number");
    std::copy_n(results->begin(), carry, args.begin() + static_cast<ptrdiff_t>(consts));
    for (size_t r = carry; r < results->size(); ++r)
      outs[r - carry].push_back((*results)[r]);
  }
  std::vector<NodeId> made(args.begin() + static_cast<ptrdiff_t>(consts),
                           args.begin() + static_cast<ptrdiff_t>(consts + carry));
  for (size_t r = 0; r < outs.size(); ++r) {
    std::vector<LinearMap> maps;
    for (int64_t i = 0; i < rounds; ++i) {
      int64_t at = backwards ? rounds - 1 - i : i;
      maps.push_back([at, rounds](const Meaning &row) -> llvm::Expected<Meaning> {
        Meaning whole{row.per_rank, {}};
        for (const Tensor &piece : row.pieces) {
          std::vector<Tensor> rows(static_cast<size_t>(rounds), zeros_like(piece, piece.dims));
          rows[static_cast<size_t>(at)] = piece;
          whole.pieces.push_back(stacked(rows, 0));
        }
        return whole;
      });
    }
    ValueId value = inst.result(static_cast<uint32_t>(carry + r));
    llvm::Expected<NodeId> stack =
        mapped(outs[r], std::move(maps), checked_.known(value, site.typing));
    if (!stack)
      return stack.takeError();
    made.push_back(*stack);
  }
  return made;
}

llvm::Expected<NodeId> ReferenceRun::chosen(NodeId condition, NodeId then, NodeId other,
                                            rules::TensorInfo known) {
  auto asked = distribution_of(program_, trace_.known[condition]);
  auto to = distribution_of(program_, known);
  if (!asked || !to)
    return llvm::joinErrors(asked.takeError(), to.takeError());
  if (!*asked || !*to)
    return make_error("a condition or a result of a branch has no shape");
  llvm::Expected<NodeId> left = seen_as(then, known), right = seen_as(other, known);
  if (!left || !right)
    return llvm::joinErrors(left.takeError(), right.takeError());
  Meaning conditions = trace_.nodes[condition];
  Grid per_rank = (*to)->per_rank_grid(),
       by(program_.meshes[(*to)->type().mesh()], conditions.per_rank);
  auto where = [conditions, per_rank, by](bool wanted) -> LinearMap {
    return [conditions, per_rank, by, wanted](const Meaning &meaning) -> llvm::Expected<Meaning> {
      Meaning made = meaning;
      for (size_t p = 0; p < made.pieces.size(); ++p) {
        auto at = per_rank.coordinates(static_cast<int64_t>(p));
        const Tensor &asked = conditions.pieces[static_cast<size_t>(by.position(at))];
        if (holds(asked) != wanted)
          made.pieces[p] = zeros_like(made.pieces[p], made.pieces[p].dims);
      }
      return made;
    };
  };
  return mapped({*left, *right}, {where(true), where(false)}, known);
}

ReferenceRun::Nodes ReferenceRun::cond(InstId id, BodySite site, llvm::ArrayRef<NodeId> operands) {
  const ir::Inst inst = program_.insts[id];
  std::vector<std::vector<NodeId>> branches;
  uint64_t round = 0;
  for (llvm::StringRef role : {"then", "else"}) {
    ir::FunctionId callee = region(id, role);
    BodySite inside{typing_of(checked_, id, site, round), body_path(site.path, id, round)};
    ++round;
    Nodes made = function(callee, inside, operands.drop_front());
    if (!made)
      return made;
    llvm::ArrayRef<ir::Operand> results =
        program_.operand_lists[program_.functions[callee].results];
    for (uint32_t r = 0; r < made->size(); ++r)
      if ((*made)[r] == kNoNode) {
        llvm::Expected<NodeId> literal = number(program_.literals[results[r].index],
                                                checked_.known(inst.result(r), site.typing));
        if (!literal)
          return literal.takeError();
        (*made)[r] = *literal;
      }
    branches.push_back(std::move(*made));
  }
  std::vector<NodeId> results;
  for (uint32_t r = 0; r < inst.result_count; ++r) {
    llvm::Expected<NodeId> made = chosen(operands[0], branches[0][r], branches[1][r],
                                         checked_.known(inst.result(r), site.typing));
    if (!made)
      return made.takeError();
    results.push_back(*made);
  }
  return results;
}

// Ranks that are done keep what they have.
ReferenceRun::Nodes ReferenceRun::loop(InstId id, BodySite site, llvm::ArrayRef<NodeId> operands) {
  const ir::Inst inst = program_.insts[id];
  auto consts = static_cast<size_t>(integer(program_, inst.attrs, "consts"));
  ir::FunctionId more = region(id, "cond"), step = region(id, "body");
  std::vector<NodeId> args(operands.begin(), operands.end());
  for (uint32_t r = 0; r < inst.result_count; ++r) {
    llvm::Expected<NodeId> entered =
        seen_as(args[consts + r], checked_.known(inst.result(r), site.typing));
    if (!entered)
      return entered.takeError();
    args[consts + r] = *entered;
  }
  for (uint64_t i = 0; i <= reference_.max_rounds(); ++i) {
    uint64_t path = body_path(site.path, id, i);
    Nodes asked = function(more, {typing_of(checked_, id, site, 0), path}, args);
    if (!asked)
      return asked;
    if (asked->front() == kNoNode)
      return make_error("the condition of a loop is a plain number");
    const Meaning &condition = trace_.nodes[asked->front()];
    if (llvm::none_of(condition.pieces, holds))
      return std::vector<NodeId>(args.begin() + static_cast<ptrdiff_t>(consts), args.end());
    Nodes made = function(step, {typing_of(checked_, id, site, 1), path}, args);
    if (!made)
      return made;
    for (uint32_t r = 0; r < inst.result_count; ++r) {
      if ((*made)[r] == kNoNode)
        return make_error("a body of `while` gives a plain number");
      llvm::Expected<NodeId> next = chosen(asked->front(), (*made)[r], args[consts + r],
                                           checked_.known(inst.result(r), site.typing));
      if (!next)
        return next.takeError();
      args[consts + r] = *next;
    }
  }
  return make_error(fmt::format("a loop goes on after {} rounds", reference_.max_rounds()));
}

llvm::Expected<Meanings> ReferenceRun::run_inst(InstId id, BodySite site,
                                                llvm::ArrayRef<const Meaning *> operands) {
  const ir::Inst inst = program_.insts[id];
  if (reference_.resolve(inst.op).form != rules::OpForm::Call)
    return reference_.apply(id, site, operands);
  checker::OperandList list;
  list.read(program_, inst.operands);
  std::vector<NodeId> nodes;
  for (size_t i = 0; i < operands.size(); ++i)
    nodes.push_back(add(*operands[i], checked_.known(list.values[i], site.typing)));
  Nodes made = control(id, site, nodes);
  if (!made)
    return made.takeError();
  Meanings results;
  for (uint32_t r = 0; r < inst.result_count; ++r) {
    llvm::Expected<NodeId> seen = seen_as((*made)[r], checked_.known(inst.result(r), site.typing));
    if (!seen)
      return seen.takeError();
    results.push_back(trace_.nodes[*seen]);
  }
  return results;
}

} // namespace spmd::runtime
