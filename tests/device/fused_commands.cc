// Which commands of a device become one, and that results keep their bits when they do.
#include "runtime/device/fusion/fusion.h"
#include "runtime/kernels/composed/composition.h"
#include "tests/device/carry_out.h"
#include "tests/unit/catch.h"

#include "llvm/ADT/STLExtras.h"

#include <deque>
#include <random>

using namespace spmd;
using namespace spmd::runtime;
using ir::DType;

namespace {

using Symbols = llvm::ArrayRef<TracedNumber>;

constexpr size_t kArena = 1 << 14, kScratch = 1 << 12;

// Steps on tensors in one arena, carried out as they are and fused.
class Steps {
public:
  struct OnArena {
    uint32_t id = 0;
    DeviceArray at;
    bool ended = false;

    uint64_t bytes() const { return static_cast<uint64_t>(at.size()) * ir::info(at.dtype).bytes; }
  };

  Steps() : arena_((kArena + kScratch) / 8) {}
  SpmdAddress arena() const { return reinterpret_cast<SpmdAddress>(arena_.data()); }
  SpmdAddress scratch() const { return arena() + kArena; }

  // One after another, unless told where.
  OnArena tensor(DType dtype, Dims dims, std::optional<uint64_t> offset = std::nullopt) {
    const Dims &kept = dims_.emplace_back(std::move(dims));
    OnArena made{static_cast<uint32_t>(tensors_.size()),
                 {arena() + offset.value_or(used_), dtype, &kept, nullptr}};
    if (!offset)
      used_ += (made.bytes() + 63) / 64 * 64;
    REQUIRE(used_ <= kArena);
    tensors_.push_back(made);
    return made;
  }

  // A formula of the elements that meet; what `out` lacks of `over` is combined.
  void formula(const OnArena &out, llvm::ArrayRef<int64_t> over, llvm::ArrayRef<OnArena> inputs,
               llvm::function_ref<TracedNumber(Symbols)> of, SpmdCombiner combiner = kSpmdSum,
               double divisor = 1) {
    std::vector<Command> commands;
    add(commands, out.at, over, inputs, of, combiner, divisor);
    step(commands, inputs, out);
  }
  void formula(const OnArena &out, llvm::ArrayRef<OnArena> inputs,
               llvm::function_ref<TracedNumber(Symbols)> of) {
    formula(out, *out.at.dims, inputs, of);
  }
  void box(const OnArena &out, const OnArena &from, const BoxOf &of, bool adds = false) {
    std::vector<Command> commands;
    REQUIRE(add_box(from.at, out.at, of, adds, commands));
    step(commands, from, out);
  }
  void transpose(const OnArena &out, const OnArena &from) {
    const Dims &dims = *out.at.dims;
    box(out, from, {dims, {1, dims[0]}, {dims[1], 1}, 0, 0});
  }
  void fill(const OnArena &out, double number) {
    std::vector<Command> commands;
    add_fill(out.at, number, commands);
    step(commands, {}, out);
  }
  // Each element less the mean of its row, in two commands of one step.
  void centre(const OnArena &out, const OnArena &from) {
    std::vector<Command> commands;
    Dims rows = *from.at.dims;
    const auto width = static_cast<double>(rows.back());
    rows.back() = 1;
    const OnArena mean{~0u, {scratch(), DType::F64, &dims_.emplace_back(rows), nullptr}};
    add(
        commands, mean.at, *from.at.dims, from, [](Symbols s) { return s[0]; }, kSpmdSum, width);
    add(commands, out.at, *from.at.dims, {from, mean}, [](Symbols s) { return s[0] - s[1]; });
    step(commands, from, out);
  }
  void step(llvm::ArrayRef<Command> commands, llvm::ArrayRef<OnArena> reads, const OnArena &out) {
    llvm::SmallVector<DeviceTensor, 4> in;
    for (const OnArena &each : reads)
      in.push_back(region(each));
    plain_.push_back({commands.begin(), commands.end()});
    fusion_.add(static_cast<uint32_t>(plain_.size()) - 1, commands, in, region(out));
  }
  void other(llvm::ArrayRef<OnArena> reads, llvm::ArrayRef<OnArena> writes) {
    llvm::SmallVector<DeviceTensor, 4> in, out;
    for (const OnArena &each : reads)
      in.push_back(region(each));
    for (const OnArena &each : writes)
      out.push_back(region(each));
    plain_.emplace_back();
    fusion_.add_other(static_cast<uint32_t>(plain_.size()) - 1, in, out);
  }
  void end(const OnArena &tensor) {
    tensors_[tensor.id].ended = true;
    fusion_.end(tensor.id);
  }

