// Bodies in the place of their calls.
#include "checker/rewrite/inline.h"

#include "checker/program_queries.h"

#include "ir/support/strings.h"
#include "rules/boundary/name.h"
#include "rules/ops/registry.h"

#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringExtras.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

namespace spmd::checker {

using ir::AxisSet;
using ir::Inst;
using ir::InstId;
using ir::Operand;
using ir::ValueId;

ir::OpNameId spmd_op(ir::Program &program, llvm::StringRef name) {
  return {program.strings.add(program.is_own_dialect() ? name.str() : "spmd." + name.str()).index};
}

BodyCopier::BodyCopier(ir::Program &program) : program_(program) {
  for (const ir::Value &value : program.values)
    names_.try_emplace(value.name.bits, 0);
}

ValueId BodyCopier::operator()(ValueId value) const {
  if (!value.valid())
    return value;
  auto found = values_.find(value.index);
  return found == values_.end() ? value : found->second;
}

void BodyCopier::replace(ValueId value, ValueId by) { values_[value.index] = by; }

ir::ValueName BodyCopier::fresh_name(std::string stem) {
  ir::ValueName name = ir::make_name(stem, program_.strings);
  for (auto [at, made] = names_.try_emplace(name.bits, 0); !made;) {
    // The counter belongs to the stem; names that are counted may be taken, too.
    uint32_t number = ++names_[ir::make_name(stem, program_.strings).bits];
    name = ir::make_name(fmt::format("{}_{}", stem, number), program_.strings);
    std::tie(at, made) = names_.try_emplace(name.bits, 0);
  }
  return name;
}

ValueId BodyCopier::copy(ValueId value) {
  ir::Value made = program_.values[value];
  std::string name = ir::print(made.name, program_.strings).substr(1);
  made.name = fresh_name(made.name.is_number() ? "v" + name : name);
  made.alias_of = (*this)(made.alias_of);
  made.grad_of = (*this)(made.grad_of);
  ValueId id = program_.values.add(made);
  replace(value, id);
  return id;
}

Operand BodyCopier::operator()(const Operand &operand) {
  Operand made = operand;
  if (operand.is_value())
    made.index = (*this)(operand.as_value()).index;
  if (operand.form == Operand::Form::List)
    made.index = (*this)(operand.as_list()).index;
  return made;
}

ir::OperandsId BodyCopier::operator()(ir::OperandsId block) {
  llvm::SmallVector<Operand, 8> operands(program_.operand_lists[block].begin(),
                                         program_.operand_lists[block].end());
  for (Operand &operand : operands)
    operand = (*this)(operand);
  return program_.operand_lists.add(operands);
}

Inst BodyCopier::copy(const Inst &inst, AxisSet local) {
  Inst made = inst;
  made.operands = (*this)(inst.operands);
  made.bwd_of = (*this)(inst.bwd_of);
  if (local) {
    ir::Context context = program_.contexts[inst.context];
    context.local |= local;
    made.context = program_.contexts.add(context);
  }
  for (uint32_t i = 0; i < inst.result_count; ++i) {
    ValueId result = copy(inst.result(i));
    if (i == 0)
      made.first_result = result;
  }
  return made;
}

void NewBody::add(const Inst &inst, uint64_t origin, InstId old) {
  insts.push_back(inst);
  origins.push_back(origin);
  from.push_back(old);
}

namespace {

// Replaces all instructions from `first` on, and tells what speaks of them where they are now.
void replace_from(ir::Program &program, uint32_t first, NewBody body) {
  std::map<uint32_t, uint32_t> moved;
  for (size_t i = 0; i < body.from.size(); ++i)
    if (body.from[i].valid())
      moved.try_emplace(body.from[i].index, first + static_cast<uint32_t>(i));
  std::vector<Inst> insts(program.insts.begin(), program.insts.begin() + first);
  insts.insert(insts.end(), body.insts.begin(), body.insts.end());
  program.insts = {};
  program.insts.append(std::move(insts));
  program.origins.resize(first);
  program.origins.insert(program.origins.end(), body.origins.begin(), body.origins.end());
  auto lost = [&](InstId &inst) {
    if (inst.index < first)
      return false;
    auto found = moved.find(inst.index);
    if (found != moved.end())
      inst.index = found->second;
    return found == moved.end();
  };
  llvm::erase_if(program.ignores, [&](auto &ignore) { return lost(ignore.first); });
  llvm::erase_if(program.expectations,
                 [&](ir::Expectation &expected) { return lost(expected.inst); });
}

} // namespace

void replace_main(ir::Program &program, NewBody main) {
  uint32_t first = program.main.first.index;
  replace_from(program, first, std::move(main));
  program.main.last = InstId{static_cast<uint32_t>(program.insts.size())};
}

void replace_each(ir::Program &program,
                  llvm::function_ref<void(const Inst &, InstId, std::vector<Inst> &)> emit) {
  std::vector<Inst> before(program.insts.begin(), program.insts.end()), made;
  std::vector<uint64_t> origins;
  std::vector<uint32_t> starts; // where the instruction of this index begins now
  for (uint32_t i = 0; i < before.size(); ++i) {
    starts.push_back(static_cast<uint32_t>(made.size()));
    emit(before[i], InstId{i}, made);
    SPMD_CHECK(made.size() > starts.back(), "an instruction has nothing in its place");
    origins.resize(made.size(), program.origins[i]);
  }
  starts.push_back(static_cast<uint32_t>(made.size()));
  program.insts = {};
  program.insts.append(std::move(made));
  program.origins = std::move(origins);
  auto move = [&](ir::Body &body) {
    body = {InstId{starts[body.first.index]}, InstId{starts[body.last.index]}};
  };
  move(program.main);
  for (uint32_t i = 0; i < program.functions.size(); ++i)
    if (ir::Function &function = program.functions[ir::FunctionId{i}]; !function.opaque)
      move(function.body);
  for (auto &ignore : program.ignores)
    ignore.first.index = starts[ignore.first.index + 1] - 1;
  for (ir::Expectation &expected : program.expectations)
    expected.inst.index = starts[expected.inst.index + 1] - 1;
}

ir::Body insert_body(ir::Program &program, NewBody body) {
  uint32_t first = program.main.first.index, length = static_cast<uint32_t>(body.insts.size());
  for (uint32_t i = first; i < program.main.last.index; ++i)
    body.add(program.insts[InstId{i}], program.origins[i], InstId{i});
  replace_from(program, first, std::move(body));
  program.main.first.index += length;
  program.main.last.index += length;
  return {InstId{first}, InstId{first + length}};
}

namespace {

class Inliner {
public:
  explicit Inliner(ir::Program &program) : program_(program), copier_(program) {}

