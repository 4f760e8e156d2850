// The result of the producer is a number with a digit for each of its loops. Each loop of the
// reader has to walk along one of them, and is split where it walks along several: then all arrays
// of the producer have strides there.
#include "runtime/device/fusion/fused_pair.h"

#include "ir/support/arrays.h"
#include "runtime/device/fusion/fused_program.h"

#include "llvm/ADT/STLExtras.h"

namespace spmd::runtime {

namespace {

// A move is a loop nest of elements of so many bytes, as far as loops go.
ir::DType carrier(uint32_t bytes) {
  switch (bytes) {
  case 1:
    return ir::DType::U8;
  case 2:
    return ir::DType::U16;
  case 4:
    return ir::DType::U32;
  case 8:
    return ir::DType::U64;
  default:
    return ir::DType::C128;
  }
}

struct Loops {
  LoopNestDraft nest;
  bool moves = false;

  size_t outer() const { return nest.extents.size() - nest.inner; }
  int64_t outer_iterations() const { return count(ir::as_array(nest.extents).take_front(outer())); }
};

LoopNestDraft::Input input_of(const SpmdArray &array, uint32_t loops) {
  LoopNestDraft::Input input;
  input.at.data = array.data;
  input.at.dtype = static_cast<ir::DType>(array.element);
  input.strides.assign(array.strides, array.strides + loops);
  input.index = array.index;
  input.stride = array.stride, input.extent = array.extent, input.begin = array.begin;
  return input;
}

Loops loops_of(const SpmdLoopNest &from) {
  Loops made;
  LoopNestDraft &nest = made.nest;
  nest.extents.assign(from.extents, from.extents + from.loops);
  nest.inner = from.inner;
  for (uint32_t i = 0; i < from.arrays; ++i)
    nest.inputs.push_back(input_of(from.in[i], from.loops));
  nest.out.data = from.out.data;
  nest.out.dtype = static_cast<ir::DType>(from.out.element);
  nest.out_strides.assign(from.out.strides, from.out.strides + (from.loops - from.inner));
  nest.combiner = static_cast<SpmdCombiner>(from.combiner);
  nest.adds = from.adds;
  nest.factor = from.factor, nest.divisor = from.divisor;
  nest.program.steps.assign(from.program, from.program + from.steps);
  nest.program.constants.assign(from.numbers, from.numbers + from.constants);
  return made;
}

Loops loops_of(const SpmdMove &from) {
  Loops made;
  made.moves = true;
  LoopNestDraft &nest = made.nest;
  nest.extents.assign(from.extents, from.extents + from.loops);
  LoopNestDraft::Input input;
  input.at.data = from.from;
  input.at.dtype = carrier(from.bytes);
  input.strides.assign(from.from_strides, from.from_strides + from.loops);
  nest.inputs.push_back(std::move(input));
  nest.out.data = from.to;
  nest.out.dtype = carrier(from.bytes);
  nest.out_strides.assign(from.to_strides, from.to_strides + from.loops);
  nest.program = product_program(1);
  return made;
}

std::optional<Loops> loops_of(const Command &command) {
  if (const auto *nest = std::get_if<SpmdLoopNest>(&command))
    return loops_of(*nest);
  if (const auto *move = std::get_if<SpmdMove>(&command))
    return loops_of(*move);
  return std::nullopt;
}

std::optional<Command> command_of(Loops &loops) {
  std::vector<Command> made;
  LoopNestDraft &nest = loops.nest;
  if (loops.moves) {
    const LoopNestDraft::Input &from = nest.inputs[0];
    if (!add_box(from.at, nest.out, {nest.extents, from.strides, nest.out_strides, 0, 0}, false,
                 made))
      return std::nullopt;
  } else if (nest.program.steps.size() > kSpmdSteps ||
             nest.program.constants.size() > kSpmdConstants || !nest.build(made)) {
    return std::nullopt;
  }
  return made.size() == 1 ? std::optional(made[0]) : std::nullopt;
}

// --- the way of a reader through what was made

// A loop of the producer, seen from its result.
struct Digit {
  size_t loop;
  int64_t extent, stride;
};

llvm::SmallVector<Digit, 8> digits_of(const Loops &producer) {
  llvm::SmallVector<Digit, 8> digits;
  for (size_t l = 0; l < producer.outer(); ++l)
    if (producer.nest.extents[l] > 1)
      digits.push_back({l, producer.nest.extents[l], producer.nest.out_strides[l]});
  llvm::sort(digits, [](const Digit &a, const Digit &b) { return a.stride > b.stride; });
  return digits;
}

// The largest one that steps of `stride` are made of; null: none is.
const Digit *digit_for(llvm::ArrayRef<Digit> digits, int64_t stride) {
  const auto *at = llvm::find_if(digits, [&](const Digit &each) { return each.stride <= stride; });
  return at != digits.end() && stride % at->stride == 0 ? at : nullptr;
}

// Loop `l` becomes two, of which the second one has `extent` iterations.
void split(Loops &loops, size_t l, int64_t extent) {
  LoopNestDraft &nest = loops.nest;
  auto both = [&](Strides &strides) {
    const int64_t stride = strides[l];
    strides[l] = stride * extent;
    strides.insert(strides.begin() + static_cast<ptrdiff_t>(l) + 1, stride);
  };
  if (l < loops.outer())
    both(nest.out_strides);
  else
    ++nest.inner;
  for (LoopNestDraft::Input &input : nest.inputs)
    both(input.strides);
  nest.extents[l] /= extent;
  nest.extents.insert(nest.extents.begin() + static_cast<ptrdiff_t>(l) + 1, extent);
}

// So that each loop walks along one digit.
bool split_for(Loops &reader, size_t input, llvm::ArrayRef<Digit> digits) {
  constexpr size_t kMostLoops = 32;
  for (size_t l = 0; l < reader.nest.extents.size();) {
    const int64_t extent = reader.nest.extents[l], stride = reader.nest.inputs[input].strides[l];
    if (extent == 1 || stride == 0) {
      ++l;
      continue;
    }
    const Digit *digit = stride > 0 ? digit_for(digits, stride) : nullptr;
    if (!digit || extent == 0)
      return false;
    if (stride / digit->stride * (extent - 1) < digit->extent) {
      ++l;
      continue;
    }
    if (digit == digits.begin())
      return false;
    const int64_t larger = (digit - 1)->stride, steps = larger / stride;
    if (larger % stride != 0 || steps <= 1 || extent % steps != 0 || extent == steps ||
        reader.nest.extents.size() >= kMostLoops)
      return false;
    split(reader, l, steps);
  }
  return true;
}

// Maps iterations of the reader to those of the producer: the first one, and by loop of the reader
// so many steps of one.
struct IterationMap {
  struct LoopMap {
    size_t loop = 0;
    int64_t steps = 0;
  };
  llvm::SmallVector<int64_t, 8> first; // by loop of the producer
  llvm::SmallVector<LoopMap, 8> loops; // by loop of the reader