  // How many commands are left. What no step ended has the bits that it has without fusion.
  size_t run(unsigned seed = 1) {
    std::map<uint32_t, FusedStep> fused = fusion_.run();
    std::vector<std::vector<Command>> made = plain_;
    for (auto &[step, each] : fused)
      made[step] = each.commands;
    const std::vector<std::string> want = outcome(plain_, seed), got = outcome(made, seed);
    for (size_t i = 0; i < want.size(); ++i) {
      INFO("tensor " << i);
      CHECK((want[i] == got[i]));
    }
    size_t count = 0;
    for (const std::vector<Command> &each : made)
      count += each.size();
    return count;
  }
  size_t commands() const {
    size_t count = 0;
    for (const std::vector<Command> &each : plain_)
      count += each.size();
    return count;
  }
  llvm::ArrayRef<OnArena> tensors() const { return tensors_; }

private:
  static DeviceTensor region(const OnArena &of) {
    return {of.id, {of.at.data, of.at.data + of.bytes()}};
  }
  static void add(std::vector<Command> &commands, const DeviceArray &out,
                  llvm::ArrayRef<int64_t> over, llvm::ArrayRef<OnArena> inputs,
                  llvm::function_ref<TracedNumber(Symbols)> of, SpmdCombiner combiner = kSpmdSum,
                  double divisor = 1) {
    std::optional<ScalarProgram> program = record([&] {
      llvm::SmallVector<TracedNumber, 6> symbols;
      for (unsigned i = 0; i < inputs.size(); ++i)
        symbols.push_back(TracedNumber::input(i));
      return of(symbols);
    });
    llvm::SmallVector<DeviceArray, 6> placed;
    for (const OnArena &each : inputs)
      placed.push_back(each.at);
    REQUIRE((program && add_stretched(*program, over, placed, out, combiner, divisor, commands)));
  }

  // Of each tensor that is there at the end.
  std::vector<std::string> outcome(llvm::ArrayRef<std::vector<Command>> steps, unsigned seed) {
    std::mt19937 random(seed);
    auto *bytes = reinterpret_cast<char *>(arena_.data());
    for (size_t i = 0; i < kArena + kScratch; ++i) // numbers of any bits, small ones more often
      bytes[i] = static_cast<char>(random() % 4 ? random() : random() % 2 ? 0x3f : 0xff);
    for (const std::vector<Command> &step : steps)
      for (const Command &command : step)
        std::visit([](const auto &each) { test::carry_out(each); }, command);
    std::vector<std::string> made;
    for (const OnArena &each : tensors_)
      made.emplace_back(reinterpret_cast<const char *>(each.at.data),
                        each.ended ? 0 : each.bytes());
    return made;
  }

  std::vector<uint64_t> arena_;
  std::deque<Dims> dims_;
  std::vector<OnArena> tensors_;
  std::vector<std::vector<Command>> plain_;
  uint64_t used_ = 0;
  Fusion fusion_{Bytes{scratch(), scratch() + kScratch}};
};

using OnArena = Steps::OnArena;

TracedNumber twice(Symbols s) { return s[0] * 2.0 + 1.0; }
TracedNumber sum(Symbols s) { return s[0] + s[1]; }
TracedNumber first(Symbols s) { return s[0]; }

} // namespace

