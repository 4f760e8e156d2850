// Bodies: run where they are called, as often as they are called. Both branches of a condition are
// run, and each rank takes its own.
#include "tests/soundness/run.h"

#include "checker/check.h"
#include "checker/operand_list.h"
#include "ir/mesh/axis_scale.h"

#include <fmt/format.h>

namespace spmd::soundness {

using ir::ValueId;

namespace {

int64_t number_of(const ir::Program &program, ir::AttrsId attrs, llvm::StringRef key) {
  const ir::AttrValue *value = program.find(attrs, key);
  return value && value->form == ir::AttrForm::Integer ? value->as_integer() : 0;
}

} // namespace

bool Run::call(const ir::Inst &inst, uint32_t index, rules::Boundary op) {
  using enum rules::Boundary;
  // As they are: the instructions of a body say themselves which axes are local.
  checker::OperandList operands;
  operands.read(program_, inst.operands);
  Nodes args;
  for (ValueId value : operands.values)
    args.push_back(node(value));
  if (op == Scan)
    return scan(inst, index, args);
  if (op == Cond)
    return branches(inst, index, args);
  if (op == While)
    return loop(inst, index, args);
  if (op == LocalMap)
    return region(inst, index, args);
  if (op != Call && op != Checkpoint)
    return fail(std::string(rules::boundary_name(op)));
  Nodes results;
  if (!apply(inst, index, "body", 0, args, results))
    return false;
  for (uint32_t r = 0; r < inst.result_count; ++r)
    define(inst.result(r), results[r]);
  return true;
}

// Of a body that the instruction runs, in the order of its attributes.
std::optional<uint32_t> Run::typing_of(uint32_t index, unsigned place) const {
  for (const checker::BodyInstance::Site &site : setting_.checked.body_instances[typing_].sites)
    if (site.inst.index == index && place < site.bodies.size())
      return site.bodies[place];
  return std::nullopt;
}

// `place`: of the region among those that the instruction runs.
bool Run::apply(const ir::Inst &inst, uint32_t index, llvm::StringRef region, unsigned place,
                llvm::ArrayRef<NodeId> args, Nodes &results) {
  const ir::AttrValue *attr = program_.find(inst.attrs, region);
  if (!attr || attr->form != ir::AttrForm::Function)
    return fail("a call of nothing");
  const ir::Function function = program_.functions[attr->as<ir::FunctionId>()];
  if (function.opaque)
    return fail("an opaque function");
  std::optional<uint32_t> found = typing_of(index, place);
  if (!found)
    return fail("a body that was not typed");
  uint32_t typing = *found;
  // A parameter may state a shape that no operand has: nothing compares the two yet.
  const checker::BodyInstance &body_types = setting_.checked.body_instances[typing];
  for (size_t i = 0; i < args.size() && i < function.params.size(); ++i) {
    ir::ValueId param = function.params[i].value;
    ir::ShapeId stated = program_.values[param].shape;
    const Held &held = nodes_[args[i]]->value;
    if (stated.valid() && param.index >= body_types.first &&
        program_.shapes[stated].dims.size() != held.at[held.rep[0]].dims.size())
      return fail("a parameter that states another shape");
    for (size_t d = 0;
         stated.valid() && side_ == Side::Ranks && d < program_.shapes[stated].dims.size(); ++d)
      if (program_.shapes[stated].dims[d] != ir::Extent(held.at[held.rep[0]].dims[d]))
        return fail("a parameter that states another shape");
  }
  Frame outer = std::move(frame_);
  frame_ = Frame();
  std::swap(typing, typing_);
  for (size_t i = 0; i < args.size() && i < function.params.size(); ++i)
    define(function.params[i].value, args[i]);
  bool done = body(function.body);
  for (const ir::Operand &operand : program_.operand_lists[function.results])
    if (done && operand.is_value())
      results.push_back(node(operand.as_value()));
  std::swap(typing, typing_);
  frame_ = std::move(outer);
  return done;
}

bool Run::scan(const ir::Inst &inst, uint32_t index, llvm::ArrayRef<NodeId> args) {
  auto consts = static_cast<size_t>(number_of(program_, inst.attrs, "consts"));
  auto carry = static_cast<size_t>(number_of(program_, inst.attrs, "carry"));
  const ir::AttrValue *reverse = program_.find(inst.attrs, "reverse");
  bool backwards = reverse && reverse->as_bool();
  int64_t length = number_of(program_, inst.attrs, "length");
  if (args.size() > consts + carry) {
    const Held &first = nodes_[args[consts + carry]]->value;
    length = first.at[first.rep[0]].dims[0];
  }
  Nodes carried(args.begin() + static_cast<ptrdiff_t>(consts),
                args.begin() + static_cast<ptrdiff_t>(consts + carry));
  std::vector<Nodes> made(inst.result_count - carry, Nodes(static_cast<size_t>(length)));
  if (length == 0 && !made.empty())
    return fail("a loop that is never entered");
  for (int64_t i = 0; i < length; ++i) {
    int64_t at = backwards ? length - 1 - i : i;
    Nodes given(args.begin(), args.begin() + static_cast<ptrdiff_t>(consts));
    given.append(carried.begin(), carried.end());
    for (size_t x = consts + carry; x < args.size(); ++x)
      given.push_back(slice(args[x], at));
    Nodes results;
    if (!apply(inst, index, "body", 0, given, results))
      return false;
    carried.assign(results.begin(), results.begin() + static_cast<ptrdiff_t>(carry));
    for (size_t y = 0; y < made.size(); ++y)
      made[y][static_cast<size_t>(at)] = results[carry + y];
  }
  for (uint32_t r = 0; r < inst.result_count; ++r)
    define(inst.result(r), r < carry ? again(carried[r]) : stacked(made[r - carry]));
  return true;
}

Run::NodeId Run::slice(NodeId from, int64_t at) {
  NodeId to = add({nodes_[from]->value.rep, Arrays(world_.size())});
  auto block = [at](const Array &whole) {
    Block one{Dims(whole.dims.size(), 0), whole.dims};
    one.first[0] = at;
    one.dims[0] = 1;
    return one;
  };
  for (unsigned r = 0; r < world_.size(); ++r)
    if (nodes_[to]->value.rep[r] == r) {
      const Array &whole = nodes_[from]->value.at[r];
      Array part = take(whole, block(whole));
      part.dims.erase(part.dims.begin());
      nodes_[to]->value.at[r] = std::move(part);
    }
  tape_.push_back([this, from, to, block] {
    for (unsigned r = 0; !nodes_[to]->gradient.empty() && r < world_.size(); ++r)
      if (nodes_[to]->value.rep[r] == r) {
        Block one = block(nodes_[from]->value.at[r]);
        put(gradient_of(from)[r], one, {one.dims, nodes_[to]->gradient[r].data}, true);
      }
  });
  return to;
}

Run::NodeId Run::again(NodeId from) {
  NodeId to = add(nodes_[from]->value);
  tape_.push_back([this, from, to] {
    for (unsigned r = 0; !nodes_[to]->gradient.empty() && r < world_.size(); ++r)
      if (nodes_[to]->value.rep[r] == r)
        add_to(gradient_of(from)[r], nodes_[to]->gradient[r]);
  });
  return to;
}

Run::NodeId Run::stacked(llvm::ArrayRef<NodeId> parts) {
  Nodes kept(parts.begin(), parts.end());
  NodeId to = add({classes(parts), Arrays(world_.size())});
  for (unsigned r = 0; r < world_.size(); ++r)
    if (nodes_[to]->value.rep[r] == r) {
      Arrays pieces;
      for (NodeId part : kept)
        pieces.push_back(nodes_[part]->value.at[nodes_[part]->value.rep[r]]);
      nodes_[to]->value.at[r] = stack(pieces, 0);
    }
  tape_.push_back([this, kept, to] {
    for (unsigned r = 0; !nodes_[to]->gradient.empty() && r < world_.size(); ++r)
      if (nodes_[to]->value.rep[r] == r) {
        Arrays pieces = unbind(nodes_[to]->gradient[r], 0);
        for (size_t k = 0; k < kept.size(); ++k)
          add_to(gradient_of(kept[k])[nodes_[kept[k]]->value.rep[r]], pieces[k]);
      }
  });
  return to;
}

// Each rank goes on as long as its own predicate holds. What takes too long is not followed.
bool Run::loop(const ir::Inst &inst, uint32_t index, llvm::ArrayRef<NodeId> args) {
  constexpr unsigned kMostRounds = 6;
  auto consts = static_cast<size_t>(number_of(program_, inst.attrs, "consts"));
  Nodes carried(args.begin() + static_cast<ptrdiff_t>(consts), args.end());
  std::optional<NodeId> going; // 1 where a rank is still in the loop
  for (unsigned round = 0;; ++round) {
    Nodes given(args.begin(), args.begin() + static_cast<ptrdiff_t>(consts));
    given.append(carried.begin(), carried.end());
    Nodes asked, made;
    if (!apply(inst, index, "cond", 0, given, asked) || asked.size() != 1)
      return fail(why.empty() ? "a condition that is a number" : why);
    Nodes both = asked;
    if (going)
      both.push_back(*going);
    Held on{classes(both), Arrays(world_.size())};
    bool any = false;
    for (unsigned r = 0; r < world_.size(); ++r) {
      bool holds = true;
      for (NodeId id : both) {
        const Held &held = nodes_[id]->value;
        holds &= held.at[held.rep[r]].data[0].value() % 2 == 1;
      }
      if (on.rep[r] == r)
        on.at[r] = {{}, {Residue(holds)}};
      any |= holds;
    }
    if (!any)
      break;
    if (round == kMostRounds)
      return fail("a loop that goes on");
    if (!apply(inst, index, "body", 1, given, made))
      return false;
    going = add(on);
    for (size_t c = 0; c < carried.size(); ++c)
      carried[c] = chosen(on, made[c], carried[c]);
  }
  for (uint32_t r = 0; r < inst.result_count; ++r)
    define(inst.result(r), carried[r]);
  return true;
}

// Inside, what an axis of the region cuts is a list; what leaves joins as its claim says, or is
// added up where addends are claimed.
bool Run::region(const ir::Inst &inst, uint32_t index, llvm::ArrayRef<NodeId> args) {
  checker::OperandList operands;
  operands.read(program_, inst.operands);
  const ir::AttrValue *axis = program_.find(inst.attrs, "axis");
  const ir::AttrValue *attr = program_.find(inst.attrs, "body");
  if (!axis || axis->form != ir::AttrForm::Axes || !attr || attr->form != ir::AttrForm::Function)
    return fail("a region over nothing");
  const ir::Context &context = program_.contexts[inst.context];
  const ir::Mesh &mesh = program_.meshes[context.mesh];
  ir::AxisSet over;
  for (const ir::AxisRef &ref : program_.axis_refs[axis->as<ir::AxisRefsId>()].refs)
    if (std::optional<ir::AxisId> found = mesh.find(ref.axis))
      over |= mesh.pieces_of(*found);
  ir::AxisSet own = over; // of which no operand has a factor
  Nodes given, results;
  for (size_t i = 0; i < args.size(); ++i) {
    Typed known = typed(operands.values[i]);
    own -= ir::axes_in(program_, program_.types[known.type].scale, context.mesh);
    ir::AxisSet listed = program_.types[known.type].sharded() & over;
    given.push_back(side_ == Side::Whole && listed ? relisted(args[i], known, {}, known, listed)
                                                   : args[i]);
  }
  if (!apply(inst, index, "body", 0, given, results))
    return false;
  std::optional<uint32_t> inside = typing_of(index, 0);
  llvm::ArrayRef<ir::Operand> yields =
      program_.operand_lists[program_.functions[attr->as<ir::FunctionId>()].results];
  for (uint32_t r = 0; r < inst.result_count; ++r) {
    if (!yields[r].is_value())
      return fail("a number that leaves a region");
    Typed before = setting_.typed(yields[r].as_value(), *inside), after = typed(inst.result(r));
    const ir::Type &from = program_.types[before.type], &to = program_.types[after.type];
    ir::AxisSet lists = from.of(ir::Kind::Varying) - from.sharded();
    NodeId at = results[r];
    if (side_ == Side::Whole && !(from.sharded() == to.sharded()))
      at = relisted(at, before, {}, after, {});
    if (ir::AxisSet sums = to.of(ir::Kind::Partial) & lists; side_ == Side::Whole && sums)
      at = summed(at, context.mesh, sums);
    // Another scale along its own axes is a statement of what is meant.
    ir::ScaleId stated = ir::quotient(program_, from.scale, to.scale);
    Residue factor = side_ == Side::Whole && stated.valid()
                         ? scale_number(program_, stated, context.mesh, own)
                         : Residue(1);
    define(inst.result(r), multiplied(at, factor));
  }
  return true;
}

bool Run::branches(const ir::Inst &inst, uint32_t index, llvm::ArrayRef<NodeId> args) {
  Nodes yes, no;
  if (!apply(inst, index, "then", 0, args.drop_front(), yes) ||
      !apply(inst, index, "else", 1, args.drop_front(), no))
    return false;
  Held predicate = nodes_[args[0]]->value;
  for (uint32_t r = 0; r < inst.result_count; ++r)
    define(inst.result(r), chosen(predicate, yes[r], no[r]));
  return true;
}

// A predicate holds where its number is odd: of an input one of 0 and 1, of an unknown function
// either.
Run::NodeId Run::chosen(const Held &predicate, NodeId yes, NodeId no) {
  NodeId by = add(predicate);
  NodeId to = add({classes({by, yes, no}), Arrays(world_.size())});
  auto source = [this, by, yes, no](unsigned r) {
    const Held &held = nodes_[by]->value;
    return held.at[held.rep[r]].data[0].value() % 2 ? yes : no;
  };
  for (unsigned r = 0; r < world_.size(); ++r)
    if (nodes_[to]->value.rep[r] == r) {
      const Held &held = nodes_[source(r)]->value;
      nodes_[to]->value.at[r] = held.at[held.rep[r]];
    }
  tape_.push_back([this, to, source] {
    for (unsigned r = 0; !nodes_[to]->gradient.empty() && r < world_.size(); ++r)
      if (nodes_[to]->value.rep[r] == r) {
        NodeId from = source(r);
        add_to(gradient_of(from)[nodes_[from]->value.rep[r]], nodes_[to]->gradient[r]);
      }
  });
  return to;
}

} // namespace spmd::soundness
