// Doubles as residues, exactly.
#include "runtime/tensor/residue.h"

#include <cmath>

namespace spmd::runtime {

Residue residue_of(double number) {
  if (!std::isfinite(number))
    return Residue::from_bits(number > 0   ? 0x9E3779B97F4A7C15u
                              : number < 0 ? 0xBF58476D1CE4E5B9u
                                           : 0x94D049BB133111EBu);
  // Most are whole numbers.
  constexpr double kExact = int64_t(1) << 53;
  if (std::abs(number) < kExact)
    if (auto whole = static_cast<int64_t>(number); static_cast<double>(whole) == number)
      return Residue(whole);
  int exponent;
  auto whole = static_cast<int64_t>(std::ldexp(std::frexp(number, &exponent), 53));
  // 2^61 is 1 in this field.
  int shift = ((exponent - 53) % 61 + 61) % 61;
  return Residue(whole) * Residue(int64_t(1) << shift);
}

} // namespace spmd::runtime
