// Scalar programs that become one.
#pragma once

#include "runtime/commands/scalar.h"
#include "runtime/commands/traced_number.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SmallVector.h"

#include <bit>

namespace spmd::runtime {

// Steps that are there already are not added again: the same operation on the same numbers.
class FusedProgram {
public:
  struct Step {
    uint32_t op, a, b, c;
    friend bool operator==(const Step &, const Step &) = default;
  };

  size_t add(Step step) {
    const auto *at = llvm::find(steps_, step);
    if (at == steps_.end()) {
      steps_.push_back(step);
      return steps_.size() - 1;
    }
    return static_cast<size_t>(at - steps_.begin());
  }
  size_t add(uint32_t op, size_t a, size_t b = 0) {
    return add({op, static_cast<uint32_t>(a), static_cast<uint32_t>(b), 0});
  }
  size_t constant(double number) {
    const auto bits = std::bit_cast<uint64_t>(number); // zeros differ by their sign
    const auto *at =
        llvm::find_if(numbers_, [&](double each) { return std::bit_cast<uint64_t>(each) == bits; });
    const auto place = static_cast<size_t>(at - numbers_.begin());
    if (at == numbers_.end())
      numbers_.push_back(number);
    return add(kSpmdConstant, place);
  }
  // Its last step; `input`: the step that is input k of it.
  size_t add(const ScalarProgram &program, llvm::function_ref<size_t(unsigned)> input) {
    llvm::SmallVector<size_t, 32> at;
    for (const SpmdScalarStep &step : program.steps) {
      const uint32_t operands = device::operand_count(step.op);
      auto of = [&](uint32_t place, uint8_t step_or) {
        return place < operands ? static_cast<uint32_t>(at[step_or]) : uint32_t(0);
      };
      if (step.op == kSpmdInput)
        at.push_back(input(step.a));
      else if (step.op == kSpmdConstant)
        at.push_back(constant(program.constants[step.a]));
      else if (step.op == kSpmdRound)
        at.push_back(add(step.op, at[step.a], step.b));
      else
        at.push_back(add({step.op, of(0, step.a), of(1, step.b), of(2, step.c)}));
    }
    return at.back();
  }
  // None: it is longer than a device takes.
  std::optional<ScalarProgram> ending_in(size_t result) {
    if (result >= kSpmdSteps || numbers_.size() > kSpmdConstants)
      return std::nullopt;
    ScalarProgram program;
    for (size_t i = 0; i <= result; ++i)
      program.steps.push_back({static_cast<uint8_t>(steps_[i].op),
                               static_cast<uint8_t>(steps_[i].a), static_cast<uint8_t>(steps_[i].b),
                               static_cast<uint8_t>(steps_[i].c)});
    program.constants.assign(numbers_.begin(), numbers_.end());
    return program;
  }

private:
  llvm::SmallVector<Step, 64> steps_;
  llvm::SmallVector<double, 16> numbers_;
};

} // namespace spmd::runtime
