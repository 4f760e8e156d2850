// Steps of equal form are one step, what follows from constants is a constant, and each answer that
// a kernel asks for is given once in a run of it.
#include "runtime/commands/traced_number.h"

#include "runtime/commands/scalar.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <map>

namespace spmd::runtime {

class Recorder {
public:
  static Recorder &here() {
    thread_local Recorder recorder;
    return recorder;
  }

  uint32_t constant(double number) {
    uint64_t bits;
    std::memcpy(&bits, &number, sizeof bits);
    auto [at, fresh] = constants_.try_emplace(bits, static_cast<uint32_t>(numbers_.size()));
    if (fresh)
      numbers_.push_back(number);
    return step({kSpmdConstant, at->second, 0, 0});
  }
  uint32_t add(SpmdOp op, uint32_t a, uint32_t b, uint32_t c) {
    if (op == kSpmdInput)
      return step({op, a, 0, 0});
    const unsigned count = device::operand_count(op);
    const std::array<uint32_t, 3> of = {a, b, c};
    std::array<double, 3> known{};
    bool all = true;
    for (unsigned i = 0; i < count; ++i) {
      std::optional<double> number = number_of(of[i]);
      all &= number.has_value();
      known[i] = number.value_or(0);
    }
    if (all)
      return constant(device::done(op, known[0], known[1], known[2]));
    if (op == kSpmdSelect) {
      if (b == c)
        return b;
      if (std::optional<double> condition = number_of(a))
        return *condition != 0 ? b : c;
    }
    if (op == kSpmdMulOrZero) {
      std::optional<double> slope = number_of(a);
      if (slope && *slope == 0)
        return constant(0);
      if (slope && *slope == 1)
        return b;
    }
    return step({op, a, count > 1 ? b : 0, count > 2 ? c : 0});
  }
  std::optional<double> number_of(uint32_t step) const {
    if (steps_[step][0] != kSpmdConstant)
      return std::nullopt;
    return numbers_[steps_[step][1]];
  }

  bool decide(uint32_t condition) {
    if (std::optional<double> known = number_of(condition))
      return *known != 0;
    for (const Answer &answer : answers_)
      if (answer.condition == condition)
        return answer.holds;
    answers_.push_back({condition, asked_ < script_.size() ? bool(script_[asked_]) : true});
    ++asked_;
    return answers_.back().holds;
  }
  void fail() { failed_ = true; }

  std::optional<ScalarProgram> record(llvm::function_ref<TracedNumber()> kernel) {
    *this = Recorder();
    uint32_t last = explore(kernel, {});
    if (failed_)
      return std::nullopt;
    return kept(last);
  }

private:
  using Step = std::array<uint32_t, 4>;
  struct Answer {
    uint32_t condition;
    bool holds;
  };

  uint32_t step(Step made) {
    auto [at, fresh] = known_.try_emplace(made, static_cast<uint32_t>(steps_.size()));
    if (fresh)
      steps_.push_back(made);
    return at->second;
  }

  // The result if the first answers are these.
  uint32_t explore(llvm::function_ref<TracedNumber()> kernel, std::vector<char> first) {
    constexpr unsigned kMostRuns = 256;
    if (failed_ || ++runs_ > kMostRuns) {
      failed_ = true;
      return constant(0);
    }
    script_ = first;
    answers_.clear();
    asked_ = 0;
    uint32_t result = kernel().step_;
    const std::vector<Answer> answers = answers_;
    for (size_t i = answers.size(); i-- > first.size();) {
      std::vector<char> other(first);
      for (size_t k = first.size(); k < i; ++k)
        other.push_back(answers[k].holds);
      other.push_back(false);
      uint32_t otherwise = explore(kernel, std::move(other));
      result = add(kSpmdSelect, answers[i].condition, result, otherwise);
    }
    return result;
  }

  // The steps that the last one needs, in their order.
  std::optional<ScalarProgram> kept(uint32_t last) {
    std::vector<uint32_t> needed = {last}, positions(steps_.size(), ~0u);
    std::vector<char> marked(steps_.size(), 0);
    marked[last] = 1;
    for (size_t i = 0; i < needed.size(); ++i)
      for (uint32_t from : operands(steps_[needed[i]]))
        if (!marked[from])
          marked[from] = 1, needed.push_back(from);
    std::sort(needed.begin(), needed.end());
    ScalarProgram program;
    std::map<uint32_t, uint8_t> constants;
    if (needed.size() > kSpmdSteps)
      return std::nullopt;
    for (uint32_t each : needed) {
      positions[each] = static_cast<uint32_t>(program.steps.size());
      Step made = steps_[each];
      SpmdScalarStep step{static_cast<uint8_t>(made[0]), 0, 0, 0};
      if (made[0] == kSpmdConstant) {
        auto [at, fresh] =
            constants.try_emplace(made[1], static_cast<uint8_t>(program.constants.size()));
        if (fresh)
          program.constants.push_back(numbers_[made[1]]);
        step.a = at->second;
      } else if (made[0] == kSpmdInput) {
        step.a = static_cast<uint8_t>(made[1]);
      } else {
        step.a = static_cast<uint8_t>(positions[made[1]]);
        step.b = static_cast<uint8_t>(device::operand_count(made[0]) > 1 ? positions[made[2]] : 0);
        step.c = static_cast<uint8_t>(device::operand_count(made[0]) > 2 ? positions[made[3]] : 0);
      }
      program.steps.push_back(step);
    }
    if (program.constants.size() > kSpmdConstants)
      return std::nullopt;
    return program;
  }
  static std::vector<uint32_t> operands(const Step &step) {
    return {step.begin() + 1, step.begin() + 1 + device::operand_count(step[0])};
  }

  std::vector<Step> steps_;
  std::map<Step, uint32_t> known_;
  std::vector<double> numbers_;
  std::map<uint64_t, uint32_t> constants_;
  std::vector<char> script_;
  std::vector<Answer> answers_;
  size_t asked_ = 0;
  unsigned runs_ = 0;
  bool failed_ = false;
};

TracedNumber::TracedNumber(double constant) : step_(Recorder::here().constant(constant)) {}

TracedNumber TracedNumber::add(SpmdOp op, uint32_t a, uint32_t b, uint32_t c) {
  TracedNumber symbol;
  symbol.step_ = Recorder::here().add(op, a, b, c);
  return symbol;
}
TracedNumber TracedNumber::untraceable() {
  Recorder::here().fail();
  return TracedNumber(0.0);
}
bool TracedNumber::holds() const { return Recorder::here().decide(step_); }

std::optional<ScalarProgram> record(llvm::function_ref<TracedNumber()> kernel) {
  return Recorder::here().record(kernel);
}

} // namespace spmd::runtime