  // The place and the strides of an array that the producer reads by `strides`.
  int64_t offset(llvm::ArrayRef<int64_t> strides) const {
    int64_t sum = 0;
    for (size_t l = 0; l < first.size(); ++l)
      sum += first[l] * strides[l];
    return sum;
  }
  Strides through(llvm::ArrayRef<int64_t> strides) const {
    Strides made;
    for (const LoopMap &loop : loops)
      made.push_back(loop.steps ? loop.steps * strides[loop.loop] : 0);
    return made;
  }
};

// None: it leaves what was made.
std::optional<IterationMap> way_of(const Loops &producer, const Loops &reader, size_t input,
                                   llvm::ArrayRef<Digit> digits) {
  const LoopNestDraft::Input &read = reader.nest.inputs[input];
  const auto bytes = static_cast<int64_t>(ir::info(read.at.dtype).bytes);
  const auto apart = static_cast<int64_t>(read.at.data - producer.nest.out.data);
  if (apart < 0 || apart % bytes != 0)
    return std::nullopt;
  IterationMap way;
  way.first.resize(producer.outer(), 0);
  llvm::SmallVector<int64_t, 8> last(producer.outer(), 0);
  int64_t rest = apart / bytes;
  for (const Digit &digit : digits) {
    last[digit.loop] = way.first[digit.loop] = rest / digit.stride;
    rest %= digit.stride;
  }
  if (rest != 0)
    return std::nullopt;
  for (size_t l = 0; l < reader.nest.extents.size(); ++l) {
    IterationMap::LoopMap loop;
    if (reader.nest.extents[l] != 1 && read.strides[l] != 0) {
      const Digit *digit = digit_for(digits, read.strides[l]);
      loop = {digit->loop, read.strides[l] / digit->stride};
      last[digit->loop] += loop.steps * (reader.nest.extents[l] - 1);
    }
    way.loops.push_back(loop);
  }
  for (const Digit &digit : digits)
    if (last[digit.loop] >= digit.extent)
      return std::nullopt;
  return way;
}

LoopNestDraft::Input along(const IterationMap &way, const LoopNestDraft::Input &input) {
  LoopNestDraft::Input made = input;
  made.at.data = after(input.at.data, input.at.dtype, way.offset(input.strides));
  made.strides = way.through(input.strides);
  return made;
}

// --- programs

// As the end of a loop nest has it, but for `adds`.
size_t add_scale(FusedProgram &program, size_t value, const LoopNestDraft &nest) {
  if (nest.factor != 1)
    value = program.add(kSpmdMul, value, program.constant(nest.factor));
  if (nest.divisor != 1)
    value = program.add(kSpmdDiv, value, program.constant(nest.divisor));
  return value;
}

// Whether what is loaded as `from` is not changed by rounding to `to`. Large whole numbers are no
// doubles.
bool takes_all(ir::DType to, ir::DType from) {
  const bool narrow = from == ir::DType::BF16 || from == ir::DType::F16 ||
                      from == ir::DType::F8E4M3 || from == ir::DType::F8E5M2;
  return to == from ? narrow || from == ir::DType::F32 : narrow && to == ir::DType::F32;
}

// --- fusing

class PairFusion {
public:
  PairFusion(Loops producer, Loops reader, Bytes made)
      : producer_(std::move(producer)), reader_(std::move(reader)), made_(made),
        digits_(digits_of(producer_)) {}