TEST_CASE("fusion: a chain of functions of elements is one nest, rounded between as before") {
  for (DType dtype : {DType::F64, DType::F32, DType::BF16, DType::F16, DType::F8E4M3, DType::I32,
                      DType::I8, DType::U16, DType::Bool, DType::I64}) {
    Steps steps;
    OnArena x = steps.tensor(DType::F32, {6, 8}), y = steps.tensor(dtype, {6, 8}),
            z = steps.tensor(dtype, {6, 8}), out = steps.tensor(DType::F32, {6, 8});
    steps.formula(y, x, twice);
    steps.formula(z, {y, x}, [](Symbols s) { return exp(s[0]) * s[1]; });
    steps.end(y);
    steps.formula(out, {z, z}, [](Symbols s) { return s[0] * s[0] - s[1]; });
    steps.end(z);
    CHECK(steps.run() == 1);
  }
}

TEST_CASE("fusion: whole numbers that are no doubles change as they did") {
  for (DType dtype : {DType::I64, DType::U64, DType::Bool, DType::F32, DType::BF16}) {
    Steps steps;
    OnArena x = steps.tensor(dtype, {20, 8}), y = steps.tensor(dtype, {20, 8}),
            out = steps.tensor(DType::F64, {20, 8});
    steps.formula(y, x, first);
    steps.formula(out, y, first);
    steps.end(y);
    CHECK(steps.run() == 1);
  }
}

TEST_CASE("fusion: what is read later, by several, or by what is no command stays") {
  for (unsigned form = 0; form < 4; ++form) {
    Steps steps;
    OnArena x = steps.tensor(DType::F32, {6, 8}), y = steps.tensor(DType::F32, {6, 8}),
            z = steps.tensor(DType::F32, {6, 8}), w = steps.tensor(DType::F32, {6, 8});
    steps.formula(y, x, twice);
    if (form == 0)
      steps.other(y, w);
    steps.formula(z, y, twice);
    if (form == 1)
      steps.formula(w, {y, z}, sum);
    if (form == 2)
      steps.other(y, w);
    if (form != 3) // else it can be read when all is done
      steps.end(y);
    CHECK(steps.run() == steps.commands());
  }
}

TEST_CASE("fusion: what is read is not written on the way") {
  for (unsigned form = 0; form < 4; ++form) {
    Steps steps;
    OnArena x = steps.tensor(DType::F32, {6, 8}), y = steps.tensor(DType::F32, {6, 8}),
            z = steps.tensor(DType::F32, {6, 8}), a = steps.tensor(DType::F32, {6, 8});
    const uint64_t at_x = 0;
    steps.formula(y, x, twice);
    steps.end(x);
    if (form == 0)
      steps.formula(steps.tensor(DType::F32, {6, 8}, at_x), a, twice);
    if (form == 1)
      steps.other(a, steps.tensor(DType::F32, {2, 2}, at_x + 16));
    if (form == 2) // beside it
      steps.formula(steps.tensor(DType::F32, {6, 8}), a, twice);
    steps.formula(z, y, twice);
    steps.end(y);
    const bool joins = form >= 2;
    CHECK(steps.run() == steps.commands() - joins);
  }
}

TEST_CASE("fusion: a result may have the bytes of what it is made of, place by place") {
  for (unsigned form = 0; form < 5; ++form) {
    Steps steps;
    OnArena x = steps.tensor(DType::F32, {8, 8}), y = steps.tensor(DType::F32, {8, 8});
    const DType dtype = form == 1 ? DType::BF16 : DType::F32;
    OnArena out =
        form == 4 ? steps.tensor(dtype, {8, 1}, 0) : steps.tensor(dtype, {8, 8}, form == 3 ? 4 : 0);
    if (form == 2)
      steps.transpose(y, x);
    else
      steps.formula(y, x, twice);
    steps.end(x);
    steps.formula(out, *y.at.dims, y, twice);
    steps.end(y);
    // Of another width, at another place, shifted, combined: another place would be written over
    // first.
    CHECK(steps.run() == steps.commands() - (form == 0));
  }
}

