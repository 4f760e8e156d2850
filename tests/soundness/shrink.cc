// Delta debugging on statements, last ones first, until no step makes the draft smaller.
#include "tests/soundness/shrink.h"

#include "ir/dialect/print_type.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SmallSet.h"

namespace spmd::soundness {

namespace {

bool uses(const Statement &statement, const llvm::SmallSet<unsigned, 16> &values) {
  return llvm::any_of(statement.operands, [&](const Operand &operand) {
    return llvm::any_of(operand.values, [&](unsigned id) { return values.count(id) != 0; });
  });
}

// Without statement `at` and all that needs it.
Draft without(const Draft &draft, size_t at) {
  Draft less = draft;
  llvm::SmallSet<unsigned, 16> gone;
  less.statements.clear();
  for (size_t i = 0; i < draft.statements.size(); ++i) {
    const Statement &statement = draft.statements[i];
    if (i == at || uses(statement, gone))
      for (unsigned id : statement.results)
        gone.insert(id);
    else
      less.statements.push_back(statement);
  }
  return less;
}

void replace(Draft &draft, unsigned from, unsigned to) {
  for (Statement &statement : draft.statements)
    for (Operand &operand : statement.operands)
      for (unsigned &id : operand.values)
        id = id == from ? to : id;
}

// Its uses take an operand instead.
std::optional<Draft> bypassed(const Draft &draft, size_t at, unsigned operand) {
  const Statement &statement = draft.statements[at];
  llvm::SmallVector<unsigned, 4> values;
  for (const Operand &each : statement.operands)
    values.append(each.values.begin(), each.values.end());
  if (statement.results.size() != 1 || operand >= values.size())
    return std::nullopt;
  Draft less = draft;
  less.statements.erase(less.statements.begin() + static_cast<ptrdiff_t>(at));
  replace(less, statement.results[0], values[operand]);
  return less;
}

// Its result is an input of the type that it has.
std::optional<Draft> declared(const Draft &draft, size_t at, const Checked &checked) {
  const Statement &statement = draft.statements[at];
  if (statement.declares() || statement.results.size() != 1)
    return std::nullopt;
  ir::ValueId value = checked.ids[statement.results[0]];
  if (!value.valid() || !checked.result.types[value.index].valid() ||
      !checked.result.shapes[value.index].valid())
    return std::nullopt;
  Draft less = draft;
  Statement input;
  input.role = "input";
  input.results = statement.results;
  input.type =
      ir::print_type(checked.program, checked.program.types[checked.result.types[value.index]],
                     checked.result.shapes[value.index]);
  less.statements.erase(less.statements.begin() + static_cast<ptrdiff_t>(at));
  less.statements.insert(less.statements.begin(), std::move(input));
  return less;
}

class Shrinker {
public:
  Shrinker(Draft draft, llvm::function_ref<bool(const Draft &)> fails)
      : draft_(std::move(draft)), fails_(fails) {}

  Draft run() {
    for (bool smaller = true; smaller && tries_ < kMostTries;) {
      smaller = false;
      for (size_t at = draft_.statements.size(); at-- > 0;)
        if (at < draft_.statements.size())
          smaller |= step(at);
      for (size_t f = draft_.functions.size(); f-- > 0;) {
        Draft less = draft_;
        less.functions.erase(less.functions.begin() + static_cast<ptrdiff_t>(f));
        if (accept(std::move(less)))
          smaller = true;
        else
          smaller |= lines([&](Draft &draft) -> std::string & { return draft.functions[f]; });
      }
    }
    return std::move(draft_);
  }

private:
  static constexpr unsigned kMostTries = 4000;

  bool accept(Draft less) {
    if (tries_++ >= kMostTries || !fails_(less))
      return false;
    draft_ = std::move(less);
    return true;
  }
  // Lines of a body go, or give their operand's name to what they computed.
  bool lines(llvm::function_ref<std::string &(Draft &)> body) {
    bool smaller = false;
    for (size_t end = body(draft_).size(); end > 0;) {
      size_t at = body(draft_).rfind("\n  %", end);
      if (at == std::string::npos)
        break;
      llvm::StringRef line = llvm::StringRef(body(draft_)).substr(at + 3).split('\n').first;
      std::string made = line.split(' ').first.str();
      size_t operand = line.find('%', made.size());
      std::string from =
          operand == llvm::StringRef::npos
              ? made
              : line.substr(operand).take_until([](char c) { return c == ' ' || c == ','; }).str();
      Draft less = draft_;
      std::string &text = body(less);
      text.erase(at + 1, line.size() + 3);
      for (size_t use = at; (use = text.find(made, use)) != std::string::npos; use += from.size())
        text.replace(use, made.size(), from);
      smaller |= accept(std::move(less));
      end = at == 0 ? 0 : at - 1;
    }
    return smaller;
  }
  bool step(size_t at) {
    if (accept(without(draft_, at)))
      return true;
    if (!draft_.statements[at].block.empty() &&
        lines([&](Draft &draft) -> std::string & { return draft.statements[at].block; }))
      return true;
    for (unsigned operand = 0; operand < 3; ++operand)
      if (std::optional<Draft> less = bypassed(draft_, at, operand);
          less && accept(std::move(*less)))
        return true;
    std::unique_ptr<Checked> checked = check(draft_);
    if (checked->read)
      if (std::optional<Draft> less = declared(draft_, at, *checked);
          less && accept(std::move(*less)))
        return true;
    for (const auto &attr : draft_.statements[at].attrs) {
      Draft less = draft_;
      less.statements[at].set(attr.first, "");
      if (accept(std::move(less)))
        return true;
    }
    if (!draft_.statements[at].region.empty()) {
      Draft less = draft_;
      less.statements[at].region.clear();
      if (accept(std::move(less)))
        return true;
    }
    return false;
  }

  Draft draft_;
  llvm::function_ref<bool(const Draft &)> fails_;
  unsigned tries_ = 0;
};

} // namespace

Draft shrink(Draft draft, llvm::function_ref<bool(const Draft &)> fails) {
  return Shrinker(std::move(draft), fails).run();
}

} // namespace spmd::soundness