  std::optional<Command> run() {
    if (producer_.nest.adds)
      return std::nullopt;
    if (!add_last() || !find_reads() || !meet())
      return std::nullopt;
    if (producer_.moves)
      return through_move();
    return reader_.moves ? into_move() : into_nest();
  }

private:
  // What `adds` reads is one more array.
  bool add_last() {
    LoopNestDraft &nest = reader_.nest;
    const Bytes out =
        span_of(nest.out.data, ir::info(nest.out.dtype).bytes,
                ir::as_array(nest.extents).take_front(reader_.outer()), nest.out_strides);
    if (!nest.adds || !out.meets(made_))
      return true;
    if (nest.inner)
      return false;
    const auto own = static_cast<unsigned>(nest.inputs.size());
    FusedProgram program;
    size_t value = add_scale(
        program, program.add(nest.program, [&](unsigned k) { return program.add(kSpmdInput, k); }),
        nest);
    std::optional<ScalarProgram> made =
        program.ending_in(program.add(kSpmdAdd, value, program.add(kSpmdInput, own)));
    if (!made)
      return false;
    nest.program = std::move(*made);
    nest.inputs.push_back({nest.out, nest.out_strides});
    nest.adds = false;
    nest.factor = nest.divisor = 1;
    return true;
  }

  Bytes span(const LoopNestDraft::Input &input) const {
    Strides extents = reader_.nest.extents, strides = input.strides;
    if (input.index != ~0u)
      extents.push_back(input.extent), strides.push_back(input.stride);
    return span_of(input.at.data, ir::info(input.at.dtype).bytes, extents, strides);
  }

