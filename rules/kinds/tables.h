// The local type system: what a sum, a product and a function make of kinds (rules/README.md).
// These tables are the judgment: local.cc evaluates them over all axes at once, explain.cc
// reads the reason of a refusal from the cell that refused, and tests compare both with the
// denotation.
#pragma once

#include "ir/kind.h"
#include "ir/mesh/axis.h"

#include <array>
#include <utility>

namespace spmd::rules {

// A term's kind on one axis. Reduced reads as R here (rules/README.md). Number is `.` in the
// tables: a plain number, or a constant that is the same on every rank. None is a violation.
enum class TermKind : uint8_t { R, I, V, P, Number, None };
inline constexpr size_t kCellKinds = static_cast<size_t>(TermKind::None);

// Why two kinds make none: the violation of that name.
enum class Clash : uint8_t {
  No,
  InvariantMixed,
  PartialTimesPartial,
  PartialWithVarying,
  PartialPlusReplicate,
  PartialIntoNonlinear
};

struct Cell {
  TermKind kind = TermKind::None;
  Clash clash = Clash::No;
  constexpr Cell() = default;
  constexpr Cell(TermKind kind) : kind(kind) {}
  constexpr Cell(Clash clash) : clash(clash) {}
};
using KindRow = std::array<Cell, kCellKinds>;
using KindTable = std::array<KindRow, kCellKinds>;

namespace table_words {
using enum TermKind;
inline constexpr Clash Mixed = Clash::InvariantMixed, PTimesP = Clash::PartialTimesPartial,
                       WithV = Clash::PartialWithVarying, PlusR = Clash::PartialPlusReplicate,
                       IntoF = Clash::PartialIntoNonlinear;

// clang-format off
// a + b
inline constexpr KindTable kSum = {{
    //                R      I      V      P      .
    /* R */ KindRow{R,     Mixed, V,     PlusR, R},
    /* I */ KindRow{Mixed, I,     Mixed, Mixed, I},
    /* V */ KindRow{V,     Mixed, V,     WithV, V},
    /* P */ KindRow{PlusR, Mixed, WithV, P,     PlusR},
    /* . */ KindRow{R,     I,     V,     PlusR, Number},
}};
// a * b
inline constexpr KindTable kProduct = {{
    //                R      I      V      P        .
    /* R */ KindRow{R,     Mixed, V,     P,       R},
    /* I */ KindRow{Mixed, I,     Mixed, Mixed,   I},
    /* V */ KindRow{V,     Mixed, V,     WithV,   V},
    /* P */ KindRow{P,     Mixed, WithV, PTimesP, P},
    /* . */ KindRow{R,     I,     V,     P,       Number},
}};
// f(a)
inline constexpr KindRow kFunction = {R, I, V, IntoF, Number};
// clang-format on
} // namespace table_words

using table_words::kFunction;
using table_words::kProduct;
using table_words::kSum;

constexpr const Cell &cell(const KindRow &row, TermKind a) { return row[static_cast<size_t>(a)]; }
constexpr const Cell &cell(const KindTable &table, TermKind a, TermKind b) {
  return cell(table[static_cast<size_t>(a)], b);
}
constexpr TermKind look_up(const KindTable &table, TermKind a, TermKind b) {
  bool none = a == TermKind::None || b == TermKind::None;
  return none ? TermKind::None : cell(table, a, b).kind;
}
constexpr TermKind sum(TermKind a, TermKind b) { return look_up(kSum, a, b); }
constexpr TermKind product(TermKind a, TermKind b) { return look_up(kProduct, a, b); }
constexpr TermKind nonlinear(TermKind a) {
  return a == TermKind::None ? a : cell(kFunction, a).kind;
}

// Both orders make the same, a kind that comes out went in, and a reason names operands that are
// there.
constexpr bool reason_fits(Clash clash, TermKind a, TermKind b) {
  auto has = [&](TermKind kind) { return a == kind || b == kind; };
  switch (clash) {
  case Clash::No:
    return true;
  case Clash::InvariantMixed:
    return has(TermKind::I) && a != b && !has(TermKind::Number);
  case Clash::PartialTimesPartial:
    return a == TermKind::P && b == TermKind::P;
  case Clash::PartialWithVarying:
    return has(TermKind::P) && has(TermKind::V);
  case Clash::PartialPlusReplicate:
    return has(TermKind::P) && (has(TermKind::R) || has(TermKind::Number));
  case Clash::PartialIntoNonlinear:
    return a == TermKind::P;
  }
  return false;
}
constexpr bool is_sound(const KindTable &table) {
  for (size_t a = 0; a < kCellKinds; ++a)
    for (size_t b = 0; b < kCellKinds; ++b) {
      const Cell &made = table[a][b], &turned = table[b][a];
      TermKind left = TermKind(a), right = TermKind(b);
      bool none = made.kind == TermKind::None;
      if (made.kind != turned.kind || made.clash != turned.clash ||
          none != (made.clash != Clash::No) || !reason_fits(made.clash, left, right) ||
          !(none || made.kind == left || made.kind == right))
        return false;
    }
  return true;
}
static_assert(is_sound(kSum), "a + b");
static_assert(is_sound(kProduct), "a * b");

// The kinds of a term on all axes at once: for each kind the axes on which it is that. What is in
// none of the sets is a Number.
class KindPlanes {
public:
  constexpr ir::AxisSet &operator[](TermKind kind) { return sets_[index(kind)]; }
  constexpr ir::AxisSet operator[](TermKind kind) const {
    return kind == TermKind::Number ? numbers() : sets_[index(kind)];
  }
  constexpr ir::AxisSet numbers() const {
    ir::AxisSet others;
    for (ir::AxisSet set : sets_)
      others |= set;
    return ~others;
  }
  // Of the other one on these axes.
  constexpr void take(const KindPlanes &other, ir::AxisSet axes) {
    for (size_t kind = 0; kind < sets_.size(); ++kind)
      sets_[kind] = (sets_[kind] - axes) | (other.sets_[kind] & axes);
  }

private:
  // Of Number there is no set: its place is that of None.
  static constexpr size_t index(TermKind kind) {
    return kind == TermKind::None ? kCellKinds - 1 : static_cast<size_t>(kind);
  }
  std::array<ir::AxisSet, kCellKinds> sets_;
};

// Evaluates a table on all axes at once, cell by cell. What is None stays None.
template <const KindTable &table>
constexpr KindPlanes combine(const KindPlanes &a, const KindPlanes &b) {
  KindPlanes made;
  made[TermKind::None] = a[TermKind::None] | b[TermKind::None];
  auto evaluate = [&]<size_t at>() {
    constexpr TermKind left = TermKind(at / kCellKinds), right = TermKind(at % kCellKinds);
    constexpr TermKind kind = cell(table, left, right).kind;
    if constexpr (kind != TermKind::Number)
      made[kind] |= a[left] & b[right];
  };
  [&]<size_t... at>(std::index_sequence<at...>) { (evaluate.template operator()<at>(), ...); }
  (std::make_index_sequence<kCellKinds * kCellKinds>());
  return made;
}
template <const KindRow &row> constexpr KindPlanes apply(const KindPlanes &a) {
  KindPlanes made;
  made[TermKind::None] = a[TermKind::None];
  auto evaluate = [&]<size_t at>() {
    constexpr TermKind kind = cell(row, TermKind(at)).kind;
    if constexpr (kind != TermKind::Number)
      made[kind] |= a[TermKind(at)];
  };
  [&]<size_t... at>(std::index_sequence<at...>) { (evaluate.template operator()<at>(), ...); }
  (std::make_index_sequence<kCellKinds>());
  return made;
}

} // namespace spmd::rules
