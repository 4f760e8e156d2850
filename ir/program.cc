// Programs as containers, and the Builder that every reader fills one with.
// Relies on interned tables whose first entries are the defaults: scale 1, no attributes, no
// operands.
#include "ir/program.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"

namespace spmd::ir {

namespace {

// The two largest keys of a DenseMap are its own.
constexpr uint32_t kMaxNumberName = ValueName::kNumber - 3;

// Numbers that are far ahead of the names seen so far would make the fast table mostly holes.
bool dense_enough(uint32_t number, size_t table_size) { return number < 2 * table_size + 1024; }

} // namespace

Program::Program() {
  scales.add({});
  attrs.add({});
  contexts.add({});
}

AxisSet Program::local_axes(const Context &context) const {
  const Mesh &mesh = meshes[context.mesh];
  if (mode == Mode::Gradual)
    return {};
  AxisSet axes = context.local;
  for (AxisId axis : mesh.typed_axes()) {
    Policy policy = mesh[axis].policy;
    if (policy == Policy::Local || (mode == Mode::Local && policy != Policy::Global))
      axes |= axis;
  }
  return axes;
}

const AttrValue *Program::find(AttrsId id, llvm::StringRef key) const {
  for (const Attr &attr : attrs[id].attrs)
    if (strings[attr.key] == key)
      return &attr.value;
  return nullptr;
}

const Param *Program::find_param(ValueId value) const {
  const auto at = llvm::partition_point(
      params, [&](const Param &param) { return param.value.index < value.index; });
  return at != params.end() && at->value == value ? &*at : nullptr;
}

std::string print(ValueName name, const StringTable &names) {
  if (name.is_number())
    return "%" + std::to_string(name.bits & ~ValueName::kNumber);
  return "%" + names[StringId{name.bits}].str();
}

ValueName make_name(llvm::StringRef text, StringTable &names) {
  bool padded = text.size() > 1 && text.front() == '0';
  uint32_t number = 0;
  bool digits = !text.empty() && llvm::all_of(text, llvm::isDigit);
  if (digits && !padded && !text.getAsInteger(10, number) && number <= kMaxNumberName)
    return ValueName::number(number);
  return ValueName::text(names.add(text));
}

void Builder::open_body() { bodies_.emplace_back(); }

Body Builder::close_body() {
  SPMD_CHECK(!bodies_.empty(), "no body is open");
  OpenBody open = std::move(bodies_.back());
  bodies_.pop_back();
  uint32_t first = static_cast<uint32_t>(program.insts.size());
  program.insts.append(std::move(open.insts));
  if (program.origins.empty())
    program.origins = std::move(open.origins);
  else
    program.origins.insert(program.origins.end(), open.origins.begin(), open.origins.end());

  llvm::stable_sort(open.ignores, llvm::less_first());
  for (auto [index, finding] : open.ignores)
    program.ignores.push_back({InstId{first + index}, finding});
  llvm::stable_sort(open.expectations, llvm::less_first());
  for (auto &[index, expectation] : open.expectations) {
    expectation.inst = InstId{first + index};
    program.expectations.push_back(std::move(expectation));
  }
  return {InstId{first}, InstId{static_cast<uint32_t>(program.insts.size())}};
}

std::optional<ValueId> Builder::lookup(ValueName name) const {
  const OpenBody &body = bodies_.back();
  if (name.is_number()) {
    uint32_t number = name.bits & ~ValueName::kNumber;
    if (number < body.by_number.size() && body.by_number[number].valid())
      return body.by_number[number];
  }
  auto found = body.by_name.find(name.bits);
  return found == body.by_name.end() ? std::nullopt : std::optional<ValueId>(found->second);
}

std::optional<ValueId> Builder::define(Value value) {
  if (lookup(value.name))
    return std::nullopt;
  ValueId id = program.values.add(value);
  OpenBody &body = bodies_.back();
  uint32_t number = value.name.bits & ~ValueName::kNumber;
  if (value.name.is_number() && dense_enough(number, body.by_number.size())) {
    if (number >= body.by_number.size())
      body.by_number.resize(number + 1);
    body.by_number[number] = id;
  } else {
    body.by_name[value.name.bits] = id;
  }
  return id;
}

FunctionId Builder::function(llvm::StringRef name) {
  StringId text = string(name);
  auto [at, inserted] = functions_.try_emplace(text.index);
  if (inserted) {
    Function made;
    made.name = text;
    at->second = program.functions.add(std::move(made));
    defined_.resize(program.functions.size());
  }
  return at->second;
}

bool Builder::is_defined(FunctionId id) const { return defined_[id.index]; }

void Builder::mark_defined(FunctionId id) { defined_[id.index] = true; }

uint32_t Builder::add(Inst inst, uint64_t origin) {
  SPMD_CHECK(inst.result_count == 0 ||
                 uint64_t(inst.first_result.index) + inst.result_count == program.values.size(),
             "results are not the values defined last");
  OpenBody &body = bodies_.back();
  body.insts.push_back(inst);
  body.origins.push_back(origin);
  return static_cast<uint32_t>(body.insts.size() - 1);
}

void Builder::ignore(uint32_t index, StringId finding) {
  bodies_.back().ignores.push_back({index, finding});
}

void Builder::expect(uint32_t index, Expectation expectation) {
  bodies_.back().expectations.push_back({index, std::move(expectation)});
}

AttrsId Builder::attrs(AttrDict dict) {
  sort_canonically(dict, program.strings);
  return program.attrs.add(std::move(dict));
}

uint32_t Builder::literal(AttrValue value) {
  program.literals.push_back(value);
  return static_cast<uint32_t>(program.literals.size() - 1);
}

LocId Builder::location(FrameId frame, StringId scope) {
  if (!frame.valid() && !scope.valid())
    return {};
  // Neighbours often share their place; others hardly ever do.
  Location place{frame, scope};
  LocId last{static_cast<uint32_t>(program.locs.size() - 1)};
  if (!program.locs.empty() && program.locs[last] == place)
    return last;
  return program.locs.add(place);
}

} // namespace spmd::ir
