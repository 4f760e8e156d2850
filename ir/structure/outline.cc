// Layers are found by their scopes, compared by a fingerprint in which values are numbered by first
// use, and rebuilt as one function each. Relies on the main body being the last one of the program.
#include "ir/structure/outline.h"

#include "ir/boundary_ops.h"

#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/STLFunctionalExtras.h"
#include "llvm/ADT/StringExtras.h"

#include <fmt/format.h>

#include <deque>
#include <map>

namespace spmd::ir {
namespace {

constexpr uint32_t kMinRun = 3; // a call in place of fewer is no gain

// `decoder.layers.7.mlp.0` is layer `decoder.layers.7`: the first part that is a number ends it.
llvm::StringRef layer_of(llvm::StringRef scope) {
  size_t at = 0;
  while (at < scope.size()) {
    size_t end = std::min(scope.find('.', at), scope.size());
    llvm::StringRef part = scope.slice(at, end);
    if (at > 0 && !part.empty() && llvm::all_of(part, llvm::isDigit))
      return scope.take_front(end);
    at = end + 1;
  }
  return {};
}

// Instructions [first, last) of one layer, and what they exchange with the rest of the program.
struct Run {
  uint32_t first, last;
  std::string layer;
  std::vector<ValueId> inputs; // in order of first use
  std::vector<ValueId> made;   // results, in order
  std::vector<bool> used;      // per result: outside the run
  std::vector<uint32_t> print; // equal for runs that do the same
  bool whole = true;           // false: a function could not say it
};

class Outliner {
public:
  explicit Outliner(Program &program) : program_(program) {}
  size_t run();

private:
  llvm::StringRef scope_of(const Inst &inst) const {
    StringId scope = inst.loc.valid() ? program_.locs[inst.loc].scope : StringId();
    return scope.valid() ? program_.strings[scope] : llvm::StringRef();
  }
  void find_runs();
  void find_uses();
  void describe(Run &run);
  void describe(OperandsId block, Run &run);
  void add_value(ValueId id, Run &run);
  FunctionId make_function(const Run &model, const std::vector<bool> &returned);
  OperandsId rename(OperandsId block, const llvm::DenseMap<uint32_t, ValueId> &params);
  Inst inner(Inst inst, llvm::StringRef layer);
  Inst call(const Run &run, FunctionId function, const std::vector<bool> &returned);
  ValueId root(ValueId id) const;
  bool hides_storage(const Run &run) const;
  void keep(uint32_t index);
  ValueId renamed(ValueId id) const;
  using Groups = std::map<std::vector<uint32_t>, std::vector<size_t>>; // by fingerprint
  void make_functions(const Groups &equal);
  void rebuild();
  void rename_references(llvm::function_ref<InstId(InstId)> renumbered);
  std::string function_name(llvm::StringRef layer);