TEST_CASE("fusion: a result in the place of an operand, and that of the next one") {
  Steps steps;
  OnArena x = steps.tensor(DType::F32, {8, 8}), y = steps.tensor(DType::F32, {8, 8}, 0),
          z = steps.tensor(DType::F32, {8, 8}, 0), out = steps.tensor(DType::F32, {8, 8});
  steps.formula(y, x, twice);
  steps.end(x);
  steps.formula(z, y, twice);
  steps.end(y);
  steps.formula(out, z, twice);
  steps.end(z);
  CHECK(steps.run() == 1);
}

TEST_CASE("fusion: loops are split where one tensor is stretched and another is flat") {
  Steps steps;
  OnArena x = steps.tensor(DType::F32, {4, 1, 6}), b = steps.tensor(DType::F32, {3, 1}),
          y = steps.tensor(DType::F32, {4, 3, 6}), flat = y, out = steps.tensor(DType::F32, {72});
  steps.formula(y, {x, b}, sum);
  Dims dims = {72};
  flat.at.dims = &dims;
  steps.formula(out, flat, twice);
  steps.end(y);
  CHECK(steps.run() == 1);
}

TEST_CASE("fusion: sums take their terms in; what would be made again and again stays") {
  Steps steps;
  OnArena x = steps.tensor(DType::F32, {4, 6}), y = steps.tensor(DType::BF16, {4, 6}),
          row = steps.tensor(DType::F32, {4, 1}), root = steps.tensor(DType::F32, {4, 1}),
          out = steps.tensor(DType::F32, {4, 6});
  steps.formula(y, x, [](Symbols s) { return exp(s[0]); });
  steps.formula(row, *y.at.dims, y, first, kSpmdMax);
  steps.end(y);
  steps.formula(root, row, [](Symbols s) { return sqrt(s[0] + 1.0); });
  steps.end(row);
  steps.formula(out, {x, root}, [](Symbols s) { return s[0] / s[1]; });
  steps.end(root);
  CHECK(steps.run() == 3); // the sum, its root, the quotient
}

TEST_CASE("fusion: copies go into what reads them, and results go where they are copied to") {
  Steps steps;
  OnArena x = steps.tensor(DType::BF16, {6, 8}), turned = steps.tensor(DType::BF16, {8, 6}),
          y = steps.tensor(DType::F32, {8, 6}), cut = steps.tensor(DType::F32, {8, 2}),
          sums = steps.tensor(DType::F32, {8, 1}), copy = steps.tensor(DType::F32, {8}),
          back = steps.tensor(DType::BF16, {6, 8}), out = steps.tensor(DType::BF16, {8, 6});
  steps.transpose(turned, x);
  steps.formula(y, turned, twice);
  steps.box(cut, y, {{8, 2}, {6, 1}, {2, 1}, 3, 0});
  steps.end(y);
  steps.formula(sums, {8, 2}, cut, first);
  steps.end(cut);
  steps.box(copy, sums, {{8}, {1}, {1}, 0, 0});
  steps.end(sums);
  steps.transpose(back, turned);
  steps.end(turned);
  steps.transpose(out, back);
  steps.end(back);
  // `turned` has two readers, that of `back` in its order: a copy of a row is no row.
  CHECK(steps.run() == 3);
}

TEST_CASE("fusion: what is added to is read as it is written") {
  for (unsigned form = 0; form < 3; ++form) {
    Steps steps;
    OnArena x = steps.tensor(DType::BF16, {6, 8}), out = steps.tensor(DType::BF16, {8, 6});
    steps.fill(out, 0);
    if (form == 0) // all of it
      steps.box(out, x, {{6, 8}, {8, 1}, {1, 6}, 0, 0}, true);
    if (form == 1) // not all
      steps.box(out, x, {{6, 4}, {8, 1}, {1, 6}, 0, 0}, true);
    if (form == 2) // what is summed first may be -0
      steps.box(out, x, {{6, 8}, {8, 1}, {1, 0}, 0, 0}, true);
    CHECK(steps.run() == (form == 0 ? 1 : 2));
  }
}

