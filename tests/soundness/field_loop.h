// One term of an equation as a loop nest over its factors, laid out for the extents at hand.
#pragma once

#include "tests/soundness/field_op.h"

namespace spmd::soundness {

uint64_t hash_of(std::string_view text);

// Where a tensor is read or written at a point of the loops.
struct Access {
  unsigned arg = 0;
  llvm::SmallVector<int64_t, 8> strides; // per variable

  size_t at(llvm::ArrayRef<int64_t> values) const {
    int64_t place = 0;
    for (size_t v = 0; v < strides.size(); ++v)
      place += strides[v] * values[v];
    return static_cast<size_t>(place);
  }
};

struct FieldOp::Loop {
  struct Read {
    llvm::SmallVector<Access, 2> members;
    bool summed = false;
    bool weighs = false, differentiable = false;
    uint64_t seed = 0; // weighs: of the weight
    // One-hot: `target` is the variable whose entry the value names, counted from `first` in `all`.
    std::optional<size_t> target;
    int64_t first = 0, all = 1;
  };
  struct Argument {
    Access base;
    llvm::SmallVector<int64_t, 4> offsets; // along the whole factors
    bool differentiable = false;
  };
  struct Function {
    uint64_t seed = 0;
    llvm::SmallVector<Argument, 3> arguments;
  };

  using Scale = rules::OpDef::FunctionScale;
  Scale function_scale = Scale::One;
  llvm::SmallVector<int64_t, 8> extents;
  llvm::SmallVector<bool, 8> whole;
  Residue factor = 1;
  bool joins = false;
  uint64_t seed = 0;
  Access result;
  llvm::SmallVector<Read, 3> reads;
  llvm::SmallVector<Function, 1> functions;

  template <class F> void for_points(F &&f) const {
    for (int64_t extent : extents)
      if (extent == 0)
        return;
    llvm::SmallVector<int64_t, 8> values(extents.size(), 0);
    for (;;) {
      f(llvm::ArrayRef<int64_t>(values));
      size_t v = values.size();
      while (v-- > 0) {
        if (++values[v] < extents[v])
          break;
        values[v] = 0;
      }
      if (v == ~size_t(0))
        return;
    }
  }
  uint64_t place(llvm::ArrayRef<int64_t> values) const {
    uint64_t hash = seed;
    for (size_t v = 0; v < values.size(); ++v)
      hash = whole[v] ? mix(hash, static_cast<uint64_t>(values[v])) : hash;
    return hash;
  }
  static Residue element(llvm::ArrayRef<FieldArg> args, const Access &access, int64_t offset,
                         llvm::ArrayRef<int64_t> values) {
    return args[access.arg].array->data[access.at(values) + static_cast<size_t>(offset)];
  }
  Residue value(const Read &read, llvm::ArrayRef<FieldArg> args,
                llvm::ArrayRef<int64_t> values) const {
    Residue all = read.summed ? 0 : 1;
    for (size_t k = 0; k < read.members.size(); ++k) {
      Residue one = element(args, read.members[k], 0, values);
      if (read.target) {
        int64_t wanted = ((one.number() % read.all) + read.all) % read.all;
        one = wanted == read.first + values[*read.target];
      } else if (read.weighs) {
        one = Residue::from_bits(weight(read, k, args, values, 0));
      }
      all = read.summed ? all + one : all * one;
    }
    return all;
  }
  // Of a condition at a place; with a salt the derivative by what it is given.
  uint64_t weight(const Read &read, size_t member, llvm::ArrayRef<FieldArg> args,
                  llvm::ArrayRef<int64_t> values, uint64_t salt) const {
    uint64_t given = element(args, read.members[member], 0, values).value();
    uint64_t hash = mix(mix(read.seed, given), place(values));
    return salt ? mix(hash, salt) : hash;
  }
  // The reciprocal is known; an f that takes any scale sees of a number only whether it is 0; of
  // any other f nothing is known.
  uint64_t hash(const Function &function, llvm::ArrayRef<FieldArg> args,
                llvm::ArrayRef<int64_t> values) const {
    uint64_t hash = mix(function.seed, place(values));
    for (const Argument &argument : function.arguments)
      for (int64_t offset : argument.offsets) {
        Residue value = element(args, argument.base, offset, values);
        if (function_scale == Scale::Inverse)
          return value.inverse().value();
        hash = mix(hash, function_scale == Scale::Any ? value == Residue(0) : value.value());
      }
    return hash;
  }
  // What stands at a point: the coefficient, then reads, then functions.
  struct Point {
    Residue coefficient;
    llvm::SmallVector<Residue, 3> reads;
    llvm::SmallVector<uint64_t, 1> hashes;

