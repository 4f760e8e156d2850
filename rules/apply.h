// Applying one op to typed operands. Pure, so equal applications are typed once.
#pragma once

#include "rules/application.h"

#include <array>
#include <memory>
#include <vector>

namespace spmd::rules {

// A rule for the results of one application. Types carry gradient-freeness; axes that drew a
// violation are unknown on the results.
void apply_equation(const Application &app, Outcome &out);

// The type of the same value where no gradient flows.
ir::TypeId without_gradient(ir::Program &program, ir::TypeId type);
// The first operand that carries a gradient into a call that is stated to have no derivative
// (`vjp = none`).
std::optional<OperandIndex> cut_gradient(const Application &app);

// The axes over which a call makes ranks wait for each other, forward or, where a gradient flows,
// backward. Empty for what is no transition and sends nothing along an axis.
ir::AxisSet communicated_axes(const Application &app);
// Whether every element of the result is one of an operand, or a 0, which no other operand changes.
// Read off the equation, which says how elements go to results, and off what the row adds to it.
bool moves_elements(const ResolvedOp &op);
// Whether a row multiplies its operands element by element, or divides them.
bool is_product(const ResolvedOp &op);

class Rules {
public:
  explicit Rules(ir::Program &program, bool memoise = true);
  ~Rules();

  static constexpr uint32_t kNone = ~0u;
  const ResolvedOp &resolve(ir::OpNameId spelling);
  // The same reference for equal applications; it stays valid as long as the rules.
  const Outcome &apply(const Application &app);
  // Layers repeat: the application that came last time after the last one, for the same op with
  // such a first operand and result; else kNone. A caller to whose application its key is equal
  // (rules/application_key.h) says so instead of applying it.
  struct Expected {
    uint32_t application = kNone;
    llvm::ArrayRef<uint32_t> key;
  };
  Expected expected(ir::OpNameId spelling, const TensorInfo &first, ir::ShapeId result) const {
    const uint32_t next = known_.next[Known::slot(last_, spelling, first, result)];
    return next < known_.ends.size() ? Expected{next, known_.key(next)} : Expected{};
  }
  void came(uint32_t application) { last_ = application; }
  // Index of the distinct application that apply() answered last: equal applications have equal
  // indices.
  uint32_t last_index() const { return last_; }
  size_t distinct() const;

private:
  struct State;
  // The distinct applications: their keys, back to back, and which one came last time after another
  // one, by that and a little of what comes.
  struct Known {
    static constexpr unsigned kNextBits = 11;
    std::vector<uint32_t> keys;
    std::vector<size_t> ends;
    std::array<uint32_t, 1 << kNextBits> next{};

    static uint32_t slot(uint32_t before, ir::OpNameId spelling, const TensorInfo &first,
                         ir::ShapeId result) {
      const uint32_t hash = before * 0x9e37'79b1u ^ spelling.index * 0x85eb'ca6bu ^
                            first.type.index * 0xc2b2'ae35u ^ first.shape.index * 0x27d4'eb2fu ^
                            result.index * 0x1656'67b1u;
      return hash >> (32 - kNextBits);
    }
    llvm::ArrayRef<uint32_t> key(uint32_t i) const {
      const size_t first = i == 0 ? 0 : ends[i - 1];
      return llvm::ArrayRef<uint32_t>(keys).slice(first, ends[i] - first);
    }
  };
  Known known_;
  std::unique_ptr<State> state_;
  uint32_t last_ = 0;
};

} // namespace spmd::rules
