// The order of a program: bodies apart, each value defined once and before its uses, no recursion.
// Relies on verify_ids(): tables are indexed without further checks.
#include "ir/structure/verify.h"

#include "llvm/ADT/STLExtras.h"

namespace spmd::ir {

namespace {

struct Call {
  FunctionId callee;
  InstId inst;
};

class OrderVerifier {
public:
  OrderVerifier(const Program &program, Findings &findings)
      : program_(program), findings_(findings), scope_of_(program.values.size()) {}

  void run() {
    check_bodies();
    if (!findings_.empty())
      return;
    for_each<FunctionId>(program_.functions, [&](FunctionId id) { check_function(id); });
    check_main();
    check_all_defined();
    check_calls();
  }

private:
  void check_bodies();
  void check_function(FunctionId id);
  void check_main();
  void check_all_defined();
  void check_calls();

  void fail(FunctionId caller, Call call, const char *what, const char *name = "trace-reference");
  void define(ValueId id, uint32_t scope);
  void use(ValueId id, uint32_t scope, const char *what);
  void use_block(OperandsId id, uint32_t scope);
  void check_inst(const Inst &inst, uint32_t scope);
  void walk(Body body, uint32_t scope);
  std::vector<Call> calls_in(const Function &function) const;

  // Scopes: the body that has defined a value so far, 0 for none.
  static constexpr uint32_t kMainScope = 1;
  static uint32_t scope_of(FunctionId id) { return id.index + kMainScope + 1; }
  static FunctionId function_of(uint32_t scope) {
    return scope == kMainScope ? FunctionId() : FunctionId{scope - kMainScope - 1};
  }