    Residue product(size_t without) const {
      Residue all = coefficient;
      for (size_t i = 0; i < reads.size(); ++i)
        all *= i == without ? Residue(1) : reads[i];
      for (size_t i = 0; i < hashes.size(); ++i)
        all *= reads.size() + i == without ? Residue(1) : Residue::from_bits(hashes[i]);
      return all;
    }
  };
  Point point(llvm::ArrayRef<FieldArg> args, llvm::ArrayRef<int64_t> values) const {
    Point made{factor, {}, {}};
    if (joins)
      made.coefficient *= Residue::from_bits(place(values));
    for (const Read &read : reads)
      made.reads.push_back(value(read, args, values));
    for (const Function &function : functions)
      made.hashes.push_back(hash(function, args, values));
    return made;
  }

  void add(llvm::ArrayRef<FieldArg> args, Array &to) const {
    for_points([&](llvm::ArrayRef<int64_t> values) {
      to.data[result.at(values)] += point(args, values).product(~size_t(0));
    });
  }
  void pull(llvm::ArrayRef<FieldArg> args, const Array &gradient,
            llvm::MutableArrayRef<Array *> to) const {
    for_points([&](llvm::ArrayRef<int64_t> values) {
      Residue g = gradient.data[result.at(values)];
      Point at = point(args, values);
      for (size_t i = 0; i < reads.size(); ++i)
        pull_read(reads[i], g * at.product(i), args, values, to);
      for (size_t i = 0; i < functions.size(); ++i)
        pull_function(functions[i], at.hashes[i], g * at.product(reads.size() + i), values, to);
    });
  }
  void pull_read(const Read &read, Residue g, llvm::ArrayRef<FieldArg> args,
                 llvm::ArrayRef<int64_t> values, llvm::MutableArrayRef<Array *> to) const {
    if (!read.differentiable)
      return;
    for (size_t k = 0; k < read.members.size(); ++k) {
      Residue others = read.weighs ? Residue::from_bits(weight(read, k, args, values, 7)) : 1;
      for (size_t j = 0; !read.summed && j < read.members.size(); ++j)
        if (j != k)
          others *= read.weighs ? Residue::from_bits(weight(read, j, args, values, 0))
                                : element(args, read.members[j], 0, values);
      if (Array *gradient = to[read.members[k].arg])
        gradient->data[read.members[k].at(values)] += g * others;
    }
  }
  // The derivative by each entry is another unknown function of the same arguments.
  void pull_function(const Function &function, uint64_t hash, Residue g,
                     llvm::ArrayRef<int64_t> values, llvm::MutableArrayRef<Array *> to) const {
    uint64_t entry = 0;
    for (const Argument &argument : function.arguments)
      for (int64_t offset : argument.offsets) {
        ++entry;
        Array *gradient = argument.differentiable ? to[argument.base.arg] : nullptr;
        Residue inverse = Residue::from_bits(hash);
        Residue slope = function_scale == Scale::Inverse ? -(inverse * inverse)
                        : function_scale == Scale::Any   ? Residue(0)
                                                         : Residue::from_bits(mix(hash, entry));
        if (gradient)
          gradient->data[argument.base.at(values) + static_cast<size_t>(offset)] += g * slope;
      }
  }
};

} // namespace spmd::soundness