  void run() {
    const uint32_t first = program_.main.first.index, last = program_.main.last.index;
    // Bodies that are put in front move the main body.
    std::vector<Inst> insts(program_.insts.begin() + first, program_.insts.begin() + last);
    std::vector<uint64_t> origins(program_.origins.begin() + first,
                                  program_.origins.begin() + last);
    NewBody main;
    for (uint32_t i = 0; i < insts.size(); ++i)
      add(insts[i], origins[i], InstId{i}, {}, false, main);
    for (InstId &old : main.from)
      if (old.valid())
        old.index += program_.main.first.index;
    replace_main(program_, std::move(main));
    for (ir::Output &output : program_.outputs)
      output.value = copier_(output.value);
  }

private:
  const rules::ResolvedOp &resolve(ir::OpNameId op) {
    auto [at, made] = ops_.try_emplace(op.index);
    if (made)
      at->second = rules::resolve_op(program_, op);
    return at->second;
  }

  // `inside`: of a body that is copied, so that its values are too.
  void add(const Inst &inst, uint64_t origin, InstId old, AxisSet local, bool inside,
           NewBody &out) {
    const rules::ResolvedOp &op = resolve(inst.op);
    bool loops = op.boundary == rules::Boundary::Scan || op.boundary == rules::Boundary::Cond ||
                 op.boundary == rules::Boundary::While;
    if (op.form == rules::OpForm::Call && !loops && splice(inst, op, origin, local, out))
      return;
    if (op.boundary == rules::Boundary::Alias && rederive(inst, origin, local, inside, out))
      return;
    Inst made = inside ? copier_.copy(inst, local) : inst;
    if (!inside)
      made.operands = copier_(inst.operands);
    if (loops)
      made.attrs = own_bodies(inst.attrs);
    out.add(made, origin, old);
  }

  std::optional<ir::FunctionId> function(ir::AttrsId attrs, llvm::StringRef role) const {
    const ir::AttrValue *attr = program_.find(attrs, role);
    if (!attr || attr->form != ir::AttrForm::Function)
      return std::nullopt;
    return attr->as<ir::FunctionId>();
  }
  void tensors(ir::OperandsId block, llvm::SmallVectorImpl<ValueId> &out) const {
    for (const Operand &operand : program_.operand_lists[block]) {
      if (operand.is_value())
        out.push_back(operand.as_value());
      if (operand.form == Operand::Form::List)
        tensors(operand.as_list(), out);
    }
  }
  AxisSet region(const Inst &inst) const {
    const ir::Mesh &mesh = program_.meshes[program_.contexts[inst.context].mesh];
    const ir::AttrValue *attr = program_.find(inst.attrs, "axis");
    AxisSet axes;
    if (attr && attr->form == ir::AttrForm::Axes)
      for (const ir::AxisRef &ref : program_.axis_refs[attr->as<ir::AxisRefsId>()].refs)
        if (std::optional<ir::AxisId> axis = mesh.find(ref.axis))
          axes |= mesh.pieces_of(*axis);
    return axes & mesh.typed_axes();
  }

