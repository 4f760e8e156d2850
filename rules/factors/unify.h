// Extents of factors from the shapes of operands: equal where they meet, 1 where one broadcasts.
#pragma once

#include "rules/factors/factors.h"

namespace spmd::rules {

// Factors of the map per factor of the row: one, or several where it is placed or spans.
using MapFactors = llvm::SmallVector<uint8_t, 4>;

class ExtentUnifier {
public:
  // `placed`: factors of the row whose place is an attribute.
  ExtentUnifier(const Application &app, const Equation &equation, const Binding &binding,
                llvm::ArrayRef<MapFactors> of_row, const MapFactors &rest, FactorSet placed,
                FactorMap &map, Outcome &out);

  // Dimensions that are one factor.
  void single_factors();
  // `[... 1]`: one element.
  void single_elements();
  // `(a b)`: the one part that is not known follows from the others.
  void merged_factors();

private:
  struct Seen {
    bool any = false, conflict = false;
    uint32_t arg = 0;
    unsigned dim = 0;
  };

  void find_strict(llvm::ArrayRef<MapFactors> of_row, FactorSet placed);
  void find_summed_alone(llvm::ArrayRef<MapFactors> of_row, const MapFactors &rest);
  bool is_result_dim(const Sum &sum, Dim::Form form, uint8_t factor) const;
  bool is_summed(uint8_t factor_of_row) const;
  bool is_multiplied(uint32_t arg) const;
  void unify(uint8_t factor, ir::Extent extent, uint32_t arg, unsigned dim);
  std::string print(ir::Extent extent) const;
  static std::string describe(const Seen &seen, uint32_t arg, unsigned dim);
  void report(const Seen &seen, ir::Extent known, uint32_t arg, unsigned dim, ir::Extent found);
  void divide(const DimFactors &dim, ir::Extent whole);

  const Application &app_;
  const Equation &equation_;
  const Binding &binding_;
  FactorMap &map_;
  Outcome &out_;
  llvm::SmallVector<Seen, 8> seen_; // per factor of the map
};

} // namespace spmd::rules