  // The arrays of the reader that are to be replaced.
  bool find_reads() {
    const LoopNestDraft &nest = reader_.nest;
    for (size_t i = 0; i < nest.inputs.size(); ++i) {
      const LoopNestDraft::Input &input = nest.inputs[i];
      const bool looked_up = input.index != ~0u;
      const Bytes read = span(input);
      if (input.at.dtype == ir::DType::Unknown ||
          !read.meets(made_)) // iteration numbers are no memory
        continue;
      const ir::DType made = producer_.nest.out.dtype;
      const bool same = producer_.moves || reader_.moves
                            ? ir::info(input.at.dtype).bytes == ir::info(made).bytes
                            : input.at.dtype == made;
      if (looked_up || !same || !read.within(made_))
        return false;
      reads_.push_back(i);
    }
    return !reads_.empty();
  }

  // How each of them goes through what was made.
  bool meet() {
    for (size_t input : reads_)
      if (!split_for(reader_, input, digits_))
        return false;
    for (size_t input : reads_) {
      std::optional<IterationMap> way = way_of(producer_, reader_, input, digits_);
      if (!way)
        return false;
      // Iterations are counted from the first one.
      for (const LoopNestDraft::Input &from : producer_.nest.inputs)
        if (from.at.dtype == ir::DType::Unknown && way->offset(from.strides) != 0)
          return false;
      ways_.push_back(std::move(*way));
    }
    return true;
  }

  std::optional<Command> through_move() {
    for (size_t k = 0; k < reads_.size(); ++k) {
      LoopNestDraft::Input &input = reader_.nest.inputs[reads_[k]];
      LoopNestDraft::Input from = along(ways_[k], producer_.nest.inputs[0]);
      input.at.data = from.at.data;
      input.strides = std::move(from.strides);
    }
    return command_of(reader_);
  }

  // The producer writes where the move goes.
  std::optional<Command> into_move() {
    // How numbers are added depends on how many results there are.
    if (producer_.nest.inner && reader_.outer_iterations() != producer_.outer_iterations())
      return std::nullopt;
    const size_t outer = producer_.outer();
    Loops made = producer_;
    LoopNestDraft &nest = made.nest;
    nest.extents = reader_.nest.extents;
    nest.extents.append(producer_.nest.extents.begin() + static_cast<ptrdiff_t>(outer),
                        producer_.nest.extents.end());
    nest.out.data = reader_.nest.out.data;
    nest.out_strides = reader_.nest.out_strides;
    for (LoopNestDraft::Input &input : nest.inputs) {
      const Strides inner(input.strides.begin() + static_cast<ptrdiff_t>(outer),
                          input.strides.end());
      input = along(ways_[0], input);
      input.strides.append(inner.begin(), inner.end());
    }
    return command_of(made);
  }

  std::optional<Command> into_nest() {
    if (producer_.nest.inner)
      return std::nullopt;
    for (const LoopNestDraft::Input &input : reader_.nest.inputs)
      if (input.index != ~0u && llvm::is_contained(reads_, size_t(input.index)))
        return std::nullopt;
    const LoopNestDraft old = reader_.nest;
    LoopNestDraft &nest = reader_.nest;
    nest.inputs.clear();
    llvm::SmallVector<unsigned, 8> kept = add_inputs(old.inputs, reads_, nullptr);
    FusedProgram program;
    llvm::SmallVector<size_t, 4> values;
    for (const IterationMap &way : ways_) {
      const llvm::SmallVector<unsigned, 8> own = add_inputs(producer_.nest.inputs, {}, &way);
      values.push_back(value_of(program, own));
    }
    const size_t result = program.add(old.program, [&](unsigned k) {
      const auto *read = llvm::find(reads_, size_t(k));
      return read == reads_.end() ? program.add(kSpmdInput, kept[k])
                                  : values[static_cast<size_t>(read - reads_.begin())];
    });
    std::optional<ScalarProgram> made = program.ending_in(result);
    if (!made || nest.inputs.size() > kSpmdArrays)
      return std::nullopt;
    nest.program = std::move(*made);
    return command_of(reader_);
  }