  // False: the function is opaque, or gives back a number.
  bool splice(const Inst &inst, const rules::ResolvedOp &op, uint64_t origin, AxisSet local,
              NewBody &out) {
    std::optional<ir::FunctionId> id = function(inst.attrs, "body");
    if (!id || program_.functions[*id].opaque)
      return false;
    llvm::ArrayRef<Operand> results = program_.operand_lists[program_.functions[*id].results];
    llvm::SmallVector<Operand, 4> returned(results.begin(), results.end());
    if (llvm::any_of(returned, [](const Operand &operand) { return !operand.is_value(); }))
      return false;
    llvm::SmallVector<ValueId, 8> args;
    tensors(inst.operands, args);
    for (ValueId &arg : args)
      arg = copier_(arg);
    const AxisSet region_axes = op.boundary == rules::Boundary::LocalMap ? region(inst) : AxisSet();
    bind(*id, args);
    body(*id, local | region_axes, out);
    for (uint32_t i = 0; i < inst.result_count && i < returned.size(); ++i) {
      ValueId value = copier_(returned[i].as_value());
      if (region_axes)
        leave(inst, i, value, region_axes | local, origin, out);
      else
        copier_.replace(inst.result(i), value);
    }
    return true;
  }
  void bind(ir::FunctionId id, llvm::ArrayRef<ValueId> args) {
    for (size_t i = 0; i < program_.functions[id].params.size() && i < args.size(); ++i)
      copier_.replace(program_.functions[id].params[i].value, args[i]);
  }
  void body(ir::FunctionId id, AxisSet local, NewBody &out) {
    ir::Body body = program_.functions[id].body;
    for (uint32_t i = body.first.index; i < body.last.index; ++i)
      add(Inst(program_.insts[InstId{i}]), program_.origins[i], {}, local, true, out);
  }
  // A statement on a value made in a region says how its pieces join.
  void leave(const Inst &inst, uint32_t result, ValueId value, AxisSet local, uint64_t origin,
             NewBody &out) {
    Inst made;
    made.op = spmd_op(program_, "identity");
    made.attrs = program_.no_attrs();
    made.operands = program_.operand_lists.add({Operand::value(value)});
    made.first_result = copier_.copy(inst.result(result));
    made.result_count = 1;
    made.loc = inst.loc;
    ir::Context context = program_.contexts[inst.context];
    context.local |= local;
    made.context = program_.contexts.add(context);
    const ir::AttrValue *stated = program_.find(inst.attrs, "out_types");
    llvm::ArrayRef<ir::AttrValue> claims;
    if (stated && stated->form == ir::AttrForm::List)
      claims = program_.lists[stated->as<ir::AttrListId>()].items;
    if (result < claims.size() && claims[result].form == ir::AttrForm::Claim) {
      const ir::Claim &claim = program_.claims[claims[result].as<ir::ClaimId>()];
      ir::Value &leaving = program_.values[made.first_result];
      leaving.declared = claim.type.valid() ? claim.type : leaving.declared;
      leaving.global_shape = claim.global_shape.valid() ? claim.global_shape : leaving.global_shape;
    }
    out.add(made, origin);
  }

  // Functions that a loop or a branch runs, each with a body of its own.
  ir::AttrsId own_bodies(ir::AttrsId attrs) {
    ir::AttrDict dict = program_.attrs[attrs];
    for (ir::Attr &attr : dict.attrs)
      if (attr.value.form == ir::AttrForm::Function &&
          !program_.functions[attr.value.as<ir::FunctionId>()].opaque)
        attr.value = ir::AttrValue::function(own_body(attr.value.as<ir::FunctionId>()));
    return program_.attrs.add(std::move(dict));
  }
  ir::FunctionId own_body(ir::FunctionId id) {
    ir::Function made = program_.functions[id];
    made.name = fresh_function(program_.strings[made.name].str());
    for (ir::FunctionParam &param : made.params)
      param.value = copier_.copy(param.value);
    NewBody out;
    body(id, {}, out);
    made.results = copier_(made.results);
    made.body = insert_body(program_, std::move(out));
    return program_.functions.add(std::move(made));
  }
  ir::StringId fresh_function(const std::string &name) {
    for (unsigned number = 1;; ++number) {
      std::string text = fmt::format("{}_{}", name, number);
      bool taken = llvm::any_of(program_.functions.all(), [&](const ir::Function &function) {
        return program_.strings[function.name] == text;
      });
      if (!taken)
        return program_.strings.add(text);
    }
  }