  struct Call {
    FunctionId function;
    const std::vector<bool> *returned; // per result of the run
  };
  Program &program_;
  std::vector<Run> runs_;
  llvm::DenseMap<size_t, Call> calls_; // by run
  std::deque<std::vector<bool>> returned_;
  std::vector<Inst> insts_; // of the program that is made
  std::vector<uint64_t> origins_;
  std::vector<uint32_t>
      last_use_; // per value: the last instruction of the main body; ~0: an output
  llvm::DenseMap<uint32_t, std::pair<uint32_t, uint32_t>> writes_; // of a storage: first and last
  std::vector<uint32_t> place_;               // per value: its number in the run that is described
  llvm::DenseSet<uint32_t> tied_;             // instructions with accepted findings or assertions
  llvm::DenseMap<uint32_t, ValueId> renamed_; // what a call returns in place of a value
};

void Outliner::find_uses() {
  last_use_.assign(program_.values.size(), 0);
  auto use = [&](ValueId id, uint32_t by) {
    if (id.valid())
      last_use_[id.index] = std::max(last_use_[id.index], by);
  };
  std::vector<OperandsId> open;
  for (uint32_t i = program_.main.first.index; i < program_.main.last.index; ++i) {
    const Inst &inst = program_.insts[InstId{i}];
    for (open = {inst.operands}; !open.empty();) {
      OperandsId block = open.back();
      open.pop_back();
      for (const Operand &operand : program_.operand_lists[block])
        if (operand.is_value()) {
          use(operand.as_value(), i);
          if (operand.mut)
            writes_.try_emplace(root(operand.as_value()).index, i, i).first->second.second = i;
        } else if (operand.form == Operand::Form::List)
          open.push_back(operand.as_list());
    }
    for (const Attr &attr : program_.attrs[inst.attrs].attrs)
      if (attr.value.form == AttrForm::Value)
        use(attr.value.as<ValueId>(), i);
    use(inst.bwd_of, i);
    for (uint32_t r = 0; r < inst.result_count; ++r) {
      use(program_.values[inst.result(r)].alias_of, i);
      use(program_.values[inst.result(r)].grad_of, i);
    }
  }
  for (const Param &param : program_.params)
    use(program_.values[param.value].grad_of, ~0u);
  for (const Output &output : program_.outputs) {
    use(output.value, ~0u);
    use(output.of, ~0u);
  }
}

// Numbers a value: results of the run count from 0 up, inputs from the other end down.
void Outliner::add_value(ValueId id, Run &run) {
  uint32_t &place = place_[id.index];
  if (place == 0) {
    run.inputs.push_back(id);
    place = ~static_cast<uint32_t>(run.inputs.size());
  }
  run.print.push_back(place);
}

void Outliner::describe(OperandsId block, Run &run) {
  for (const Operand &operand : program_.operand_lists[block]) {
    run.print.push_back(static_cast<uint32_t>(operand.form) << 1 | operand.mut);
    switch (operand.form) {
    case Operand::Form::Value:
      // What the run made has its number, counted from 1.
      run.whole &= !operand.mut || place_[operand.index] - 1 < run.made.size();
      add_value(operand.as_value(), run);
      break;
    case Operand::Form::Literal: {
      const AttrValue &literal = program_.literals[operand.index];
      for (uint64_t word : {uint64_t(literal.form), literal.bits}) {
        run.print.push_back(static_cast<uint32_t>(word));
        run.print.push_back(static_cast<uint32_t>(word >> 32));
      }
      break;
    }
    case Operand::Form::List:
      run.print.push_back(static_cast<uint32_t>(program_.operand_lists[operand.as_list()].size()));
      describe(operand.as_list(), run);
      break;
    case Operand::Form::Name:
      run.print.push_back(operand.index);
      break;
    }
  }
}

void Outliner::describe(Run &run) {
  for (uint32_t i = run.first; i < run.last; ++i) {
    const Inst inst = program_.insts[InstId{i}];
    run.whole &= !inst.bwd_of.valid() && !tied_.count(i);
    std::string scope = scope_of(inst).drop_front(run.layer.size()).str();
    run.print.insert(run.print.end(),
                     {inst.op.index, inst.attrs.index, inst.context.index,
                      static_cast<uint32_t>(inst.phase), inst.result_count,
                      program_.strings.add(scope).index,
                      static_cast<uint32_t>(program_.operand_lists[inst.operands].size())});
    for (const Attr &attr : program_.attrs[inst.attrs].attrs)
      run.whole &= attr.value.form != AttrForm::Value;
    describe(inst.operands, run);
    for (uint32_t r = 0; r < inst.result_count; ++r) {
      ValueId id = inst.result(r);
      const Value &value = program_.values[id];
      run.whole &= !value.grad_of.valid();
      run.print.insert(run.print.end(),
                       {value.declared.index, value.shape.index, value.global_shape.index,
                        value.mesh.index, static_cast<uint32_t>(value.requires_grad)});
      if (value.alias_of.valid())
        add_value(value.alias_of, run);
      run.made.push_back(id);
      place_[id.index] = static_cast<uint32_t>(run.made.size());
      run.used.push_back(last_use_[id.index] >= run.last);
    }
  }
  run.whole &= !hides_storage(run);
  for (ValueId id : run.inputs)
    place_[id.index] = 0;
  for (ValueId id : run.made)
    place_[id.index] = 0;
}

void Outliner::find_runs() {
  for (uint32_t i = program_.main.first.index; i < program_.main.last.index; ++i) {
    llvm::StringRef layer = layer_of(scope_of(program_.insts[InstId{i}]));
    bool same =
        !runs_.empty() && runs_.back().last == i && llvm::StringRef(runs_.back().layer) == layer;
    if (!same)
      runs_.push_back({.first = i, .last = i, .layer = layer.str(), .whole = !layer.empty()});
    runs_.back().last = i + 1;
  }
}

OperandsId Outliner::rename(OperandsId block, const llvm::DenseMap<uint32_t, ValueId> &params) {
  llvm::ArrayRef<Operand> old = program_.operand_lists[block];
  llvm::SmallVector<Operand, 8> operands(old.begin(), old.end()); // interning moves blocks
  for (Operand &operand : operands) {
    if (operand.is_value()) {
      auto at = params.find(operand.index);
      if (at != params.end())
        operand.index = at->second.index;
    } else if (operand.form == Operand::Form::List) {
      operand.index = rename(operand.as_list(), params).index;
    }
  }
  return program_.operand_lists.add(operands);
}

// The number of the layer is a `*` in a function that all of them call.
Inst Outliner::inner(Inst inst, llvm::StringRef layer) {
  Location where = program_.locs[inst.loc];
  std::string scope = program_.strings[where.scope].drop_front(layer.size()).str();
  where.scope = program_.strings.add((layer.rsplit('.').first + ".*").str() + scope);
  inst.loc = program_.locs.add(where);
  return inst;
}

std::string Outliner::function_name(llvm::StringRef layer) {
  std::string name = "@";
  for (char c : layer.rsplit('.').first)
    name += llvm::isAlnum(c) ? c : '_';
  auto taken = [&](const std::string &word) {
    return llvm::any_of(program_.functions, [&](const Function &function) {
      return program_.strings[function.name] == word;
    });
  };
  std::string unique = name;
  for (unsigned i = 1; taken(unique); ++i)
    unique = fmt::format("{}_{}", name, i);
  return unique;
}

FunctionId Outliner::make_function(const Run &model, const std::vector<bool> &returned) {
  Function function;
  function.name = program_.strings.add(function_name(model.layer));
  llvm::DenseSet<uint32_t> names;
  for (ValueId id : model.made)
    names.insert(program_.values[id].name.bits);
  llvm::DenseMap<uint32_t, ValueId> params;
  for (ValueId id : model.inputs) {
    Value param;
    unsigned number = static_cast<unsigned>(params.size());
    do
      param.name = make_name(fmt::format("p{}", number++), program_.strings);
    while (!names.insert(param.name.bits).second);
    param.shape = program_.values[id].shape;
    params[id.index] = program_.values.add(param);
    function.params.push_back({.value = params[id.index], .grad = {}});
  }
  function.body.first = InstId{static_cast<uint32_t>(insts_.size())};
  for (uint32_t i = model.first; i < model.last; ++i) {
    Inst inst = inner(program_.insts[InstId{i}], model.layer);
    inst.operands = rename(inst.operands, params);
    for (uint32_t r = 0; r < inst.result_count; ++r)
      if (Value &value = program_.values[inst.result(r)]; value.alias_of.valid())
        if (auto at = params.find(value.alias_of.index); at != params.end())
          value.alias_of = at->second;
    insts_.push_back(inst);
    origins_.push_back(program_.origins[i]);
  }
  function.body.last = InstId{static_cast<uint32_t>(insts_.size())};
  llvm::SmallVector<Operand, 8> results;
  for (size_t r = 0; r < model.made.size(); ++r)
    if (returned[r])
      results.push_back(Operand::value(model.made[r]));
  function.results = program_.operand_lists.add(results);
  return program_.functions.add(std::move(function));
}

Inst Outliner::call(const Run &run, FunctionId function, const std::vector<bool> &returned) {
  const Inst &first = program_.insts[InstId{run.first}];
  Inst made;
  made.op = OpNameId{program_.strings.add(boundary_name(Boundary::Call)).index};
  AttrDict attrs;
  attrs.attrs.push_back({program_.strings.add("body"), AttrValue::function(function)});
  made.attrs = program_.attrs.add(std::move(attrs));
  llvm::SmallVector<Operand, 8> operands;
  for (ValueId id : run.inputs)
    operands.push_back(Operand::value(renamed(id)));
  made.operands = program_.operand_lists.add(operands);
  // The results of a call have ids of their own, one after the other.
  llvm::SmallVector<ValueId, 8> kept;
  for (size_t r = 0; r < run.made.size(); ++r)
    if (returned[r])
      kept.push_back(run.made[r]);
  made.result_count = static_cast<uint32_t>(kept.size());
  for (ValueId id : kept) {
    Value value = program_.values[id];
    value.alias_of = {};
    ValueId copy = program_.values.add(value);
    renamed_[id.index] = copy;
    if (!made.first_result.valid())
      made.first_result = copy;
  }
  made.context = first.context;
  made.loc = program_.locs.add(
      {.frame = program_.locs[first.loc].frame, .scope = program_.strings.add(run.layer)});
  return made;
}

ValueId Outliner::root(ValueId id) const {
  while (program_.values[id].alias_of.valid())
    id = program_.values[id].alias_of;
  return id;
}

// A result of a call has storage of its own. That a view did not matters only where its storage is
// written while it lives.
bool Outliner::hides_storage(const Run &run) const {
  for (size_t r = 0; r < run.made.size(); ++r) {
    auto writes = writes_.find(root(run.made[r]).index);
    if (!run.used[r] || writes == writes_.end())
      continue;
    auto [first, last] = writes->second;
    bool before = first >= run.last && last_use_[run.made[r].index] <= first;
    bool inside = first >= run.first && last < run.last;
    if (!before && !inside)
      return true;
  }
  return false;
}

ValueId Outliner::renamed(ValueId id) const {
  auto at = id.valid() ? renamed_.find(id.index) : renamed_.end();
  return at == renamed_.end() ? id : at->second;
}

void Outliner::keep(uint32_t index) {
  Inst inst = program_.insts[InstId{index}];
  inst.operands = rename(inst.operands, renamed_);
  inst.bwd_of = renamed(inst.bwd_of);
  AttrDict attrs = program_.attrs[inst.attrs];
  for (Attr &attr : attrs.attrs)
    if (attr.value.form == AttrForm::Value)
      attr.value = AttrValue::value(renamed(attr.value.as<ValueId>()));
  inst.attrs = program_.attrs.add(std::move(attrs));
  for (uint32_t r = 0; r < inst.result_count; ++r) {
    Value &value = program_.values[inst.result(r)];
    value.alias_of = renamed(value.alias_of);
    value.grad_of = renamed(value.grad_of);
  }
  insts_.push_back(inst);
}

// One function for each group of equal runs, in the order of their first calls.
void Outliner::make_functions(const Groups &equal) {
  for (size_t i = 0; i < runs_.size(); ++i) {
    auto group = runs_[i].whole ? equal.find(runs_[i].print) : equal.end();
    if (group == equal.end() || group->second.size() < 2 || group->second.front() != i)
      continue;
    std::vector<bool> &used = returned_.emplace_back(runs_[i].used);
    for (size_t other : group->second)
      for (size_t r = 0; r < used.size(); ++r)
        used[r] = used[r] || runs_[other].used[r];
    FunctionId function = make_function(runs_[i], used);
    for (size_t other : group->second)
      calls_[other] = {function, &used};
  }
}

void Outliner::rebuild() {
  const uint32_t main = program_.main.first.index;
  std::vector<uint32_t> moved(program_.main.last.index, 0);
  uint32_t first = static_cast<uint32_t>(insts_.size());
  for (size_t i = 0; i < runs_.size(); ++i) {
    auto at = calls_.find(i);
    if (at != calls_.end()) {
      origins_.push_back(program_.origins[runs_[i].first]);
      insts_.push_back(call(runs_[i], at->second.function, *at->second.returned));
      continue;
    }
    for (uint32_t index = runs_[i].first; index < runs_[i].last; ++index) {
      moved[index] = static_cast<uint32_t>(insts_.size());
      origins_.push_back(program_.origins[index]);
      keep(index);
    }
  }
  program_.main = {InstId{first}, InstId{static_cast<uint32_t>(insts_.size())}};
  if (program_.op_count)
    program_.op_count = program_.main.size();
  program_.insts = {};
  program_.insts.append(std::move(insts_));
  program_.origins = std::move(origins_);
  rename_references([&](InstId id) { return id.index < main ? id : InstId{moved[id.index]}; });
}

// What names values and instructions from outside of the body.
void Outliner::rename_references(llvm::function_ref<InstId(InstId)> renumbered) {
  for (auto &[inst, finding] : program_.ignores)
    inst = renumbered(inst);
  for (Expectation &expectation : program_.expectations) {
    expectation.inst = renumbered(expectation.inst);
    expectation.value = renamed(expectation.value);
  }
  for (const Param &param : program_.params)
    program_.values[param.value].grad_of = renamed(program_.values[param.value].grad_of);
  for (Output &output : program_.outputs) {
    output.value = renamed(output.value);
    output.of = renamed(output.of);
  }
}

size_t Outliner::run() {
  for (const auto &[inst, finding] : program_.ignores)
    tied_.insert(inst.index);
  for (const Expectation &expectation : program_.expectations)
    tied_.insert(expectation.inst.index);
  find_uses();
  find_runs();
  place_.assign(program_.values.size(), 0);
  Groups equal;
  for (size_t i = 0; i < runs_.size(); ++i) {
    if (runs_[i].whole)
      describe(runs_[i]);
    if (runs_[i].whole && runs_[i].last - runs_[i].first >= kMinRun)
      equal[runs_[i].print].push_back(i);
  }
  llvm::ArrayRef<Inst> old = program_.insts.all();
  uint32_t main = program_.main.first.index;
  insts_.assign(old.begin(), old.begin() + main);
  origins_.assign(program_.origins.begin(), program_.origins.begin() + main);
  make_functions(equal);
  rebuild();
  return calls_.size();
}

} // namespace

size_t outline(Program &program) { return Outliner(program).run(); }

} // namespace spmd::ir
