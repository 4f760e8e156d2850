// Bodies of functions as text, grown from what their parameters are. Types of what is computed are
// guessed along the way, so that most of what is written checks; the checker has the last word.
#pragma once

#include "tests/soundness/generator.h"

namespace spmd::soundness {

// What bodies are written for: the typed axes, and which of them are local there.
struct Axes {
  llvm::ArrayRef<std::string> names;
  llvm::ArrayRef<int64_t> sizes;
  unsigned local = 0; // a bit per axis
};

class Grower {
public:
  Grower(Random &random, Axes axes) : random_(random), axes_(axes) {}

  struct Local {
    std::string name; // `%x`
    Want want;
  };
  // Parameters first, then what the lines compute.
  std::vector<Local> values;
  std::string lines;

  void grow(unsigned statements);
  // A value that is as wanted, newly made where one can be made from those that are; `first` if
  // not.
  std::string like(const Want &want, const std::string &first);
  const Local &any() { return random_.of(values); }

private:
  void step();
  void pointwise(const Local &x);
  void reduce(const Local &x);
  void softmax(const Local &x);
  void move(const Local &x);
  void pair(const Local &x);
  void product(const Local &x);
  std::string add(std::string text, Want want);
  bool is_local(unsigned axis) const { return axes_.local >> axis & 1; }

  Random &random_;
  Axes axes_;
};

} // namespace spmd::soundness
