// Functions, parameters with their gradient contracts, and outputs of the JSON format.
#include "ir/json/read.h"
#include "ir/support/strings.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"

#include <fmt/format.h>

namespace spmd::ir {

namespace {

constexpr std::array<std::string_view, 5> kFunctionKeys = {"ctx", "params", "ops", "results",
                                                           "out"};
enum FunctionKey : unsigned { Ctx, Params, Ops, Results, Out };

constexpr std::array<std::string_view, ValueKeyCount + 12> kParamKeys = {
    "dtype",     "shape",        "gshape",         "mesh",     "type",     "spec",
    "scale",     "id",           "requires_grad",  "grad_of",  "alias_of", "role",
    "name",      "grad",         "drifted",        "observed", "separate", "taken",
    "taken_dim", "taken_blocks", "gradient_ratio", "loc",      "scope"};
enum ParamKey : unsigned {
  RoleKey = ValueKeyCount,
  NameKey,
  GradKey,
  DriftedKey,
  ObservedKey,
  SeparateKey,
  TakenKey,
  TakenDimKey,
  TakenBlocksKey,
  RatioKey,
  LocKey,
  ScopeKey
};

constexpr std::array<std::string_view, ClaimKeyCount + 3> kGradientKeys = {
    "dtype", "shape", "gshape", "mesh", "type", "spec", "scale", "step", "sync", "hints"};
enum GradientKey : unsigned { Step = ClaimKeyCount, SyncKey, HintsKey };

constexpr std::array<std::string_view, ClaimKeyCount + 4> kOutputKeys = {
    "dtype", "shape", "gshape", "mesh", "type", "spec", "scale", "value", "role", "of", "name"};
enum OutputKey : unsigned { OutputValue = ClaimKeyCount, OutputRoleKey, Of, OutputName };

} // namespace

void JsonReader::functions() {
  json_.object([&](llvm::StringRef name) {
    Token token = json_.at();
    if (!ir::starts_with(name, "@") || name.size() == 1) {
      json_.error(token, "trace-key",
                  fmt::format("`{}` is no name of a function, which is `@` and a word",
                              name.take_front(60).str()));
      return json_.skip();
    }
    function(name);
  });
}

void JsonReader::function(llvm::StringRef name) {
  auto members = object(kFunctionKeys);
  if (!members)
    return;
  FunctionId id = builder_.function(name);
  Function made;
  made.name = program_.functions[id].name;
  made.origin = json_.offset(members.token());
  made.opaque = members.has(Out) && !members.has(Ops) && !members.has(Results);
  require(members, Params, kFunctionKeys[Params]);
  if (!made.opaque) {
    require(members, Ops, kFunctionKeys[Ops]);
    require(members, Results, kFunctionKeys[Results]);
  }
  ContextId outer = context_;
  if (members.at(Ctx))
    if (std::optional<uint32_t> context = index(contexts_.size(), "contexts"))
      made.context = context_ = contexts_[*context];
  builder_.open_body();
  if (members.at(Params))
    function_params(made, mesh_of(context_));
  if (made.opaque && members.at(Out))
    json_.array([&](uint32_t) { made.outs.push_back(claim(mesh_of(context_), {})); });
  if (members.at(Ops))
    ops();
  operands_.clear();
  if (members.at(Results))
    operands(operands_);
  if (!made.opaque)
    made.results = program_.blocks.add(operands_);
  Body body = builder_.close_body();
  made.body = made.opaque ? Body() : body;
  context_ = outer;
  program_.functions[id] = std::move(made);
  builder_.mark_defined(id);
}

void JsonReader::function_params(Function &function, MeshId mesh) {
  json_.array([&](uint32_t) {
    auto members = object(kParamKeys);
    ValueId id = members ? define(members, mesh) : ValueId();
    if (!id.valid())
      return;
    FunctionParam param{.value = id, .grad = {}};
    if (members.at(GradKey))
      param.grad = claim(mesh_of(id), rank_of(id));
    function.params.push_back(param);
  });
}

void JsonReader::params() {
  json_.array([&](uint32_t) { param(); });
}

void JsonReader::param() {
  auto members = object(kParamKeys);
  if (!members)
    return;
  Param param;
  uint64_t origin = json_.offset(members.token());
  param.value = define(members, mesh_of(context_), false);
  require(members, RoleKey, kParamKeys[RoleKey]);
  if (members.at(RoleKey))
    enumeration(kRoleWords, "role", param.role);
  if (members.at(NameKey))
    param.name = text();
  if (members.at(GradKey) && param.value.valid())
    param.grad = gradient(mesh_of(param.value), rank_of(param.value));
  if (members.at(DriftedKey) && param.value.valid())
    param.drifted = declared_axes(mesh_of(param.value));
  if (members.at(ObservedKey) && param.value.valid())
    param.observed = declared_axes(mesh_of(param.value));
  if (members.at(SeparateKey) && param.value.valid())
    param.separate = declared_axes(mesh_of(param.value));
  if (members.at(TakenKey) && param.value.valid())
    param.taken = declared_axes(mesh_of(param.value));
  if (members.at(TakenDimKey))
    param.taken_dim = json_.integer(0).value_or(0);
  if (members.at(TakenBlocksKey))
    param.taken_blocks = json_.integer(1).value_or(1);
  if (members.at(RatioKey))
    if (std::optional<JsonCursor::Number> ratio = json_.number())
      param.gradient_ratio = ratio->whole ? static_cast<double>(ratio->integer) : ratio->real;
  param.loc = location(members, LocKey, ScopeKey);
  if (!param.value.valid())
    return;
  if (members.at(GradOfKey)) {
    Token token = json_.at();
    if (std::optional<ValueName> of = value_name())
      late_gradients_.push_back({param.value, *of, json_.offset(token), json_.path_of(token)});
  }
  program_.params.push_back(std::move(param));
  program_.param_origins.push_back(origin);
}

// In a joint program the gradient of a result may come in as a parameter.
void JsonReader::late_gradients() {
  for (LateGradient &late : late_gradients_)
    if (std::optional<ValueId> of = builder_.lookup(late.of))
      program_.values[late.value].grad_of = *of;
    else
      json_.error_at(late.offset, "trace-reference",
                     fmt::format("`{}` is not defined", print(late.of, program_.strings)),
                     std::move(late.path));
}

GradContract JsonReader::gradient(MeshId mesh, std::optional<unsigned> rank) {
  GradContract contract{.grad = {}, .step = {}, .sync = {}, .hints = {}, .stated = true};
  auto members = object(kGradientKeys);
  if (members.has(TypeKey) || members.has(SpecKey) || members.has(ScaleKey))
    if (Claim grad = claim_of(members, stated_mesh(members, mesh), rank); !(grad == Claim()))
      contract.grad = program_.claims.add(grad);
  if (members.at(Step))
    contract.step = claim(mesh, rank);
  if (members.at(SyncKey))
    syncs(contract.sync, mesh);
  if (members.at(HintsKey))
    hints(contract.hints, mesh);
  return contract;
}

void JsonReader::syncs(std::vector<Sync> &out, MeshId mesh) {
  static constexpr std::array<std::string_view, 2> kKeys = {"axis", "op"};
  json_.array([&](uint32_t) {
    auto members = object(kKeys);
    require(members, 0, kKeys[0]);
    Sync sync;
    if (members.at(0))
      sync.axes = declared_axes(mesh);
    if (members.at(1))
      enumeration(llvm::ArrayRef(kCombinerWords).take_front(2), "reduction", sync.op, 0);
    if (sync.axes.valid())
      out.push_back(sync);
  });
}

void JsonReader::hints(std::vector<SyncHint> &out, MeshId mesh) {
  static constexpr std::array<std::string_view, 2> kKeys = {"axis", "text"};
  json_.array([&](uint32_t) {
    auto members = object(kKeys);
    require(members, 0, kKeys[0]);
    require(members, 1, kKeys[1]);
    SyncHint hint;
    if (members.at(0))
      hint.axes = declared_axes(mesh);
    if (members.at(1))
      hint.text = text();
    if (hint.axes.valid() && hint.text.valid())
      out.push_back(hint);
  });
}

void JsonReader::outputs() {
  json_.array([&](uint32_t) { output(); });
}

void JsonReader::output() {
  auto members = object(kOutputKeys);
  require(members, OutputValue, kOutputKeys[OutputValue]);
  Output output;
  output.origin = json_.offset(members.token());
  if (members.at(OutputValue))
    output.value = value_ref();
  if (members.at(OutputRoleKey))
    enumeration(kOutputRoleWords, "role", output.role);
  if (members.at(Of))
    output.of = value_ref();
  if (members.at(OutputName))
    output.name = text();
  if (!output.value.valid())
    return;
  MeshId mesh = stated_mesh(members, mesh_of(output.value));
  output.declared = claim_of(members, mesh, rank_of(output.value)).type;
  program_.outputs.push_back(output);
}

} // namespace spmd::ir
