// A gradient may be named before it is defined: it is looked up when all ops have been read.
#include "ir/json/read/declarations.h"

#include "llvm/ADT/STLExtras.h"

#include <fmt/format.h>

namespace spmd::ir {

namespace {

constexpr std::array<std::string_view, ValueKeyCount + 14> kParamKeys = {
    "dtype",        "shape",          "gshape",     "mesh",     "type",     "spec",  "scale",
    "id",           "requires_grad",  "grad_of",    "alias_of", "role",     "name",  "grad",
    "drifted",      "drifts_later",   "drift_step", "observed", "separate", "taken", "taken_dim",
    "taken_blocks", "gradient_ratio", "loc",        "scope"};
enum ParamKey : unsigned {
  RoleKey = ValueKeyCount,
  NameKey,
  GradKey,
  DriftedKey,
  DriftsLaterKey,
  DriftStepKey,
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

void JsonDeclarationReader::function_params(Function &function, MeshId mesh) {
  json_.array([&](uint32_t) {
    auto members = object(kParamKeys);
    ValueId id = members ? values_.define(members, mesh) : ValueId();
    if (!id.valid())
      return;
    FunctionParam param{.value = id, .grad = {}};
    if (members.at(GradKey))
      param.grad = types_.claim(values_.mesh_of(id), types_.rank_of(id));
    function.params.push_back(param);
  });
}

void JsonDeclarationReader::params() {
  json_.array([&](uint32_t) { param(); });
}

void JsonDeclarationReader::param() {
  auto members = object(kParamKeys);
  if (!members)
    return;
  Param param;
  uint64_t origin = json_.offset(members.token());
  param.value = values_.define(members, mesh_of(in_.context), false);
  require(members, RoleKey, kParamKeys[RoleKey]);
  if (members.at(RoleKey))
    enumeration(kRoleWords, "role", param.role);
  if (members.at(NameKey))
    param.name = text();
  if (members.at(GradKey) && param.value.valid())
    param.grad = gradient(values_.mesh_of(param.value), types_.rank_of(param.value));
  if (members.at(DriftedKey) && param.value.valid())
    param.drifted = types_.declared_axes(values_.mesh_of(param.value));
  if (members.at(DriftsLaterKey) && param.value.valid())
    param.drifts_later = types_.declared_axes(values_.mesh_of(param.value));
  if (members.at(DriftStepKey))
    param.drift_step = json_.integer(1).value_or(1);
  if (members.at(ObservedKey) && param.value.valid())
    param.observed = types_.declared_axes(values_.mesh_of(param.value));
  if (members.at(SeparateKey) && param.value.valid())
    param.separate = types_.declared_axes(values_.mesh_of(param.value));
  if (members.at(TakenKey) && param.value.valid())
    param.taken = types_.declared_axes(values_.mesh_of(param.value));
  if (members.at(TakenDimKey))
    param.taken_dim = json_.integer(0).value_or(0);
  if (members.at(TakenBlocksKey))
    param.taken_blocks = json_.integer(1).value_or(1);
  if (members.at(RatioKey))
    if (std::optional<JsonCursor::Number> ratio = json_.number())
      param.gradient_ratio = ratio->whole ? static_cast<double>(ratio->integer) : ratio->real;
  param.loc = tables_.location(members, LocKey, ScopeKey);
  if (!param.value.valid())
    return;
  if (members.at(GradOfKey)) {
    Token token = json_.at();
    if (std::optional<ValueName> of = values_.value_name())
      late_gradients_.push_back({param.value, *of, json_.offset(token), json_.path_of(token)});
  }
  program_.params.push_back(std::move(param));
  program_.param_origins.push_back(origin);
}

// In a joint program the gradient of a result may come in as a parameter.
void JsonDeclarationReader::late_gradients() {
  for (LateGradient &late : late_gradients_)
    if (std::optional<ValueId> of = builder_.lookup(late.of))
      program_.values[late.value].grad_of = *of;
    else
      json_.error_at(late.offset, "trace-reference",
                     fmt::format("`{}` is not defined", print(late.of, program_.strings)),
                     std::move(late.path));
}

GradContract JsonDeclarationReader::gradient(MeshId mesh, std::optional<unsigned> rank) {
  GradContract contract{.grad = {}, .step = {}, .sync = {}, .hints = {}, .stated = true};
  auto members = object(kGradientKeys);
  if (members.has(TypeKey) || members.has(SpecKey) || members.has(ScaleKey))
    if (Claim grad = types_.claim_of(members, types_.stated_mesh(members, mesh), rank);
        !(grad == Claim()))
      contract.grad = program_.claims.add(grad);
  if (members.at(Step))
    contract.step = types_.claim(mesh, rank);
  if (members.at(SyncKey))
    syncs(contract.sync, mesh);
  if (members.at(HintsKey))
    hints(contract.hints, mesh);
  return contract;
}

void JsonDeclarationReader::syncs(std::vector<Sync> &out, MeshId mesh) {
  static constexpr std::array<std::string_view, 2> kKeys = {"axis", "op"};
  json_.array([&](uint32_t) {
    auto members = object(kKeys);
    require(members, 0, kKeys[0]);
    Sync sync;
    if (members.at(0))
      sync.axes = types_.declared_axes(mesh);
    if (members.at(1))
      enumeration(llvm::ArrayRef(kCombinerWords).take_front(2), "reduction", sync.op, 0);
    if (sync.axes.valid())
      out.push_back(sync);
  });
}

void JsonDeclarationReader::hints(std::vector<SyncHint> &out, MeshId mesh) {
  static constexpr std::array<std::string_view, 2> kKeys = {"axis", "text"};
  json_.array([&](uint32_t) {
    auto members = object(kKeys);
    require(members, 0, kKeys[0]);
    require(members, 1, kKeys[1]);
    SyncHint hint;
    if (members.at(0))
      hint.axes = types_.declared_axes(mesh);
    if (members.at(1))
      hint.text = text();
    if (hint.axes.valid() && hint.text.valid())
      out.push_back(hint);
  });
}

void JsonDeclarationReader::outputs() {
  json_.array([&](uint32_t) { output(); });
}

void JsonDeclarationReader::output() {
  auto members = object(kOutputKeys);
  require(members, OutputValue, kOutputKeys[OutputValue]);
  Output output;
  output.origin = json_.offset(members.token());
  if (members.at(OutputValue))
    output.value = values_.value_ref();
  if (members.at(OutputRoleKey))
    enumeration(kOutputRoleWords, "role", output.role);
  if (members.at(Of))
    output.of = values_.value_ref();
  if (members.at(OutputName))
    output.name = text();
  if (!output.value.valid())
    return;
  MeshId mesh = types_.stated_mesh(members, values_.mesh_of(output.value));
  output.declared = types_.claim_of(members, mesh, types_.rank_of(output.value)).type;
  program_.outputs.push_back(output);
}

} // namespace spmd::ir