TEST_CASE("fusion: what is looked up stays, and what looks up is taken along") {
  Steps steps;
  OnArena table = steps.tensor(DType::F32, {5, 4}), positions = steps.tensor(DType::I32, {3}),
          made = steps.tensor(DType::F32, {5, 4}), found = steps.tensor(DType::F32, {3, 4}),
          out = steps.tensor(DType::F32, {3, 4});
  steps.formula(made, table, twice);
  LoopNestDraft nest;
  nest.extents = {3, 4};
  nest.inputs.push_back({made.at, {0, 1}, 0, 1, 4, 5, 0});
  nest.inputs.push_back({positions.at, {1, 0}});
  nest.out = found.at;
  nest.out_strides = {4, 1};
  nest.program = product_program(1);
  std::vector<Command> commands;
  REQUIRE(nest.build(commands));
  steps.step(commands, {made, positions}, found);
  steps.end(made);
  steps.formula(out, found, twice);
  steps.end(found);
  CHECK(steps.run() == 2);
}

TEST_CASE("fusion: what several commands wrote is read of memory") {
  Steps steps;
  OnArena x = steps.tensor(DType::F32, {4, 8}), y = steps.tensor(DType::F32, {6, 8}),
          out = steps.tensor(DType::F32, {4, 8}), part = steps.tensor(DType::F32, {2, 8});
  steps.fill(y, 1);
  steps.box(y, x, {{32}, {1}, {1}, 0, 0});
  steps.box(out, y, {{4, 8}, {8, 1}, {8, 1}, 16, 0}); // of it two rows, and two of the fill
  steps.box(part, y, {{2, 8}, {8, 1}, {8, 1}, 8, 0});
  steps.end(y);
  CHECK(steps.run() == steps.commands());
}

TEST_CASE("fusion: a nest takes no more arrays and steps than it has room for") {
  Steps steps;
  std::vector<OnArena> x;
  for (unsigned i = 0; i < 12; ++i)
    x.push_back(steps.tensor(DType::F32, {6, 8}));
  OnArena last = x[0];
  for (unsigned i = 1; i < x.size(); ++i) {
    OnArena next = steps.tensor(DType::F32, {6, 8});
    steps.formula(next, {last, x[i]}, sum);
    if (i > 1)
      steps.end(last);
    last = next;
  }
  CHECK(steps.run() == 3); // 6 arrays, then 5 more each
  Steps more;
  OnArena from = more.tensor(DType::F32, {4});
  for (unsigned i = 0; i < 100; ++i) {
    OnArena next = more.tensor(DType::F32, {4});
    more.formula(next, from, [&](Symbols s) { return sin(s[0] + double(i)); });
    if (i > 0)
      more.end(from);
    from = next;
  }
  const size_t left = more.run();
  CHECK(left > 1);
  CHECK(left < 10);
}