  // The instruction that made a value, in what was put out so far; null if there is none.
  const Inst *maker(ValueId value, const NewBody &out) const {
    for (const Inst &inst : llvm::reverse(out.insts))
      if (value.index >= inst.first_result.index &&
          value.index < inst.first_result.index + inst.result_count)
        return &inst;
    return nullptr;
  }
  bool writes(const Inst &inst) const {
    return llvm::any_of(program_.operand_lists[inst.operands],
                        [](const Operand &operand) { return operand.mut; });
  }
  // `alias %new, %old`: the views that led from the old content to %old, taken of %new. False where
  // %new is itself a part of what was written.
  bool rederive(const Inst &inst, uint64_t origin, AxisSet local, bool inside, NewBody &out) {
    llvm::SmallVector<ValueId, 2> operands;
    tensors(inst.operands, operands);
    if (operands.size() != 2)
      return false;
    ValueId fresh = copier_(operands[0]), old = copier_(operands[1]);
    llvm::SmallVector<Inst, 4> views;
    for (ValueId at = old; program_.values[at].alias_of.valid();
         at = program_.values[at].alias_of) {
      const Inst *made = maker(at, out);
      if (!made || made->result_count != 1)
        return false;
      if (!writes(*made))
        views.push_back(*made);
    }
    for (ValueId at = fresh; program_.values[at].alias_of.valid();
         at = program_.values[at].alias_of)
      if (const Inst *made = maker(at, out); !made || !writes(*made))
        return false;
    ValueId base = fresh;
    for (const Inst &view : llvm::reverse(views)) {
      Inst made = view;
      ValueId result = &view == &views.front() && !inside ? inst.first_result
                       : &view == &views.front()          ? copier_.copy(inst.first_result)
                                                          : copier_.copy(view.first_result);
      llvm::ArrayRef<Operand> before = program_.operand_lists[view.operands];
      llvm::SmallVector<Operand, 8> block(before.begin(), before.end());
      for (Operand &operand : block)
        if (operand.is_value() && operand.as_value() == program_.values[view.first_result].alias_of)
          operand = Operand::value(base);
      made.operands = program_.operand_lists.add(block);
      made.first_result = result;
      made.loc = inst.loc;
      program_.values[result].alias_of = base;
      if (local) {
        ir::Context context = program_.contexts[made.context];
        context.local |= local;
        made.context = program_.contexts.add(context);
      }
      out.add(made, origin);
      base = result;
    }
    if (views.empty())
      copier_.replace(inst.first_result, fresh);
    return true;
  }

  ir::Program &program_;
  BodyCopier copier_;
  std::map<uint32_t, rules::ResolvedOp> ops_;
};

} // namespace

void inline_calls(ir::Program &program) { Inliner(program).run(); }

// The spelling of an op without the `_` that makes it write: `add_`, `aten.add_.Tensor`. None if it
// has none.
static std::optional<std::string> without_write(llvm::StringRef name) {
  llvm::SmallVector<llvm::StringRef, 4> words;
  name.split(words, '.');
  for (llvm::StringRef &word : words)
    if (word.size() > 1 && ir::ends_with(word, "_") && !ir::ends_with(word, "__")) {
      word = word.drop_back();
      return llvm::join(words, ".");
    }
  return std::nullopt;
}

void functionalize(ir::Program &program) {
  llvm::DenseSet<uint32_t> outside;
  for (const ir::Param &param : program.params)
    if (param.role != ir::Role::Input)
      outside.insert(param.value.index);
  const uint32_t first = program.main.first.index, last = program.main.last.index;
  for (uint32_t i = first; i < last; ++i)
    if (rules::boundary_of(program, program.insts[InstId{i}].op) == rules::Boundary::Alias)
      return;
  for (uint32_t i = first; i < last; ++i) {
    Inst &inst = program.insts[InstId{i}];
    llvm::ArrayRef<Operand> before = program.operand_lists[inst.operands];
    llvm::SmallVector<Operand, 8> operands(before.begin(), before.end());
    bool hidden = llvm::any_of(operands, [](const Operand &each) { return each.mut; });
    for (const Operand &each : operands)
      hidden &= !each.mut ||
                (each.is_value() && !outside.count(storage_of(program, each.as_value()).index));
    std::optional<std::string> name = without_write(program.op_name(inst.op));
    if (!hidden || !name)
      continue;
    for (Operand &each : operands)
      each.mut = false;
    inst.operands = program.operand_lists.add(operands);
    inst.op = ir::OpNameId{program.strings.add(*name).index};
    for (uint32_t r = 0; r < inst.result_count; ++r)
      program.values[inst.result(r)].alias_of = {};
  }
}

} // namespace spmd::checker
