// Operations of the JSON format: the hot path. Nothing here allocates for each op, except as tables
// grow.
#include "ir/json/read/bodies.h"

#include "ir/boundary_ops.h"
#include "ir/text/lexer.h"

#include "llvm/ADT/STLExtras.h"

#include <fmt/format.h>

namespace spmd::ir {

namespace {

// In the order of the exporters: see JsonCursor::fields.
constexpr std::array<std::string_view, 16> kOpKeys = {
    "op",  "in",  "kw",    "attrs",   "out",    "mut",    "phase", "bwd_of",
    "ctx", "loc", "scope", "regions", "ignore", "expect", "args",  "kwargs"};
enum OpKey : unsigned {
  Name,
  In,
  Kw,
  Attrs,
  Out,
  Mut,
  PhaseKey,
  BwdOf,
  Ctx,
  Loc,
  ScopeKey,
  Regions,
  Ignore,
  Expect,
  Args,
  Kwargs
};

constexpr uint32_t kProgressOps = 1 << 15; // how often progress is reported

} // namespace

void JsonBodyReader::ops() {
  json_.array([&](uint32_t) { op(); });
}

void JsonBodyReader::op() {
  uint64_t origin = json_.offset(json_.at());
  auto members = object(kOpKeys);
  if (!members)
    return;
  Inst inst;
  JsonOpShape shape;
  inst.op = op_name(members, shape);
  inst.context = in_.context;
  if (members.at(Ctx))
    if (std::optional<uint32_t> context = index(tables_.context_count(), "contexts"))
      inst.context = tables_.context(*context);
  shape.mesh = mesh_of(inst.context);
  AttrDict literals;
  inst.operands = read_operands(members, inst, literals, shape);
  if (members.at(BwdOf))
    inst.bwd_of = values_.value_ref();
  if (members.at(Out))
    results(inst, shape);
  inst.attrs = all_attrs(members, literals, shape);
  inst.loc = tables_.location(members, Loc, ScopeKey);
  if (members.at(PhaseKey))
    enumeration(llvm::ArrayRef(kPhaseWords).drop_front(), "phase", inst.phase, 1);
  if (json_.failed())
    return;
  uint32_t index = builder_.add(inst, origin);
  assertions(members, index);
  if (index % kProgressOps == kProgressOps - 1 && in_.options.progress)
    in_.options.progress(origin, json_.size());
}

OpNameId JsonBodyReader::op_name(const JsonMembers &members, JsonOpShape &shape) {
  require(members, Name, kOpKeys[Name]);
  RawCache::Key key{members.raw(Name)};
  std::optional<uint32_t> known = op_cache_.find(key);
  if (!known) {
    StringId name = members.at(Name) ? text() : StringId();
    if (!name.valid())
      return OpNameId{builder_.string("").index};
    if (!is_op_name(program_.strings[name]))
      json_.error(
          members.token(Name), "trace-key",
          fmt::format("`{}` is no name of an op", program_.strings[name].take_front(60).str()));
    known = name.index << 1 | states_type(program_.strings[name]);
    op_cache_.add(key, *known);
  }
  shape.states_type = *known & 1;
  return OpNameId{*known >> 1};
}

OperandsId JsonBodyReader::read_operands(const JsonMembers &members, Inst &inst, AttrDict &literals,
                                         JsonOpShape &shape) {
  buffer_.clear();
  if (members.at(In))
    operands_.operands(buffer_);
  if (members.has(Args) || members.has(Kwargs)) {
    if (members.has(In) || members.has(Kw))
      json_.error(members.token(), "trace-key",
                  "`args` and `kwargs` are a call, `in` and `kw` operands: one op has either");
    buffer_ = operands_.read_call(members, Args, Kwargs, inst, literals);
  }
  for (Operand operand : buffer_) {
    bool known = operand.is_value() && operand.as_value().valid();
    shape.in.push_back(known ? types_.rank_of(program_.values[operand.as_value()].shape)
                             : std::nullopt);
  }
  if (members.at(Kw))
    operands_.named_operands(buffer_, literals);
  if (members.at(Mut))
    operands_.mark_mutated(buffer_);
  return program_.operand_lists.add(buffer_);
}

AttrsId JsonBodyReader::all_attrs(const JsonMembers &members, const AttrDict &literals,
                                  const JsonOpShape &shape) {
  AttrsId id =
      members.at(Attrs) ? attributes_.attrs(members.raw(Attrs), shape) : program_.no_attrs();
  if (literals.attrs.empty() && !members.has(Regions))
    return id;
  AttrDict all = program_.attrs[id];
  llvm::DenseSet<uint32_t> keys;
  for (const Attr &attr : all.attrs)
    keys.insert(attr.key.index);
  for (const Attr &literal : literals.attrs) {
    if (!keys.insert(literal.key.index).second)
      json_.error(members.token(Kw), "trace-key",
                  fmt::format("`{}` is an attribute too",
                              program_.strings[literal.key].take_front(60).str()));
    else
      all.attrs.push_back(literal);
  }
  if (members.at(Regions))
    attributes_.regions(all);
  return builder_.attrs(std::move(all));
}

void JsonBodyReader::results(Inst &inst, JsonOpShape &shape) {
  json_.array([&](uint32_t) {
    auto members = object(kValueKeys);
    ValueId id = members ? values_.define(members, shape.mesh) : ValueId();
    if (!id.valid())
      return;
    if (inst.result_count++ == 0)
      inst.first_result = id;
    shape.out.push_back(types_.rank_of(program_.values[id].shape));
  });
}

void JsonBodyReader::assertions(const JsonMembers &members, uint32_t index) {
  if (members.at(Ignore))
    json_.array([&](uint32_t) {
      if (StringId name = finding(); name.valid())
        builder_.ignore(index, name);
    });
  if (members.at(Expect))
    json_.array([&](uint32_t) { expectation(index); });
}

void JsonBodyReader::expectation(uint32_t index) {
  static constexpr std::array<std::string_view, ClaimKeyCount + 4> kKeys = {
      "dtype", "shape", "gshape",  "mesh", "type", "spec",
      "scale", "error", "warning", "axes", "value"};
  enum { Error = ClaimKeyCount, Warning, Axes, ValueKey };
  auto members = object(kKeys);
  Expectation expected;
  expected.warning = members.has(Warning);
  if (members.at(Error) || members.at(Warning))
    expected.finding = finding();
  if (members.at(Axes))
    json_.array([&](uint32_t) {
      if (StringId axis = identifier("an axis"); axis.valid())
        expected.axes.push_back(axis);
    });
  if (members.at(ValueKey))
    expected.value = values_.value_ref();
  if (expected.value.valid())
    expected.type =
        types_
            .claim_of(members, types_.stated_mesh(members, values_.mesh_of(expected.value)),
                      types_.rank_of(expected.value))
            .type;
  if (members && !members.has(Error) && !members.has(Warning) && !members.has(ValueKey))
    json_.error(members.token(), "trace-key",
                "an expectation names neither `error` nor `warning` nor `value`");
  if (members && !json_.failed())
    builder_.expect(index, std::move(expected));
}

} // namespace spmd::ir