namespace {

// Tensors come and go in an arena that is full most of the time.
class RandomSteps {
public:
  explicit RandomSteps(unsigned seed) : random_(seed) {
    for (unsigned i = 0; i < 3; ++i)
      live_.push_back(*make(element(), {4, 6}));
  }
  size_t run() {
    for (unsigned i = 0; i < 14; ++i)
      add();
    const size_t before = steps_.commands(), after = steps_.run(static_cast<unsigned>(random_()));
    return before - after;
  }

private:
  unsigned any(size_t below) { return static_cast<unsigned>(random_() % below); }
  DType element() {
    constexpr DType kAll[] = {DType::F64, DType::F32, DType::F32,    DType::BF16,
                              DType::F16, DType::I32, DType::F8E5M2, DType::I8};
    return kAll[any(std::size(kAll))];
  }
  // Where no other one is.
  std::optional<OnArena> make(DType dtype, const Dims &dims) {
    const uint64_t bytes = static_cast<uint64_t>(count(dims)) * ir::info(dtype).bytes;
    for (unsigned tries = 0; tries < 20; ++tries) {
      const uint64_t offset = uint64_t(any(16)) * 64;
      const Bytes own{steps_.arena() + offset, steps_.arena() + offset + bytes};
      if (llvm::none_of(live_, [&](const OnArena &each) {
            return own.meets({each.at.data, each.at.data + each.bytes()});
          }))
        return steps_.tensor(dtype, dims, offset);
    }
    return std::nullopt;
  }
  // In the bytes of `from`, which ends.
  void replace(size_t place, llvm::function_ref<void(const OnArena &)> step) {
    const OnArena from = live_[place];
    OnArena made = steps_.tensor(from.at.dtype, *from.at.dims, from.at.data - steps_.arena());
    step(made);
    steps_.end(from);
    live_[place] = made;
  }
  void add() {
    const size_t place = any(live_.size());
    const OnArena from = live_[place], beside = live_[any(live_.size())];
    const Dims dims = *from.at.dims, turned = {dims[1], dims[0]};
    auto program = [number = double(any(5)) - 2](Symbols s) {
      return s.size() > 1 ? s[0] * s[1] + number : s[0] * number - 0.25;
    };
    auto fresh = [&](const Dims &of, llvm::function_ref<void(const OnArena &)> step,
                     std::optional<DType> dtype = std::nullopt) {
      std::optional<OnArena> made = make(dtype.value_or(element()), of);
      if (!made)
        return;
      step(*made);
      live_.push_back(*made);
    };
    const bool same_dims = *beside.at.dims == dims && beside.id != from.id;
    switch (any(9)) {
    case 0:
    case 1:
      fresh(dims, [&](const OnArena &to) { steps_.formula(to, from, program); });
      break;
    case 2:
      if (same_dims)
        fresh(dims, [&](const OnArena &to) { steps_.formula(to, {from, beside}, program); });
      break;
    case 3:
      replace(place, [&](const OnArena &to) {
        same_dims ? steps_.formula(to, {beside, from}, program) : steps_.formula(to, from, program);
      });
      break;
    case 4:
      fresh(
          turned, [&](const OnArena &to) { steps_.transpose(to, from); }, from.at.dtype);
      break;
    case 5:
      if (dims[1] > 2)
        fresh(
            {dims[0], 2},
            [&](const OnArena &to) {
              steps_.box(to, from, {{dims[0], 2}, {dims[1], 1}, {2, 1}, 1, 0});
            },
            from.at.dtype);
      break;
    case 6:
      fresh({dims[0], 1}, [&](const OnArena &to) {
        steps_.formula(to, dims, from, first, any(2) ? kSpmdSum : kSpmdMax, 3);
      });
      break;
    case 7:
      fresh(dims, [&](const OnArena &to) { steps_.centre(to, from); });
      break;
    case 8:
      fresh(turned, [&](const OnArena &to) {
        std::vector<Command> commands;
        add_fill(to.at, 0, commands);
        REQUIRE(add_box(from.at, to.at, {dims, {dims[1], 1}, {1, dims[0]}, 0, 0}, true, commands));
        steps_.step(commands, from, to);
      });
      break;
    }
    if (any(8) == 0)
      steps_.other(live_[any(live_.size())], {});
    while (live_.size() > 2 && any(3) != 0) {
      const size_t dies = any(live_.size());
      steps_.end(live_[dies]);
      live_.erase(live_.begin() + static_cast<ptrdiff_t>(dies));
    }
  }

  std::mt19937 random_;
  Steps steps_;
  std::vector<OnArena> live_;
};

} // namespace

TEST_CASE("fusion: random steps keep their bits") {
  size_t gone = 0;
  for (unsigned seed = 0; seed < 3000; ++seed) {
    INFO("seed " << seed);
    gone += RandomSteps(seed).run();
  }
  CHECK(gone > 3000);
}