  const Program &program_;
  Findings &findings_;
  std::vector<uint32_t> scope_of_; // by value
};

void OrderVerifier::check_bodies() {
  std::vector<Body> bodies = {program_.main};
  for (const Function &function : program_.functions)
    if (!function.opaque)
      bodies.push_back(function.body);
  llvm::sort(bodies, [](Body a, Body b) {
    return std::pair(a.first, a.last) < std::pair(b.first, b.last);
  });
  findings_.at("ops");
  uint32_t end = 0;
  for (Body body : bodies) {
    if (body.first.index != end || body.last.index < end)
      return findings_.fail("bodies overlap or leave a gap at op " + std::to_string(end));
    end = body.last.index;
  }
  if (end != program_.insts.size())
    findings_.fail("op " + std::to_string(end) + " is in no body");
}

void OrderVerifier::define(ValueId id, uint32_t scope) {
  if (scope_of_[id.index] != 0)
    findings_.fail(print(program_.values[id].name, program_.strings) + " is defined twice",
                   "trace-duplicate");
  scope_of_[id.index] = scope;
}

void OrderVerifier::use(ValueId id, uint32_t scope, const char *what) {
  if (id.valid() && scope_of_[id.index] != scope)
    findings_.fail(std::string(what) + " " + print(program_.values[id].name, program_.strings) +
                   " is not defined before its use");
}

void OrderVerifier::use_block(OperandsId id, uint32_t scope) {
  for (Operand operand : program_.operand_lists[id]) {
    if (operand.is_value())
      use(operand.as_value(), scope, "operand");
    else if (operand.form == Operand::Form::List)
      use_block(operand.as_list(), scope);
  }
}

void OrderVerifier::check_inst(const Inst &inst, uint32_t scope) {
  use_block(inst.operands, scope);
  use(inst.bwd_of, scope, "`bwd_of`");
  for (const Attr &attr : program_.attrs[inst.attrs].attrs)
    if (attr.value.form == AttrForm::Value)
      use(attr.value.as<ValueId>(), scope, "attribute");
  for (uint32_t i = 0; i < inst.result_count; ++i) {
    const Value &value = program_.values[inst.result(i)];
    use(value.alias_of, scope, "`alias_of`");
    use(value.grad_of, scope, "`grad_of`");
  }
  for (uint32_t i = 0; i < inst.result_count; ++i)
    define(inst.result(i), scope);
}

void OrderVerifier::walk(Body body, uint32_t scope) {
  for (InstId id = body.first; id.index < body.last.index; ++id.index) {
    size_t place = id.index - body.first.index;
    findings_.at("ops", place, program_.origins[id.index], function_of(scope));
    check_inst(program_.insts[id], scope);
  }
}

void OrderVerifier::check_function(FunctionId id) {
  const Function &function = program_.functions[id];
  findings_.at("functions", id.index);
  for (const FunctionParam &param : function.params)
    define(param.value, scope_of(id));
  if (function.opaque)
    return;
  walk(function.body, scope_of(id));
  findings_.at("functions", id.index);
  use_block(function.results, scope_of(id));
}

void OrderVerifier::check_main() {
  auto each_param = [&](auto check) {
    for (const Param &param : program_.params) {
      findings_.at("params", &param - program_.params.data());
      check(param.value, program_.values[param.value]);
    }
  };
  each_param([&](ValueId id, const Value &value) {
    use(value.alias_of, kMainScope, "`alias_of`");
    define(id, kMainScope);
  });
  walk(program_.main, kMainScope);
  // The gradient of a result enters a joint program as a parameter, before the result is computed.
  each_param([&](ValueId, const Value &value) { use(value.grad_of, kMainScope, "`grad_of`"); });
  for (const Output &output : program_.outputs) {
    findings_.at("outputs", &output - program_.outputs.data(), output.origin);
    use(output.value, kMainScope, "output");
    use(output.of, kMainScope, "`of`");
  }
}

void OrderVerifier::check_all_defined() {
  auto undefined = llvm::find(scope_of_, 0u);
  if (undefined == scope_of_.end())
    return;
  findings_.at("values", undefined - scope_of_.begin());
  findings_.fail("a value has no definition");
}

std::vector<Call> OrderVerifier::calls_in(const Function &function) const {
  std::vector<Call> found;
  if (function.opaque)
    return found;
  for (InstId id = function.body.first; id.index < function.body.last.index; ++id.index)
    for (const Attr &attr : program_.attrs[program_.insts[id].attrs].attrs)
      if (attr.value.form == AttrForm::Function)
        found.push_back({attr.value.as<FunctionId>(), id});
  return found;
}

// Depth first with a stack of its own: chains of calls may be long.
void OrderVerifier::check_calls() {
  enum class State : uint8_t { Unmet, Open, Done };
  struct Visit {
    FunctionId id;
    std::vector<Call> rest;
  };
  std::vector<State> states(program_.functions.size(), State::Unmet);
  std::vector<uint32_t> heights(program_.functions.size(), 1); // of the calls below
  std::vector<Visit> stack;
  auto enter = [&](FunctionId id) {
    states[id.index] = State::Open;
    stack.push_back({id, calls_in(program_.functions[id])});
  };
  auto step = [&] {
    Visit &top = stack.back();
    if (top.rest.empty()) {
      states[top.id.index] = State::Done;
      return stack.pop_back();
    }
    Call call = top.rest.back();
    if (states[call.callee.index] == State::Unmet)
      return enter(call.callee); // and back to this call
    top.rest.pop_back();
    if (states[call.callee.index] == State::Open)
      return fail(top.id, call, "calls itself");
    uint32_t &height = heights[top.id.index];
    height = std::max(height, heights[call.callee.index] + 1);
    if (height == kMaxNesting + 1)
      fail(top.id, call, "is called more than 64 calls deep", "trace-limit");
  };
  for_each<FunctionId>(program_.functions, [&](FunctionId root) {
    if (states[root.index] == State::Unmet)
      enter(root);
    while (!stack.empty())
      step();
  });
}

void OrderVerifier::fail(FunctionId caller, Call call, const char *what, const char *name) {
  size_t place = call.inst.index - program_.functions[caller].body.first.index;
  findings_.at("ops", place, program_.origins[call.inst.index], caller);
  findings_.fail("function `" + program_.strings[program_.functions[call.callee].name].str() +
                     "` " + what,
                 name);
}

} // namespace

void verify_order(const Program &program, Findings &findings) {
  OrderVerifier(program, findings).run();
}

} // namespace spmd::ir