  // What the producer makes, as it is once it was stored.
  size_t value_of(FusedProgram &program, llvm::ArrayRef<unsigned> inputs) {
    const LoopNestDraft &nest = producer_.nest;
    const size_t value = add_scale(
        program,
        program.add(nest.program, [&](unsigned k) { return program.add(kSpmdInput, inputs[k]); }),
        nest);
    const bool plain = nest.program.steps.size() == 1 && nest.program.steps[0].op == kSpmdInput &&
                       nest.factor == 1 && nest.divisor == 1 &&
                       takes_all(nest.out.dtype, nest.inputs[nest.program.steps[0].a].at.dtype);
    return plain || nest.out.dtype == ir::DType::F64
               ? value
               : program.add(kSpmdRound, value, element_of(nest.out.dtype));
  }

  // Where they are now; arrays before those that are looked up in by them. One array is there once.
  llvm::SmallVector<unsigned, 8> add_inputs(llvm::ArrayRef<LoopNestDraft::Input> inputs,
                                            llvm::ArrayRef<size_t> without,
                                            const IterationMap *way) {
    llvm::SmallVector<unsigned, 8> at(inputs.size(), 0);
    for (bool looked_up : {false, true})
      for (size_t i = 0; i < inputs.size(); ++i) {
        if ((inputs[i].index != ~0u) != looked_up || llvm::is_contained(without, i))
          continue;
        LoopNestDraft::Input input = way ? along(*way, inputs[i]) : inputs[i];
        if (looked_up)
          input.index = at[input.index];
        at[i] = add_input(std::move(input));
      }
    return at;
  }
  unsigned add_input(LoopNestDraft::Input input) {
    auto &inputs = reader_.nest.inputs;
    auto same = llvm::find_if(inputs, [&](const LoopNestDraft::Input &each) {
      return each.at.data == input.at.data && each.at.dtype == input.at.dtype &&
             each.strides == input.strides && each.index == input.index &&
             each.stride == input.stride && each.extent == input.extent &&
             each.begin == input.begin;
    });
    const auto at = static_cast<unsigned>(same - inputs.begin());
    if (same == inputs.end())
      inputs.push_back(std::move(input));
    return at;
  }

  Loops producer_, reader_;
  Bytes made_;
  llvm::SmallVector<Digit, 8> digits_;
  llvm::SmallVector<size_t, 4> reads_;      // inputs of the reader
  llvm::SmallVector<IterationMap, 4> ways_; // of each of them
};

// What devices go by when they choose an order of sums (better_by_thread in runtime/nccl/nest.cu).
bool runs_along(const SpmdLoopNest &nest) {
  for (uint32_t i = 0; i < nest.arrays; ++i)
    if (nest.in[i].strides[nest.loops - 1] == 1)
      return true;
  return false;
}

bool keeps_order(const Command &before, const Command &after) {
  const auto *from = std::get_if<SpmdLoopNest>(&before), *to = std::get_if<SpmdLoopNest>(&after);
  return !from || !from->inner || !to || runs_along(*from) == runs_along(*to);
}

} // namespace

std::optional<Command> fused(const Command &producer, const Command &reader, Bytes made) {
  std::optional<Loops> first = loops_of(producer), second = loops_of(reader);
  if (!first || !second)
    return std::nullopt;
  std::optional<Command> command = PairFusion(std::move(*first), std::move(*second), made).run();
  return command && keeps_order(reader, *command) ? command : std::nullopt;
}

} // namespace spmd::runtime
