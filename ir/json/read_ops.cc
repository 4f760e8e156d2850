// Operations of the JSON format: the hot path. Nothing here allocates for each op, except as tables
// grow.
#include "ir/boundary_ops.h"
#include "ir/input/read_operands.h"
#include "ir/json/read.h"
#include "ir/text/lexer.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"

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

void JsonReader::ops() {
  json_.array([&](uint32_t) { op(); });
}

void JsonReader::op() {
  uint64_t origin = json_.offset(json_.at());
  auto members = object(kOpKeys);
  if (!members)
    return;
  Inst inst;
  OpShape shape;
  inst.op = op_name(members, shape);
  inst.context = context_;
  if (members.at(Ctx))
    if (std::optional<uint32_t> context = index(contexts_.size(), "contexts"))
      inst.context = contexts_[*context];
  shape.mesh = mesh_of(inst.context);
  AttrDict literals;
  inst.operands = read_operands(members, inst, literals, shape);
  if (members.at(BwdOf))
    inst.bwd_of = value_ref();
  if (members.at(Out))
    results(inst, shape);
  inst.attrs = all_attrs(members, literals, shape);
  inst.loc = location(members, Loc, ScopeKey);
  if (members.at(PhaseKey))
    enumeration(llvm::ArrayRef(kPhaseWords).drop_front(), "phase", inst.phase, 1);
  if (json_.failed())
    return;
  uint32_t index = builder_.add(inst, origin);
  assertions(members, index);
  if (index % kProgressOps == kProgressOps - 1 && options_.progress)
    options_.progress(origin, json_.size());
}

OpNameId JsonReader::op_name(const JsonMembers &members, OpShape &shape) {
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

BlockId JsonReader::read_operands(const JsonMembers &members, Inst &inst, AttrDict &literals,
                                  OpShape &shape) {
  operands_.clear();
  if (members.at(In))
    operands(operands_);
  if (members.has(Args) || members.has(Kwargs)) {
    if (members.has(In) || members.has(Kw))
      json_.error(members.token(), "trace-key",
                  "`args` and `kwargs` are a call, `in` and `kw` operands: one op has either");
    operands_ = read_call(members, Args, Kwargs, inst, literals);
  }
  for (Operand operand : operands_) {
    bool known = operand.is_value() && operand.as_value().valid();
    shape.in.push_back(known ? rank_of(program_.values[operand.as_value()].shape) : std::nullopt);
  }
  if (members.at(Kw))
    named_operands(operands_, literals);
  if (members.at(Mut))
    mark_mutated(operands_);
  return program_.blocks.add(operands_);
}

AttrsId JsonReader::all_attrs(const JsonMembers &members, const AttrDict &literals,
                              const OpShape &shape) {
  AttrsId id = members.at(Attrs) ? attrs(members.raw(Attrs), shape) : program_.no_attrs();
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
    regions(all);
  return builder_.attrs(std::move(all));
}

void JsonReader::results(Inst &inst, OpShape &shape) {
  json_.array([&](uint32_t) {
    auto members = object(kValueKeys);
    ValueId id = members ? define(members, shape.mesh) : ValueId();
    if (!id.valid())
      return;
    if (inst.result_count++ == 0)
      inst.first_result = id;
    shape.out.push_back(rank_of(program_.values[id].shape));
  });
}

LocId JsonReader::location(const JsonMembers &members, unsigned loc, unsigned scope) {
  FrameId frame;
  StringId path;
  if (members.at(loc))
    if (std::optional<uint32_t> i = index(frames_.size(), "locs"))
      frame = frames_[*i];
  if (members.at(scope))
    if (std::optional<uint32_t> i = index(scopes_.size(), "scopes"))
      path = scopes_[*i];
  return builder_.location(frame, path);
}

std::optional<uint32_t> JsonReader::index(size_t size, std::string_view table) {
  Token token = json_.at();
  std::optional<int64_t> at = json_.integer(0, kMaxInteger, "trace-reference");
  if (!at)
    return std::nullopt;
  if (static_cast<uint64_t>(*at) < size)
    return static_cast<uint32_t>(*at);
  json_.error(token, "trace-reference",
              fmt::format("entry {} of `{}` does not exist before this place, which has {}", *at,
                          table, size));
  return std::nullopt;
}

MeshId JsonReader::mesh_of(ContextId context) const {
  MeshId mesh = program_.contexts[context].mesh;
  return mesh.valid() ? mesh : MeshId{0};
}

void JsonReader::assertions(const JsonMembers &members, uint32_t index) {
  if (members.at(Ignore))
    json_.array([&](uint32_t) {
      if (StringId name = finding(); name.valid())
        builder_.ignore(index, name);
    });
  if (members.at(Expect))
    json_.array([&](uint32_t) { expectation(index); });
}

void JsonReader::expectation(uint32_t index) {
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
    expected.value = value_ref();
  if (expected.value.valid())
    expected.type =
        claim_of(members, stated_mesh(members, mesh_of(expected.value)), rank_of(expected.value))
            .type;
  if (members && !members.has(Error) && !members.has(Warning) && !members.has(ValueKey))
    json_.error(members.token(), "trace-key",
                "an expectation names neither `error` nor `warning` nor `value`");
  if (members && !json_.failed())
    builder_.expect(index, std::move(expected));
}

} // namespace spmd::ir
