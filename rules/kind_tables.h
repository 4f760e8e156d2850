// The local type system: what a sum and a product of two kinds are (rules/README.md). These
// tables are the specification; local.cc evaluates them over all axes at once, and tests compare
// the two and both with the denotation. Number is `.`: a plain number, or a constant that is the
// same on every rank. None is a violation.
#pragma once

#include "ir/kind.h"

#include <array>

namespace spmd::rules {

// A term's kind on one axis. Reduced reads as R here (rules/README.md).
enum class TermKind : uint8_t { R, I, V, P, Number, None };

using KindTable = std::array<std::array<TermKind, 5>, 5>;

// a + b
constexpr KindTable make_sum_table() {
  using enum TermKind;
  return {{
      //         R     I     V     P     .
      /* R */ {{R, None, V, None, R}},
      /* I */ {{None, I, None, None, I}},
      /* V */ {{V, None, V, None, V}},
      /* P */ {{None, None, None, P, None}},
      /* . */ {{R, I, V, None, Number}},
  }};
}

// a * b
constexpr KindTable make_product_table() {
  using enum TermKind;
  return {{
      //         R     I     V     P     .
      /* R */ {{R, None, V, P, R}},
      /* I */ {{None, I, None, None, I}},
      /* V */ {{V, None, V, None, V}},
      /* P */ {{P, None, None, None, P}},
      /* . */ {{R, I, V, P, Number}},
  }};
}

inline constexpr KindTable kSum = make_sum_table();
inline constexpr KindTable kProduct = make_product_table();

constexpr TermKind look_up(const KindTable &table, TermKind a, TermKind b) {
  if (a == TermKind::None || b == TermKind::None)
    return TermKind::None;
  return table[static_cast<unsigned>(a)][static_cast<unsigned>(b)];
}
constexpr TermKind sum(TermKind a, TermKind b) { return look_up(kSum, a, b); }
constexpr TermKind product(TermKind a, TermKind b) { return look_up(kProduct, a, b); }
// f(a): P is refused, all else passes.
constexpr TermKind nonlinear(TermKind a) { return a == TermKind::P ? TermKind::None : a; }

} // namespace spmd::rules
