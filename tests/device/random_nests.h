// Loop nests drawn at random, in all forms that decide how a kernel is written: which loops run on
// in which array, what is looked up, what is combined, which elements. Numbers are small and whole,
// so that every order of adding them up gives the same bits.
#pragma once

#include "runtime/commands/scalar.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <random>

namespace spmd::test {

struct RandomNest {
  SpmdLoopNest nest{};                              // without addresses
  std::array<int64_t, kSpmdArrays> counts{};        // elements of each array
  std::array<int64_t, kSpmdArrays> least{}, most{}; // their numbers
  int64_t out_count = 0;
};

class NestDice {
public:
  explicit NestDice(uint64_t seed) : random_(seed) {}

  // With that many positions at least.
  RandomNest draw(int64_t least_iterations) {
    RandomNest made;
    SpmdLoopNest &nest = made.nest;
    nest.loops = 1 + below(4);
    nest.inner = one_in(2) ? below(nest.loops + 1) : 0;
    for (uint32_t l = 0; l < nest.loops; ++l)
      nest.extents[l] = one_of<int64_t>({1, 2, 3, 5, 8, 16, 24, 33, 64, 100});
    for (uint32_t l = below(nest.loops);
         device::iterations(nest.extents, 0, nest.loops) < least_iterations;
         l = (l + 1) % nest.loops)
      nest.extents[l] *= one_of<int64_t>({2, 3, 8});
    nest.arrays = 1 + below(3);
    for (uint32_t i = 0; i < nest.arrays; ++i)
      draw_array(made, i);
    if (one_in(3))
      draw_lookup(made);
    nest.combiner = one_of<uint32_t>({kSpmdSum, kSpmdSum, kSpmdMax, kSpmdMin});
    nest.adds = one_in(3);
    nest.factor = one_in(3) ? 3 : 1;
    nest.divisor = one_in(3) ? 4 : 1;
    nest.out.element = element();
    nest.out.index = ~0u;
    made.out_count = lay_out(nest, nest.out, nest.loops - nest.inner, false);
    draw_program(nest);
    return made;
  }

  uint32_t below(uint32_t number) { return static_cast<uint32_t>(random_() % number); }
  double number(double least, double most) {
    return least + static_cast<double>(random_() % static_cast<uint64_t>(most - least + 1));
  }

private:
  bool one_in(uint32_t number) { return below(number) == 0; }
  template <class T> T one_of(std::initializer_list<T> of) {
    return of.begin()[below(static_cast<uint32_t>(of.size()))];
  }
  uint32_t element() {
    return one_of<uint32_t>({kSpmdF32, kSpmdF32, kSpmdBF16, kSpmdBF16, kSpmdF16, kSpmdF64, kSpmdI32,
                             kSpmdI64, kSpmdI8, kSpmdBool});
  }

  // Strides of the first `loops` loops, in an order of their own; returns how many elements there
  // are.
  int64_t lay_out(const SpmdLoopNest &nest, SpmdArray &array, uint32_t loops, bool may_repeat) {
    std::array<uint32_t, kSpmdLoops> order{};
    for (uint32_t l = 0; l < loops; ++l)
      order[l] = l;
    if (one_in(2))
      std::shuffle(order.begin(), order.begin() + loops, random_);
    int64_t stride = one_in(8) ? 2 : 1, last = 0;
    for (uint32_t i = loops; i-- > 0;) {
      const uint32_t l = order[i];
      if (may_repeat && one_in(4))
        continue; // the same elements all along this loop
      array.strides[l] = stride;
      last += stride * (nest.extents[l] - 1);
      stride *= nest.extents[l];
      if (one_in(8))
        stride += one_of<int64_t>({1, 4, 8}); // rows of a wider matrix
    }
    return last + 1;
  }
  void draw_array(RandomNest &made, uint32_t i) {
    SpmdArray &array = made.nest.in[i];
    array.index = ~0u;
    array.element = one_in(10) ? uint32_t(kSpmdNoElement) : element();
    made.counts[i] = lay_out(made.nest, array, made.nest.loops, true);
    made.least[i] = -2;
    made.most[i] = 2;
  }
  // The last array says in which row the first one is read.
  void draw_lookup(RandomNest &made) {
    SpmdLoopNest &nest = made.nest;
    const uint32_t index = nest.arrays++;
    SpmdArray &table = nest.in[0], &rows = nest.in[index];
    rows = {};
    rows.index = ~0u;
    rows.element = one_of<uint32_t>({kSpmdI32, kSpmdI64, kSpmdU8});
    made.counts[index] = lay_out(nest, rows, nest.loops, true);
    table = {};
    table.element = one_of<uint32_t>({kSpmdF32, kSpmdBF16, kSpmdF16});
    table.index = index;
    table.extent = 1 + below(60);
    table.begin = below(3);
    const uint32_t along = below(nest.loops);
    const bool wide = one_in(2);
    table.strides[along] = wide;
    table.stride = wide ? nest.extents[along] : 1;
    made.counts[0] = table.extent * table.stride;
    made.least[index] = 0;
    made.most[index] = table.extent + 3;
  }
  void draw_program(SpmdLoopNest &nest) {
    auto add = [&](uint8_t op, uint32_t a, uint32_t b, uint32_t c) {
      nest.program[nest.steps++] = {op, static_cast<uint8_t>(a), static_cast<uint8_t>(b),
                                    static_cast<uint8_t>(c)};
    };
    for (uint32_t i = 0; i < nest.arrays; ++i)
      add(kSpmdInput, i, 0, 0);
    nest.constants = 2;
    nest.numbers[0] = 2;
    nest.numbers[1] = -1;
    add(kSpmdConstant, below(2), 0, 0);
    if (one_in(2)) // one only: numbers stay below 2^24
      add(kSpmdMul, below(nest.steps), below(nest.steps), 0);
    for (uint32_t i = below(4); i-- > 0;) {
      const uint32_t count = nest.steps;
      const auto op = one_of<uint8_t>(
          {kSpmdAdd, kSpmdSub, kSpmdLess, kSpmdSelect, kSpmdNeg, kSpmdAbs, kSpmdIsNan, kSpmdRound});
      const uint32_t b = op == kSpmdRound ? element() : below(count);
      add(op, below(count), b, below(count));
    }
  }

  std::mt19937_64 random_;
};

} // namespace spmd::test
